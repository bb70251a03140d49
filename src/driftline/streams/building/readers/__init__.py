"""Readers of metadata: files in the forms that users have flow in, frames of canonical columns flow out.

`open_table` looks at what the files are (Parquet, SQLite, compressed or plain text; YFCC100M or named columns) and returns a
`Table` that can be read part by part. The authors' CLOC release is a stream already and has its own way in (`cloc`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import polars as pl

from driftline.streams.building.metadata import Part, Table
from driftline.streams.building.readers import csv_text, parquet, sqlite, yfcc
from driftline.streams.building.readers.columns import ColumnChoice, fill_pattern
from driftline.streams.building.readers.files import TableFile, find_files
from driftline.types import DriftlineError

__all__ = ["ColumnChoice", "open_table"]


def open_table(
    patterns: tuple[str, ...],
    choice: ColumnChoice,
    *,
    format: str = "auto",
    delimiter: str | None = None,
    sql_table: str | None = None,
) -> Table:
    """The table in some files; `format` is yfcc, table, or auto, which takes what the first file looks like."""
    files = find_files(patterns)
    if format == "auto":
        format = "yfcc" if _is_yfcc(files[0], sql_table) else "table"
    parts: list[Part] = []
    columns: dict[str, str] = {}
    for file in files:
        part, columns = _open(file, choice, format, delimiter, sql_table)
        parts.append(part)
    pattern = choice.image
    if pattern is not None and "{" in pattern:
        parts = [replace(part, frames=partial(_filled, part, pattern)) for part in parts]
        columns = {k: v for k, v in columns.items() if not k.startswith("image")} | {"image": pattern}
    return Table(parts, columns, format)


def _filled(part: Part, pattern: str) -> Iterator[pl.DataFrame]:
    for frame in part.frames():
        yield fill_pattern(frame, pattern)


def _is_yfcc(file: TableFile, sql_table: str | None) -> bool:
    if file.kind == "text":
        return yfcc.is_row(file.first_line())
    names = (
        sqlite.column_names(file.path, sql_table)
        if file.kind == "sqlite"
        else parquet.column_names(file.path)
    )
    return {"photoid", "uid", "datetaken", "marker"} <= set(names)


def _open(
    file: TableFile, choice: ColumnChoice, format: str, delimiter: str | None, sql_table: str | None
) -> tuple[Part, dict[str, str]]:
    if format == "yfcc":
        return yfcc.open_part(file, choice, sql_table)
    if format != "table":
        raise DriftlineError(f"format = {format!r}: choose auto, yfcc, cloc or table")
    if file.kind == "parquet":
        return parquet.open_part(file, choice)
    if file.kind == "sqlite":
        return sqlite.open_part(file, choice, sql_table)
    return csv_text.open_part(file, choice, delimiter)
