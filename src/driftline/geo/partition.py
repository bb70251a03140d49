"""The adaptive partition of the sphere into classes: small cells where there are many photos, large ones elsewhere.

Leaf cells of the preprocessing photos flow in; a `Partition` flows out, which turns any place into a class number.
Everything is sorting and bisection on cell ids, because all descendants of a cell are one range of ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from driftline.geo import s2
from driftline.types import DriftlineError, FloatArray, IntArray, LabelArray

_CHUNK = 1 << 16  # points labelled at a time; bounds the memory, whatever the number of points


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint cells in ascending order: class k is `cells[k]`, which held `counts[k]` photos when it was chosen."""

    cells: s2.CellArray
    counts: IntArray

    def __post_init__(self) -> None:
        if self.cells.shape != self.counts.shape or self.cells.ndim != 1:
            raise DriftlineError(
                f"partition: {self.cells.shape} cells but {self.counts.shape} counts; give one count a cell"
            )
        for cell in self.cells[~s2.is_cell(self.cells)].tolist():
            raise DriftlineError(f"partition: {cell:#x} is not an S2 cell id")
        first, last = s2.range_of(self.cells)
        for k in np.flatnonzero(first[1:] <= last[:-1]).tolist():
            pair = " and ".join(s2.tokens(self.cells[k : k + 2]))
            raise DriftlineError(
                f"partition: cells {pair} overlap or are out of order; sort them, drop doubles"
            )

    def __len__(self) -> int:
        return len(self.cells)

    def label(self, lat_deg: ArrayLike, lon_deg: ArrayLike) -> LabelArray:
        """Classes of places, -1 in no kept cell and where a coordinate is NaN.

        >>> Partition(s2.faces(), np.ones(6, np.int64)).label([0.0, 90.0, np.nan], [0.0, 0.0, 0.0]).tolist()
        [0, 2, -1]
        """
        lat, lon = np.asarray(lat_deg, np.float64), np.asarray(lon_deg, np.float64)
        if lat.shape != lon.shape or lat.ndim != 1:
            raise DriftlineError(
                f"{lat.shape} latitudes but {lon.shape} longitudes; give two lists of one length"
            )
        labels = np.empty(lat.size, np.int32)
        for start in range(0, lat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            labels[part] = self.label_cells(s2.cell_ids(lat[part], lon[part]))
        return labels

    def label_cells(self, leaf_ids: NDArray[np.uint64]) -> LabelArray:
        """Classes of leaf cells, -1 in no kept cell.

        >>> Partition(s2.faces()[1:2], np.array([9])).label_cells(s2.cell_ids([0.0, 0.0], [0.0, 90.0])).tolist()
        [-1, 0]
        """
        if not len(self):
            return np.full(len(leaf_ids), -1, np.int32)
        first, last = s2.range_of(self.cells)
        found = np.searchsorted(first, leaf_ids, side="right") - 1
        # Below the first cell `found` is -1, which indexes the last cell and fails the comparison with its start.
        inside = (leaf_ids <= last[found]) & (leaf_ids >= first[found])
        return np.where(inside, found, -1).astype(np.int32)

    def centres(self) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes of the class centres, in degrees.

        >>> [x.tolist() for x in Partition(s2.faces()[:1], np.array([9])).centres()]
        [[0.0], [0.0]]
        """
        return s2.centres(self.cells)


def build_partition(
    leaf_ids: NDArray[np.uint64],
    *,
    min_per_class: int = 50,
    max_per_class: int = 10_000,
    max_level: int = s2.MAX_LEVEL,
) -> Partition:
    """Split every cell with more than `max_per_class` photos, from the faces down; drop those with fewer than the least.

    A cell of `max_level` is kept however many photos it holds. Ids of 0 (photos without a place) count nowhere.

    >>> leaves = s2.cell_ids([1.0, 2.0, 3.0, -50.0], [10.0, 20.0, 30.0, 10.0])
    >>> len(build_partition(leaves, min_per_class=1, max_per_class=3)), len(
    ...     build_partition(leaves, min_per_class=2, max_per_class=3))
    (2, 1)
    """
    _check(min_per_class, max_per_class, max_level)
    leaves = np.sort(leaf_ids)
    cells, kept, kept_counts = s2.faces(), [], []
    for level in range(max_level + 1):
        first, last = s2.range_of(cells)
        counts = np.searchsorted(leaves, last, side="right") - np.searchsorted(leaves, first, side="left")
        split = (counts > max_per_class) & (level < max_level)
        keep = (counts >= min_per_class) & ~split
        kept.append(cells[keep])
        kept_counts.append(counts[keep])
        cells = s2.children_of(cells[split])
    chosen, num_photos = np.concatenate(kept), np.concatenate(kept_counts).astype(np.int64)
    order = np.argsort(chosen)
    return Partition(chosen[order], num_photos[order])


def _check(min_per_class: int, max_per_class: int, max_level: int) -> None:
    if min_per_class < 1:
        raise DriftlineError(
            f"min_per_class = {min_per_class}: must be at least 1, or empty cells would be classes"
        )
    if max_per_class < min_per_class:
        raise DriftlineError(
            f"max_per_class = {max_per_class} is less than min_per_class = {min_per_class}: raise one or lower the other"
        )
    if not 0 <= max_level <= s2.MAX_LEVEL:
        raise DriftlineError(f"max_level = {max_level}: S2 cells have levels from 0 to {s2.MAX_LEVEL}")
