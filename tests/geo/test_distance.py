"""Distances in kilometres, against the S2 library and against geometry that needs no formula."""

import numpy as np
import pytest
import s2geometry
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.geo.distance import EARTH_RADIUS_KM, SCALES_KM, great_circle_km

LATITUDES, LONGITUDES = st.floats(-90, 90), st.floats(-180, 180)


@settings(deadline=None)
@given(LATITUDES, LONGITUDES, LATITUDES, LONGITUDES)
def test_distances_are_those_of_the_s2_library(lat1, lon1, lat2, lon2):
    one, two = (s2geometry.S2LatLng.FromDegrees(*p).ToPoint() for p in [(lat1, lon1), (lat2, lon2)])
    want_km = s2geometry.S1Angle(one, two).radians() * EARTH_RADIUS_KM
    assert great_circle_km(lat1, lon1, lat2, lon2) == pytest.approx(want_km, rel=1e-6, abs=1e-3)


def test_a_metre_is_told_from_two():
    degree_km = np.pi / 180 * EARTH_RADIUS_KM
    apart_km = np.array([0.001, 0.002])
    np.testing.assert_allclose(great_circle_km(0, 0, apart_km / degree_km, 0), apart_km, rtol=1e-6)


def test_a_quarter_of_the_way_round_and_half_of_it():
    quarter_km = np.pi / 2 * EARTH_RADIUS_KM
    np.testing.assert_allclose(
        great_circle_km([90, 0, 0], 0, [0, 0, 0], [50, 90, 180]) / quarter_km, [1, 1, 2]
    )


def test_the_date_line_is_no_distance():
    assert great_circle_km(10.0, 180.0, 10.0, -180.0) == pytest.approx(0, abs=1e-9)


def test_unknown_places_have_unknown_distances():
    assert np.isnan(great_circle_km(np.nan, 0, 0, 0))


def test_the_scales_are_those_of_the_paper():
    assert SCALES_KM == {"street": 1, "city": 25, "region": 200, "country": 750, "continent": 2500}
