"""Values of a table's cells: text of dates, users, places and labels in, numbers out, null where a text means nothing.

Columns flow in as they were read (text, numbers or dates); typed columns flow out. Nothing here decides whether a row is
kept; `metadata.clean` does.
"""

from __future__ import annotations

import hashlib
from urllib.parse import unquote_plus

import polars as pl

from driftline.types import DriftlineError

NO_TEXT = ("", "\\N")
"""Texts that stand for "no value" in any column."""
MISSING = ("", "null", "NULL", "\\N", "nan", "NaN", "NAN", "None")
"""Texts that stand for "no value" where a date or a coordinate is meant."""

TIME_FORMATS = (
    "%Y-%m-%d %H:%M:%S.0",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
    "%Y:%m:%d %H:%M:%S%.f",
    "%Y/%m/%d %H:%M:%S%.f",
)
DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d")
ZONED_FORMATS = ("%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f %#z")

EARLIEST_S = -62_135_596_800
"""0001-01-01, in unix seconds."""
LATEST_S = 253_402_300_799
"""The last second of the year 9999."""
HASHED_USER = 1 << 62
"""Users that are not numbers get numbers from here upwards, so that they never meet one that is."""


def plain(values: pl.Series) -> pl.Series:
    """The column as text, numbers or dates: categories, decimals, bytes and truth values become those.

    >>> plain(pl.Series([b"ok", b"\\xff"])).to_list()
    ['ok', '\ufffd']
    """
    if values.dtype == pl.Binary:
        texts = [None if data is None else data.decode("utf-8", "replace") for data in values]
        return pl.Series(values.name, texts, dtype=pl.String)
    if values.dtype == pl.Decimal:
        return values.cast(pl.Float64)
    if values.dtype in (pl.Categorical, pl.Enum, pl.Boolean, pl.Null):
        return values.cast(pl.String)
    if values.dtype.is_nested():
        raise DriftlineError(
            f"column {values.name!r} holds lists or records; choose a column with one value a row"
        )
    return values


def url_decoded(values: pl.Series) -> pl.Series:
    """Text with %XX and + decoded; only the texts that hold such a sign are touched.

    >>> url_decoded(pl.Series(["New+York%2C", "plain", None])).to_list()
    ['New York,', 'plain', None]
    """
    if values.dtype != pl.String:
        return values
    encoded = values.filter(values.str.contains(r"[%+]")).unique()
    if encoded.is_empty():
        return values
    decoded = [unquote_plus(text, errors="replace") for text in encoded]
    return values.replace(encoded, pl.Series(decoded, dtype=pl.String))


def seconds(values: pl.Series) -> pl.Series:
    """Unix seconds of dates, texts or numbers; null where there is no such time.

    A date-time without a zone is taken as UTC; one with a zone is converted. Numbers are unix seconds.

    >>> seconds(pl.Series(["2010-05-01 12:00:00.0", "2010-05-01T14:00:00+02:00", "2010-02-31", "86400"])).to_list()
    [1272715200, 1272715200, None, 86400]
    """
    if values.dtype == pl.String:
        return _seconds_of_text(values)
    if values.dtype == pl.Date:
        values = values.cast(pl.Datetime("us"))
    if isinstance(values.dtype, pl.Datetime):
        return _epoch(values)
    if values.dtype.is_float():
        values = values.set(~values.is_finite(), None).floor()
    return _in_range(values.cast(pl.Int64, strict=False))


def _seconds_of_text(values: pl.Series) -> pl.Series:
    """Each format is tried on what no earlier one could read, so that a clean column costs one pass.

    Blanks around a text are looked for only where the first format failed.
    """
    found = _read_as(values, TIME_FORMATS[0])
    left = (values.is_not_null() & found.is_null()).arg_true()
    rest = values.gather(left).str.strip_chars()
    for attempt in (*TIME_FORMATS[1:], *DATE_FORMATS, *ZONED_FORMATS, "number"):
        if rest.is_empty():
            break
        read = _read_as(rest, attempt)
        found = found.scatter(left.filter(read.is_not_null()), read.drop_nulls())
        left, rest = left.filter(read.is_null()), rest.filter(read.is_null())
    return found


def _read_as(texts: pl.Series, attempt: str) -> pl.Series:
    if attempt == "number":
        plain = texts.str.contains(r"^-?\d{1,12}(\.\d*)?$")
        return seconds(texts.set(~plain, None).cast(pl.Float64, strict=False))
    if attempt in ZONED_FORMATS:
        return _epoch(texts.str.to_datetime(attempt, time_unit="us", time_zone="UTC", strict=False))
    if attempt in DATE_FORMATS:
        # %Y takes numbers of any length, so that the length tells a date from a number of seconds.
        dates = texts.set(~texts.str.len_chars().is_in([8, 10]), None)
        return _epoch(dates.str.to_date(attempt, strict=False).cast(pl.Datetime("us")))
    return _epoch(texts.str.to_datetime(attempt, time_unit="us", strict=False))


def _epoch(times: pl.Series) -> pl.Series:
    return _in_range(times.dt.epoch("us") // 1_000_000)


def _in_range(times_s: pl.Series) -> pl.Series:
    return times_s.set(~times_s.is_between(EARLIEST_S, LATEST_S), None)


def users(values: pl.Series) -> pl.Series:
    """Users as int64: Flickr ids (`12345678@N00` is 1234567800) and whole numbers exactly, other text by a hash.

    The hash is 2**62 plus the first 62 bits of the text's BLAKE2b digest: the same on every machine, and never one of the
    exact numbers.

    >>> users(pl.Series(["12345678@N07", "42", None])).to_list()
    [1234567807, 42, None]
    >>> users(pl.Series(["anna"]))[0] >= HASHED_USER
    True
    """
    if values.dtype.is_integer():
        inside = values.is_between(0, HASHED_USER - 1)
        if inside.all():
            return values.cast(pl.Int64)
        values = values.cast(pl.String)
    texts = values.cast(pl.String)
    found = _flickr_number(texts)
    left = (texts.is_not_null() & found.is_null()).arg_true()
    if left.is_empty():
        return found
    rest = texts.gather(left).str.strip_chars()
    numbers = _flickr_number(rest)
    numbers = numbers.zip_with(numbers.is_not_null(), _plain_number(rest))
    names = rest.filter(numbers.is_null() & ~rest.is_in(NO_TEXT)).unique()
    hashed = pl.Series([hashed_user(text) for text in names], dtype=pl.Int64)
    by_name = rest.replace_strict(names, hashed, default=None, return_dtype=pl.Int64)
    return found.scatter(left, numbers.zip_with(numbers.is_not_null(), by_name))


def hashed_user(text: str) -> int:
    """The number of a user whose name is not a number.

    >>> hashed_user("anna")
    8363498088200999587
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return HASHED_USER | (int.from_bytes(digest, "big") >> 2)


def _flickr_number(texts: pl.Series) -> pl.Series:
    shaped = texts.str.contains(r"^[1-9]\d{0,14}@N\d\d$")
    digits = texts.set(~shaped, None)
    return digits.str.head(-4).cast(pl.Int64, strict=False) * 100 + digits.str.tail(2).cast(
        pl.Int64, strict=False
    )


def _plain_number(texts: pl.Series) -> pl.Series:
    # "007" and "7" are two users, so a number counts as exact only where it is written in the one usual way.
    return texts.set(~texts.str.contains(r"^(0|[1-9]\d{0,17})$"), None).cast(pl.Int64, strict=False)


def degrees(values: pl.Series) -> pl.Series:
    """Coordinates as float64; NaN where there is a text that is no finite number, null where there is none.

    >>> degrees(pl.Series(["12.5", "north", "", None, "inf"])).to_list()
    [12.5, nan, None, None, nan]
    """
    if values.dtype == pl.String:
        texts = values.set(values.is_in(MISSING), None)
        numbers = texts.cast(pl.Float64, strict=False)
        bad = texts.is_not_null() & (numbers.is_null() | ~numbers.is_finite())
        return numbers.set(bad, float("nan"))
    numbers = values.cast(pl.Float64, strict=False)
    # A missing value of pandas arrives as NaN, so in a column of numbers NaN means "none".
    return numbers.set(numbers.is_nan(), None).set(numbers.is_infinite(), float("nan"))
