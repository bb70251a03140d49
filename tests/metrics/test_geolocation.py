"""The distribution of the geolocation error against counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.metrics.geolocation import error_cdf, median_km, share_under
from driftline.types import DriftlineError

DISTANCES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 25.0, 90.0, 20_000.0, math.nan]), max_size=40)


@given(DISTANCES, st.none() | st.integers(2, 9))
def test_cdf_is_the_share_at_most_that_far(distances: list[float], num_points: int | None) -> None:
    known = [d for d in distances if not math.isnan(d)]
    cdf = error_cdf(np.array(distances), num_points)
    for distance, share in zip(cdf.distance_km, cdf.share, strict=True):
        assert share == pytest.approx(sum(d <= distance for d in known) / len(known))
    if known:
        assert (cdf.distance_km[0], cdf.distance_km[-1]) == (min(known), max(known))
        assert cdf.share[-1] == 1.0
    if num_points is None:
        assert cdf.distance_km.tolist() == sorted(set(known))


@given(DISTANCES)
def test_shares_and_median(distances: list[float]) -> None:
    known = sorted(d for d in distances if not math.isnan(d))
    shares = share_under(np.array(distances))
    assert list(shares) == [1, 25, 200, 750, 2500]
    for scale, share in shares.items():
        wanted = sum(d < scale for d in known) / len(known) if known else math.nan
        assert share == pytest.approx(wanted, nan_ok=True)
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2 if known else math.nan
    assert median_km(np.array(distances)) == pytest.approx(middle, nan_ok=True)


def test_negative_distances_are_refused() -> None:
    with pytest.raises(DriftlineError, match="-3"):
        median_km(np.array([1.0, -3.0]))
