"""Second pass: the spilled rows in their final order, each id once, a month at a time.

Folders of spilled rows flow in; frames flow out, ordered by (time, user, id), or as given. Besides one month (and the next, which
is being read) only the keys of ids that occur more than once are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from driftline.streams.building.ahead import map_ahead
from driftline.streams.building.spill import id_keys, read_cut
from driftline.types import BoolArray

TIME_ORDER = ["time", "user", "id"]
GIVEN_ORDER = ["row"]


@dataclass(frozen=True)
class OrderedRows:
    """All good rows of a table; iterate as often as needed, every pass gives the same frames."""

    folders: list[Path]
    cuts: list[int]
    repeated_keys: NDArray[np.uint64]
    """Sorted keys of the ids that occur more than once."""
    num_rows: int
    """Rows of all frames together."""
    given_order: bool = False
    has_time: bool = True
    """Without times, a row's time is its place in the order."""

    def __iter__(self) -> Iterator[pl.DataFrame]:
        seen, num_before = np.zeros(len(self.repeated_keys), dtype=bool), 0
        for frame in map_ahead(self._sorted, self.cuts, threads=1, ahead=1):
            rows = self._each_once(frame, seen)
            if not self.has_time:
                rows = rows.with_columns(
                    pl.int_range(num_before, num_before + rows.height, dtype=pl.Int64).alias("time")
                )
            num_before += rows.height
            yield rows

    @cached_property
    def _beginnings(self) -> tuple[BoolArray, np.uint64]:
        """Whether a repeated key begins with these bits, and how many bits are left: most rows are done with after one look."""
        num_bits = min(len(self.repeated_keys).bit_length() + 4, 27)
        shift = np.uint64(64 - num_bits)
        table = np.zeros(1 << num_bits, dtype=bool)
        table[self.repeated_keys >> shift] = True
        return table, shift

    def _sorted(self, cut: int) -> pl.DataFrame:
        keys = GIVEN_ORDER if self.given_order else TIME_ORDER
        frame = read_cut(self.folders, cut)
        if len(self.repeated_keys):
            # Two rows with one id may differ elsewhere: which of them is first must not depend on who read them first.
            keys = [*keys, *(name for name in frame.columns if name not in keys)]
        return frame.sort(keys)

    def _each_once(self, frame: pl.DataFrame, seen: BoolArray) -> pl.DataFrame:
        """Without the rows whose id was there before, in this frame or an earlier one."""
        if not len(self.repeated_keys):
            return frame
        keys = id_keys(frame["id"])
        may_repeat, shift = self._beginnings
        maybe = np.flatnonzero(may_repeat[keys >> shift])
        place = np.minimum(np.searchsorted(self.repeated_keys, keys[maybe]), len(self.repeated_keys) - 1)
        repeats = self.repeated_keys[place] == keys[maybe]
        rows, place = maybe[repeats], place[repeats]
        values, first = np.unique(place, return_index=True)
        fresh = rows[first][~seen[values]]
        seen[values] = True
        keep = np.ones(frame.height, dtype=bool)
        keep[rows] = False
        keep[fresh] = True
        return frame.filter(pl.Series(keep))
