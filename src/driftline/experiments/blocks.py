"""Online accuracy in stretches between test points: small enough to keep, exact enough for every figure of the study.

In: a prediction log. Out: one row a stretch with how many samples were scored and how many were right. From these come the
average online accuracy, its curve, its value in a part of the stream, and its sampling error.

The study knows one scoring more than the protocol, for comparing batch sizes on short streams. The paper's `album` scores about
one photo in 200, too few when a stream has 200 test points; and `sample` favours small batches, whose model is never
more than a few photos old. `window` scores the first 64 samples after each test point, without those of the user whose
album straddles it: every run has just learned from all that came before, whatever its batch size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftline.experiments.setting import BATCH_SIZES, StudyScoring
from driftline.experiments.verdicts import Measure
from driftline.metrics.log import PredictionLog
from driftline.types import BoolArray, FloatArray, IntArray

WINDOW = min(BATCH_SIZES)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Scored and correct samples of each stretch that has any scored ones."""

    index: IntArray
    """Number of the stretch: its first position divided by its length."""
    time: IntArray
    """Of the last scored sample."""
    num_scored: IntArray
    num_correct: IntArray
    weigh_alike: bool
    """album: each stretch counts alike; otherwise each sample does."""
    num_positions: int
    """Length of the stream in positions."""
    length: int
    """Positions in a stretch."""

    def measure(self, first: float = 0.0, last: float = 1.0) -> Measure:
        """Online accuracy over the part of the stream between two shares of its length."""
        at = self.index * self.length / max(self.num_positions, 1)
        kept = (at >= first) & (at < last)
        share = self.num_correct[kept] / self.num_scored[kept]
        if self.weigh_alike or not kept.any():
            return Measure.mean_of(share, self.index[kept])
        value = float(self.num_correct[kept].sum() / self.num_scored[kept].sum())
        return Measure(value, share, self.index[kept])

    def running(self) -> FloatArray:
        """Average online accuracy up to the end of each stretch."""
        if self.weigh_alike:
            return np.cumsum(self.num_correct / self.num_scored) / np.arange(1, len(self.index) + 1)
        return np.cumsum(self.num_correct) / np.cumsum(self.num_scored)


def blocks(log: PredictionLog, scoring: StudyScoring, test_every: int) -> Blocks:
    """The log summed up between test points."""
    mask = scored_rows(log, scoring, test_every)
    rows = np.flatnonzero(mask)
    block = log.position[rows] // test_every
    index, first = np.unique(block, return_index=True)
    bounds = np.append(first, len(rows))
    correct = log.label[rows] == log.pred[rows]
    num_correct = np.add.reduceat(correct, first, dtype=np.int64) if len(rows) else np.zeros(0, np.int64)
    return Blocks(
        index,
        log.time[rows[bounds[1:] - 1]] if len(rows) else np.zeros(0, np.int64),
        np.diff(bounds),
        num_correct,
        scoring == "album",
        int(log.position[-1]) + 1 if len(log) else 0,
        test_every,
    )


def scored_rows(log: PredictionLog, scoring: StudyScoring, test_every: int) -> BoolArray:
    """Which predictions count.

    >>> from driftline.metrics.albums import make_log
    >>> truth = np.zeros(4, np.int32)
    >>> log = make_log(truth, truth, user=np.array([1, 2, 2, 3]), time=np.arange(4), batch_size=2, test_every=2)
    >>> scored_rows(log, "window", 2).tolist()
    [True, True, False, True]
    """
    if scoring == "album":
        return log.scored
    if scoring == "sample":
        return np.ones(len(log), bool)
    block = log.position // test_every
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    before = np.where(starts > 0, log.user[starts - 1], -1)
    straddling = np.repeat(before, np.diff(np.append(starts, len(log))))
    own = (log.user != straddling) | (block == 0)
    return np.asarray((log.position - block * test_every < WINDOW) & own)
