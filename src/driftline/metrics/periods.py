"""Accuracy in stretches of time: calendar months and years, or bins of equal width.

In come times and whether each prediction was correct; out comes one accuracy for each stretch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from driftline.types import BoolArray, DriftlineError, FloatArray, IntArray

_ROWS_A_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class PeriodAccuracy:
    """Accuracy of the predictions with time in [start_s, stop_s), and how many there were."""

    start_s: IntArray
    stop_s: IntArray
    accuracy: FloatArray
    num_samples: IntArray


def by_calendar(time_s: IntArray, correct: BoolArray, unit: Literal["M", "Y"]) -> PeriodAccuracy:
    """Accuracy in every calendar month or year (UTC) that has samples.

    >>> found = by_calendar(np.array([0, 1, 86400 * 40]), np.array([True, False, True]), "M")
    >>> found.start_s.tolist(), found.accuracy.tolist(), found.num_samples.tolist()
    ([0, 2678400], [0.5, 1.0], [2, 1])
    """
    if not len(time_s):
        return _periods(np.zeros(1, np.int64), np.zeros((2, 0), np.int64))
    ends = np.array([time_s.min(), time_s.max()]).astype("datetime64[s]").astype(f"datetime64[{unit}]")
    edges = np.arange(ends[0], ends[1] + np.timedelta64(2, unit)).astype("datetime64[s]").astype(np.int64)
    found = _periods(edges, _count(time_s, correct, edges))
    kept = found.num_samples > 0
    return PeriodAccuracy(
        found.start_s[kept], found.stop_s[kept], found.accuracy[kept], found.num_samples[kept]
    )


def by_bin(time_s: IntArray, correct: BoolArray, num_bins: int) -> PeriodAccuracy:
    """Accuracy in bins of (nearly) equal width from the first sample to the last; NaN in an empty bin.

    >>> by_bin(np.array([0, 1, 9]), np.array([True, True, False]), num_bins=5).accuracy
    array([ 1., nan, nan, nan,  0.])
    """
    if num_bins < 1:
        raise DriftlineError(f"num_bins = {num_bins}: must be at least 1")
    if not len(time_s):
        return _periods(np.zeros(1, np.int64), np.zeros((2, 0), np.int64))
    first, span_s = int(time_s.min()), int(time_s.max()) - int(time_s.min()) + 1
    edges = first + np.arange(num_bins + 1) * span_s // num_bins
    return _periods(edges, _count(time_s, correct, edges))


def _count(time_s: IntArray, correct: BoolArray, edges: IntArray) -> IntArray:
    """Samples and correct ones between neighbouring edges, as two rows; works in blocks to stay small."""
    counts = np.zeros((2, len(edges) - 1), np.int64)
    for start in range(0, len(time_s), _ROWS_A_BLOCK):
        block = slice(start, start + _ROWS_A_BLOCK)
        period = np.searchsorted(edges, time_s[block], side="right") - 1
        counts[0] += np.bincount(period, minlength=counts.shape[1])
        counts[1] += np.bincount(period[correct[block]], minlength=counts.shape[1])
    return counts


def _periods(edges: IntArray, counts: IntArray) -> PeriodAccuracy:
    num_samples, num_correct = counts
    accuracy = np.full(len(num_samples), np.nan)
    np.divide(num_correct, num_samples, out=accuracy, where=num_samples > 0)
    return PeriodAccuracy(edges[:-1], edges[1:], accuracy, num_samples)
