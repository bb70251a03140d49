"""Tables in SQLite files: a file in, frames of canonical columns out, every value as text.

The file is opened for reading only. Text that is not UTF-8 is replaced where it is not (U+FFFD), never refused as a whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import polars as pl

from driftline.streams.building.metadata import Part
from driftline.streams.building.readers.columns import ColumnChoice, choose, missing_column
from driftline.streams.building.readers.files import TableFile
from driftline.types import DriftlineError

FRAME_ROWS = 1 << 17
USUAL_TABLE = "yfcc100m_dataset"


def column_names(path: Path, sql_table: str | None) -> list[str]:
    """Names of the columns of the table that is read."""
    with _opened(path) as connection:
        table = _table_name(connection, path, sql_table)
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return [str(name) for (name,) in rows]


def open_part(file: TableFile, choice: ColumnChoice, sql_table: str | None) -> tuple[Part, dict[str, str]]:
    """The file as a part of a table, and its column for each canonical one."""
    columns = choose(column_names(file.path, sql_table), choice, str(file.path))
    return part_of(file, columns, sql_table), columns


def part_of(file: TableFile, columns: dict[str, str], sql_table: str | None) -> Part:
    """The file as a part of a table, with the columns given as canonical name -> column."""

    def frames() -> Iterator[pl.DataFrame]:
        for frame in raw_frames(file.path, sorted(set(columns.values())), sql_table):
            yield frame.select(pl.col(name).alias(canonical) for canonical, name in columns.items())

    names = tuple(column_names(file.path, sql_table))
    return Part(
        file.path.name, file.identity, frames, _num_rows(file.path, sql_table), file.size_bytes, names
    )


def raw_frames(path: Path, columns: list[str], sql_table: str | None) -> Iterator[pl.DataFrame]:
    """Some columns of all rows, under their own names, as text."""
    schema = dict.fromkeys(columns, pl.String)
    with _opened(path) as connection:
        table = _table_name(connection, path, sql_table)
        texts = ", ".join(f"CAST({_quoted(name)} AS TEXT)" for name in columns)
        cursor = connection.execute(f"SELECT {texts} FROM {_quoted(table)}")
        while rows := cursor.fetchmany(FRAME_ROWS):
            yield pl.DataFrame(rows, schema=schema, orient="row")


def _num_rows(path: Path, sql_table: str | None) -> int:
    with _opened(path) as connection:
        table = _table_name(connection, path, sql_table)
        (num,) = connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()
        return int(num)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The file opened for reading only; damage that shows later is explained, too."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            yield connection
    except sqlite3.DatabaseError as error:
        raise DriftlineError(f"{path} cannot be read to its end ({error}); restore it from a copy") from None


def _table_name(connection: sqlite3.Connection, path: Path, wanted: str | None) -> str:
    try:
        rows = connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        )
        names = [str(name) for (name,) in rows if not str(name).startswith("sqlite_")]
    except sqlite3.DatabaseError as error:
        raise DriftlineError(f"{path} is no readable SQLite file ({error})") from None
    if wanted is not None and wanted not in names:
        raise missing_column(str(path), f"no table {wanted!r} (--sql-table)", names)
    chosen = wanted or (names[0] if len(names) == 1 else USUAL_TABLE)
    if chosen not in names:
        raise DriftlineError(
            f"{path} holds {len(names)} tables ({', '.join(names)}); name one with --sql-table"
        )
    return chosen


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
