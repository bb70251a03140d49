"""The plan: every sample once and in order, replay only from what came before, sizes that matter, state that suffices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.plan import OnlinePlan, ShuffledPlan
from driftline.replay.buffers import BUFFERS, Fifo

NUM_CLASSES = 5


def online(num_samples, *, batch_size=8, replay="fifo", capacity=40, ratio=1.0, every=None, seed=0):
    return OnlinePlan(
        num_samples,
        batch_size=batch_size,
        gd_steps=1,
        replay_ratio=ratio,
        seed=seed,
        buffer=BUFFERS[replay](capacity, NUM_CLASSES, seed),
        labels=lambda positions: (positions % NUM_CLASSES).astype(np.int32),
        decide_every=every,
    )


def all_requests(plan):
    requests = []
    while (request := plan.next()) is not None:
        requests.append(request)
    return requests


def same(a, b):
    return (a.step, a.stream.tolist(), a.replay.tolist(), a.buffer_size) == (
        b.step,
        b.stream.tolist(),
        b.replay.tolist(),
        b.buffer_size,
    )


@given(
    st.integers(1, 400),
    st.integers(1, 50),
    st.sampled_from(list(BUFFERS)),
    st.integers(NUM_CLASSES, 100),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_every_sample_once_in_order_and_replay_only_from_earlier_steps(num, batch, replay, capacity, ratio):
    plan = online(num, batch_size=batch, replay=replay, capacity=capacity, ratio=ratio)
    requests = all_requests(plan)
    assert len(requests) == plan.num_steps == -(-num // batch)
    assert np.concatenate([r.stream for r in requests]).tolist() == list(range(num))
    assert [r.step for r in requests] == list(range(plan.num_steps))
    for request in requests:
        start = request.stream[0]
        assert (request.replay < start).all(), "a sample was replayed in the step it arrived in, or before"
        held = 0 if replay == "none" else min(start, capacity)
        if replay in ("fifo", "reservoir"):
            assert len(request.replay) == min(round(len(request.stream) * ratio), held)
            assert len(set(request.replay.tolist())) == len(request.replay)
        else:
            assert len(request.replay) <= min(round(len(request.stream) * ratio), held)
        if replay == "fifo":
            assert (request.replay >= start - capacity).all()


@given(st.integers(1, 300), st.sampled_from(list(BUFFERS)), st.integers(0, 40))
def test_a_restored_plan_goes_on_exactly(num, replay, cut):
    whole = all_requests(online(num, replay=replay))
    first, second = online(num, replay=replay), online(num, replay=replay)
    done = [request for _ in range(cut) if (request := first.next()) is not None]
    second.load({name: value.copy() for name, value in first.state().items()})
    rest = all_requests(second)
    assert len(done) + len(rest) == len(whole)
    assert all(same(a, b) for a, b in zip(done + rest, whole, strict=True))


def test_other_seeds_replay_other_samples():
    a, b = (all_requests(online(400, seed=seed)) for seed in (0, 1))
    assert any(x.replay.tolist() != y.replay.tolist() for x, y in zip(a, b, strict=True))


def test_the_size_decided_is_the_size_sampled_from():
    """Positions before and after a change: the window really grows, and really shrinks."""
    batch, every = 10, 20
    plan = online(1200, batch_size=batch, capacity=100, every=every)
    reach = []
    for size in (400, 50):
        requests = all_requests(plan)
        reach.append(requests)
        plan.resize(requests[-1].step, size)
    reach.append(all_requests(plan))
    for requests, size in zip(reach, (100, 400, 50), strict=True):
        assert len(requests) == every
        ages = np.concatenate([r.stream[0] - r.replay for r in requests])
        assert {r.buffer_size for r in requests} == {size}
        expected = min(size, 20 * batch * (1 + reach.index(requests)))
        assert ages.max() <= size
        # 200 draws (or fewer at the start) from a window reach into its oldest fifth, all but surely.
        assert ages.max() > 0.8 * min(size, expected)


def test_nothing_is_planned_past_a_decision_that_is_pending():
    plan = online(200, batch_size=10, every=4)
    assert [r.step for r in all_requests(plan)] == [0, 1, 2, 3]
    assert plan.next() is None
    plan.resize(3, 77)
    assert [r.step for r in all_requests(plan)] == [4, 5, 6, 7]
    assert plan.buffer.capacity == 77


def test_a_plan_restored_at_a_pending_decision_still_waits_for_it():
    first, second = online(200, batch_size=10, every=4), online(200, batch_size=10, every=4)
    all_requests(first)
    second.load(first.state())
    assert second.next() is None
    for plan in (first, second):
        plan.resize(3, 25)
    assert all(same(a, b) for a, b in zip(all_requests(first), all_requests(second), strict=True))


def test_planning_a_long_stream_needs_no_memory_of_its_length():
    plan = OnlinePlan(
        39_000_000,
        batch_size=256,
        gd_steps=1,
        replay_ratio=1.0,
        seed=0,
        buffer=Fifo(4_000_000),
        labels=None,
        decide_every=None,
    )
    plan.load(
        {
            "step": np.array([150_000, plan.num_steps]),
            "seen": np.array([150_000 * 256]),
            "capacity": np.array([4_000_000]),
        }
    )
    request = plan.next()
    assert request is not None
    assert request.stream[0] == 150_000 * 256
    assert len(request.replay) == 256
    assert sum(value.nbytes for value in plan.state().values()) < 100


# -- supervised


def shuffled(num, *, first=0, sample_of=None, batch_size=8, epochs=1, seed=0):
    return ShuffledPlan(
        first,
        num,
        sample_of=sample_of,
        batch_size=batch_size,
        gd_steps=1,
        epochs=epochs,
        seed=seed,
    )


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 4), st.integers(0, 1000))
@settings(max_examples=30)
def test_every_sample_once_an_epoch_whatever_the_batch(num, batch, epochs, first):
    plan = shuffled(num, first=first, batch_size=batch, epochs=epochs)
    requests = all_requests(plan)
    assert len(requests) == plan.num_steps == -(-num * epochs // batch)
    positions = np.concatenate([r.stream for r in requests])
    assert len(positions) == num * epochs
    for epoch in range(epochs):
        of_epoch = positions[epoch * num : (epoch + 1) * num]
        assert sorted(of_epoch.tolist()) == list(range(first, first + num))
    assert all(not len(r.replay) and not r.test for r in requests)


def test_epochs_come_in_different_orders_that_are_not_the_stream_s():
    positions = np.concatenate([r.stream for r in all_requests(shuffled(500, epochs=2))])
    assert positions[:500].tolist() != positions[500:].tolist()
    assert abs(np.corrcoef(positions[:500], np.arange(500))[0, 1]) < 0.2


@given(st.integers(1, 100), st.integers(1, 5))
@settings(max_examples=30)
def test_a_sample_of_the_range_is_the_same_in_every_epoch_and_has_no_doubles(num, factor):
    plan = shuffled(num, sample_of=num * factor, epochs=3)
    positions = np.concatenate([r.stream for r in all_requests(plan)]).reshape(3, num)
    chosen = set(positions[0].tolist())
    assert len(chosen) == num
    assert all(set(row.tolist()) == chosen for row in positions)
    assert max(chosen) < num * factor


def test_a_sample_of_the_range_is_uniform_over_it():
    positions = np.concatenate([r.stream for r in all_requests(shuffled(2000, sample_of=20_000))])
    counts = np.histogram(positions, 10, (0, 20_000))[0]
    assert np.abs(counts - 200).max() < 5 * np.sqrt(200 * 0.9)


@given(st.integers(1, 200), st.integers(0, 30))
@settings(max_examples=30)
def test_a_restored_shuffle_goes_on_exactly(num, cut):
    whole = all_requests(shuffled(num, epochs=2))
    first, second = shuffled(num, epochs=2), shuffled(num, epochs=2)
    done = [request for _ in range(cut) if (request := first.next()) is not None]
    second.load(first.state())
    assert all(same(a, b) for a, b in zip(done + all_requests(second), whole, strict=True))


def test_a_shuffled_plan_has_no_buffer_to_resize():
    with pytest.raises(AssertionError):
        shuffled(10).resize(0, 5)
