"""Parquet tables: files in, frames of canonical columns out, as many rows at a time as fit comfortably in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.streams.building.metadata import Part
from driftline.streams.building.readers.columns import ColumnChoice, choose
from driftline.streams.building.readers.files import TableFile
from driftline.types import DriftlineError

FRAME_ROWS = 1 << 20


def column_names(path: Path) -> list[str]:
    """Names of the columns of a Parquet file."""
    return list(_open(path).schema_arrow.names)


def open_part(file: TableFile, choice: ColumnChoice) -> tuple[Part, dict[str, str]]:
    """The file as a part of a table, and its column for each canonical one."""
    schema = _open(file.path).schema_arrow
    odd = {
        f.name
        for f in schema
        if pa.types.is_nested(f.type) or pa.types.is_large_binary(f.type) or pa.types.is_binary(f.type)
    }
    columns = choose(schema.names, choice, str(file.path), never_guess=odd)
    return part_of(file, columns), columns


def part_of(file: TableFile, columns: dict[str, str]) -> Part:
    """The file as a part of a table, with the columns given as canonical name -> column."""

    def frames() -> Iterator[pl.DataFrame]:
        for frame in raw_frames(file.path, sorted(set(columns.values()))):
            yield frame.select(pl.col(name).alias(canonical) for canonical, name in columns.items())

    opened = _open(file.path)
    num_rows, names = int(opened.metadata.num_rows), tuple(opened.schema_arrow.names)
    return Part(file.path.name, file.identity, frames, num_rows, file.size_bytes, names)


def raw_frames(path: Path, columns: list[str]) -> Iterator[pl.DataFrame]:
    """Some columns of all rows, under their own names."""
    num_rows = int(_open(path).metadata.num_rows)
    # Polars reads its own kinds of columns in less than half of pyarrow's time.
    rows = pl.scan_parquet(path, glob=False, hive_partitioning=False).select(columns)
    try:
        for start in range(0, num_rows, FRAME_ROWS):
            yield rows.slice(start, FRAME_ROWS).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DriftlineError(
            f"{path} cannot be read to its end ({_first_line(error)}); restore it from a copy"
        ) from None


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DriftlineError(f"{path} is no readable Parquet file ({_first_line(error)})") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
