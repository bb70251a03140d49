"""Average online accuracy in the three scorings, and accuracy by calendar, against plain loops."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.metrics.log import PredictionLog
from driftline.metrics.online import (
    SCORINGS,
    accuracy_by_month,
    accuracy_by_year,
    online_accuracy,
    online_curve,
)
from driftline.metrics.periods import by_bin
from driftline.types import DriftlineError

ROW = st.tuples(
    st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.booleans(), st.integers(-(10**8), 2 * 10**9)
)


@st.composite
def logs(draw: st.DrawFn) -> PredictionLog:
    """Any log: steps of any size, some missing, any samples scored, times in no order."""
    rows = draw(st.lists(ROW, max_size=50))
    gap, label, pred, scored, time = (np.array([row[i] for row in rows], np.int64) for i in range(5))
    step = np.cumsum(gap // 2)
    return PredictionLog(np.arange(len(rows)) * 2, time, label, label, pred, step, scored.astype(bool))


def obvious_curve(log: PredictionLog, scoring: str) -> list[tuple[int, float]]:
    """(last position that counts, accuracy so far) after each step, by the definition."""
    hits_of: dict[int, list[bool]] = defaultdict(list)
    last: dict[int, int] = {}
    for row in range(len(log)):
        if scoring != "album" or log.scored[row]:
            hits_of[int(log.step[row])].append(bool(log.label[row] == log.pred[row]))
            last[int(log.step[row])] = int(log.position[row])
    curve, accuracies, all_hits = [], [], []
    for step, hits in hits_of.items():
        accuracies.append(sum(hits) / len(hits))
        all_hits += hits
        mean = sum(all_hits) / len(all_hits) if scoring == "sample" else sum(accuracies) / len(accuracies)
        curve.append((last[step], mean))
    return curve


@pytest.mark.parametrize("scoring", SCORINGS)
@given(log=logs())
def test_accuracy_and_curve_follow_the_definition(scoring, log: PredictionLog) -> None:
    wanted = obvious_curve(log, scoring)
    curve = online_curve(log, scoring, num_points=None)
    assert curve.position.tolist() == [position for position, _ in wanted]
    assert curve.accuracy.tolist() == pytest.approx([accuracy for _, accuracy in wanted])
    assert curve.time.tolist() == [log.time[position // 2] for position, _ in wanted]
    if wanted:
        assert online_accuracy(log, scoring) == pytest.approx(wanted[-1][1])
    else:
        assert math.isnan(online_accuracy(log, scoring))


@given(log=logs(), num_points=st.integers(2, 8))
def test_a_thinned_curve_keeps_exact_points_and_both_ends(log: PredictionLog, num_points: int) -> None:
    whole, thin = online_curve(log, "batch", None), online_curve(log, "batch", num_points)
    value_at = dict(zip(whole.position.tolist(), whole.accuracy.tolist(), strict=True))
    assert len(thin.position) == min(num_points, len(whole.position))
    assert all(value_at[p] == a for p, a in zip(thin.position.tolist(), thin.accuracy.tolist(), strict=True))
    if len(whole.position):
        assert {whole.position[0], whole.position[-1]} <= set(thin.position.tolist())


def obvious_calendar(log: PredictionLog, pattern: str) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for time, hit in zip(log.time.tolist(), log.correct.tolist(), strict=True):
        key = datetime.fromtimestamp(time, UTC).strftime(pattern)
        num, hits = counts.get(key, (0, 0))
        counts[key] = (num + 1, hits + hit)
    return counts


@pytest.mark.parametrize(("function", "pattern"), [(accuracy_by_month, "%Y-%m"), (accuracy_by_year, "%Y")])
@given(log=logs())
def test_accuracy_by_calendar(function, pattern: str, log: PredictionLog) -> None:
    found = function(log)
    assert np.all(np.diff(found.start_s) > 0)
    shown = {
        datetime.fromtimestamp(start, UTC).strftime(pattern): (num, round(num * accuracy))
        for start, num, accuracy in zip(
            found.start_s.tolist(), found.num_samples, found.accuracy, strict=True
        )
    }
    assert shown == obvious_calendar(log, pattern)


@given(log=logs(), num_bins=st.integers(1, 7))
def test_bins_hold_every_sample_once(log: PredictionLog, num_bins: int) -> None:
    found = by_bin(log.time, log.correct, num_bins)
    for start, stop, accuracy, num in zip(
        found.start_s, found.stop_s, found.accuracy, found.num_samples, strict=True
    ):
        inside = (log.time >= start) & (log.time < stop)
        assert num == inside.sum()
        assert math.isnan(accuracy) if num == 0 else accuracy == pytest.approx(log.correct[inside].mean())
    assert found.num_samples.sum() == len(log)


def test_the_scorings_differ_where_they_should() -> None:
    # Step 0: one right of four, the scored one is right. Step 1: one sample, wrong.
    step = np.array([0, 0, 0, 0, 1])
    label, pred = np.array([1, 1, 1, 1, 1]), np.array([1, 0, 0, 0, 0])
    scored = np.array([True, False, False, False, True])
    log = PredictionLog(np.arange(5), np.arange(5), label, label, pred, step, scored)
    found = {scoring: online_accuracy(log, scoring) for scoring in SCORINGS}
    assert found == {"album": 0.5, "batch": 0.125, "sample": 0.2}


def test_unknown_scoring_and_too_few_points_are_refused() -> None:
    row = np.arange(3)
    log = PredictionLog(row, row, row, row, row, row, row >= 0)
    with pytest.raises(DriftlineError, match=r"'image'.*album, batch, sample"):
        online_accuracy(log, "image")  # type: ignore[arg-type]
    with pytest.raises(DriftlineError, match="num_points = 1"):
        online_curve(log, "batch", num_points=1)
