"""The blind and the majority classifier against a counter that walks over the labels one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.metrics import blind
from driftline.metrics.albums import make_log
from driftline.metrics.blind import BlindCounter, blind_predictions, blind_sweep, majority_predictions
from driftline.metrics.online import SCORINGS, online_accuracy
from driftline.types import DriftlineError

LABELS = st.lists(st.integers(0, 4), max_size=80).map(lambda values: np.array(values, np.int32))
ANY_LABELS = st.lists(st.sampled_from([-1, 0, 3, 70_000, 2**31 - 1]), max_size=40).map(
    lambda values: np.array(values, np.int32)
)


def obvious(labels: np.ndarray, k: int | None) -> list[int]:
    """Count the window; among the labels that occur most, take the one seen last."""
    predictions = []
    for t in range(len(labels)):
        window = labels[max(0, t - k) if k else 0 : t].tolist()
        counts = Counter(window)
        most = max(counts.values(), default=0)
        predictions.append(next((label for label in reversed(window) if counts[label] == most), -1))
    return predictions


@pytest.fixture(params=["one block", "many blocks"])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is cut into blocks must not depend on where the cuts are."""
    if request.param == "many blocks":
        monkeypatch.setattr(blind, "_ROWS_A_BLOCK", 7)
        monkeypatch.setattr(blind, "_ROWS_A_SORT", 5)
        monkeypatch.setattr(blind, "_CELLS_A_SWEEP", 40)


@pytest.mark.usefixtures("_blocks")
class TestInBlocks:
    @given(labels=LABELS | ANY_LABELS, k=st.integers(1, 90))
    def test_blind(self, labels: np.ndarray, k: int) -> None:
        found = blind_predictions(labels, k)
        assert found.dtype == np.int32
        assert found.tolist() == obvious(labels, k)

    @given(labels=LABELS | ANY_LABELS)
    def test_majority(self, labels: np.ndarray) -> None:
        found = majority_predictions(labels)
        assert found.dtype == np.int32
        assert found.tolist() == obvious(labels, None)

    @pytest.mark.parametrize("scoring", SCORINGS)
    @given(
        labels=LABELS | ANY_LABELS,
        ks=st.lists(st.integers(1, 30), min_size=1, max_size=4),
        test_every=st.sampled_from([1, 40]),
        dense=st.sampled_from([1, 10**9]),
    )
    def test_sweep(self, scoring, labels: np.ndarray, ks: list[int], test_every: int, dense: int) -> None:
        row = np.arange(len(labels))
        log = make_log(labels, labels, row, row, batch_size=3, test_every=test_every)
        with pytest.MonkeyPatch.context() as patch:  # both ways of doing it
            patch.setattr(blind, "_DENSE", dense)
            sweep = blind_sweep(log, ks, scoring)
        for k in ks:
            wanted = online_accuracy(log.with_pred(np.array(obvious(labels, k), np.int32)), scoring)
            assert sweep.accuracy[k] == pytest.approx(wanted, nan_ok=True)
        if len(labels):
            best = max(sweep.accuracy.values())
            assert sweep.best_k == min(k for k in ks if sweep.accuracy[k] == best)


def test_long_windows_count_beyond_the_smallest_integers() -> None:
    # 300 of one label, then 299 of another: only a window of all of them still says the first.
    labels = np.array([1] * 300 + [2] * 299 + [0], np.int32)
    assert [int(blind_predictions(labels, k)[-1]) for k in (598, 599, 1000)] == [2, 1, 1]
    labels = np.random.default_rng(3).integers(0, 3, 2000).astype(np.int32)
    for k in (255, 256, 257, 700):
        assert blind_predictions(labels, k).tolist() == obvious(labels, k)


def test_a_sweep_of_few_scored_samples_agrees_with_predicting_all() -> None:
    labels = (np.random.default_rng(4).geometric(0.2, 20_000) % 50).astype(np.int32)
    row = np.arange(len(labels))
    log = make_log(labels, labels, row // 2, row, batch_size=64, test_every=256)
    assert log.scored.sum() * blind._DENSE < len(log)
    for k, accuracy in blind_sweep(log, (1, 10, 255, 256, 400)).accuracy.items():
        assert accuracy == online_accuracy(log.with_pred(blind_predictions(labels, k)), "album")


@given(labels=LABELS, k=st.integers(1, 12), cuts=st.lists(st.integers(0, 80), max_size=6))
def test_counter_beside_a_run_agrees_with_the_whole(labels: np.ndarray, k: int, cuts: list[int]) -> None:
    counter = BlindCounter(k)
    hits = np.array(obvious(labels, k), np.int64) == labels
    scored = np.arange(len(labels)) % 3 == 0
    other = BlindCounter(k)
    edges = sorted(cuts)
    parts = np.split(np.arange(len(labels)), edges)
    assert [counter.update(labels[p]) for p in parts] == [int(hits[p].sum()) for p in parts]
    assert [other.update(labels[p], scored[p]) for p in parts] == [
        int((hits & scored)[p].sum()) for p in parts
    ]


def test_windows_that_look_at_nothing_are_refused() -> None:
    labels = np.array([1, 2], np.int32)
    log = make_log(labels, labels, labels, labels, batch_size=1)
    for call in (
        lambda: blind_predictions(labels, 0),
        lambda: blind_sweep(log, [3, 0]),
        lambda: BlindCounter(0),
    ):
        with pytest.raises(DriftlineError, match="k = 0"):
            call()
    with pytest.raises(DriftlineError, match="empty"):
        blind_sweep(log, [])
