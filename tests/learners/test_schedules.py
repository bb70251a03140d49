"""The rates: constant, cosine, and PoLRS step by step against Alg. 1 of the paper."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from driftline.learners.schedules import RateSearch, constant, cosine

# Shares of a batch of 64, few of them, so that members often tie.
accuracies = st.integers(0, 4).map(lambda n: n / 64)


@st.composite
def populations(draw):
    num_members = draw(st.integers(2, 6))
    script = draw(
        st.lists(st.lists(accuracies, min_size=num_members, max_size=num_members), min_size=1, max_size=40)
    )
    return num_members, script


def algorithm_1(script, *, lr, num_members, factor, interval):
    """The algorithm as printed, for any population: for each step the member that tests, the rates it trains with, and the
    member that is copied after it (or None)."""
    middle = num_members // 2
    rates = [lr * factor ** (middle - j) for j in range(num_members)]  # three members: {2l, l, l/2}
    best = middle
    history = [[] for _ in range(num_members)]
    trace = []
    for t, step_accuracies in enumerate(script, start=1):
        tested_by, trained_with = best, list(rates)  # before the labels of X_t are seen
        for j in range(num_members):
            history[j].append(step_accuracies[j])
        metrics = [math.fsum(values) / len(values) for values in history]
        candidates = [j for j in range(num_members) if metrics[j] == max(metrics)]
        best = middle if middle in candidates else candidates[0]
        copied = None
        if t % interval == 0:
            copied = best
            rates = [rates[best] * factor ** (middle - j) for j in range(num_members)]
            history = [[] for _ in range(num_members)]
            best = middle  # all are the same model now; the tie goes to the middle
        trace.append((tested_by, trained_with, copied))
    return trace


@given(populations(), st.integers(1, 6), st.sampled_from([1.5, 2.0, 4.0]), st.floats(1e-4, 1.0))
def test_the_search_follows_the_printed_algorithm(population, interval, factor, lr):
    num_members, script = population
    search = RateSearch(lr=lr, num_members=num_members, factor=factor, every_steps=interval)
    trace = []
    for step, step_accuracies in enumerate(script):
        tested_by, trained_with = search.best, list(search.rates)
        trace.append((tested_by, trained_with, search.update(step=step, accuracies=step_accuracies)))
    expected = algorithm_1(script, lr=lr, num_members=num_members, factor=factor, interval=interval)
    assert [(member, copied) for member, _, copied in trace] == [(m, c) for m, _, c in expected]
    for (_, rates, _), (_, expected_rates, _) in zip(trace, expected, strict=True):
        assert rates == pytest.approx(expected_rates, rel=1e-12)


def test_three_members_start_around_the_first_rate():
    search = RateSearch(lr=0.05, num_members=3, factor=2.0, every_steps=10)
    assert search.rates == [0.1, 0.05, 0.025]
    assert search.best == 1


def test_the_middle_wins_ties_it_is_part_of_even_when_the_order_of_successes_differs():
    # One right of 64 in three steps, by the first member at once and by the middle one at last.
    search = RateSearch(lr=1.0, num_members=3, factor=2.0, every_steps=100)
    for step, step_accuracies in enumerate([[1 / 64, 0, 0], [0, 0, 0], [0, 1 / 64, 0]]):
        search.update(step=step, accuracies=step_accuracies)
    assert search.best == 1


def test_the_choice_before_a_step_does_not_know_its_labels():
    search = RateSearch(lr=1.0, num_members=3, factor=2.0, every_steps=100)
    search.update(step=0, accuracies=[0.9, 0.1, 0.1])
    before = search.best
    search.update(step=1, accuracies=[0.0, 0.0, 1.0])
    assert before == 0
    assert search.best == 2


def test_metrics_are_means_since_the_last_reset():
    search = RateSearch(lr=1.0, num_members=3, factor=2.0, every_steps=3)
    search.update(step=0, accuracies=[0.5, 0.25, 0.0])
    search.update(step=1, accuracies=[0.25, 0.25, 1.0])
    assert search.metrics == [0.375, 0.25, 0.5]
    assert search.update(step=2, accuracies=[0.0, 0.0, 0.0]) == 2
    assert search.metrics == [0.0, 0.0, 0.0]
    assert search.rates == [1.0, 0.5, 0.25]


def test_a_member_that_diverged_is_out_until_the_reset():
    search = RateSearch(lr=1.0, num_members=3, factor=2.0, every_steps=3)
    search.update(step=0, accuracies=[0.9, 0.1, 0.2])
    search.update(step=1, accuracies=[math.nan, 0.1, 0.2])
    assert search.best == 2
    assert search.update(step=2, accuracies=[0.9, 0.1, 0.2]) == 2
    assert search.update(step=3, accuracies=[0.9, 0.1, 0.2]) is None
    assert search.best == 0


@given(populations(), st.integers(1, 6), st.integers(0, 39))
def test_a_restored_search_goes_on_exactly(population, interval, cut):
    num_members, script = population

    def fresh():
        return RateSearch(lr=0.05, num_members=num_members, factor=2.0, every_steps=interval)

    whole, first, second = fresh(), fresh(), fresh()
    for step, values in enumerate(script):
        whole.update(step=step, accuracies=values)
    for step, values in enumerate(script[:cut]):
        first.update(step=step, accuracies=values)
    second.load(first.state())
    for step, values in enumerate(script[cut:], start=len(script[:cut])):
        second.update(step=step, accuracies=values)
    assert second.state() == whole.state()
    assert (second.best, second.rates, second.metrics) == (whole.best, whole.rates, whole.metrics)


@given(st.floats(1e-6, 10), st.integers(1, 10_000), st.data())
def test_cosine_is_one_half_wave_from_the_rate_to_zero(lr, num_steps, data):
    step = data.draw(st.integers(0, num_steps - 1))
    assert cosine(lr, step, num_steps) == pytest.approx(lr * math.cos(math.pi * step / num_steps / 2) ** 2)
    assert cosine(lr, step + 1, num_steps) < cosine(lr, step, num_steps) <= lr
    assert constant(lr, step, num_steps) == lr
