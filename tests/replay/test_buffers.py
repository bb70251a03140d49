"""Buffers hold what their definitions say, compared with slow obvious ones, and draw evenly from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline import draws
from driftline.replay.buffers import BUFFERS, Fifo, Reservoir, Ring
from driftline.types import DriftlineError

batches = st.lists(st.integers(1, 40), min_size=1, max_size=12)
Z_LIMIT = 5.0
"""Standard deviations; a fair draw goes further once in two million times."""


def everything_in(buffer, num_draws=60):
    """All positions that a buffer ever gives: enough draws of its whole content."""
    return {
        p
        for seed in range(num_draws)
        for p in buffer.sample(np.random.default_rng(seed), len(buffer)).tolist()
    }


def enter(buffer, sizes, labels=None):
    start = 0
    for size in sizes:
        part = None if labels is None else labels[start : start + size]
        buffer.extend(start, start + size, part)
        start += size
    return start


# -- the same as an obvious one


@given(st.integers(1, 60), batches)
def test_fifo_holds_the_last_positions(capacity, sizes):
    buffer = Fifo(capacity)
    held: list[int] = []
    start = 0
    for size in sizes:
        held = (held + list(range(start, start + size)))[-capacity:]
        start += size
    enter(buffer, sizes)
    assert sorted(buffer.sample(np.random.default_rng(0), len(buffer)).tolist()) == held


@given(st.integers(1, 40), batches, st.integers(0, 5))
def test_reservoir_is_algorithm_r_one_sample_at_a_time(capacity, sizes, seed):
    held: list[int] = []
    for position in range(sum(sizes)):
        t = position + 1
        if len(held) < capacity:
            held.append(position)
            continue
        r = 1 + int(float(draws.uniform(seed, "reservoir", position)) * t)  # uniform in 1..t
        if r <= capacity:
            held[r - 1] = position
    buffer = Reservoir(capacity, seed)
    enter(buffer, sizes)
    assert sorted(buffer.sample(np.random.default_rng(0), capacity).tolist()) == sorted(held)


@given(st.integers(1, 5), st.integers(1, 4), batches, st.integers(0, 1000))
def test_ring_holds_the_last_positions_of_each_class(num_classes, width, sizes, seed):
    labels = np.random.default_rng(seed).integers(num_classes, size=sum(sizes)).astype(np.int32)
    held: dict[int, list[int]] = {}
    for position, label in enumerate(labels.tolist()):
        held[label] = [*held.get(label, []), position][-width:]
    buffer = Ring(num_classes * width, num_classes)
    enter(buffer, sizes, labels)
    expected = {p for positions in held.values() for p in positions}
    assert len(buffer) == len(expected)
    got = {int(p) for seed in range(200) for p in buffer.sample(np.random.default_rng(seed), 10)}
    assert got <= expected
    assert sum(len(positions) for positions in held.values()) == len(expected)
    if len(expected) <= 6:  # with 2000 draws each of so few is all but sure to appear
        assert got == expected


@given(st.sampled_from(["fifo", "reservoir", "ring"]), st.integers(10, 60), batches, batches)
def test_how_the_stream_was_cut_into_batches_does_not_matter(name, capacity, first, second):
    total = min(sum(first), sum(second))
    labels = (np.arange(total) * 7 % 5).astype(np.int32)

    def filled(sizes):
        buffer = BUFFERS[name](capacity, 5, 3)
        ends = [e for e in np.cumsum(sizes).tolist() if e < total] + [total]
        start = 0
        for stop in ends:
            buffer.extend(start, stop, labels[start:stop])
            start = stop
        return buffer

    a, b = filled(first), filled(second)
    assert len(a) == len(b)
    assert a.sample(np.random.default_rng(1), 20).tolist() == b.sample(np.random.default_rng(1), 20).tolist()


# -- evenly drawn


def z_scores(counts, probability, num_trials):
    mean = num_trials * probability
    return (counts - mean) / np.sqrt(mean * (1 - probability))


def test_every_sample_of_the_stream_is_equally_likely_to_be_in_a_reservoir():
    capacity, length, num_seeds = 20, 200, 3000
    counts = np.zeros(length)
    for seed in range(num_seeds):
        buffer = Reservoir(capacity, seed)
        enter(buffer, [7] * (length // 7) + [length % 7])
        counts[buffer.sample(np.random.default_rng(seed), capacity)] += 1
    assert counts.sum() == capacity * num_seeds
    z = z_scores(counts, capacity / length, num_seeds)
    assert np.abs(z).max() < Z_LIMIT
    # A bias towards old or new samples too small to see in one of them would show in the halves.
    assert abs(z[:100].sum()) / 10 < Z_LIMIT


def test_a_reservoir_stays_even_when_it_is_made_smaller():
    capacity, length, num_seeds = 40, 120, 3000
    counts = np.zeros(length)
    for seed in range(num_seeds):
        buffer = Reservoir(capacity, seed)
        buffer.extend(0, 80, None)
        buffer.resize(10)
        buffer.extend(80, length, None)
        counts[buffer.sample(np.random.default_rng(seed), 10)] += 1
    assert np.abs(z_scores(counts, 10 / length, num_seeds)).max() < Z_LIMIT


@pytest.mark.parametrize("make", [Fifo, lambda n: Reservoir(n, 0)], ids=["fifo", "reservoir"])
@pytest.mark.parametrize(("capacity", "num"), [(64, 16), (20_000, 300)])
def test_draws_are_even_over_what_is_held_and_never_repeat_within_a_batch(make, capacity, num):
    buffer = make(capacity)
    buffer.extend(0, 3 * capacity, None)
    num_batches = 4000
    counts = np.zeros(3 * capacity)
    for step in range(num_batches):
        positions = buffer.sample(draws.generator(0, "replay", step), num)
        assert len(np.unique(positions)) == num
        counts[positions] += 1
    held = np.flatnonzero(counts)
    assert len(held) == capacity
    z = z_scores(counts[held], num / capacity, num_batches)
    # The largest of 20,000 normal numbers is below 5.5 but once in a thousand times; the seeds are fixed.
    assert np.abs(z).max() < 6
    assert abs(z[: capacity // 2].sum()) / np.sqrt(capacity / 2) < Z_LIMIT


def test_ring_draws_all_classes_alike_however_rare():
    labels = np.zeros(5000, np.int32)
    labels[::50] = 1
    labels[4321] = 2
    buffer = Ring(300, 3)
    enter(buffer, [100] * 50, labels)
    drawn = np.concatenate([buffer.sample(draws.generator(1, step), 64) for step in range(600)])
    counts = np.bincount(labels[drawn], minlength=3)
    assert np.abs(z_scores(counts, 1 / 3, len(drawn))).max() < Z_LIMIT
    of_class_0 = drawn[labels[drawn] == 0]
    held, times = np.unique(of_class_0, return_counts=True)
    assert held.tolist() == np.flatnonzero(labels == 0)[-100:].tolist()
    assert np.abs(z_scores(times, 1 / 100, len(of_class_0))).max() < Z_LIMIT


# -- sizes


def test_a_longer_fifo_window_reaches_back_to_samples_that_had_left_it():
    buffer = Fifo(10)
    buffer.extend(0, 100, None)
    assert everything_in(buffer) == set(range(90, 100))
    buffer.resize(40)
    assert everything_in(buffer) == set(range(60, 100))
    buffer.resize(5)
    assert everything_in(buffer) == set(range(95, 100))


def test_ring_keeps_the_newest_of_each_class_when_resized():
    labels = np.array([0, 1] * 20, np.int32)
    buffer = Ring(20, 2)
    enter(buffer, [7, 7, 7, 7, 7, 5], labels)
    buffer.resize(6)
    assert everything_in(buffer) == set(range(34, 40))
    buffer.resize(100)
    buffer.extend(40, 44, np.zeros(4, np.int32))
    assert everything_in(buffer) == set(range(34, 44))


def test_a_reservoir_made_larger_keeps_all_it_has():
    buffer = Reservoir(10, seed=0)
    buffer.extend(0, 200, None)
    before = everything_in(buffer)
    buffer.resize(30)
    assert everything_in(buffer) == before
    buffer.extend(200, 205, None)
    assert everything_in(buffer) == before | set(range(200, 205))


def test_ring_refuses_fewer_slots_than_classes():
    with pytest.raises(DriftlineError, match=r"buffer_size = 4 .* 5 classes.*--buffer-size 5"):
        Ring(4, 5)


def test_ring_keeps_samples_without_a_class_out():
    buffer = Ring(8, 4)
    buffer.extend(0, 6, np.array([0, -1, 3, 4, 99, -7], np.int32))
    assert everything_in(buffer) == {0, 2}
    buffer.extend(6, 8, np.array([-1, -1], np.int32))
    assert everything_in(buffer) == {0, 2}
    assert buffer.seen == 8
