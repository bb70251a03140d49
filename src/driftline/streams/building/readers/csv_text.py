"""Text tables with a header line: comma, tab, semicolon or bar between the columns, quotes where needed.

A file flows in; frames of canonical columns, all text, flow out. A line with too few or too many columns becomes a row
that is marked `broken`, so that it is counted with the others.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv

from driftline.streams.building.metadata import Part
from driftline.streams.building.readers.columns import ColumnChoice, choose
from driftline.streams.building.readers.files import BLOCK_BYTES, TableFile, Utf8Stream, estimate_lines
from driftline.types import DriftlineError

NO_ROWS = ("Empty CSV file", "Could not skip initial 1 rows")
"""How pyarrow says that nothing follows the header."""
DELIMITERS = ("\t", ",", ";", "|")


def open_part(file: TableFile, choice: ColumnChoice, delimiter: str | None) -> tuple[Part, dict[str, str]]:
    """The file as a part of a table, and its column for each canonical one."""
    header = file.first_line()
    separator = delimiter or sniff_delimiter(header)
    names = split_header(header, separator)
    if len(names) < 2:
        raise DriftlineError(
            f"{file.path}: the header line {header[:80]!r} holds one column; columns are separated by tab, comma, ; or |, "
            "or by what --delimiter says"
        )
    columns = choose(names, choice, str(file.path))

    def frames() -> Iterator[pl.DataFrame]:
        yield from _read(file, separator, names, columns)

    guess = partial(estimate_lines, file.path)
    return Part(file.path.name, file.identity, frames, None, file.size_bytes, tuple(names), guess), columns


def sniff_delimiter(header: str) -> str:
    """The delimiter that cuts the header into the most columns; between equals the first of tab, comma, semicolon, bar.

    >>> sniff_delimiter("id;taken, local;label")
    ';'
    """
    return max(DELIMITERS, key=lambda delimiter: len(split_header(header, delimiter)))


def split_header(header: str, delimiter: str) -> list[str]:
    """Column names of a header line.

    >>> split_header('id,"name, full"', ",")
    ['id', 'name, full']
    """
    try:
        return next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error as error:
        raise DriftlineError(f"the first line is no header of a table ({error}): {header[:60]!r}") from None


class LineCounter(Utf8Stream):
    """The content of a text file, with the number of its lines that are not empty."""

    num_lines = 0
    _line_has_text = False

    def _next(self) -> str:
        text = super()._next()
        data = np.frombuffer(text.encode(), np.uint8)
        ends = np.flatnonzero(data == ord("\n"))
        texts_before = (
            np.cumsum((data != ord("\n")) & (data != ord("\r")))[ends] if len(ends) else np.empty(0)
        )
        has_text = np.diff(texts_before, prepend=0) > 0
        if len(ends):
            has_text[0] |= self._line_has_text
            self.num_lines += int(has_text.sum())
            data, self._line_has_text = data[ends[-1] + 1 :], False
        self._line_has_text |= bool(((data != ord("\n")) & (data != ord("\r"))).any())
        if self._ended and self._line_has_text:
            self.num_lines += 1
        return text


def _read(
    file: TableFile, delimiter: str, names: list[str], columns: dict[str, str]
) -> Iterator[pl.DataFrame]:
    broken: list[int] = []

    def note(row: pa_csv.InvalidRow) -> str:
        broken.append(row.actual_columns)
        return "skip"

    # Columns go by number, because two columns that nobody asked for may share a name.
    numbers = [f"c{k}" for k in range(len(names))]
    wanted = {canonical: numbers[names.index(name)] for canonical, name in columns.items()}
    num_rows = 1
    with LineCounter(file.path) as stream:
        try:
            for batch in _open_csv(stream, delimiter, numbers, wanted, note):
                num_rows += batch.num_rows + len(broken)
                yield _canonical(pl.DataFrame(batch), wanted, len(broken))
                broken.clear()
        except pa.ArrowInvalid as error:
            if not str(error).startswith(NO_ROWS):
                raise DriftlineError(
                    f"{file.path}: cannot be cut into rows ({str(error).splitlines()[0]}); look for a quote that is never closed"
                ) from None
        inside_quotes = stream.num_lines - num_rows - len(broken)
    nothing = pl.DataFrame(schema=dict.fromkeys(numbers, pl.String))
    yield _canonical(nothing, wanted, len(broken), num_inside=max(inside_quotes, 0))


def _open_csv(
    stream: Utf8Stream,
    delimiter: str,
    numbers: list[str],
    wanted: dict[str, str],
    note: Callable[[pa_csv.InvalidRow], str],
) -> pa_csv.CSVStreamingReader:
    return pa_csv.open_csv(
        pa.PythonFile(stream, mode="r"),
        pa_csv.ReadOptions(block_size=BLOCK_BYTES, column_names=numbers, skip_rows=1),
        pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note),
        pa_csv.ConvertOptions(
            include_columns=sorted(set(wanted.values())),
            column_types=dict.fromkeys(numbers, pa.string()),
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )


def _canonical(
    frame: pl.DataFrame, wanted: dict[str, str], num_broken: int, num_inside: int = 0
) -> pl.DataFrame:
    """Rows, then one row for each broken line and for each line inside quotes, so that every line is counted."""
    rows = frame.select(pl.col(number).alias(canonical) for canonical, number in wanted.items())
    flags = {
        "broken": [True] * num_broken + [False] * num_inside,
        "quoted": [False] * num_broken + [True] * num_inside,
    }
    others = pl.DataFrame(flags, schema=dict.fromkeys(flags, pl.Boolean))
    return pl.concat([rows, others], how="diagonal")
