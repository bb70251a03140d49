"""Geolocation error: how far from the photo the centre of the predicted cell lies.

In come distances in kilometres, NaN where a place is unknown; out come their distribution and the usual marks on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline.metrics.online import spread
from driftline.types import DriftlineError, FloatArray

SCALES_KM = {"street": 1.0, "city": 25.0, "region": 200.0, "country": 750.0, "continent": 2500.0}
"""Distances by which errors are usually named."""


@dataclass(frozen=True, eq=False)
class ErrorCdf:
    """Share of the errors that are at most `distance_km`; both rise."""

    distance_km: FloatArray
    share: FloatArray


def error_cdf(distance_km: NDArray[np.floating[Any]], num_points: int | None = 500) -> ErrorCdf:
    """The distribution of the error at `num_points` of its values, evenly spread by rank (None: at all of them).

    >>> cdf = error_cdf(np.array([30.0, 2.0, np.nan, 2.0, 900.0]))
    >>> cdf.distance_km.tolist(), cdf.share.tolist()
    ([2.0, 30.0, 900.0], [0.5, 0.75, 1.0])
    """
    known = np.sort(_known(distance_km))
    candidates = spread(len(known), num_points)
    # Of equal distances only the last rank counts: the share that is at most that far.
    distance = np.unique(known[candidates])
    num_within = np.searchsorted(known, distance, side="right")
    return ErrorCdf(distance.astype(np.float64), num_within / max(len(known), 1))


def share_under(
    distance_km: NDArray[np.floating[Any]], scales: Sequence[float] = tuple(SCALES_KM.values())
) -> dict[float, float]:
    """Share of the known errors that are less than each scale; NaN when none is known.

    >>> share_under(np.array([0.3, 25.0, 100.0, np.nan]), scales=(1, 25, 200))
    {1: 0.3333333333333333, 25: 0.3333333333333333, 200: 1.0}
    """
    known = _known(distance_km)
    if not len(known):
        return dict.fromkeys(scales, float("nan"))
    return {scale: float(np.mean(known < scale)) for scale in scales}


def median_km(distance_km: NDArray[np.floating[Any]]) -> float:
    """The median of the known errors; NaN when none is known.

    >>> median_km(np.array([1.0, np.nan, 9.0, 4.0]))
    4.0
    """
    known = _known(distance_km)
    return float(np.median(known)) if len(known) else float("nan")


def _known(distance_km: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The distances that are numbers; a negative one means that the caller mixed something up."""
    unknown = np.isnan(distance_km)
    known = distance_km[~unknown] if unknown.any() else distance_km
    if len(known) and known.min() < 0:
        raise DriftlineError(f"distance_km holds {known.min()}: distances are 0 or more, NaN where unknown")
    return known
