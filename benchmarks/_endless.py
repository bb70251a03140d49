"""A stream of any length that costs next to nothing to open: images, labels and columns are functions of the position.

Used where a benchmark asks how a step's cost depends on the stream's length or on the buffer's size, up to 39 M and beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from driftline import draws
from driftline.types import ClassTable, ImageArray, IntArray, LabelArray, Samples

NUM_CLASSES = 100
SIZE = 32


@dataclass(frozen=True)
class EndlessSplit:
    """Positions 0 to num - 1; each image is one of 4096 tiles."""

    num: int

    @cached_property
    def tiles(self) -> ImageArray:
        return np.random.default_rng(0).integers(0, 256, (4096, SIZE, SIZE, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return self.num

    def samples(self, start: int, stop: int) -> Samples:
        at = np.arange(start, stop)
        nowhere = np.full(len(at), np.nan)
        return Samples(at, 1_072_915_200 + at, at // 2, self.labels(at), nowhere, nowhere)

    def labels(self, positions: IntArray) -> LabelArray:
        return (draws.bits(0, "label", positions) % np.uint64(NUM_CLASSES)).astype(np.int32)

    def images(self, positions: IntArray) -> ImageArray:
        return self.tiles[(draws.bits(0, "tile", positions) & np.uint64(4095)).astype(np.int64)]


@dataclass(frozen=True)
class EndlessStream:
    """A stream of so many samples, and a validation set of a thousand."""

    num: int
    image_size: int = SIZE
    fixed_size: bool = True

    @property
    def name(self) -> str:
        return f"endless {self.num}"

    fingerprint = name

    @property
    def classes(self) -> ClassTable:
        return ClassTable(tuple(map(str, range(NUM_CLASSES))))

    @cached_property
    def train(self) -> EndlessSplit:
        return EndlessSplit(self.num)

    @cached_property
    def validation(self) -> EndlessSplit:
        return EndlessSplit(1000)
