"""Checks that every replay buffer must pass, ours and yours: `check_buffer(make)` runs them all.

In: a function that makes an empty buffer of a given capacity. Out: nothing, or an AssertionError that says which promise was
broken. What a buffer promises is what the engine relies on: positions only from what entered, bounded memory, a step whose
cost does not depend on the capacity, sampling that changes nothing, and a state from which it goes on exactly.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from driftline.replay.buffers import Buffer, State
from driftline.types import IntArray, LabelArray

MakeBuffer = Callable[[int], Buffer]
"""Makes an empty buffer of a capacity; buffers made alike must behave alike."""

NUM_CLASSES = 10
"""Labels that the checks hand in lie below this."""
BATCH = 32
BYTES_A_SLOT = 8
SLACK_BYTES = 1 << 16
"""What a buffer may use besides its slots, and a step besides its batch."""
SMALL, LARGE = 2_000, 1_000_000
SLOWER_AT_MOST = 20.0
"""A step at LARGE may take this many times one at SMALL; one that goes through all its slots takes some 500 times."""


def labels_of(positions: IntArray) -> LabelArray:
    """The labels the checks use: class 0 is common, the last one rare.

    >>> labels_of(np.array([0, 1, 2, 3, 4, 99])).tolist()
    [0, 1, 5, 0, 2, 3]
    """
    spread = positions * 37 % 100 / 100
    return (NUM_CLASSES * spread**2).astype(np.int32)


def feed(buffer: Buffer, start: int, stop: int, batch: int = BATCH) -> None:
    """The samples start..stop-1 enter, a batch at a time."""
    for first in range(start, stop, batch):
        last = min(first + batch, stop)
        buffer.extend(first, last, labels_of(np.arange(first, last)))


def drawn(buffer: Buffer, seed: int, num: int = BATCH) -> list[int]:
    """What the buffer gives with a fresh generator of this seed."""
    positions: list[int] = buffer.sample(np.random.default_rng(seed), num).tolist()
    return positions


def same_state(a: State, b: State) -> bool:
    """Whether two states are equal, entry by entry.

    >>> same_state({"seen": np.array([3])}, {"seen": np.array([4])})
    False
    """
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# -- the promises, one function each


def check_empty_at_first(make: MakeBuffer) -> None:
    """A buffer that nothing entered holds nothing and gives nothing."""
    buffer = make(64)
    assert len(buffer) == 0, f"a new buffer says it holds {len(buffer)} positions"
    assert drawn(buffer, 0) == [], "a new buffer gave positions to replay"


def check_gives_only_what_entered(make: MakeBuffer) -> None:
    """At most as many positions as asked for, all of them below the number that entered."""
    buffer = make(64)
    for stop in range(BATCH, 20 * BATCH, BATCH):
        feed(buffer, stop - BATCH, stop)
        for num in (0, 1, 7, BATCH, 1000):
            positions = buffer.sample(np.random.default_rng(stop), num)
            assert positions.dtype == np.int64, f"positions are {positions.dtype}, not int64"
            assert len(positions) <= num, f"{len(positions)} positions where {num} were asked for"
            assert all(0 <= p < stop for p in positions), f"positions that had not entered: {positions}"


def check_holds_at_most_its_capacity(make: MakeBuffer) -> None:
    """It never holds more positions than its capacity, nor gives more different ones."""
    buffer = make(50)
    for stop in range(BATCH, 30 * BATCH, BATCH):
        feed(buffer, stop - BATCH, stop)
        assert len(buffer) <= 50, f"{len(buffer)} positions in a buffer of 50"
        different = {p for seed in range(20) for p in drawn(buffer, seed, 50)}
        assert len(different) <= len(buffer), f"{len(different)} different positions of {len(buffer)} held"


def check_sampling_changes_nothing(make: MakeBuffer) -> None:
    """What is drawn depends on the generator and on what entered, not on what was drawn before."""
    asked, left_alone = make(100), make(100)
    for stop in range(BATCH, 10 * BATCH, BATCH):
        for buffer in (asked, left_alone):
            feed(buffer, stop - BATCH, stop)
        for seed in range(5):
            drawn(asked, seed)
        assert same_state(asked.state(), left_alone.state()), "sampling changed the buffer's state"
        assert drawn(asked, 9) == drawn(left_alone, 9), "sampling changed what is drawn later"


def check_same_seed_same_result(make: MakeBuffer) -> None:
    """Two buffers made and fed alike give the same positions."""
    first, second = make(100), make(100)
    for stop in range(BATCH, 20 * BATCH, BATCH):
        for buffer in (first, second):
            feed(buffer, stop - BATCH, stop)
        assert drawn(first, stop) == drawn(second, stop), (
            "buffers made and fed alike gave different positions"
        )


def check_state_round_trips(make: MakeBuffer) -> None:
    """A new buffer that takes the state over goes on exactly as the old one; a state taken out never changes."""
    for moment in (0, BATCH, 10 * BATCH):
        old = make(100)
        feed(old, 0, moment)
        state = old.state()
        kept = {name: value.copy() for name, value in state.items()}
        new = make(100)
        new.load(state)
        for stop in range(moment + BATCH, moment + 10 * BATCH, BATCH):
            assert len(old) == len(new), "a restored buffer holds another number of positions"
            assert drawn(old, stop) == drawn(new, stop), "a restored buffer gives other positions"
            for buffer in (old, new):
                feed(buffer, stop - BATCH, stop)
        assert same_state(old.state(), new.state()), "a restored buffer went on differently"
        assert same_state(state, kept), "a state that was taken out changed when the buffer went on"


def check_resizes(make: MakeBuffer) -> None:
    """After a change of capacity it holds at most so many and goes on; the new capacity is part of its state."""
    buffer = make(100)
    seen = 0
    for capacity in (100, 50, 400, 20, 20, 1000):
        if buffer.capacity:  # a buffer that holds nothing has no size to change
            buffer.resize(capacity)
            assert buffer.capacity == capacity, (
                f"capacity {buffer.capacity} after it was changed to {capacity}"
            )
        assert len(buffer) <= capacity, f"{len(buffer)} positions in a buffer made smaller, to {capacity}"
        assert all(0 <= p < seen for p in drawn(buffer, capacity)), "resizing invented positions"
        feed(buffer, seen, seen + 10 * BATCH)
        seen += 10 * BATCH
        assert len(buffer) <= capacity, f"{len(buffer)} positions in a buffer of {capacity}"
        restored = make(100)
        restored.load(buffer.state())
        assert drawn(restored, 1) == drawn(buffer, 1), "a state taken after a change of size is not complete"


def check_memory_is_bounded(make: MakeBuffer) -> None:
    """8 bytes a slot, and nothing that grows with the stream."""
    capacity = 20_000
    make(capacity)  # what is loaded at first use is not the buffer's
    tracemalloc.start()
    try:
        buffer = make(capacity)
        for stop in range(10_000, 20 * capacity, 10_000):
            feed(buffer, stop - 10_000, stop, 10_000)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    limit = BYTES_A_SLOT * capacity + SLACK_BYTES
    assert used <= limit, f"{used} bytes after 20 times its capacity entered; the limit is {limit}"


def check_step_needs_no_memory_of_its_size(make: MakeBuffer) -> None:
    """A step of a large buffer allocates for its batch, not for its slots."""
    buffer = make(LARGE)
    feed(buffer, 0, LARGE, 1 << 16)
    _step(buffer, LARGE)
    tracemalloc.start()
    try:
        _step(buffer, LARGE + BATCH)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 2 * SLACK_BYTES, (
        f"a step of {BATCH} samples took {peak} bytes in a buffer of {LARGE} slots"
    )


def check_step_takes_no_time_of_its_size(make: MakeBuffer) -> None:
    """A step of a large buffer costs about what one of a small buffer does."""
    small, large = (_quickest_step(make, capacity) for capacity in (SMALL, LARGE))
    assert large <= SLOWER_AT_MOST * small, (
        f"a step takes {large / small:.0f} times as long with {LARGE} slots as with {SMALL}: its cost grows with the capacity"
    )


def _quickest_step(make: MakeBuffer, capacity: int) -> float:
    """The least time of many steps, which is hardly touched by what else the machine does."""
    buffer = make(capacity)
    feed(buffer, 0, capacity, 1 << 16)
    seconds = []
    for i in range(50):
        start = time.perf_counter()
        _step(buffer, capacity + i * BATCH)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _step(buffer: Buffer, seen: int) -> None:
    buffer.sample(np.random.default_rng(seen), BATCH)
    feed(buffer, seen, seen + BATCH)


CHECKS: tuple[Callable[[MakeBuffer], None], ...] = (
    check_empty_at_first,
    check_gives_only_what_entered,
    check_holds_at_most_its_capacity,
    check_sampling_changes_nothing,
    check_same_seed_same_result,
    check_state_round_trips,
    check_resizes,
    check_memory_is_bounded,
    check_step_needs_no_memory_of_its_size,
    check_step_takes_no_time_of_its_size,
)
"""All of them, for a test that is run once for each."""


def check_buffer(make: MakeBuffer) -> None:
    """Run every check on a kind of buffer.

    >>> from driftline.replay.buffers import Fifo
    >>> check_buffer(Fifo)
    """
    for check in CHECKS:
        check(make)
