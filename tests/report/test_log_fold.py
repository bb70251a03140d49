from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.metrics.albums import make_log
from driftline.metrics.blind import blind_predictions
from driftline.metrics.log import PredictionLog
from driftline.metrics.online import SCORINGS, online_accuracy, online_curve
from driftline.report.log_fold import LogFold, curve_of
from driftline.report.run_files import LOG_COLUMNS


def fold_in_blocks(log: PredictionLog, cuts: list[int], blind_k: int) -> LogFold:
    fold = LogFold(blind_k)
    edges = [0, *sorted(c % (len(log) + 1) for c in cuts), len(log)]
    for start, stop in itertools.pairwise(edges):
        fold.add({name: getattr(log, name)[start:stop] for name in LOG_COLUMNS})
    return fold


@st.composite
def logs(draw: st.DrawFn) -> PredictionLog:
    num = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    time_s = np.sort(rng.integers(0, 200 * 86400, num))
    label = rng.integers(-1, 4, num).astype(np.int32)
    pred = rng.integers(0, 4, num).astype(np.int32)
    batch = draw(st.integers(1, 9))
    return make_log(
        label, pred, rng.integers(0, 5, num), time_s, batch_size=batch, test_every=draw(st.integers(1, 20))
    )


@given(logs(), st.lists(st.integers(0, 100), max_size=5), st.integers(1, 12))
def test_however_the_log_is_cut_the_fold_gives_the_figures_of_the_metrics(
    log: PredictionLog, cuts: list[int], k: int
) -> None:
    steps = fold_in_blocks(log, cuts, k).steps()
    blind = log.with_pred(blind_predictions(log.label, k))
    for scoring in SCORINGS:
        for who, whole in (("correct", log), ("blind", blind)):
            found, expected = curve_of(steps, scoring, who, num_points=7), online_curve(whole, scoring, 7)
            assert found.accuracy == pytest.approx(expected.accuracy, nan_ok=True)
            if scoring != "album":  # the fold knows where a step ends, the metric where its scored album does
                assert found.time.tolist() == expected.time.tolist()
            if len(found.accuracy):
                assert found.accuracy[-1] == pytest.approx(online_accuracy(whole, scoring))


@given(logs(), st.lists(st.integers(0, 100), max_size=5))
def test_months_and_classes_are_counted_as_by_hand(log: PredictionLog, cuts: list[int]) -> None:
    counted: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for time_s, label, pred in zip(log.time.tolist(), log.label.tolist(), log.pred.tolist(), strict=True):
        if label >= 0:
            month = np.datetime64(time_s, "s").astype("datetime64[M]").astype(int)
            counted[int(month), label][0] += 1
            counted[int(month), label][1] += label == pred
    fold = fold_in_blocks(log, cuts, 10)
    found = {
        (month, label): counts[:, label].tolist()
        for month, counts in fold.months.items()
        for label in range(counts.shape[1])
        if counts[0, label]
    }
    assert found == dict(counted)


def test_memory_follows_steps_and_not_rows() -> None:
    fold = LogFold()
    num = 50_000
    for part in range(8):
        position = np.arange(part * num, (part + 1) * num)
        zeros = np.zeros(num, np.int32)
        fold.add(
            {
                "position": position,
                "time": position,
                "label": zeros,
                "pred": zeros,
                "step": position // num,
                "scored": zeros > 0,
            }
        )
    assert fold.num_rows == 8 * num
    assert {len(column) for column in fold.steps().values()} == {8}
