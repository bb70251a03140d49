"""Map shapes: right on the sphere, where a ring that runs the wrong way fills everything but its inside."""

import io
import itertools
import json

import numpy as np
import pytest
import s2geometry
import vl_convert
from PIL import Image

from driftline.geo import s2
from driftline.geo.distance import EARTH_RADIUS_KM
from driftline.geo.outlines import cell_polygons, land

SPHERE = 4 * np.pi


def spherical_area(ring):
    """Area to the right of a ring, on the unit sphere: the sum of the slices between its edges and the south pole."""
    lon, lat = np.radians(np.array(ring)).T
    turn = np.diff(lon)
    turn = (turn + np.pi) % (2 * np.pi) - np.pi
    low, high = np.tan(lat[:-1] / 2 + np.pi / 4), np.tan(lat[1:] / 2 + np.pi / 4)
    slices = 2 * np.arctan2(low * high * np.sin(turn), 1 + low * high * np.cos(turn))
    return slices.sum() % SPHERE


def drawn(shape):
    """What Vega paints, a pixel a degree: True where the shape is."""
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 360,
        "height": 180,
        "padding": 0,
        "background": "white",
        "config": {"view": {"stroke": None}},
        "data": {"values": [shape]},
        "mark": {"type": "geoshape", "fill": "black", "stroke": None},
        "projection": {"type": "equirectangular", "scale": 180 / np.pi, "translate": [180, 90]},
    }
    png = vl_convert.vegalite_to_png(json.dumps(spec))
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("L").resize((360, 180)))
    return lambda lat, lon: bool(pixels[int(90 - lat), int(lon + 180)] < 128)


def test_the_land_has_the_area_of_the_land():
    areas = [[spherical_area(ring) for ring in polygon] for polygon in land()["geometry"]["coordinates"]]
    assert all(polygon[0] < 2 for polygon in areas), "a coast runs the wrong way"
    assert all(SPHERE - hole < 0.1 for polygon in areas for hole in polygon[1:]), "a lake runs the wrong way"
    total = sum(polygon[0] - sum(SPHERE - hole for hole in polygon[1:]) for polygon in areas)
    assert total * EARTH_RADIUS_KM**2 == pytest.approx(148e6, rel=0.02)


def test_vega_paints_land_where_land_is():
    is_land = drawn(land())
    on_land = [
        (47, 2),
        (55, 100),
        (40, -100),
        (-10, -55),
        (20, 10),
        (-25, 135),
        (-80, 0),
        (-89, 170),
        (67, -175),
        (72, -40),
    ]
    at_sea = [
        (0, -30),
        (30, -150),
        (-50, 100),
        (-60, 0),
        (88, 0),
        (0, -175),
        (42, 51),
        (47.5, -87),
        (-50, 175),
    ]
    assert [p for p in on_land if not is_land(*p)] == []
    assert [p for p in at_sea if is_land(*p)] == []


def test_the_land_is_small_enough_for_a_page():
    assert len(json.dumps(land())) < 150_000


def test_rings_are_closed_and_have_no_repeated_points():
    shapes = [*land()["geometry"]["coordinates"]]
    shapes += [f["geometry"]["coordinates"] for f in cell_polygons(some_cells())["features"]]
    for ring in (ring for polygon in shapes for ring in polygon):
        assert ring[0] == ring[-1]
        assert len(ring) >= 4
        assert all(one != two for one, two in itertools.pairwise(ring))


def some_cells():
    rng = np.random.default_rng(0)
    leaves = s2.cell_ids(np.degrees(np.arcsin(rng.uniform(-1, 1, 31 * 6))), rng.uniform(-180, 180, 31 * 6))
    deeper = [s2.parent(leaves[level::31], level) for level in range(1, 31)]
    return np.concatenate([s2.faces(), *deeper])


def test_cells_have_the_area_that_the_s2_library_gives_them():
    cells = some_cells()
    cells = cells[s2.level_of(cells) <= 12]  # below, the sum of slices has too few digits
    for cell, feature in zip(cells.tolist(), cell_polygons(cells)["features"], strict=True):
        want = s2geometry.S2Cell(s2geometry.S2CellId(cell)).ExactArea()
        assert spherical_area(feature["geometry"]["coordinates"][0]) == pytest.approx(want, rel=0.01)


def test_vega_paints_cells_at_the_poles_and_the_date_line():
    face = dict(zip("abcdef", cell_polygons(s2.faces())["features"], strict=True))
    for name, feature in face.items():
        inside = drawn(feature)
        lat, lon = (x[0] for x in s2.centres(s2.faces()["abcdef".index(name)][None]))
        probes = [(0, 1), (0, 91), (0, 178), (0, -91), (88, 1), (-88, 1)]
        same = [s2.cell_ids([p[0]], [p[1]], 0)[0] == s2.cell_ids([lat], [lon], 0)[0] for p in probes]
        assert [inside(*p) for p in probes] == same


def test_features_say_which_class_they_are():
    cells = np.sort(s2.children(s2.faces()[2]))
    properties = [f["properties"] for f in cell_polygons(cells)["features"]]
    assert properties == [{"label": k, "token": t, "level": 1} for k, t in enumerate(s2.tokens(cells))]
    json.dumps(properties)


def test_neighbouring_cells_share_their_edge_after_rounding():
    one, two = (
        f["geometry"]["coordinates"][0] for f in cell_polygons(s2.children(s2.faces()[0])[:2])["features"]
    )
    shared = {tuple(p) for p in one} & {tuple(p) for p in two}
    assert len(shared) == 9  # an edge of level 1 has 8 parts
