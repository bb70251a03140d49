"""Cell ids must be those of the S2 library itself: labels made here and elsewhere must agree bit for bit."""

import numpy as np
import pytest
import s2geometry
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driftline.geo import s2
from driftline.types import DriftlineError

CORNER_LAT = float(np.degrees(np.arctan(np.sqrt(0.5))))  # latitude of the corners of the cube
LATITUDES = st.one_of(
    st.floats(-90, 90), st.sampled_from([-90.0, -45.0, -CORNER_LAT, -0.0, 0.0, 45.0, CORNER_LAT, 90.0])
)
LONGITUDES = st.one_of(st.floats(-180, 180), st.sampled_from([k * 45.0 for k in range(-4, 5)] + [-0.0]))


def library_ids(lat, lon):
    points = zip(lat.tolist(), lon.tolist(), strict=True)
    return np.array(
        [s2geometry.S2CellId(s2geometry.S2LatLng.FromDegrees(*p)).id() for p in points], np.uint64
    )


def assert_same_as_library(lat, lon):
    np.testing.assert_array_equal(s2.cell_ids(lat, lon), library_ids(lat, lon))


def random_points(num, seed=0):
    rng = np.random.default_rng(seed)
    return np.degrees(np.arcsin(rng.uniform(-1, 1, num))), rng.uniform(-180, 180, num)


def random_cells(num_per_level):
    """Some cells of every level."""
    leaves = s2.cell_ids(*random_points(num_per_level * 31)).reshape(31, num_per_level)
    return np.concatenate([s2.parent(leaves[level], level) for level in range(31)])


def test_random_points_have_the_ids_of_the_library():
    assert_same_as_library(*random_points(100_000))


def test_points_along_the_edges_of_the_cube_have_the_ids_of_the_library():
    lon = np.random.default_rng(1).uniform(-180, 180, 5_000)
    edge_lat = np.degrees(np.arctan(np.cos(np.radians((lon + 45) % 90 - 45))))
    for lat in (edge_lat, -edge_lat, np.nextafter(edge_lat, 90), np.nextafter(edge_lat, -90)):
        assert_same_as_library(lat, lon)
    for meridian in (-135.0, -45.0, 45.0, 135.0):
        for near in (meridian, np.nextafter(meridian, 180), np.nextafter(meridian, -180)):
            assert_same_as_library(edge_lat, np.full_like(lon, near))


def test_poles_date_line_and_cube_corners_have_the_ids_of_the_library():
    lat = [
        -90,
        np.nextafter(-90, 0),
        -CORNER_LAT,
        -1e-300,
        -0.0,
        0,
        1e-300,
        CORNER_LAT,
        np.nextafter(90, 0),
        90,
    ]
    lon = [-180, np.nextafter(-180, 0), -135, -90, -45, -0.0, 0, 45, 90, 135, np.nextafter(180, 0), 180]
    grid = np.meshgrid(np.array(lat, float), np.array(lon, float))
    assert_same_as_library(grid[0].ravel(), grid[1].ravel())


def test_points_on_the_borders_between_cells_have_the_ids_of_the_library():
    corners = s2.vertices(random_cells(100)).reshape(-1, 2)
    assert_same_as_library(corners[:, 0], corners[:, 1])


@settings(deadline=None)
@given(LATITUDES, LONGITUDES, st.integers(0, 30))
@example(90.0, 180.0, 0)
def test_cells_of_every_level_are_those_of_the_library(lat, lon, level):
    theirs = s2geometry.S2CellId(s2geometry.S2LatLng.FromDegrees(lat, lon)).parent(level)
    ours = s2.cell_ids([lat], [lon], level)
    assert ours.dtype == np.uint64
    assert int(ours[0]) == theirs.id()
    assert s2.level_of(ours)[0] == level
    assert [int(x[0]) for x in s2.range_of(ours)] == [theirs.range_min().id(), theirs.range_max().id()]
    assert s2.tokens(ours) == [theirs.ToToken()]
    assert s2.from_tokens(s2.tokens(ours))[0] == ours[0]


def test_children_are_those_of_the_library():
    for cell in random_cells(20):
        theirs = s2geometry.S2CellId(int(cell))
        if theirs.is_leaf():
            with pytest.raises(DriftlineError, match="leaf"):
                s2.children(cell)
        else:
            assert s2.children(cell).tolist() == [theirs.child(k).id() for k in range(4)]
            assert np.all(s2.parent(s2.children(cell), int(s2.level_of(cell))) == cell)


def test_centres_and_corners_are_those_of_the_library():
    cells = random_cells(50)
    lat, lon = s2.centres(cells)
    corners = s2.vertices(cells)
    for k, cell in enumerate(cells):
        theirs = s2geometry.S2CellId(int(cell))
        centre = theirs.ToLatLng()
        np.testing.assert_allclose(
            (lat[k], lon[k]), (centre.lat().degrees(), centre.lng().degrees()), atol=1e-12
        )
        points = [s2geometry.S2LatLng(s2geometry.S2Cell(theirs).GetVertex(v)) for v in range(4)]
        want = [(p.lat().degrees(), p.lng().degrees()) for p in points]
        np.testing.assert_allclose(corners[k], want, atol=1e-12)


def test_the_centre_of_a_leaf_lies_in_that_leaf():
    leaves = s2.cell_ids(*random_points(10_000, seed=2))
    np.testing.assert_array_equal(s2.cell_ids(*s2.centres(leaves)), leaves)


def test_the_points_of_an_outline_lie_on_the_great_circles_between_the_corners():
    points = s2.outline(random_cells(10), 4)
    lat, lon = np.radians(points[..., 0]), np.radians(points[..., 1])
    xyz = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)
    corners = xyz[:, ::4]
    normals = np.cross(corners, np.roll(corners, -1, axis=1))
    edges = xyz.reshape(len(xyz), 4, 4, 3)
    np.testing.assert_allclose(np.einsum("cek,cepk->cep", normals, edges), 0, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_point_without_a_place_has_no_cell(bad):
    assert s2.cell_ids([bad, 1.0, 1.0], [1.0, bad, 1.0], 7).tolist()[:2] == [0, 0]
    assert s2.cell_ids([bad, 1.0], [1.0, 1.0])[1] == library_ids(np.array([1.0]), np.array([1.0]))[0]


def test_the_result_does_not_depend_on_how_many_points_come_at_once():
    lat, lon = random_points(40_001, seed=3)
    one_by_one = [s2.cell_ids(lat[k : k + 1], lon[k : k + 1])[0] for k in range(0, 40_001, 1_000)]
    assert s2.cell_ids(lat, lon)[::1_000].tolist() == one_by_one
    assert s2.cell_ids([], []).shape == (0,)


@pytest.mark.parametrize("token", ["", "X", "g", "0x47e4", "-4", "4_7", " 47e4", "47e4" * 5, "d", "2", "é"])
def test_what_is_no_token_is_refused_by_name(token):
    with pytest.raises(DriftlineError, match="not the token"):
        s2.from_tokens(["47e4", token])


@pytest.mark.parametrize("level", [-1, 31])
def test_levels_that_do_not_exist_are_refused(level):
    with pytest.raises(DriftlineError, match=f"level = {level}"):
        s2.cell_ids([0.0], [0.0], level)


def test_a_cell_has_no_parent_below_it():
    with pytest.raises(DriftlineError, match="coarser"):
        s2.parent(s2.faces(), 3)
