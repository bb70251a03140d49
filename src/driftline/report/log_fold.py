"""One pass over a prediction log that keeps all the report needs, in memory that does not grow with the log's rows.

In: blocks of the log in order. Out: counts a step and counts by month and class. The figures are those of
`driftline.metrics`; a fold can go on where it stopped, which is how the live page follows a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from driftline.metrics.blind import blind_predictions
from driftline.metrics.online import SCORINGS, OnlineCurve, Scoring, spread
from driftline.report.run_files import LogBlock
from driftline.types import BoolArray, FloatArray, IntArray

STEP_FIELDS = (
    "step",
    "num",
    "correct",
    "blind",
    "num_scored",
    "correct_scored",
    "blind_scored",
    "position",
    "time",
)
FIRST, LAST = 0, 7
"""Rows of a table of steps: where the step's number and where its last position stand."""


@dataclass
class LogFold:
    """Running counts over a log; `blind_k` is the window of the blind classifier set beside the learner."""

    blind_k: int = 10
    num_rows: int = 0
    months: dict[int, IntArray] = field(default_factory=dict)
    """Month (since 1970-01) -> two rows of counts by class: predictions, correct ones. Labels below 0 stand in no class."""
    _steps: list[IntArray] = field(default_factory=list)
    _recent: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, block: LogBlock) -> None:
        """Take in the next rows of the log."""
        if not len(block["label"]):
            return
        label = block["label"]
        correct = block["pred"] == label
        known = np.concatenate([self._recent, label]).astype(np.int32)
        blind = (blind_predictions(known, self.blind_k) == known)[len(self._recent) :]
        self._recent = known[-self.blind_k :].astype(np.int64)
        self._steps.append(_count_steps(block, correct, blind))
        self._count_months(block["time"], label, correct)
        self.num_rows += len(label)

    def _count_months(self, time_s: IntArray, label: IntArray, correct: BoolArray) -> None:
        month = time_s.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
        num_classes = int(label.max()) + 1
        # Time rises along a log, so a block holds few months, each in one stretch.
        starts = np.flatnonzero(np.diff(month, prepend=month[0] - 1))
        for start, stop in zip(starts, np.append(starts[1:], len(month)), strict=True):
            here, right = label[start:stop], correct[start:stop]
            known = here >= 0
            counts = [np.bincount(here[k], minlength=num_classes) for k in (known, known & right)]
            self._add_month(int(month[start]), np.stack(counts))

    def _add_month(self, month: int, counts: IntArray) -> None:
        before = self.months.get(month, counts[:, :0])
        large, small = (counts, before) if counts.shape[1] >= before.shape[1] else (before, counts)
        self.months[month] = large.copy()
        self.months[month][:, : small.shape[1]] += small

    def steps(self) -> dict[str, IntArray]:
        """Counts of each step, a step that two blocks share made whole."""
        if not self._steps:
            return {name: np.zeros(0, np.int64) for name in STEP_FIELDS}
        rows = np.concatenate(self._steps, axis=1)
        starts = np.flatnonzero(np.diff(rows[FIRST], prepend=rows[FIRST, 0] - 1))
        merged = np.add.reduceat(rows, starts, axis=1)
        ends = np.append(starts[1:], rows.shape[1]) - 1
        merged[FIRST] = rows[FIRST, starts]
        merged[LAST:] = rows[LAST:, ends]
        self._steps = [merged]
        return dict(zip(STEP_FIELDS, merged, strict=True))


def _count_steps(block: LogBlock, correct: BoolArray, blind: BoolArray) -> IntArray:
    """One column a step of the block, one row a field of STEP_FIELDS."""
    step, scored = block["step"], block["scored"]
    starts = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    ends = np.append(starts[1:], len(step)) - 1
    flags = [np.ones(len(step), bool), correct, blind, scored, correct & scored, blind & scored]
    counts = [np.add.reduceat(flag, starts, dtype=np.int64) for flag in flags]
    return np.stack([step[starts], *counts, block["position"][ends], block["time"][ends]])


def curve_of(
    steps: dict[str, IntArray], scoring: Scoring, who: str = "correct", num_points: int = 400
) -> OnlineCurve:
    """Average online accuracy over the stream; `who` is "correct" (the learner) or "blind"."""
    assert scoring in SCORINGS
    suffix = "_scored" if scoring == "album" else ""
    num, right = steps["num" + suffix], steps[who + suffix]
    counts = num > 0
    share = right[counts] / num[counts]
    if scoring == "sample":
        accuracy: FloatArray = np.cumsum(right) / np.maximum(np.cumsum(num), 1)
    else:
        accuracy = np.cumsum(share) / np.arange(1, len(share) + 1)
    kept = spread(len(accuracy), num_points)
    return OnlineCurve(steps["position"][counts][kept], steps["time"][counts][kept], accuracy[kept])
