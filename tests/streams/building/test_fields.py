"""Dates, users and coordinates as people write them."""

import math
from datetime import UTC, datetime, timedelta, timezone

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.streams.building.fields import (
    HASHED_USER,
    degrees,
    hashed_user,
    plain,
    seconds,
    url_decoded,
    users,
)
from driftline.types import DriftlineError

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))


@given(
    st.lists(MOMENTS, min_size=1),
    st.sampled_from(["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y:%m:%d %H:%M:%S"]),
)
def test_date_times_without_a_zone_are_utc(moments: list[datetime], form: str) -> None:
    texts = [f"{m.year:04d}" + m.strftime(form)[len(m.strftime("%Y")) :] for m in moments]
    expected = [int(m.replace(microsecond=0, tzinfo=UTC).timestamp()) for m in moments]
    assert seconds(pl.Series(texts)).to_list() == expected


@given(MOMENTS, st.integers(-12, 14))
def test_a_zone_is_respected(moment: datetime, hours: int) -> None:
    zoned = moment.replace(microsecond=0, tzinfo=timezone(timedelta(hours=hours)))
    text = zoned.isoformat()
    assert seconds(pl.Series([text])).to_list() == [int(zoned.timestamp())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2008-05-09 21:05:44.0", 1210367144),
        ("2008-05-09 21:05:44.75", 1210367144),
        ("2008-05-09 21:05", 1210367100),
        ("2008-05-09", 1210291200),
        ("2008/05/09", 1210291200),
        ("20080509", 1210291200),
        ("1210367144", 1210367144),
        ("1210367144.9", 1210367144),
        ("-1", -1),
        ("2008-05-09T21:05:44Z", 1210367144),
        ("0000-00-00 00:00:00", None),
        ("2010-02-31 12:00:00", None),
        ("2010-13-01", None),
        ("yesterday", None),
        ("1288888888000", None),
        ("", None),
        (None, None),
    ],
)
def test_texts_that_are_and_are_not_times(text: str | None, expected: int | None) -> None:
    assert seconds(pl.Series([text], dtype=pl.String)).to_list() == [expected]
    # Among others the answer is the same: formats are tried on what is left, not on the whole column.
    among = pl.Series(["2001-01-01 00:00:00.0", text, "2001-01-02"], dtype=pl.String)
    assert seconds(among).to_list() == [978307200, expected, 978393600]


def test_typed_columns_are_times_too() -> None:
    moment = datetime(2010, 5, 1, 12, tzinfo=UTC)
    expected = int(moment.timestamp())
    in_paris = pl.Series([moment]).dt.convert_time_zone("Europe/Paris")
    for column in [
        pl.Series([moment.replace(tzinfo=None)]),
        in_paris,
        pl.Series([expected]),
        pl.Series([expected + 0.5]),
    ]:
        assert seconds(column).to_list() == [expected]
    assert seconds(pl.Series([moment.date()])).to_list() == [expected - 12 * 3600]
    assert seconds(pl.Series([math.nan, math.inf, 1e30])).to_list() == [None, None, None]


def test_users_that_are_numbers_stay_apart_from_those_that_are_not() -> None:
    texts = [
        "12345678@N07",
        "12345678@N00",
        "007",
        "7",
        "anna",
        "Anna",
        "12345678@N1",
        "99999999999999999999",
    ]
    numbers = users(pl.Series(texts)).to_list()
    assert numbers[:2] == [1234567807, 1234567800]
    assert numbers[3] == 7
    assert len(set(numbers)) == len(numbers)
    assert all(number >= HASHED_USER for number in [numbers[2], *numbers[4:]])


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1))
def test_a_user_has_one_number_wherever_it_is_read(names: list[str]) -> None:
    together = users(pl.Series(names)).to_list()
    alone = [users(pl.Series([name])).to_list()[0] for name in names]
    assert together == alone
    for name, number in zip(names, together, strict=True):
        is_blank = pl.Series([name]).str.strip_chars()[0] == ""
        assert number is None if is_blank else 0 <= number < 2**63


def test_hash_of_a_user_never_changes() -> None:
    assert hashed_user("anna") == 8363498088200999587


def test_negative_and_huge_integer_users_are_hashed() -> None:
    column = pl.Series([5, -5, 2**62], dtype=pl.Int64)
    assert users(column).to_list() == [5, hashed_user("-5"), hashed_user(str(2**62))]


def test_degrees_tell_missing_from_wrong() -> None:
    values = degrees(pl.Series(["1.5", "", "null", "abc", "inf", None])).to_list()
    assert values[:3] == [1.5, None, None]
    assert math.isnan(values[3])
    assert math.isnan(values[4])
    assert values[5] is None
    assert degrees(pl.Series([1.0, math.nan])).to_list() == [1.0, None]


def test_url_encoding_is_undone_once() -> None:
    assert url_decoded(pl.Series(["a%2525", "a+b", "%C3%A9", "a"])).to_list() == ["a%25", "a b", "é", "a"]


def test_a_column_of_lists_is_refused_by_name() -> None:
    with pytest.raises(DriftlineError, match="'tags'"):
        plain(pl.Series("tags", [[1], [2]]))
