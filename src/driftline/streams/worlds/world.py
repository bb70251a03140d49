"""The embedded world: a stream of satellite views taken by simulated photographers, rendered by position.

It is split and labelled by the same rules as a stream built from a table: the first 5 % of the photos make the S2 classes, 1 %
are held out, photos in no kept cell leave the stream. `build` turns the same photos into a store with the same labels.
What is kept in memory is one bit a photo, and what never changes about each photographer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from driftline.geo import s2
from driftline.geo.partition import Partition, build_partition
from driftline.streams.building.splits import is_validation, preprocessing_count
from driftline.streams.worlds import render
from driftline.streams.worlds.photographers import Photographers
from driftline.types import (
    ClassTable,
    DriftlineError,
    ImageArray,
    IntArray,
    LabelArray,
    Samples,
)

DEFAULT_LENGTH = 50_000
SHORTEST = 2_000
LONGEST = 70_000_000
"""With more, two photos of a busy day could fall into one second."""
PREPROCESS_SHARE = 0.05
BLOCK = 256
"""Photos in one entry of the table that finds a position."""
CHUNK = BLOCK * 128


def class_limits(num_preprocessing: int) -> tuple[int, int]:
    """Fewest and most photos a class may have: the paper's 50 and 10,000 of 2 M, and less for a small world.

    >>> class_limits(2_000_000), class_limits(2_500)
    ((50, 10000), (5, 50))
    """
    return max(5, num_preprocessing // 40_000), max(50, num_preprocessing // 200)


def validation_share(length: int) -> float:
    """Part of the photos after the first ones that is held out: the paper's 1 %, and more of a short world.

    A transfer curve over ten years needs some thousand photos to show anything but noise.

    >>> [validation_share(length) for length in (39_000_000, 50_000, 10_000)]
    [0.01, 0.08, 0.1]
    """
    return min(0.1, max(0.01, 4_000 / length))


@dataclass(frozen=True)
class World:
    """A world of `length` photos; `length` counts the preprocessing and validation photos too.

    >>> world = World(2_000, seed=1)
    >>> world.train.images(np.array([0, 7]))[1].shape
    (32, 32, 3)
    """

    length: int = DEFAULT_LENGTH
    seed: int = 0
    image_size: int = render.SIZE
    fixed_size: bool = True

    def __post_init__(self) -> None:
        if not SHORTEST <= self.length <= LONGEST:
            raise DriftlineError(
                f"a world of {self.length} photos: the length must lie between {SHORTEST} and {LONGEST}"
            )
        if not 0 <= self.seed < 2**63:
            raise DriftlineError(
                f"a world of seed {self.seed}: the seed must be 0 or more and less than 2**63"
            )

    @property
    def name(self) -> str:
        """How `--stream` names this world."""
        return f"world:{self.length}:{self.seed}"

    @property
    def fingerprint(self) -> str:
        """The same for worlds that are the same."""
        return f"{self.name}:3"

    @cached_property
    def photographers(self) -> Photographers:
        """Who takes the photos."""
        return Photographers(self.length, self.seed)

    @cached_property
    def num_preprocessing(self) -> int:
        """Photos that only serve to make the classes."""
        return preprocessing_count(self.length, PREPROCESS_SHARE)

    @cached_property
    def partition(self) -> Partition:
        """The classes: S2 cells that divide the first photos into parts of like size."""
        leaves = [s2.cell_ids(lat, lon) for _, _, _, lat, lon in self._chunks(0, self.num_preprocessing)]
        fewest, most = class_limits(self.num_preprocessing)
        return build_partition(np.concatenate(leaves), min_per_class=fewest, max_per_class=most)

    @cached_property
    def classes(self) -> ClassTable:
        """The classes' cells and centres."""
        lat, lon = self.partition.centres()
        cells = self.partition.cells
        return ClassTable(tuple(s2.tokens(cells)), lat, lon, cells)

    @cached_property
    def _splits(self) -> tuple[WorldSplit, WorldSplit]:
        """Goes once through all photos to see which are in which split."""
        kept = np.zeros((2, self.length + (-self.length) % BLOCK), dtype=bool)
        for ordinals, _, _, lat, lon in self._chunks(self.num_preprocessing, self.length):
            has_class = self.partition.label(lat, lon) >= 0
            held_out = is_validation(self.seed, ordinals, validation_share(self.length))
            kept[0, ordinals] = has_class & ~held_out
            kept[1, ordinals] = has_class & held_out
        train, validation = (WorldSplit.of(self, row) for row in kept)
        return train, validation

    @property
    def train(self) -> WorldSplit:
        """What the learner tests itself on and learns from."""
        return self._splits[0]

    @property
    def validation(self) -> WorldSplit:
        """Held out, uniform over the decade."""
        return self._splits[1]

    def _chunks(self, start: int, stop: int) -> Iterator[tuple[IntArray, ...]]:
        for first in range(start, stop, CHUNK):
            ordinals = np.arange(first, min(first + CHUNK, stop))
            yield ordinals, *self.photographers.photos(ordinals)  # type: ignore[misc]


@dataclass(frozen=True)
class WorldSplit:
    """Some photos of a world, in time order, found by position through a bit a photo."""

    world: World
    bits: ImageArray
    before: IntArray
    """Photos of this split before each block, and after the last one."""

    @staticmethod
    def of(world: World, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> WorldSplit:
        """The split that keeps these photos (one flag a photo, whole blocks)."""
        blocks = kept.reshape(-1, BLOCK)
        before = np.concatenate([[0], np.cumsum(blocks.sum(axis=1))]).astype(np.int64)
        return WorldSplit(world, np.packbits(blocks, axis=1), before)

    def __len__(self) -> int:
        return int(self.before[-1])

    def ordinals(self, positions: IntArray) -> IntArray:
        """Which photos of the world stand at these positions."""
        for outside in positions[(positions < 0) | (positions >= len(self))][:1]:
            raise DriftlineError(f"position {outside} is outside the stream of {len(self)} samples")
        block = np.searchsorted(self.before, positions, side="right") - 1
        running = np.unpackbits(self.bits[block], axis=1).cumsum(axis=1, dtype=np.int16)
        within = (running == (positions - self.before[block] + 1)[:, None]).argmax(axis=1)
        return np.asarray(block * BLOCK + within)

    def samples(self, start: int, stop: int) -> Samples:
        """Columns of the samples at positions start..stop-1."""
        positions = np.arange(start, stop)
        time_s, user, lat, lon = self.world.photographers.photos(self.ordinals(positions))
        return Samples(positions, time_s, user, self.world.partition.label(lat, lon), lat, lon)

    def labels(self, positions: IntArray) -> LabelArray:
        """Labels at arbitrary positions."""
        _, _, lat, lon = self.world.photographers.photos(self.ordinals(positions))
        return self.world.partition.label(lat, lon)

    def images(self, positions: IntArray) -> ImageArray:
        """Rendered images at arbitrary positions."""
        ordinals = self.ordinals(positions)
        return render.render(self.world.seed, ordinals, *self.world.photographers.photos(ordinals))


def parse_world(text: str) -> World:
    """The world named world[:LENGTH[:SEED]].

    >>> parse_world("world:20000").length, parse_world("world").seed
    (20000, 0)
    """
    parts = text.split(":")
    numbers = [part.replace("_", "") for part in parts[1:]]
    if parts[0] != "world" or len(parts) > 3 or not all(part.isdecimal() for part in numbers):
        raise DriftlineError(
            f"stream = {text!r}: the embedded stream is named world, world:LENGTH or world:LENGTH:SEED"
        )
    length, seed = ([int(n) for n in numbers] + [DEFAULT_LENGTH, 0][len(numbers) :])[:2]
    return World(length, seed)
