"""Which rows are refused, and why; every row is accounted for."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.streams.building.metadata import REASONS, Rules, clean

GOOD = {
    "id": "1",
    "user": "5@N00",
    "time": "2010-05-01 12:00:00.0",
    "lat": "48.8",
    "lon": "2.3",
    "image": "a/b.jpg",
}
PAPER = Rules(years=(2004, 2014), needs_place=True, needs_image=True, has_image=True)


def reason_of(changes: dict[str, object], rules: Rules = PAPER) -> str | None:
    cleaned = clean(pl.DataFrame([GOOD | changes], schema_overrides={"video": pl.Boolean}), rules)
    assert cleaned.rows.height + sum(cleaned.refused.values()) == 1
    return next(iter(cleaned.refused), None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"broken": True}, "broken_line"),
        ({"user": "5\ufffd"}, "not_utf8"),
        ({"video": True}, "video"),
        ({"id": ""}, "no_id"),
        ({"user": "  "}, "no_user"),
        ({"time": ""}, "no_date"),
        ({"time": "null"}, "no_date"),
        ({"time": "0000-00-00 00:00:00"}, "bad_date"),
        ({"time": "2010-02-31"}, "bad_date"),
        ({"time": "1901-01-01"}, "outside_years"),
        ({"time": "2003-12-31 23:59:59"}, "outside_years"),
        ({"time": "2004-01-01 00:00:00"}, None),
        ({"time": "2014-12-31 23:59:59"}, None),
        ({"time": "2050-01-01"}, "outside_years"),
        ({"lat": ""}, "no_place"),
        ({"lon": None}, "no_place"),
        ({"lat": "120.5", "lon": "45"}, "swapped_place"),
        ({"lat": "95", "lon": "170"}, "bad_place"),
        ({"lon": "180.01"}, "bad_place"),
        ({"lon": "180", "lat": "-90"}, None),
        ({"lat": "north"}, "bad_place"),
        ({"lat": "0", "lon": "0.0"}, "zero_place"),
        ({"lat": "0", "lon": "0.1"}, None),
        ({"image": ""}, "no_image"),
        ({"image": "../secret.jpg"}, "unsafe_path"),
        ({"image": "a/../../b.jpg"}, "unsafe_path"),
        ({"image": "a\\..\\b.jpg"}, "unsafe_path"),
        ({"image": "a/..b/c.jpg"}, None),
    ],
)
def test_reason(changes: dict[str, object], reason: str | None) -> None:
    assert reason_of(changes) == reason


def test_the_first_reason_counts() -> None:
    assert reason_of({"video": True, "time": "", "lat": ""}) == "video"
    assert reason_of({"time": "1901-01-01", "lat": ""}) == "outside_years"


def test_a_label_needs_no_place_but_a_wrong_place_is_not_kept() -> None:
    rules = Rules(needs_label=True)
    raw = pl.DataFrame([GOOD | {"label": "cat"}, GOOD | {"label": "dog", "lat": "95"}, GOOD | {"label": ""}])
    cleaned = clean(raw, rules)
    assert dict(cleaned.refused) == {"no_label": 1}
    assert cleaned.places_ignored == 1
    assert cleaned.rows["lat"].to_list() == [48.8, None]


def test_rows_stand_in_for_what_a_table_lacks() -> None:
    rules = Rules(needs_label=True, has_id=False, has_user=False, has_time=False, given_order=True)
    cleaned = clean(pl.DataFrame({"label": ["a", "b"]}), rules, part=1, first_row=5)
    assert cleaned.rows["time"].to_list() == [5, 6]
    assert cleaned.rows["row"].to_list() == [(1 << 40) + 5, (1 << 40) + 6]
    assert cleaned.rows["user"].n_unique() == 2
    assert cleaned.rows["id"].n_unique() == 2


JUNK = st.one_of(
    st.none(), st.text(max_size=6), st.sampled_from(["48.8", "2010-05-01", "0", "1e400", "7@N00", "../x"])
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.fixed_dictionaries(dict.fromkeys([*GOOD, "label"], JUNK)), min_size=1, max_size=20),
    st.booleans(),
)
def test_whatever_is_in_a_row_it_is_counted_once(rows: list[dict[str, str | None]], by_label: bool) -> None:
    rules = Rules(needs_label=True) if by_label else PAPER
    cleaned = clean(pl.DataFrame(rows, schema=dict.fromkeys([*GOOD, "label"], pl.String)), rules)
    assert cleaned.num_read == len(rows)
    assert cleaned.rows.height + sum(cleaned.refused.values()) == len(rows)
    assert set(cleaned.refused) <= set(REASONS)
    needed = ["id", "user", "time"] + (["label"] if by_label else ["lat", "lon", "image"])
    assert cleaned.rows.select(needed).null_count().sum_horizontal().to_list() == [0]
