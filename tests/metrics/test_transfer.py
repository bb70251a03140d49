"""Transfer curves against the sums of the protocol, one span at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.metrics.transfer import accuracy_by_bin, area, backward_curve, forward_curve

SAMPLES = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=30)


def arrays(samples: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([t for t, _ in samples], np.int64), np.array([c for _, c in samples], bool)


def obvious(samples: list[tuple[int, bool]], low: int, high: int) -> float:
    """Accuracy over the samples with time in (low, high]."""
    hits = [correct for time, correct in samples if low < time <= high]
    return sum(hits) / len(hits) if hits else math.nan


def height(curve, span: int) -> float:
    """The curve between its points: what the last point at or before the span says."""
    place = np.searchsorted(curve.span_s, span, side="right") - 1
    return float(curve.accuracy[place]) if place >= 0 else math.nan


@given(SAMPLES, st.integers(-1, 42))
def test_backward_curve_at_every_span(samples: list[tuple[int, bool]], at: int) -> None:
    curve = backward_curve(*arrays(samples), at, num_points=None)
    for span in range(1, at + 2):
        assert height(curve, span) == pytest.approx(obvious(samples, at - span, at), nan_ok=True)
    past = [time for time, _ in samples if time <= at]
    assert curve.span_s.tolist() == sorted({at - time + 1 for time in past})


@given(SAMPLES, st.integers(-1, 42))
def test_forward_curve_at_every_span(samples: list[tuple[int, bool]], at: int) -> None:
    curve = forward_curve(*arrays(samples), at, num_points=None)
    for span in range(1, 45):
        assert height(curve, span) == pytest.approx(obvious(samples, at, at + span), nan_ok=True)
    assert curve.span_s.tolist() == sorted({time - at for time, _ in samples if time > at})


@given(SAMPLES, st.integers(0, 40))
def test_area_is_the_mean_height_over_whole_seconds(samples: list[tuple[int, bool]], at: int) -> None:
    for curve in (backward_curve(*arrays(samples), at, None), forward_curve(*arrays(samples), at, None)):
        if not len(curve):
            assert math.isnan(area(curve))
            assert math.isnan(curve.start)
            assert math.isnan(curve.end)
            continue
        heights = [height(curve, span) for span in range(curve.span_s[0], curve.span_s[-1])]
        assert area(curve) == pytest.approx(np.mean(heights or [curve.start]))
        assert (curve.start, curve.end) == (curve.accuracy[0], curve.accuracy[-1])


@given(SAMPLES, st.integers(0, 40), st.integers(2, 5))
def test_a_thinned_curve_is_part_of_the_whole(
    samples: list[tuple[int, bool]], at: int, num_points: int
) -> None:
    whole, thin = (backward_curve(*arrays(samples), at, n) for n in (None, num_points))
    assert len(thin) == min(num_points, len(whole))
    value_at = dict(zip(whole.span_s.tolist(), whole.accuracy.tolist(), strict=True))
    assert all(value_at[s] == a for s, a in zip(thin.span_s.tolist(), thin.accuracy.tolist(), strict=True))
    assert (thin.start, thin.end) == pytest.approx((whole.start, whole.end), nan_ok=True)


def test_past_and_future_together_are_the_validation_set() -> None:
    time = np.array([5, 1, 9, 5, 7])
    correct = np.array([True, False, True, False, True])
    back, ahead = backward_curve(time, correct, 5), forward_curve(time, correct, 5)
    assert back.end == pytest.approx(1 / 3)
    assert ahead.end == 1.0
    assert accuracy_by_bin(time, correct, 1).accuracy[0] == pytest.approx(correct.mean())
