"""S2 cells in NumPy: the cell ids of Google's S2 library, bit for bit, for whole arrays at once.

Latitudes and longitudes in degrees flow in; 64-bit cell ids, and from ids centres, outlines and tokens, flow out.
An id is three bits of cube face, two bits for each level down the Hilbert curve, a one, and zeros: parents, levels and
ranges of descendants are therefore bit arithmetic. Id 0 is no cell; it stands for a point with no place (NaN).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from driftline.types import DriftlineError, FloatArray

CellArray = NDArray[np.uint64]
"""S2 cell ids."""

MAX_LEVEL = 30
"""Level of the leaf cells, about a square centimetre."""
NUM_FACES = 6
FACE_BITS_SHIFT = 61

_CHUNK = 1 << 14  # points at a time: the temporaries then stay in the cache of a core
_SIDE = 1 << MAX_LEVEL  # leaf cells along one side of a face
_STRIDE = 5  # levels of the Hilbert curve taken in one look at a table; 6 looks make 30 levels
_MASK = (1 << _STRIDE) - 1
_ONE = np.uint64(1)

# The curve visits the quadrants 2*i + j of a cell in an order that depends on its orientation (bit 0: axes swapped,
# bit 1: axes inverted), and each quadrant's orientation is the cell's, changed by the quadrant's place in that order.
_QUADRANT_AT = ((0, 1, 3, 2), (0, 2, 3, 1), (3, 2, 0, 1), (3, 1, 0, 2))
_TURN_AT = (1, 0, 0, 3)


def _curve_tables() -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Tables for five levels: (i, j, orientation) -> (place, orientation) and back, each packed into 12 bits."""
    forward = np.zeros(4 << 2 * _STRIDE, np.uint16)
    backward = np.zeros_like(forward)
    for start in range(4):
        for place in range(1 << 2 * _STRIDE):
            orientation, i, j = start, 0, 0
            for level in reversed(range(_STRIDE)):
                digit = (place >> 2 * level) & 3
                quadrant = _QUADRANT_AT[orientation][digit]
                i, j = 2 * i + (quadrant >> 1), 2 * j + (quadrant & 1)
                orientation ^= _TURN_AT[digit]
            cell = i << _STRIDE | j
            forward[cell << 2 | start] = place << 2 | orientation
            backward[place << 2 | start] = cell << 2 | orientation
    return forward, backward


_TO_PLACE, _TO_CELL = _curve_tables()


def cell_ids(lat_deg: ArrayLike, lon_deg: ArrayLike, level: int = MAX_LEVEL) -> CellArray:
    """Ids of the cells of a level that contain the points; 0 where a coordinate is NaN or infinite.

    >>> [hex(i) for i in cell_ids([48.8584, 90.0], [2.2945, 0.0])]
    ['0x47e66fe1f36a36a5', '0x5000000000000001']
    """
    lat, lon = np.broadcast_arrays(np.asarray(lat_deg, np.float64), np.asarray(lon_deg, np.float64))
    _check_level(level)
    flat_lat, flat_lon = lat.reshape(-1), lon.reshape(-1)
    ids = np.empty(flat_lat.size, np.uint64)
    with np.errstate(invalid="ignore"):
        for start in range(0, ids.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            ids[part] = _leaf_ids(flat_lat[part], flat_lon[part])
    if level < MAX_LEVEL:
        ids = np.where(ids == 0, ids, _ancestor(ids, level))
    return ids.reshape(lat.shape)


def parent(ids: ArrayLike, level: int) -> CellArray:
    """The ancestors of cells at a level; a cell of that level is its own.

    >>> tokens(parent(cell_ids([48.8584], [2.2945]), 5))
    ['47e4']
    """
    _check_level(level)
    cells = np.asarray(ids, np.uint64)
    if np.any(level_of(cells) < level):
        raise DriftlineError(
            f"level = {level}: some of the cells are coarser than that; choose a lower level"
        )
    return _ancestor(cells, level)


def level_of(ids: ArrayLike) -> NDArray[np.int64]:
    """Levels of cells: 0 for a face, 30 for a leaf.

    >>> int(level_of(0x47e4000000000000))
    5
    """
    zeros_at_end = np.bitwise_count(_last_one(np.asarray(ids, np.uint64)) - _ONE)
    levels: NDArray[np.int64] = MAX_LEVEL - zeros_at_end.astype(np.int64) // 2
    return levels


def range_of(ids: ArrayLike) -> tuple[CellArray, CellArray]:
    """First and last leaf id within each cell; every descendant's id lies between them.

    >>> [hex(int(i)) for i in range_of(0x47e4000000000000)]
    ['0x47e0000000000001', '0x47e7ffffffffffff']
    """
    cells = np.asarray(ids, np.uint64)
    reach = _last_one(cells) - _ONE
    return cells - reach, cells + reach


def children(cell_id: int | np.uint64) -> CellArray:
    """The four cells that a cell is made of, in the order of the curve.

    >>> tokens(children(0x1000000000000000))
    ['04', '0c', '14', '1c']
    """
    cell = np.asarray(cell_id, np.uint64).reshape(-1)
    if level_of(cell)[0] == MAX_LEVEL:
        raise DriftlineError(f"cell {tokens(cell)[0]} is a leaf: it has no children")
    return children_of(cell)


def children_of(ids: CellArray) -> CellArray:
    """The children of all cells of an array, four for each, in its order. None of the cells may be a leaf.

    >>> len(children_of(faces()))
    24
    """
    quarter = _last_one(ids) >> np.uint64(2)
    steps = np.array([-3, -1, 1, 3], np.int64).astype(np.uint64)  # wraps round, as the sum does
    return (ids[:, None] + quarter[:, None] * steps).reshape(-1)


def faces() -> CellArray:
    """The six cells of level 0.

    >>> tokens(faces())
    ['1', '3', '5', '7', '9', 'b']
    """
    return np.arange(1, 2 * NUM_FACES, 2, dtype=np.uint64) << np.uint64(60)


def is_cell(ids: ArrayLike) -> NDArray[np.bool_]:
    """Whether each number is the id of a cell.

    >>> is_cell([0x47e4000000000000, 0x47e8000000000000 + 2, 0]).tolist()
    [True, False, False]
    """
    cells = np.asarray(ids, np.uint64)
    on_a_level = (_last_one(cells) & np.uint64(0x1555555555555555)) != 0
    valid: NDArray[np.bool_] = on_a_level & ((cells >> np.uint64(FACE_BITS_SHIFT)) < NUM_FACES)
    return valid


def centres(ids: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Latitudes and longitudes of the centres of cells, in degrees.

    >>> lat, lon = centres([0x1000000000000000])
    >>> lat.tolist(), lon.tolist()
    ([0.0], [0.0])
    """
    face, low_i, low_j, side = _squares(np.asarray(ids, np.uint64))
    u, v = (_to_plane((low + side / 2) / _SIDE) for low in (low_i, low_j))
    return _lat_lon(face, u, v)


def vertices(ids: ArrayLike) -> FloatArray:
    """The four corners of cells, counter-clockwise seen from outside: cells x 4 x (latitude, longitude).

    >>> vertices([0x1000000000000000])[0].round(2).tolist()
    [[-35.26, -45.0], [-35.26, 45.0], [35.26, 45.0], [35.26, -45.0]]
    """
    return outline(ids, 1)


def outline(ids: ArrayLike, points_per_edge: int) -> FloatArray:
    """Outlines of cells, counter-clockwise: cells x (4 * points_per_edge) x (latitude, longitude).

    Edges are great circles, straight lines on the face of the cube, and the points are evenly spaced there.

    >>> outline([0x1000000000000000], 3).shape
    (1, 12, 2)
    """
    face, low_i, low_j, side = _squares(np.asarray(ids, np.uint64).reshape(-1))
    u0, u1 = _to_plane(low_i / _SIDE)[:, None], _to_plane((low_i + side) / _SIDE)[:, None]
    v0, v1 = _to_plane(low_j / _SIDE)[:, None], _to_plane((low_j + side) / _SIDE)[:, None]
    along = np.arange(points_per_edge) / points_per_edge
    rest = np.ones_like(along)
    u = np.concatenate([u0 + (u1 - u0) * along, u1 * rest, u1 + (u0 - u1) * along, u0 * rest], axis=1)
    v = np.concatenate([v0 * rest, v0 + (v1 - v0) * along, v1 * rest, v1 + (v0 - v1) * along], axis=1)
    return np.stack(_lat_lon(face[:, None], u, v), axis=-1)


def tokens(ids: ArrayLike) -> list[str]:
    """Ids as short text: hexadecimal without the zeros at the end; "X" for 0.

    >>> tokens([0x47e4000000000000, 0])
    ['47e4', 'X']
    """
    return [f"{cell:016x}".rstrip("0") or "X" for cell in np.asarray(ids, np.uint64).reshape(-1).tolist()]


def from_tokens(texts: Sequence[str]) -> CellArray:
    """Ids of the cells that tokens stand for; what is no cell's token is refused.

    >>> from_tokens(["47e4"]) == 0x47e4000000000000
    array([ True])
    """
    ids = np.array([_id_of(text) for text in texts], np.uint64)
    for position in np.flatnonzero(~is_cell(ids)).tolist():
        raise _not_a_token(texts[position])
    return ids


def _id_of(text: str) -> int:
    # int() would also take signs, underscores, spaces and a 0x in front.
    if not 1 <= len(text) <= 16 or not all(c in "0123456789abcdefABCDEF" for c in text):
        raise _not_a_token(text)
    return int(text.ljust(16, "0"), 16)


def _not_a_token(text: str) -> DriftlineError:
    return DriftlineError(
        f"{text!r} is not the token of an S2 cell; a token is up to 16 hexadecimal digits, like 47e4"
    )


def _check_level(level: int) -> None:
    if not 0 <= level <= MAX_LEVEL:
        raise DriftlineError(f"level = {level}: S2 cells have levels from 0 (a face) to {MAX_LEVEL} (a leaf)")


def _last_one(ids: CellArray) -> CellArray:
    """The lowest bit that is set, which tells the level."""
    return ids & (~ids + _ONE)


def _ancestor(ids: CellArray, level: int) -> CellArray:
    last_one = np.uint64(1 << 2 * (MAX_LEVEL - level))
    return (ids & ~(last_one - _ONE)) | last_one


def _leaf_ids(lat_deg: FloatArray, lon_deg: FloatArray) -> CellArray:
    """Point -> place on the cube -> square of the face's grid -> place on the curve."""
    lat, lon = lat_deg * (np.pi / 180), lon_deg * (np.pi / 180)
    cos_lat = np.cos(lat)
    x, y, z = np.cos(lon) * cos_lat, np.sin(lon) * cos_lat, np.sin(lat)
    face, u, v = _project(x, y, z)
    return np.where(np.isfinite(x + z), _walk(face, _to_grid(u), _to_grid(v)), np.uint64(0))


def _project(x: FloatArray, y: FloatArray, z: FloatArray) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    """Face of the cube that each point lies on, and where on it: u and v from -1 to 1.

    Ties at edges and corners go to the later axis. On the three faces with negative axes u and v are exchanged.
    """
    abs_x, abs_y, abs_z = np.abs(x), np.abs(y), np.abs(z)
    on_x = (abs_x > abs_y) & (abs_x > abs_z)
    on_z = ~on_x & ~(abs_y > abs_z)
    depth = np.where(on_x, x, np.where(on_z, z, y))
    across = np.where(on_x, y, -x) / depth
    up = np.where(on_z, -y, z) / depth
    behind = depth < 0
    face = np.where(on_x, 0, np.where(on_z, 2, 1)) + 3 * behind
    return face, np.where(behind, up, across), np.where(behind, across, up)


def _to_grid(u: FloatArray) -> NDArray[np.int64]:
    """The quadratic projection, which makes cells of one level nearly equal, and rounding to the grid of leaves."""
    half = 0.5 * np.sqrt(1.0 + 3.0 * np.abs(u))
    s = np.where(u >= 0, half, 1.0 - half)
    return np.clip((s * _SIDE).astype(np.int64), 0, _SIDE - 1)


def _to_plane(s: FloatArray) -> FloatArray:
    """The inverse of the quadratic projection: from 0..1 to -1..1."""
    upper = (4.0 * s * s - 1.0) * (1 / 3)
    lower = (1.0 - 4.0 * (1.0 - s) * (1.0 - s)) * (1 / 3)
    return np.where(s >= 0.5, upper, lower)


def _walk(face: NDArray[np.int64], i: NDArray[np.int64], j: NDArray[np.int64]) -> CellArray:
    """Leaf ids of the squares (i, j) of the faces' grids, five levels at a time."""
    ids = face.copy()
    orientation = face & 1
    for shift in range(MAX_LEVEL - _STRIDE, -1, -_STRIDE):
        cell = ((i >> shift) & _MASK) << _STRIDE | ((j >> shift) & _MASK)
        found = _TO_PLACE[cell << 2 | orientation].astype(np.int64)
        ids = ids << 2 * _STRIDE | found >> 2
        orientation = found & 3
    return (ids << 1 | 1).astype(np.uint64)


def _squares(
    ids: CellArray,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Face, lowest i, lowest j and side length, in leaves, of the square that each cell is on its face."""
    bits = (range_of(ids)[0] >> _ONE).astype(np.int64)
    face = (ids >> np.uint64(FACE_BITS_SHIFT)).astype(np.int64)
    i, j, orientation = np.zeros_like(face), np.zeros_like(face), face & 1
    for shift in range(2 * (MAX_LEVEL - _STRIDE), -1, -2 * _STRIDE):
        place = (bits >> shift) & ((1 << 2 * _STRIDE) - 1)
        found = _TO_CELL[place << 2 | orientation].astype(np.int64)
        i = i << _STRIDE | found >> (2 + _STRIDE)
        j = j << _STRIDE | (found >> 2) & _MASK
        orientation = found & 3
    side = np.left_shift(1, MAX_LEVEL - level_of(ids))
    return face, i & -side, j & -side, side


def _lat_lon(face: NDArray[np.int64], u: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Degrees of the points (u, v) on the faces of the cube."""
    behind = face >= 3
    across, up = np.where(behind, v, u), np.where(behind, u, v)
    depth = np.where(behind, -1.0, 1.0)
    axis = face % 3
    x = np.where(axis == 0, depth, -across * depth)
    y = np.where(axis == 1, depth, np.where(axis == 0, across, -up) * depth)
    z = np.where(axis == 2, depth, up * depth)
    # + 0.0 turns -0 into 0: the date line is then always at 180, and the poles at longitude 0.
    lat = np.arctan2(z + 0.0, np.sqrt(x * x + y * y))
    lon = np.arctan2(y + 0.0, x + 0.0)
    return np.degrees(lat), np.degrees(lon)
