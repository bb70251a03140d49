"""The simulated people: time runs forward, albums and activity as described, journeys, seasons, daylight, drift."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.metrics.albums import album_sizes
from driftline.streams.worlds.photographers import (
    ALBUM_STARTS,
    DAY_S,
    LONGEST_ALBUM,
    START_S,
    STOP_S,
    Photographers,
    load_places,
)

LENGTH = 60_000


@pytest.fixture(scope="module")
def world():
    people = Photographers(LENGTH, seed=4)
    return people, *people.photos(np.arange(LENGTH))


@given(st.integers(2_000, 70_000_000), st.integers(0, 2**63 - 1), st.floats(0, 1))
@settings(max_examples=30)
def test_any_part_of_a_world_of_any_length_is_had_alone(length, seed, where):
    people = Photographers(length, seed)
    first = int(where * (length - 300))
    ordinals = np.arange(first, first + 300)
    whole = people.photos(ordinals)
    some = np.array([0, 17, 299, 40])
    again = Photographers(length, seed).photos(ordinals[some])
    for a, b in zip(whole, again, strict=True):
        assert np.array_equal(a[some], b)
    time_s, user, lat, lon = whole
    assert (np.diff(time_s) > 0).all()
    assert START_S <= time_s[0] <= time_s[-1] < STOP_S
    assert ((user >= 0) & (user < people.num_users)).all()
    assert ((np.abs(lat) <= 90) & (lon >= -180) & (lon < 180)).all()


def test_time_strictly_increases_on_the_busiest_day_of_the_longest_world():
    people = Photographers(70_000_000, seed=0)
    per_day = np.bincount((people.times(np.arange(0, 70_000_000, 7001)) - START_S) // DAY_S)
    busiest = int(per_day.argmax())
    first = int(np.searchsorted(people.times(np.arange(0, 70_000_000, 7001)), START_S + busiest * DAY_S))
    time_s = people.times(np.arange(first * 7001, first * 7001 + 60_000))
    assert (np.diff(time_s) > 0).all()


def test_another_seed_makes_another_world():
    a, b = (Photographers(5000, seed).photos(np.arange(5000)) for seed in (0, 1))
    assert not np.array_equal(a[1], b[1])
    assert not np.array_equal(a[2], b[2])


@pytest.mark.parametrize("seed", range(4))
def test_albums_are_as_long_as_described(seed):
    """Drawn albums are 8 photos / (1 + 7 * 0.87) long; some join where one person takes two in a row."""
    length = 200_000
    _, user, _, _ = Photographers(length, seed).photos(np.arange(length))
    sizes = album_sizes(user)
    drawn = LONGEST_ALBUM / (1 + (LONGEST_ALBUM - 1) * ALBUM_STARTS)
    # 175,000 albums whose lengths have a deviation of about 0.4: the mean is known to 0.001.
    assert drawn - 0.005 < sizes.mean() < drawn + 0.03
    assert 1.12 < sizes.mean() < 1.17
    assert 0.84 < (sizes == 1).mean() < 0.93
    assert sizes.max() >= 4


def test_photos_of_an_album_are_taken_close_together(world):
    _, _, user, lat, lon = world
    together = user[1:] == user[:-1]
    step = np.hypot(np.diff(lat), np.diff(lon))
    assert np.median(step[together]) < 0.5
    assert np.median(step[~together]) > 5


def test_a_few_take_most_of_the_photos(world):
    people, _, user, _, _ = world
    counts = np.sort(np.bincount(user, minlength=people.num_users))[::-1]
    share = counts[: people.num_users // 10].sum() / counts.sum()
    assert share > 0.3
    assert counts[0] > 10 * np.median(counts[counts > 0])


def test_people_join_and_leave(world):
    _, time_s, user, _, _ = world
    busy = np.flatnonzero(np.bincount(user) > 100)
    spread = [np.std(time_s[user == person]) for person in busy]
    # Somebody active all the time would have the spread of all photos; people stay for three years on average.
    assert np.median(spread) < 0.7 * np.std(time_s)


def test_photos_are_taken_by_day_where_they_are_taken(world):
    _, time_s, _, _, lon = world
    hour = (time_s / 3600 + lon / 15) % 24
    afternoon = ((hour >= 11) & (hour < 19)).mean()
    night = ((hour < 5) | (hour >= 23)).mean()
    assert afternoon > 0.5  # a third of the day
    assert night < 0.12  # a quarter of it


def test_numbers_follow_seasons_weekends_and_years(world):
    _, time_s, _, _, _ = world
    dates = [datetime.fromtimestamp(t, UTC) for t in time_s.tolist()]
    month, year = np.array([d.month for d in dates]), np.array([d.year for d in dates])
    weekday = np.array([d.weekday() for d in dates])
    assert (month == 7).mean() > 1.3 * (month == 1).mean()
    weekend = (weekday >= 5).mean() / 2 / ((weekday < 5).mean() / 5)
    assert weekend == pytest.approx(1.5, rel=0.05)
    by_year = np.bincount(year - 2004, minlength=11)
    assert len(by_year) == 11
    assert by_year.argmax() in (6, 7, 8)
    assert by_year[0] < 0.35 * by_year.max()
    assert by_year[10] < by_year.max()


def nearest_country(lat, lon):
    places = load_places()
    country = np.searchsorted(places.first, np.arange(len(places.lat)), side="right") - 1
    near = [
        int(np.argmin((places.lat - a) ** 2 + ((places.lon - b) * np.cos(np.radians(a))) ** 2))
        for a, b in zip(lat, lon, strict=True)
    ]
    return country[near]


def test_countries_gain_and_lose_popularity_over_the_years(world):
    _, _, _, lat, lon = world
    rng = np.random.default_rng(0)
    early = nearest_country(*(x[rng.choice(LENGTH // 5, 1500, replace=False)] for x in (lat, lon)))
    late = nearest_country(*(x[-1 - rng.choice(LENGTH // 5, 1500, replace=False)] for x in (lat, lon)))
    num = len(load_places().codes)
    a, b = np.bincount(early, minlength=num), np.bincount(late, minlength=num)
    common = np.argsort(a + b)[-15:]
    # Two samples of one distribution give about one unit of chi squared a country.
    chi_squared = ((a - b)[common] ** 2 / (a + b)[common]).sum()
    assert chi_squared > 5 * len(common)


def test_most_people_live_where_photo_sharing_began(world):
    _, _, _, lat, lon = world
    rows = np.random.default_rng(1).choice(LENGTH, 1500, replace=False)
    country = nearest_country(lat[rows], lon[rows])
    codes = np.array(load_places().codes)
    counts = dict(zip(*np.unique(codes[country], return_counts=True), strict=True))
    assert max(counts, key=counts.get) in ("US", "DE", "GB", "FR", "IT", "ES", "RU", "CA", "AU", "MX", "TR")
    assert len(counts) > 40


def test_places_are_real():
    places = load_places()
    near_paris = np.hypot(places.lat - 48.85, places.lon - 2.35).min()
    near_lima = np.hypot(places.lat + 12.04, places.lon + 77.03).min()
    assert max(near_paris, near_lima) < 0.1


def test_people_travel(world):
    _, _, user, lat, lon = world
    busiest = np.bincount(user).argsort()[-20:]
    for person in busiest:
        rows = user == person
        far = np.hypot(lat[rows] - np.median(lat[rows]), lon[rows] - np.median(lon[rows])) > 5
        assert 0 < far.mean() < 0.6
