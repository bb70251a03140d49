"""The blind classifier and its relatives: what can be had from the order of the labels alone, without any image.

In come the labels in stream order; out come predictions and accuracies to set beside a learner's. All of it is
arithmetic on whole arrays, in blocks that fit the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline.metrics.log import PredictionLog
from driftline.metrics.online import Scoring, online_accuracy
from driftline.types import BoolArray, DriftlineError, IntArray, LabelArray

SWEEP = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200)
"""Window lengths that are tried by default."""
_ROWS_A_BLOCK = 1 << 16
_ROWS_A_SORT = 1 << 20
_CELLS_A_SWEEP = 1 << 19
_DENSE = 32
"""More than one scored sample in this many, and a sweep predicts all samples."""


@dataclass(frozen=True)
class BlindSweep:
    """Accuracy of the blind classifier by window length; `best_k` is the shortest of the best."""

    accuracy: dict[int, float]
    best_k: int


def blind_predictions(labels: LabelArray, k: int) -> LabelArray:
    """For each sample, the most frequent of the k labels before it; ties go to the most recent, -1 without history.

    >>> blind_predictions(np.array([4, 4, 5, 5, 6]), k=3)
    array([-1,  4,  4,  4,  5], dtype=int32)
    """
    _check_window(k)
    k = min(k, max(len(labels) - 1, 1))
    # The first k entries stand for "no history": no two are alike and none is a label.
    codes = _with_padding(labels, k)
    predictions = np.empty(len(labels), np.int32)
    for start in range(0, len(labels), _ROWS_A_BLOCK):
        stop = min(start + _ROWS_A_BLOCK, len(labels))
        age = _age_of_mode(codes[start : stop + k], k)
        predictions[start:stop] = _label_before(labels, np.arange(start, stop), age)
    return predictions


def majority_predictions(labels: LabelArray) -> LabelArray:
    """For each sample, the most frequent of all labels before it; ties go to the most recent, -1 without history.

    >>> majority_predictions(np.array([4, 5, 5, 4, 6]))
    array([-1,  4,  5,  5,  4], dtype=int32)
    """
    codes, num_codes = _dense(labels)
    counts = np.zeros(num_codes, np.int64)
    leader, leader_count = -1, 0
    predictions = np.empty(len(labels), np.int32)
    for start in range(0, len(labels), _ROWS_A_SORT):
        block = codes[start : start + _ROWS_A_SORT]
        count = counts[block] + _occurrence(block)
        # A label takes the lead when its count reaches the highest so far: on a tie it is the more recent one.
        highest = np.maximum.accumulate(count)
        before = np.concatenate([[leader_count], np.maximum(highest[:-1], leader_count)])
        taken = np.maximum.accumulate(np.where(count >= before, np.arange(len(block)), -1))
        after = np.where(taken < 0, leader, labels[start : start + len(block)][taken])
        predictions[start : start + len(block)] = np.concatenate([[leader], after[:-1]])
        leader, leader_count = int(after[-1]), max(leader_count, int(highest[-1]))
        counts += np.bincount(block, minlength=num_codes)
    return predictions


def blind_sweep(log: PredictionLog, ks: Sequence[int] = SWEEP, scoring: Scoring = "album") -> BlindSweep:
    """The blind classifier's online accuracy for each window length. Only samples that are scored are predicted.

    >>> from driftline.metrics.albums import make_log
    >>> labels = np.array([1, 2, 1, 1, 2, 1])
    >>> log = make_log(labels, labels, user=np.arange(6), time=np.arange(6), batch_size=1, test_every=1)
    >>> blind_sweep(log, ks=(1, 3))
    BlindSweep(accuracy={1: 0.16666666666666666, 3: 0.3333333333333333}, best_k=3)
    """
    for k in ks:
        _check_window(k)
    if not len(ks):
        raise DriftlineError("ks is empty: name at least one window length to try")
    rows = np.flatnonzero(log.scored) if scoring == "album" else np.arange(len(log))
    part = log.take(rows) if scoring == "album" else log
    accuracy = {
        k: online_accuracy(part.with_pred(pred), scoring)
        for k, pred in _predictions_by_window(log.label, rows, sorted(set(ks)))
    }
    return BlindSweep(accuracy, max(accuracy, key=lambda k: (accuracy[k], -k)))


class BlindCounter:
    """The blind classifier beside a run that goes on: it remembers k labels and costs microseconds a batch.

    >>> counter = BlindCounter(k=2)
    >>> counter.update(np.array([3, 3])), counter.update(np.array([3, 4]))
    (1, 1)
    """

    def __init__(self, k: int = 10) -> None:
        _check_window(k)
        self.k = k
        self._history = np.zeros(0, np.int32)

    def update(self, labels: LabelArray, scored: BoolArray | None = None) -> int:
        """Predict the next labels one by one, then remember them: how many (of those scored) were right."""
        known = np.concatenate([self._history, labels])
        correct = (blind_predictions(known, self.k) == known)[len(self._history) :]
        self._history = known[-self.k :]
        return int(np.count_nonzero(correct if scored is None else correct & scored))


def _check_window(k: int) -> None:
    if k < 1:
        raise DriftlineError(f"k = {k}: the blind classifier must look back at 1 label or more")


def _with_padding(labels: LabelArray, k: int) -> NDArray[Any]:
    """The labels as small unsigned codes, after k codes that differ from all labels and from one another."""
    low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, 0)
    num_labels = high - low + 1
    dtype = np.uint16 if num_labels + k <= 1 << 16 else np.int64
    codes = np.empty(k + len(labels), dtype)
    codes[:k] = np.arange(num_labels, num_labels + k)
    np.subtract(labels, low, out=codes[k:], dtype=np.int64, casting="unsafe")
    return codes


def _age_of_mode(codes: NDArray[Any], k: int) -> IntArray:
    """How far back (1..k) the most frequent of the k codes before each row last occurred; the first k rows are history.

    A code's count in the window is what its most recent place there finds by looking back, plus one; older places of it
    find less. So the mode is where that count is highest, and on a tie the most recent place wins. The place `age` back
    sees `reach = k - age` window entries behind it, and its count grows by one comparison as reach does.
    """
    bits = k.bit_length()
    dtype = np.min_scalar_type((1 << 2 * bits) - 1)
    one_match, one_reach = dtype.type(1 << bits), dtype.type(1)
    num_rows = len(codes) - k
    key = np.zeros(len(codes), dtype)  # matches found in the high bits, reach in the low ones
    best = np.zeros(num_rows, dtype)
    for reach in range(1, k):
        key += one_reach
        key[reach:] += np.multiply(codes[reach:] == codes[:-reach], one_match, dtype=dtype)
        np.maximum(best, key[reach : reach + num_rows], out=best)
    reach_of_best: IntArray = (best & dtype.type((1 << bits) - 1)).astype(np.int64)
    return k - reach_of_best


def _predictions_by_window(
    labels: LabelArray, rows: IntArray, ks: list[int]
) -> Iterator[tuple[int, LabelArray]]:
    """What the blind classifier predicts for these rows, one window length after the other."""
    if len(rows) * _DENSE > len(labels):  # then predicting every row is faster than looking up windows
        for k in ks:
            yield k, blind_predictions(labels, k)[rows]
        return
    longest = ks[-1]
    codes = _with_padding(labels, longest)
    age = np.empty((len(rows), len(ks)), np.int64)
    rows_a_block = max(1, _CELLS_A_SWEEP // longest)
    for start in range(0, len(rows), rows_a_block):
        block = slice(start, start + rows_a_block)
        windows = codes[rows[block, None] + np.arange(longest)[::-1]]
        age[block] = _age_by_length(windows)[:, np.array(ks) - 1] + 1
    for column, k in enumerate(ks):
        yield k, _label_before(labels, rows, age[:, column])


def _label_before(labels: LabelArray, rows: IntArray, age: IntArray) -> LabelArray:
    """The label so many places before each row, -1 before the first."""
    place = rows - age
    return np.where(place < 0, np.int32(-1), labels[place]).astype(np.int32, copy=False)


def _age_by_length(windows: NDArray[Any]) -> IntArray:
    """Column of the mode's most recent place in the first 1, 2, ... entries of each row, all lengths in one pass.

    Sorting (code, age) puts each code's places side by side, most recent first, which counts them. Each place then knows the
    count its code has in the window that just reaches it, and the mode is the highest count met so far.
    """
    num_rows, longest = windows.shape
    bits = longest.bit_length()
    low = (1 << bits) - 1
    # The narrower type sorts twice as fast.
    dtype = np.int32 if windows.dtype == np.uint16 and bits < 16 else np.int64
    place = np.arange(longest, dtype=dtype)
    packed = np.sort((windows.astype(dtype) << bits) | place, axis=1)
    opens = np.ones((num_rows, longest), bool)
    opens[:, 1:] = packed[:, 1:] >> bits != packed[:, :-1] >> bits
    group = np.maximum.accumulate(np.where(opens, place, 0), axis=1)
    age = packed & low
    most_recent = np.take_along_axis(age, group, axis=1)
    key = np.empty_like(packed)
    np.put_along_axis(key, age, ((place - group) << bits) | (low - most_recent), axis=1)
    mode: IntArray = low - (np.maximum.accumulate(key, axis=1) & low)
    return mode


def _dense(labels: LabelArray) -> tuple[NDArray[Any], int]:
    """The labels as codes 0..num_codes-1, in 16 bits where they fit: those sort fastest."""
    if not len(labels):
        return np.zeros(0, np.int64), 1
    low, high = int(labels.min()), int(labels.max())
    if high - low < 1 << 16:
        return (labels - low).astype(np.uint16), high - low + 1
    values, codes = np.unique(labels, return_inverse=True)
    return codes, len(values)


def _occurrence(codes: NDArray[Any]) -> IntArray:
    """How often each entry's code has come up so far, the entry included.

    >>> _occurrence(np.array([7, 8, 7], np.uint16))
    array([1, 1, 2])
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    opens = np.ones(len(codes), bool)
    opens[1:] = ordered[1:] != ordered[:-1]
    place = np.arange(len(codes))
    occurrence = np.empty(len(codes), np.int64)
    occurrence[order] = place - np.maximum.accumulate(np.where(opens, place, 0)) + 1
    return occurrence
