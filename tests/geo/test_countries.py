"""Countries by nearest place: the fast table must say what comparing with every place says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.geo import countries
from driftline.geo.countries import Places, continent_of, country_codes, country_name, load_places, make_atlas
from driftline.types import DriftlineError


def vectors(lat_deg, lon_deg):
    lat, lon = np.radians(lat_deg), np.radians(lon_deg)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)


def uniform_points(rng, num):
    return np.degrees(np.arcsin(rng.uniform(np.sin(np.radians(-60)), 1, num))), rng.uniform(-180, 180, num)


def assert_nearest(atlas, lat, lon):
    """The answer is the country of a place at the least distance, found by looking at all."""
    cos = vectors(lat, lon) @ atlas.places.points.T
    nearest = cos >= cos.max(axis=1, keepdims=True) - 1e-14
    for row, code in zip(nearest, atlas.lookup(lat, lon), strict=True):
        assert code in atlas.places.codes[atlas.places.country[row]]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.integers(1, 300), st.integers(1, 6), st.sampled_from([0.0, 0.01, 3.0, 90.0]))
def test_invented_places(seed, num_places, num_countries, spread_deg):
    rng = np.random.default_rng(seed)
    lat, lon = uniform_points(rng, 5)
    town = rng.integers(0, 5, num_places)
    place_lat = np.clip(lat[town] + rng.normal(0, spread_deg, num_places), -90, 90)
    place_lon = lon[town] + rng.normal(0, spread_deg, num_places)
    codes = np.array(["AA", "BB", "CC", "DD", "EE", "FF"])
    atlas = make_atlas(
        Places(vectors(place_lat, place_lon), rng.integers(0, num_countries, num_places), codes)
    )
    assert_nearest(atlas, *uniform_points(rng, 200))
    near = place_lat > -59
    assert_nearest(atlas, place_lat[near], place_lon[near])


def test_real_places_and_points_anywhere():
    atlas = make_atlas(load_places(15000))
    rng = np.random.default_rng(0)
    assert_nearest(atlas, *uniform_points(rng, 500))
    some = atlas.places.points[rng.integers(0, len(atlas.places.points), 500)]
    lat, lon = np.degrees(np.arcsin(some[:, 2])), np.degrees(np.arctan2(some[:, 1], some[:, 0]))
    assert_nearest(atlas, lat + rng.normal(0, 0.1, 500), lon + rng.normal(0, 0.1, 500))


def test_well_known_places_far_from_borders():
    known = {
        "FR": (45.78, 3.08),
        "US": (39.74, -104.99),
        "BR": (-15.79, -47.88),
        "AU": (-25.34, 131.03),
        "JP": (35.36, 138.73),
        "ZA": (-29.1, 26.2),
        "NZ": (-43.59, 170.14),
        "RU": (66.0, 179.0),
        "FJ": (-17.8, 178.0),
        "AQ": (-77.85, 166.67),
        "IS": (64.15, -21.94),
    }
    lat, lon = np.array(list(known.values())).T
    assert country_codes(lat, lon).tolist() == list(known)


def test_chunks_leave_no_seam_and_unknown_places_no_country():
    rng = np.random.default_rng(1)
    lat, lon = uniform_points(rng, 70_000)
    lat[::7] = np.nan
    codes = country_codes(lat, lon)
    assert set(codes[::7]) == {""}
    assert country_codes(lat[65_500:65_600], lon[65_500:65_600]).tolist() == codes[65_500:65_600].tolist()
    assert country_codes([], []).shape == (0,)


def test_the_accuracy_that_the_docs_state():
    """Places too small for the list that is used: how many fall to their own country?"""
    smaller = load_places(500)
    own = {p.tobytes() for p in load_places(countries.SMALLEST_PLACE).points}
    held_out = np.array([p.tobytes() not in own for p in smaller.points])
    x, y, z = smaller.points[held_out].T
    codes = country_codes(np.degrees(np.arcsin(z)), np.degrees(np.arctan2(y, x)))
    right = np.mean(codes == smaller.codes[smaller.country[held_out]])
    assert f"{right:.1%}".replace("%", " %") in countries.__doc__


def test_every_answer_has_a_name_and_a_continent():
    for code in countries._atlas(countries.SMALLEST_PLACE).places.codes.tolist():
        assert country_name(code)
        assert continent_of(code) != "unknown"
    assert (country_name("JP"), continent_of("JP")) == ("Japan", "Asia")
    assert continent_of("") == country_name("") == "unknown"


@pytest.mark.parametrize("look_up", [country_name, continent_of])
def test_a_code_that_does_not_exist_is_refused(look_up):
    with pytest.raises(DriftlineError, match="'fr'"):
        look_up("fr")


def test_coordinates_of_unequal_length_are_refused():
    with pytest.raises(DriftlineError, match="latitudes"):
        country_codes([0.0, 1.0], [0.0])
