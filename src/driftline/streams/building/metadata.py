"""What a row of metadata must be to enter a stream, whoever read it: canonical columns, and the reasons to refuse a row.

Frames of canonical columns as they were read flow in; typed frames of the good rows flow out, and a count for each reason.
Every row read is either kept or counted under exactly one reason, the first of `REASONS` that applies.

Canonical columns (all but the first two may be absent): `id` text; `time` unix seconds, date or text; `user` text or
number; `lat`, `lon` degrees; `label` text or number; `image` path, address or key; `video`, `broken`, `quoted` true or false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import polars as pl

from driftline.streams.building.fields import HASHED_USER, MISSING, degrees, plain, seconds, users

CANONICAL = ("id", "user", "time", "lat", "lon", "label", "image")

REASONS: dict[str, str] = {
    "broken_line": "not a row of this table (wrong number of columns)",
    "quoted_line": "a line inside the quoted text of the row before it",
    "not_utf8": "text that is not UTF-8 in a column that is needed",
    "video": "a video, not a photo",
    "no_id": "no id",
    "no_user": "no user",
    "no_date": "no date",
    "bad_date": "a date that does not exist",
    "outside_years": "taken outside the years asked for",
    "no_place": "no latitude or no longitude",
    "swapped_place": "latitude and longitude swapped",
    "bad_place": "coordinates that are no place on Earth",
    "zero_place": "at exactly (0, 0): a camera without a fix",
    "no_label": "no label",
    "no_image": "no image named",
    "unsafe_path": "an image path that leaves the image root (..)",
    "duplicate": "an id that was there before",
    "no_class": "in no class that was kept",
}
"""Why a row is refused, in the order of the checks; the last two are found when all rows have been read."""

CHUNK_ROWS = 1 << 20
"""Rows of one piece of a table in given order; time-ordered tables are cut by calendar month instead."""
PART_BITS = 40
"""Row numbers of a part are smaller than 2**40; the part's number stands above them."""
REPLACED = "\ufffd"
"""What readers put in the place of bytes that are not UTF-8."""


@dataclass(frozen=True)
class Part:
    """One file of a table, or another piece of it that is read on its own."""

    name: str
    """For messages, and for the record of how a stream was built."""
    identity: str
    """Changes when the rows may have changed."""
    frames: Callable[[], Iterator[pl.DataFrame]]
    """Reads the rows, from the first, as frames of canonical columns."""
    num_rows: int | None = None
    """Where the file says it without being read."""
    size_bytes: int = 0
    column_names: tuple[str, ...] = ()
    """All columns the part has, for messages."""
    estimate_rows: Callable[[], int] = lambda: 0
    """About how many rows there are, where `num_rows` is not known; quick, and rough."""


@dataclass(frozen=True)
class Table:
    """A table to be built: its parts, and which of its columns stand for the canonical ones."""

    parts: list[Part]
    columns: dict[str, str]
    format: str

    @property
    def name(self) -> str:
        """Name of the first part, without its endings."""
        return self.parts[0].name.split(".")[0]

    def has(self, canonical: str) -> bool:
        """Whether the table has a column for this."""
        return canonical in self.columns


@dataclass(frozen=True)
class Rules:
    """Which rows are good: what a row needs, and which columns the table lacks altogether."""

    years: tuple[int, int] | None = None
    needs_place: bool = False
    needs_label: bool = False
    needs_image: bool = False
    has_image: bool = False
    has_time: bool = True
    has_user: bool = True
    has_id: bool = True
    given_order: bool = False


@dataclass
class Cleaned:
    """Good rows of a frame, and what became of the others."""

    rows: pl.DataFrame
    num_read: int
    refused: Counter[str] = field(default_factory=Counter)
    places_ignored: int = 0
    """Bad coordinates of rows that are kept all the same, because their class is a label."""


def clean(raw: pl.DataFrame, rules: Rules, *, part: int = 0, first_row: int = 0) -> Cleaned:
    """The good rows of a frame with typed columns, and the number refused for each reason.

    >>> raw = pl.DataFrame({"id": ["1", "2"], "user": ["7@N00", "8@N00"], "time": ["2010-01-01 00:00:00", "0000-00-00"],
    ...                     "lat": [48.8, 48.8], "lon": [2.3, 2.3]})
    >>> cleaned = clean(raw, Rules(needs_place=True))
    >>> cleaned.rows["user"].to_list(), dict(cleaned.refused)
    ([700], {'bad_date': 1})
    """
    frame = _typed(_numbered(_complete(raw), rules, part, first_row))
    code = frame.select(_first_reason(rules)).to_series()
    rows = frame.filter(code.is_null())
    names = list(REASONS)
    refused = Counter({names[k]: n for k, n in code.drop_nulls().value_counts().iter_rows()})
    ignored = 0
    if not rules.needs_place:
        usable = rows.select(_is_place() & ~_is_zero()).to_series()
        ignored = int((rows["lat"].is_not_null() & ~usable.fill_null(False)).sum())
        rows = rows.with_columns(pl.when(usable).then(pl.col(name)).alias(name) for name in ("lat", "lon"))
    return Cleaned(rows.select(*CANONICAL, "row", _cut(rules)), raw.height, refused, ignored)


def _complete(raw: pl.DataFrame) -> pl.DataFrame:
    """The frame with all canonical columns and all flags, text stripped, empty text turned into null.

    Not the text of times and users, of which most can be read at once: `fields` strips the rest.
    """
    frame = raw.with_columns(plain(raw[name]) for name in CANONICAL if name in raw.columns)
    texts = [name for name in _texts(frame) if name not in ("time", "user")]
    absent = [pl.lit(None, dtype=pl.String).alias(name) for name in CANONICAL if name not in raw.columns]
    flags = [
        (pl.col(name) if name in raw.columns else pl.lit(False)).fill_null(False).alias(name)
        for name in ("video", "broken", "quoted")
    ]
    frame = frame.with_columns(pl.col(texts).str.strip_chars(), *flags, *absent)
    return frame.with_columns(
        pl.when((pl.col(name).str.len_bytes() > 0) & (pl.col(name) != "\\N")).then(pl.col(name)).alias(name)
        for name in texts
    )


def _numbered(frame: pl.DataFrame, rules: Rules, part: int, first_row: int) -> pl.DataFrame:
    """A number that orders all rows of all parts; it stands in for an id, a user or a time that the table lacks."""
    start = (part << PART_BITS) + first_row
    frame = frame.with_columns(pl.int_range(start, start + frame.height, dtype=pl.Int64).alias("row"))
    stand_ins = []
    if not rules.has_id:
        stand_ins.append(pl.format("row-{}", pl.col("row").cast(pl.String).str.zfill(14)).alias("id"))
    if not rules.has_user:
        stand_ins.append(pl.col("row").alias("user"))
    if not rules.has_time:
        # Only to have a value: `OrderedRows` puts the row's place in the final order here.
        stand_ins.append((pl.col("row") - (part << PART_BITS)).alias("time"))
    return frame.with_columns(stand_ins)


def _texts(frame: pl.DataFrame) -> list[str]:
    """The canonical columns that are there as text."""
    return [name for name in CANONICAL if name in frame.columns and frame[name].dtype == pl.String]


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Canonical columns in their types. Helpers: whether a date was given at all, whether a needed text is damaged."""
    time_s, user = seconds(frame["time"]), users(frame["user"])
    # A time that could be read, or the number of a user, was written in full: only other texts are looked at again.
    undated = _where(frame["time"], time_s.is_null(), lambda texts: texts.str.strip_chars().is_in(MISSING))
    odd = {"time": time_s.is_null(), "user": (user >= HASHED_USER).fill_null(True)}
    damaged = [_where(frame[name], chosen, _is_damaged) for name, chosen in odd.items()]
    damaged += [_is_damaged(frame[name]) for name in _texts(frame) if name not in odd]
    return frame.with_columns(
        pl.any_horizontal(damaged).alias("damaged"),
        (time_s.is_not_null() | (frame["time"].is_not_null() & ~undated)).alias("dated"),
        time_s.alias("time"),
        user.alias("user"),
        degrees(frame["lat"]).alias("lat"),
        degrees(frame["lon"]).alias("lon"),
        *(pl.col(name).cast(pl.String) for name in ("id", "label", "image")),
    )


def _is_damaged(texts: pl.Series) -> pl.Series:
    return texts.str.contains(REPLACED, literal=True).fill_null(False)


def _where(texts: pl.Series, chosen: pl.Series, test: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """The test on the texts that were chosen; false for the others, and for what is no text."""
    answer = np.zeros(len(texts), dtype=bool)
    if texts.dtype == pl.String:
        rows = chosen.arg_true()
        answer[rows] = test(texts.gather(rows)).fill_null(False)
    return pl.Series(answer)


def _first_reason(rules: Rules) -> pl.Expr:
    """Number, in REASONS, of the first reason against a row; null for a good one."""
    place = rules.needs_place
    checks: dict[str, pl.Expr] = {
        "broken_line": pl.col("broken"),
        "quoted_line": pl.col("quoted"),
        "not_utf8": pl.col("damaged"),
        "video": pl.col("video"),
        "no_id": pl.col("id").is_null(),
        "no_user": pl.col("user").is_null(),
        "no_date": ~pl.col("dated"),
        "bad_date": pl.col("time").is_null(),
        "outside_years": ~pl.col("time").is_between(*year_range_s(*rules.years))
        if rules.years
        else pl.lit(False),
        "no_place": (pl.col("lat").is_null() | pl.col("lon").is_null()) & place,
        "swapped_place": _is_swapped() & place,
        "bad_place": ~_is_place() & place,
        "zero_place": _is_zero() & place,
        "no_label": pl.col("label").is_null() & rules.needs_label,
        "no_image": pl.col("image").is_null() & rules.needs_image,
        "unsafe_path": pl.col("image").str.contains(r"(^|[/\\\\])\.\.([/\\\\]|$)").fill_null(False),
    }
    numbers = {name: k for k, name in enumerate(REASONS)}
    return pl.coalesce(
        pl.when(check).then(pl.lit(numbers[name], dtype=pl.UInt8)) for name, check in checks.items()
    ).alias("reason")


def _is_place() -> pl.Expr:
    # NaN, which stands for a text that is no number, compares as greater than anything here.
    return (pl.col("lat").abs() <= 90) & (pl.col("lon").abs() <= 180)


def _is_swapped() -> pl.Expr:
    """Only visible where the latitude cannot be one: (120, 45) is a place if read the other way round."""
    return pl.col("lat").abs().is_between(90, 180, closed="right") & (pl.col("lon").abs() <= 90)


def _is_zero() -> pl.Expr:
    return (pl.col("lat") == 0) & (pl.col("lon") == 0)


def _cut(rules: Rules) -> pl.Expr:
    """The piece of the table a row is sorted in: its calendar month, or its block of rows in given order."""
    if rules.given_order:
        return (pl.col("row") // CHUNK_ROWS).alias("cut")
    date = pl.from_epoch("time", time_unit="s")
    return (date.dt.year().cast(pl.Int64) * 12 + date.dt.month() - 1).alias("cut")


def year_range_s(first: int, last: int) -> tuple[int, int]:
    """First and last second of a range of years.

    >>> year_range_s(1970, 1970)
    (0, 31535999)
    """
    start = datetime(first, 1, 1, tzinfo=UTC).timestamp()
    end = datetime(last, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
    return int(start), int(end)
