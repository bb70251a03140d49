"""Great-circle distances, and the scales on which geolocation errors are read.

Coordinates in degrees flow in, kilometres flow out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from driftline.types import FloatArray

EARTH_RADIUS_KM = 6371.0088
"""Mean radius of the Earth."""

SCALES_KM: dict[str, int] = {"street": 1, "city": 25, "region": 200, "country": 750, "continent": 2500}
"""Distances within which a photo counts as located on each scale."""


def great_circle_km(lat1: ArrayLike, lon1: ArrayLike, lat2: ArrayLike, lon2: ArrayLike) -> FloatArray:
    """Distances between points on a sphere of the Earth's mean radius; NaN where a coordinate is.

    The Earth is flatter at the poles than a sphere: distances are right to about half a percent.

    >>> great_circle_km([48.8566], [2.3522], [51.5074], [-0.1278]).round().tolist()
    [344.0]
    """
    from_lat, from_lon, to_lat, to_lon = (
        np.radians(np.asarray(x, np.float64)) for x in (lat1, lon1, lat2, lon2)
    )
    # The haversine form: the arc cosine of a dot product would lose all precision below some ten metres.
    half = (
        np.sin((to_lat - from_lat) / 2) ** 2
        + np.cos(from_lat) * np.cos(to_lat) * np.sin((to_lon - from_lon) / 2) ** 2
    )
    distance_km: FloatArray = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(half, 0, 1)))
    return distance_km
