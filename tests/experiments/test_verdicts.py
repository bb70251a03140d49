"""The arithmetic behind every verdict, on values whose answer is known."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.experiments.verdicts import (
    Finding,
    Measure,
    comparable,
    constant,
    greater,
    near,
)


def values(*numbers: float) -> list[Measure]:
    return [Measure(n) for n in numbers]


def test_clear_difference_over_seeds_holds_and_its_opposite_does_not() -> None:
    a, b = values(0.40, 0.41, 0.42), values(0.30, 0.31, 0.315)
    assert greater("a", a, b).verdict == "held"
    assert greater("b", b, a).verdict == "did not hold"


def test_a_tie_is_undecided() -> None:
    a, b = values(0.40, 0.42, 0.39), values(0.41, 0.40, 0.40)
    assert greater("a", a, b).verdict == "undecided"


def test_three_seeds_of_one_sign_are_not_enough_when_they_scatter() -> None:
    check = greater("a", values(0.401, 0.40, 0.45), values(0.40, 0.399, 0.40))
    assert min(check.effects) > 0
    assert check.verdict == "undecided"


def test_effect_and_errors_are_the_textbook_ones() -> None:
    differences = [0.02, 0.05, 0.03]
    check = greater("a", values(*(0.3 + d for d in differences)), values(0.3, 0.3, 0.3))
    error = statistics.stdev(differences) / math.sqrt(3)
    assert check.effect == pytest.approx(statistics.mean(differences))
    assert check.seed_error == pytest.approx(error)
    low, high = check.interval
    assert (low, high) == pytest.approx((check.effect - 2.920 * error, check.effect + 2.920 * error))


def test_one_seed_has_no_spread_and_is_judged_by_its_photos() -> None:
    rng = np.random.default_rng(0)
    few, many = (
        greater(
            "a",
            [Measure.mean_of(rng.permutation(np.arange(n) < 0.42 * n).astype(float))],
            [Measure.mean_of(rng.permutation(np.arange(n) < 0.40 * n).astype(float))],
        )
        for n in (100, 100_000)
    )
    assert few.seed_error is None
    assert few.verdict == "undecided"
    assert many.verdict == "held"


def test_a_handful_of_photos_decides_nothing() -> None:
    all_right, all_wrong = (Measure.mean_of(np.full(9, share)) for share in (1.0, 0.0))
    assert greater("a", [all_right] * 3, [all_wrong] * 3).verdict == "undecided"
    more = [Measure.mean_of(np.full(10, share)) for share in (1.0, 0.0)]
    assert greater("a", [more[0]] * 3, [more[1]] * 3).verdict == "held"


def test_items_are_paired_by_id_whatever_their_order() -> None:
    rng = np.random.default_rng(1)
    hard = rng.random(5000)
    a_items = (hard < 0.5).astype(float)
    b_items = (hard < 0.48).astype(float)
    ids = np.arange(5000)
    order = rng.permutation(5000)
    a = [Measure.mean_of(a_items[order], ids[order])]
    b = [Measure.mean_of(b_items[:-3], ids[:-3])]  # not quite the same photos
    check = greater("a", a, b)
    paired = (a_items - b_items)[:-3]
    assert check.item_error == pytest.approx(paired.std(ddof=1) / math.sqrt(len(paired)))
    unpaired = greater("a", [Measure.mean_of(a_items)], [Measure.mean_of(b_items)])
    assert unpaired.item_error is not None
    assert check.item_error < unpaired.item_error / 3


def test_the_interval_covers_the_truth_at_least_nine_times_in_ten() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(2000):
        check = greater("a", values(*rng.normal(0.4, 0.01, 3)), values(*rng.normal(0.4, 0.01, 3)))
        covered += check.interval[0] <= 0 <= check.interval[1]
    assert 0.87 < covered / 2000 < 0.93


def test_comparable_has_three_answers() -> None:
    base = values(0.40, 0.40, 0.40)
    assert comparable("like", values(0.401, 0.400, 0.402), base).verdict == "held"
    assert comparable("unlike", values(0.50, 0.51, 0.50), base).verdict == "did not hold"
    assert comparable("who knows", values(0.38, 0.42, 0.44), base).verdict == "undecided"


def test_near_forgives_a_little_and_not_more() -> None:
    best = values(0.40, 0.40, 0.40)
    assert near("a bit below", values(0.392, 0.393, 0.392), best).verdict == "held"
    assert near("far below", values(0.35, 0.35, 0.351), best).verdict == "did not hold"
    assert near("above", values(0.45, 0.45, 0.451), best).verdict == "held"


def test_a_finding_needs_all_its_checks() -> None:
    yes = greater("yes", values(1, 1, 1), values(0, 0, 0))
    no = greater("no", values(0, 0, 0), values(1, 1, 1))
    open_ = greater("open", values(0, 1, -1), constant(0.0, values(0, 0, 0)))
    assert Finding("k", "c", "p", (yes, yes)).verdict == "held"
    assert Finding("k", "c", "p", (yes, open_)).verdict == "undecided"
    assert Finding("k", "c", "p", (yes, open_, no)).verdict == "did not hold"


def test_a_value_that_could_not_be_measured_is_undecided() -> None:
    assert greater("nothing", values(math.nan), values(0.3)).verdict == "undecided"


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6))
def test_turning_a_claim_round_turns_its_verdict_round(pairs: list[tuple[float, float]]) -> None:
    a, b = (values(*side) for side in zip(*pairs, strict=True))
    turned = {"held": "did not hold", "did not hold": "held", "undecided": "undecided"}
    assert greater("b", b, a).verdict == turned[greater("a", a, b).verdict]
    assert comparable("a", a, b).verdict == comparable("b", b, a).verdict
