"""Replay buffers. They hold positions, never images; a step costs time in proportion to the batch, whatever the size.

In: positions as their samples enter, in stream order. Out: positions to replay. Which positions come out depends only on the
generator handed in and on what entered, so a buffer is restored from its small explicit state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from driftline import draws
from driftline.types import DriftlineError, IntArray, LabelArray

State = dict[str, NDArray[np.int64]]


class Buffer(Protocol):
    """What every replay buffer can do; `replay.checks` holds the checks that each must pass."""

    capacity: int

    def __len__(self) -> int: ...

    def sample(self, rng: np.random.Generator, num: int) -> IntArray:
        """At most `num` positions to replay, fewer while the buffer is that empty."""
        ...

    def extend(self, start: int, stop: int, labels: LabelArray | None) -> None:
        """The samples at positions start..stop-1 enter."""
        ...

    def resize(self, capacity: int) -> None:
        """Hold at most `capacity` positions from now on."""
        ...

    def state(self) -> State:
        """Everything that `load` needs."""
        ...

    def load(self, state: State) -> None:
        """Become the buffer that `state` came from."""
        ...


def _choose(rng: np.random.Generator, total: int, num: int) -> IntArray:
    """Distinct numbers below `total`, in time O(num)."""
    return rng.choice(total, size=min(num, total), replace=False, shuffle=False)


class Fifo:
    """The last `capacity` positions. It needs no memory: what it holds is a range.

    >>> buffer = Fifo(100)
    >>> buffer.extend(0, 1000, None)
    >>> bool(buffer.sample(np.random.default_rng(0), 10).min() >= 900)
    True
    """

    needs_labels = False

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def sample(self, rng: np.random.Generator, num: int) -> IntArray:
        """Distinct positions, uniform over the window."""
        return _choose(rng, len(self), num) + (self.seen - len(self))

    def extend(self, start: int, stop: int, labels: LabelArray | None) -> None:
        """The window moves on to end at `stop`."""
        assert start == self.seen
        self.seen = stop

    def resize(self, capacity: int) -> None:
        """A longer window reaches back to samples that had left it: the store still has them."""
        self.capacity = capacity

    def state(self) -> State:
        """How far the stream has come, and the size."""
        return {"seen": np.array([self.seen]), "capacity": np.array([self.capacity])}

    def load(self, state: State) -> None:
        """Restore."""
        self.seen, self.capacity = int(state["seen"][0]), int(state["capacity"][0])


class Reservoir:
    """A uniform sample of everything seen (Vitter's algorithm R), 8 bytes a slot.

    The t-th sample draws r uniform in 1..t and replaces entry r if r <= capacity. The draw depends on (seed, t) alone.

    >>> buffer = Reservoir(5, seed=0)
    >>> buffer.extend(0, 1000, None)
    >>> len(buffer), len(set(buffer.sample(np.random.default_rng(0), 5).tolist()))
    (5, 5)
    """

    needs_labels = False

    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity = capacity
        self.seed = seed
        self.seen = 0
        self.filled = 0
        self.slots = np.empty(capacity, dtype=np.int64)  # untouched pages take no memory

    def __len__(self) -> int:
        return self.filled

    def sample(self, rng: np.random.Generator, num: int) -> IntArray:
        """Distinct entries, uniform."""
        return np.asarray(self.slots[_choose(rng, self.filled, num)])

    def extend(self, start: int, stop: int, labels: LabelArray | None) -> None:
        """Fill the free slots first, then replace as the draws say."""
        assert start == self.seen
        free = min(self.capacity - self.filled, stop - start)
        self.slots[self.filled : self.filled + free] = np.arange(start, start + free)
        self.filled += free
        positions = np.arange(start + free, stop)
        # r - 1 for the t-th sample, t = position + 1. Repeated slots: NumPy assigns in order, so the last one stays.
        slot = (draws.uniform(self.seed, "reservoir", positions) * (positions + 1)).astype(np.int64)
        enters = slot < self.capacity
        self.slots[slot[enters]] = positions[enters]
        self.seen = stop

    def resize(self, capacity: int) -> None:
        """A smaller reservoir keeps a uniform part; a larger one fills its free slots with what comes next."""
        keep = self.slots[: self.filled]
        if capacity < self.filled:
            chosen = _choose(draws.generator(self.seed, "shrink", self.seen), self.filled, capacity)
            keep = keep[np.sort(chosen)]
        slots = np.empty(capacity, dtype=np.int64)
        slots[: len(keep)] = keep
        self.slots, self.filled, self.capacity = slots, len(keep), capacity

    def state(self) -> State:
        """The entries themselves."""
        return {
            "seen": np.array([self.seen]),
            "capacity": np.array([self.capacity]),
            "slots": self.slots[: self.filled].copy(),
        }

    def load(self, state: State) -> None:
        """Restore."""
        self.seen, self.capacity = int(state["seen"][0]), int(state["capacity"][0])
        self.filled = len(state["slots"])
        self.slots = np.empty(self.capacity, dtype=np.int64)
        self.slots[: self.filled] = state["slots"]


class Ring:
    """The last capacity // classes positions of each class, drawn so that all classes seen are equally likely.

    >>> buffer = Ring(4, num_classes=2)
    >>> buffer.extend(0, 6, np.array([0, 0, 0, 0, 0, 1], dtype=np.int32))
    >>> sorted({p for seed in range(50) for p in buffer.sample(np.random.default_rng(seed), 3).tolist()})
    [3, 4, 5]
    """

    needs_labels = True

    def __init__(self, capacity: int, num_classes: int) -> None:
        if capacity < num_classes:
            raise DriftlineError(
                f"buffer_size = {capacity} with replay = ring and {num_classes} classes: "
                f"a ring needs a slot for each class, set --buffer-size {num_classes} or more"
            )
        self.capacity = capacity
        self.num_classes = num_classes
        self.seen = 0
        self.slots = np.empty((num_classes, capacity // num_classes), dtype=np.int64)
        self.entered = np.zeros(num_classes, dtype=np.int64)
        self.known = np.empty(0, dtype=np.int64)
        """Classes that have entries, in the order of their first."""

    def __len__(self) -> int:
        return int(np.minimum(self.entered, self.slots.shape[1]).sum())

    def sample(self, rng: np.random.Generator, num: int) -> IntArray:
        """A class uniformly, then one of its entries uniformly; with replacement, so rare classes count as much."""
        if not len(self.known):
            return np.empty(0, dtype=np.int64)
        chosen = self.known[rng.integers(len(self.known), size=min(num, len(self)))]
        entry = rng.integers(np.minimum(self.entered[chosen], self.slots.shape[1]))
        return np.asarray(self.slots[chosen, entry])

    def extend(self, start: int, stop: int, labels: LabelArray | None) -> None:
        """Each position takes the next slot of its class; a sample whose label is no class (bad data) stays outside."""
        assert start == self.seen
        assert labels is not None
        has_class = (labels >= 0) & (labels < self.num_classes)
        positions, labels = np.arange(start, stop)[has_class], labels[has_class]
        new, first = np.unique(labels, return_index=True)
        fresh = new[self.entered[new] == 0]
        order = first[self.entered[new] == 0].argsort()
        self.known = np.concatenate([self.known, fresh[order]])
        slot = (self.entered[labels] + _rank_within_class(labels)) % self.slots.shape[1]
        self.slots[labels, slot] = positions
        np.add.at(self.entered, labels, 1)
        self.seen = stop

    def resize(self, capacity: int) -> None:
        """Each class keeps its newest entries."""
        old = Ring(self.capacity, self.num_classes)
        old.load(self.state())
        self.__init__(capacity, self.num_classes)  # type: ignore[misc]
        self.seen, self.known = old.seen, old.known
        width = self.slots.shape[1]
        for label in old.known:
            newest_first = (
                old.entered[label] - 1 - np.arange(min(old.entered[label], old.slots.shape[1], width))
            ) % (old.slots.shape[1])
            kept = old.slots[label, newest_first[::-1]]
            self.slots[label, : len(kept)] = kept
            self.entered[label] = len(kept)

    def state(self) -> State:
        """Entries and counts of each class."""
        return {
            "seen": np.array([self.seen]),
            "capacity": np.array([self.capacity]),
            "slots": self.slots.copy(),
            "entered": self.entered.copy(),
            "known": self.known.copy(),
        }

    def load(self, state: State) -> None:
        """Restore."""
        self.seen, self.capacity = int(state["seen"][0]), int(state["capacity"][0])
        self.slots, self.entered, self.known = (state[k].copy() for k in ("slots", "entered", "known"))


def _rank_within_class(labels: LabelArray) -> IntArray:
    """How many earlier elements of the batch have the same label.

    >>> _rank_within_class(np.array([4, 7, 4, 4, 7], dtype=np.int32)).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    rank = np.arange(len(labels)) - np.repeat(starts, np.diff(np.append(starts, len(labels))))
    result = np.empty(len(labels), dtype=np.int64)
    result[order] = rank
    return result


class NoBuffer:
    """Replays nothing.

    >>> len(NoBuffer().sample(np.random.default_rng(0), 10))
    0
    """

    needs_labels = False

    def __init__(self) -> None:
        self.capacity = 0

    def __len__(self) -> int:
        return 0

    def sample(self, rng: np.random.Generator, num: int) -> IntArray:
        """Nothing."""
        return np.empty(0, dtype=np.int64)

    def extend(self, start: int, stop: int, labels: LabelArray | None) -> None:
        """Forgets at once."""

    def resize(self, capacity: int) -> None:
        """Stays empty."""

    def state(self) -> State:
        """Nothing."""
        return {}

    def load(self, state: State) -> None:
        """Nothing."""


BUFFERS: dict[str, Callable[[int, int, int], Buffer]] = {
    "fifo": lambda capacity, num_classes, seed: Fifo(capacity),
    "reservoir": lambda capacity, num_classes, seed: Reservoir(capacity, seed),
    "ring": lambda capacity, num_classes, seed: Ring(capacity, num_classes),
    "none": lambda capacity, num_classes, seed: NoBuffer(),
}
"""How each buffer is made from (capacity, number of classes, seed)."""
