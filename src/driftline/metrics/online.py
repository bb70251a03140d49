"""Average online accuracy: how well each sample was predicted before it was learned from.

In comes a prediction log; out come one number, or a curve over the stream, for each of the three scorings of the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from driftline.metrics.albums import step_starts
from driftline.metrics.log import PredictionLog
from driftline.metrics.periods import PeriodAccuracy, by_calendar
from driftline.types import DriftlineError, FloatArray, IntArray

Scoring = Literal["album", "batch", "sample"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)


@dataclass(frozen=True, eq=False)
class OnlineCurve:
    """acc_O after some of the steps: where the step ended, when that was, and the accuracy up to there."""

    position: IntArray
    time: IntArray
    accuracy: FloatArray


@dataclass(frozen=True, eq=False)
class _Steps:
    """What each step that counts contributed: scored samples, correct ones, and its last row in the log."""

    num_scored: IntArray
    num_correct: IntArray
    last_row: IntArray


def online_accuracy(log: PredictionLog, scoring: Scoring) -> float:
    """The average online accuracy at the end of the log; NaN where nothing is scored.

    >>> from driftline.metrics.albums import make_log
    >>> truth, guess = np.array([1, 2, 3]), np.array([1, 0, 3])
    >>> log = make_log(truth, guess, user=truth, time=truth, batch_size=2, test_every=2)
    >>> [round(online_accuracy(log, scoring), 3) for scoring in SCORINGS]
    [1.0, 0.75, 0.667]
    """
    steps = _steps(log, scoring)
    if not len(steps.last_row):
        return float("nan")
    if scoring == "sample":
        return float(steps.num_correct.sum() / steps.num_scored.sum())
    return float(np.mean(steps.num_correct / steps.num_scored))


def online_curve(log: PredictionLog, scoring: Scoring, num_points: int | None = 500) -> OnlineCurve:
    """acc_O(t) after `num_points` steps spread evenly over the log, first and last among them (None: after every step)."""
    steps = _steps(log, scoring)
    if scoring == "sample":
        accuracy = np.cumsum(steps.num_correct) / np.cumsum(steps.num_scored)
    else:
        accuracy = np.cumsum(steps.num_correct / steps.num_scored) / np.arange(1, len(steps.last_row) + 1)
    kept = spread(len(accuracy), num_points)
    rows = steps.last_row[kept]
    return OnlineCurve(log.position[rows], log.time[rows], accuracy[kept])


def accuracy_by_month(log: PredictionLog) -> PeriodAccuracy:
    """Share of correct predictions in every calendar month (UTC) that has any; each sample counts once."""
    return by_calendar(log.time, log.correct, "M")


def accuracy_by_year(log: PredictionLog) -> PeriodAccuracy:
    """Share of correct predictions in every calendar year (UTC) that has any; each sample counts once."""
    return by_calendar(log.time, log.correct, "Y")


def spread(length: int, num_points: int | None) -> IntArray:
    """So many indices, spread evenly over 0..length-1 with both ends; all of them for None.

    >>> spread(11, 3), spread(2, 5)
    (array([ 0,  5, 10]), array([0, 1]))
    """
    if num_points is None or length <= num_points:
        return np.arange(length)
    if num_points < 2:
        raise DriftlineError(f"num_points = {num_points}: a curve needs at least 2 points")
    return np.arange(num_points) * (length - 1) // (num_points - 1)


def _steps(log: PredictionLog, scoring: Scoring) -> _Steps:
    """Counts of each step that has scored samples. Only the rows that count are looked at."""
    if scoring == "album":
        rows = np.flatnonzero(log.scored)
        starts = step_starts(log.step[rows])
        correct = log.label[rows] == log.pred[rows]
        last_row = rows[np.append(starts[1:], len(rows)) - 1] if len(rows) else rows
    elif scoring in SCORINGS:
        starts = step_starts(log.step)
        correct = log.correct
        last_row = np.append(starts[1:], len(log))[: len(starts)] - 1
    else:
        raise DriftlineError(f"scoring = {scoring!r}: choose one of {', '.join(SCORINGS)}")
    if not len(starts):
        return _Steps(starts, starts, starts)
    return _Steps(
        np.diff(starts, append=len(correct)), np.add.reduceat(correct, starts, dtype=np.int64), last_row
    )
