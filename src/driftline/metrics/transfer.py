"""Backward and forward transfer: how weights frozen at time T do on the past and on the future.

In come the times of the validation samples and whether each was predicted correctly; out come curves that are cumulative
from T outwards, and their summary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftline.metrics.online import spread
from driftline.metrics.periods import PeriodAccuracy, by_bin
from driftline.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class TransferCurve:
    """Accuracy over all validation samples within `span_s` seconds of T; the spans rise."""

    span_s: IntArray
    accuracy: FloatArray

    def __len__(self) -> int:
        return len(self.span_s)

    @property
    def start(self) -> float:
        """Accuracy over the nearest samples; NaN when there are none."""
        return float(self.accuracy[0]) if len(self) else float("nan")

    @property
    def end(self) -> float:
        """Accuracy over all samples on this side of T; NaN when there are none."""
        return float(self.accuracy[-1]) if len(self) else float("nan")


def backward_curve(
    time_s: IntArray, correct: BoolArray, at_time: int, num_points: int | None = 500
) -> TransferCurve:
    """acc_B@T: accuracy over the samples with time in (T - span, T], up to the span that takes in the first sample.

    The curve changes only where a span takes in another sample, so those spans are its points; `num_points` of them are
    kept, spread evenly (None: all).

    >>> curve = backward_curve(np.array([10, 20, 30, 99]), np.array([True, False, True, True]), at_time=30)
    >>> curve.span_s.tolist(), curve.accuracy.round(2).tolist()
    ([1, 11, 21], [1.0, 0.5, 0.67])
    """
    past = time_s <= at_time
    return _cumulative(at_time - time_s[past] + 1, correct[past], num_points)


def forward_curve(
    time_s: IntArray, correct: BoolArray, at_time: int, num_points: int | None = 500
) -> TransferCurve:
    """acc_F@T: accuracy over the samples with time in (T, T + span], up to the span that takes in the last sample.

    >>> curve = forward_curve(np.array([10, 20, 30, 99]), np.array([True, False, True, True]), at_time=10)
    >>> curve.span_s.tolist(), curve.accuracy.round(2).tolist()
    ([10, 20, 89], [0.0, 0.5, 0.67])
    """
    future = time_s > at_time
    return _cumulative(time_s[future] - at_time, correct[future], num_points)


def accuracy_by_bin(time_s: IntArray, correct: BoolArray, num_bins: int = 100) -> PeriodAccuracy:
    """Accuracy in time bins of equal width over the whole range of the samples; NaN in an empty bin."""
    return by_bin(time_s, correct, num_bins)


def area(curve: TransferCurve) -> float:
    """Mean height of the curve over its spans; NaN when it is empty.

    Between two points the curve keeps the height of the first. The result is exact for a curve with all its points
    (`num_points=None`), and close for one with fewer.

    >>> area(TransferCurve(np.array([1, 3, 11]), np.array([1.0, 0.5, 0.6])))
    0.6
    """
    if len(curve) < 2:
        return curve.start
    return float(np.average(curve.accuracy[:-1], weights=np.diff(curve.span_s)))


def _cumulative(span_s: IntArray, correct: BoolArray, num_points: int | None) -> TransferCurve:
    """Accuracy over the samples up to each distance from T; samples equally far enter together."""
    order = np.argsort(span_s, kind="stable")
    span_s = span_s[order]
    last_of_tie = np.flatnonzero(np.append(span_s[1:] != span_s[:-1], True)[: len(span_s)])
    kept = last_of_tie[spread(len(last_of_tie), num_points)]
    num_correct = np.cumsum(correct[order], dtype=np.int64)
    return TransferCurve(span_s[kept], num_correct[kept] / (kept + 1))
