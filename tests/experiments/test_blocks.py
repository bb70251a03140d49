"""Sums between test points give the protocol's accuracies, and the window scoring is what it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.experiments.blocks import WINDOW, blocks, scored_rows
from driftline.metrics.albums import make_log
from driftline.metrics.log import PredictionLog
from driftline.metrics.online import online_accuracy, online_curve

logs = st.builds(
    lambda num, seed, batch_size: random_log(num, seed, batch_size),
    st.integers(1, 1500),
    st.integers(0, 2**31),
    st.sampled_from([64, 128, 256]),
)


def random_log(num: int, seed: int, batch_size: int) -> PredictionLog:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 4, num).astype(np.int32)
    pred = np.where(rng.random(num) < 0.5, label, 9).astype(np.int32)
    user = np.cumsum(rng.random(num) < 0.3) % 17
    return make_log(label, pred, user, np.arange(num), batch_size=batch_size)


@settings(max_examples=60)
@given(logs)
def test_album_and_sample_are_those_of_the_protocol(log: PredictionLog) -> None:
    for scoring in ("album", "sample"):
        found = blocks(log, scoring, 256)
        assert found.measure().value == pytest.approx(online_accuracy(log, scoring), nan_ok=True)
    assert blocks(log, "album", 256).running() == pytest.approx(online_curve(log, "album", None).accuracy)


@settings(max_examples=60)
@given(logs)
def test_window_against_a_slow_reference(log: PredictionLog) -> None:
    expected = []
    for row in range(len(log)):
        start = row - row % 256
        early = row - start < WINDOW
        straddles = start > 0 and log.user[row] == log.user[start - 1]
        expected.append(early and not straddles)
    assert scored_rows(log, "window", 256).tolist() == expected


@settings(max_examples=60)
@given(logs)
def test_parts_of_the_stream_add_up(log: PredictionLog) -> None:
    found = blocks(log, "sample", 256)
    parts = [found.measure(i / 3, (i + 1) / 3) for i in range(3)]
    assert sum(len(p.items) for p in parts if p.items is not None) == len(found.index)


def test_the_window_is_the_same_for_every_batch_size() -> None:
    small, large = (random_log(2000, 3, b) for b in (64, 256))
    assert np.array_equal(scored_rows(small, "window", 256), scored_rows(large, "window", 256))
