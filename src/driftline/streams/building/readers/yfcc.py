"""The YFCC100M table as tab-separated text (23 columns, or 25 with a line number and a hash in front), SQLite or Parquet.

Files flow in; frames of canonical columns flow out, text URL-decoded, videos and broken lines marked. The two widths are told
apart line by line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import polars as pl

from driftline.streams.building.fields import url_decoded
from driftline.streams.building.metadata import Part
from driftline.streams.building.readers import parquet, sqlite
from driftline.streams.building.readers.columns import ColumnChoice, existing, image_columns, missing_column
from driftline.streams.building.readers.files import TableFile, estimate_lines, line_blocks
from driftline.types import DriftlineError

COLUMNS = [
    "photoid",
    "uid",
    "unickname",
    "datetaken",
    "dateuploaded",
    "capturedevice",
    "title",
    "description",
    "usertags",
    "machinetags",
    "longitude",
    "latitude",
    "accuracy",
    "pageurl",
    "downloadurl",
    "licensename",
    "licenseurl",
    "serverid",
    "farmid",
    "secret",
    "secretoriginal",
    "ext",
    "marker",
]
"""The columns of YFCC100M, in order."""
NUM_IN_FRONT = 2
"""The wide form has a line number and a hash before them."""
ENCODED = ("id", "user", "time", "label")
"""Canonical columns whose text is URL-encoded. An address keeps its encoding: it is part of the address."""
MEANING = {
    "id": "photoid",
    "user": "uid",
    "time": "datetaken",
    "lat": "latitude",
    "lon": "longitude",
    "image": "downloadurl",
}


def is_row(line: str) -> bool:
    """Whether a line has the columns of YFCC100M.

    >>> is_row("\\t".join("0" * 23)), is_row("photoid,uid")
    (True, False)
    """
    fields = line.split("\t")
    return len(fields) in (len(COLUMNS), len(COLUMNS) + NUM_IN_FRONT) and fields[-1] in ("0", "1")


def open_part(file: TableFile, choice: ColumnChoice, sql_table: str | None) -> tuple[Part, dict[str, str]]:
    """The file as a part of a table, and its column for each canonical one."""
    columns = _columns(choice, str(file.path))
    if file.kind == "text":
        if not is_row(file.first_line()) and not _has_any_row(file):
            raise DriftlineError(
                f"{file.path}: no line has the 23 or 25 tab-separated columns of YFCC100M; a table with a header line is "
                "read with --format table"
            )
        frames, guess = partial(_text_frames, file, columns), partial(estimate_lines, file.path)
        return Part(
            file.path.name, file.identity, frames, None, file.size_bytes, tuple(COLUMNS), guess
        ), columns
    wanted = columns | {"marker": "marker"}
    if file.kind == "parquet":
        names, part = parquet.column_names(file.path), parquet.part_of(file, wanted)
    else:
        names, part = sqlite.column_names(file.path, sql_table), sqlite.part_of(file, wanted, sql_table)
    for name in wanted.values():
        if name not in names:
            raise missing_column(str(file.path), f"no column {name!r}, which YFCC100M has", names)
    flagged = replace(part, frames=lambda: map(_flagged, part.frames()))
    return flagged, columns


def _columns(choice: ColumnChoice, source: str) -> dict[str, str]:
    """YFCC100M has no labels of its own, but any of its columns may be named as one."""
    named = {name: getattr(choice, name) or usual for name, usual in MEANING.items() if name != "image"}
    columns = named | image_columns(choice.image or MEANING["image"])
    if choice.label:
        columns["label"] = choice.label
    for canonical, name in columns.items():
        existing(name, canonical.partition("#")[0], COLUMNS, source)
    return columns


def _has_any_row(file: TableFile) -> bool:
    """Whether one of the first lines is a row; the very first may well be broken, or a header."""
    for block in line_blocks(file.path, block_bytes=1 << 20):
        return any(is_row(line.rstrip("\r")) for line in block.split("\n"))
    return False


def _text_frames(file: TableFile, columns: dict[str, str]) -> Iterator[pl.DataFrame]:
    for block in line_blocks(file.path):
        yield _flagged(_cut_lines(block, columns | {"marker": "marker"}))


def _cut_lines(block: str, columns: dict[str, str]) -> pl.DataFrame:
    """Fields of the lines of a block; all null in a line of another width. Empty lines are no rows."""
    lines = pl.Series("line", [block]).str.split("\n").explode().str.strip_chars_end("\r")
    lines = lines.filter(lines != "")
    num_tabs = pl.col("line").str.count_matches("\t", literal=True)
    frame = pl.DataFrame(lines).with_columns(
        num_tabs.alias("tabs"), pl.col("line").str.split("\t").alias("fields")
    )
    narrow, wide = len(COLUMNS) - 1, len(COLUMNS) - 1 + NUM_IN_FRONT

    def field(name: str) -> pl.Expr:
        place = COLUMNS.index(name)
        first = pl.when(pl.col("tabs") == narrow).then(pl.lit(place))
        index = first.when(pl.col("tabs") == wide).then(pl.lit(place + NUM_IN_FRONT))
        return pl.col("fields").list.get(index, null_on_oob=True)

    return frame.select(field(name).alias(canonical) for canonical, name in columns.items())


def _flagged(frame: pl.DataFrame) -> pl.DataFrame:
    """Marker 0 is a photo, 1 a video; a row with neither is no row of this table."""
    marker = frame["marker"].cast(pl.String).str.strip_chars()
    decoded = [url_decoded(frame[name]) for name in ENCODED if name in frame.columns]
    return frame.drop("marker").with_columns(
        *decoded,
        (marker == "1").fill_null(False).alias("video"),
        (~marker.is_in(["0", "1"])).fill_null(True).alias("broken"),
    )
