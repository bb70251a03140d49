"""ADRep decides as Alg. 2 of the paper does, within its bounds."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from driftline.replay.adaptive import AdaptiveSize

# Eighths are exact in binary, so that running means can be compared without rounding; epsilon lies between two of them.
accuracies = st.integers(0, 8).map(lambda n: n / 8)
steps = st.lists(st.tuples(accuracies, accuracies), min_size=1, max_size=60)


def algorithm_2(script, *, size, interval, epsilon, batch):
    """The algorithm as printed, with the bounds of the protocol: the size in use at each step, and after the last one."""
    R = size
    acc_stream, acc_rep = 0.0, 0.0
    k = 1
    sizes = []
    for t, (stream, replay) in enumerate(script, start=1):
        sizes.append(R)  # line 3: update the model with replay buffer size of R
        acc_stream = ((k - 1) * acc_stream + stream) / k
        acc_rep = ((k - 1) * acc_rep + replay) / k
        k = k + 1
        if t % interval == 0:
            k = 1
            seen = t * batch
            if acc_stream > acc_rep + epsilon:
                R = max(batch, min(R // 2, seen))
            elif acc_stream < acc_rep - epsilon:
                R = max(batch, min(2 * R, seen))
    return [*sizes, R]


def sizes_of(rule, script, batch):
    sizes = []
    for step, (stream, replay) in enumerate(script):
        sizes.append(rule.size)
        rule.update(step=step, acc_stream=stream, acc_replay=replay, seen=(step + 1) * batch)
    return [*sizes, rule.size]


@given(steps, st.integers(1, 5), st.integers(1, 2000), st.integers(1, 64), st.sampled_from([0.0, 0.005, 0.2]))
def test_sizes_follow_the_printed_algorithm(script, interval, size, batch, epsilon):
    rule = AdaptiveSize(size=size, smallest=batch, every_steps=interval, epsilon=epsilon)
    expected = algorithm_2(script, size=size, interval=interval, epsilon=epsilon, batch=batch)
    got = sizes_of(rule, script, batch)
    # Means that are equal on paper may differ in their last bit; only then may the comparisons fall out differently.
    if not any_close_call(script, interval, epsilon):
        assert got == expected


def any_close_call(script, interval, epsilon):
    for end in range(interval, len(script) + 1, interval):
        part = script[end - interval : end]
        difference = sum(stream - replay for stream, replay in part) / interval
        if abs(abs(difference) - epsilon) < 1e-9:
            return True
    return False


@given(steps, st.integers(1, 4), st.integers(8, 4000))
def test_the_size_stays_between_a_batch_and_what_has_been_seen_once_decided(script, interval, size):
    rule = AdaptiveSize(size=size, smallest=8, every_steps=interval, epsilon=0.005)
    for step, (stream, replay) in enumerate(script):
        before, seen = rule.size, (step + 1) * 8
        after = rule.update(step=step, acc_stream=stream, acc_replay=replay, seen=seen)
        assert after == before or 8 <= after <= seen


def test_a_difference_of_epsilon_or_less_changes_nothing():
    rule = AdaptiveSize(size=100, smallest=1, every_steps=1, epsilon=0.25)
    assert rule.update(step=0, acc_stream=0.5, acc_replay=0.25, seen=1000) == 100
    assert rule.update(step=1, acc_stream=0.25, acc_replay=0.5, seen=1000) == 100
    assert rule.update(step=2, acc_stream=0.25, acc_replay=0.625, seen=1000) == 200
    assert rule.update(step=3, acc_stream=0.625, acc_replay=0.25, seen=1000) == 100


def test_each_decision_starts_from_fresh_means():
    rule = AdaptiveSize(size=64, smallest=1, every_steps=2, epsilon=0.005)
    for step, (stream, replay) in enumerate([(0, 1), (0, 1), (1, 0), (0.5, 0.75)]):
        rule.update(step=step, acc_stream=stream, acc_replay=replay, seen=10_000)
    assert rule.size == 64  # doubled on the first two, halved on the last two


def test_steps_without_replay_count_nowhere():
    rule = AdaptiveSize(size=64, smallest=1, every_steps=2, epsilon=0.005)
    rule.update(step=0, acc_stream=1.0, acc_replay=None, seen=100)
    assert rule.update(step=1, acc_stream=0.1, acc_replay=0.2, seen=1000) == 128
    rule.update(step=2, acc_stream=1.0, acc_replay=None, seen=1000)
    assert rule.update(step=3, acc_stream=1.0, acc_replay=None, seen=1000) == 128


@given(steps, st.integers(1, 5), st.integers(0, 59))
def test_a_restored_rule_goes_on_exactly(script, interval, cut):
    def fresh():
        return AdaptiveSize(size=500, smallest=8, every_steps=interval, epsilon=0.005)

    def feed(rule, part, first):
        for step, (stream, replay) in enumerate(part, start=first):
            rule.update(step=step, acc_stream=stream, acc_replay=replay, seen=(step + 1) * 8)

    whole, first_part, second_part = fresh(), fresh(), fresh()
    feed(whole, script, 0)
    feed(first_part, script[:cut], 0)
    second_part.load(first_part.state())
    feed(second_part, script[cut:], len(script[:cut]))
    assert second_part.state() == whole.state()
