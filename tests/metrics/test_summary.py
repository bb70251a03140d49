"""The figures of summary.json: together they are what the single metrics say, and JSON can hold them."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest

from driftline.metrics.albums import make_log
from driftline.metrics.blind import blind_predictions, majority_predictions
from driftline.metrics.log import PredictionLog
from driftline.metrics.online import SCORINGS, online_accuracy
from driftline.metrics.summary import summarise_geolocation, summarise_online, summarise_transfer
from driftline.metrics.transfer import area, backward_curve, forward_curve
from driftline.types import DriftlineError


def make() -> PredictionLog:
    """Labels that stay for a while, so that the blind classifier has something to hold on to."""
    rng = np.random.default_rng(1)
    labels = np.repeat(rng.integers(0, 6, 150), 20).astype(np.int32)
    labels = np.where(rng.random(len(labels)) < 0.3, rng.integers(0, 6, len(labels)), labels).astype(np.int32)
    pred = np.where(rng.random(len(labels)) < 0.5, labels, 0).astype(np.int32)
    user = np.cumsum(rng.random(len(labels)) < 0.8)
    return make_log(labels, pred, user, np.arange(len(labels)), batch_size=16, test_every=32)


def test_online_figures_are_the_single_metrics() -> None:
    log = make()
    figures = summarise_online(log, num_classes=6)
    best_k = figures["blind"]["k"]
    others = {
        "online_accuracy": log,
        "blind": log.with_pred(blind_predictions(log.label, best_k)),
        "majority": log.with_pred(majority_predictions(log.label)),
    }
    for name, other in others.items():
        assert {s: figures[name][s] for s in SCORINGS} == {s: online_accuracy(other, s) for s in SCORINGS}
    assert figures["chance"] == 1 / 6
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    for k in (1, 2, 5, 10, 50, 300):
        album = online_accuracy(log.with_pred(blind_predictions(log.label, k)), "album")
        assert album <= figures["blind"]["album"]


def test_a_log_without_samples_has_no_figures() -> None:
    none = np.zeros(0, np.int32)
    figures = summarise_online(make_log(none, none, none, none, batch_size=4), num_classes=3)
    assert figures["online_accuracy"] == {"album": None, "batch": None, "sample": None}
    assert figures["majority"] == figures["online_accuracy"]
    assert summarise_geolocation(np.array([math.nan]))["median"] is None
    with pytest.raises(DriftlineError, match="num_classes = 0"):
        summarise_online(make_log(none, none, none, none, batch_size=4), num_classes=0)


def test_transfer_figures_are_those_of_each_checkpoint() -> None:
    rng = np.random.default_rng(2)
    time = np.sort(rng.integers(0, 1000, 200))
    frame = pl.concat(
        pl.DataFrame(
            {
                "checkpoint": [name] * 200,
                "time": time,
                "label": rng.integers(0, 2, 200),
                "pred": rng.integers(0, 2, 200),
            }
        )
        for name in ("H/3", "2H/3", "H")
    )
    times = {"H/3": 300, "2H/3": 650, "H": 1000}
    figures = summarise_transfer(frame, times)
    for name, at in times.items():
        part = frame.filter(checkpoint=name)
        correct = part["label"].to_numpy() == part["pred"].to_numpy()
        for side, function in (("backward", backward_curve), ("forward", forward_curve)):
            curve = function(time, correct, at, num_points=None)
            wanted = {"area": area(curve), "start": curve.start, "end": curve.end}
            assert figures[side][name] == (wanted if len(curve) else dict.fromkeys(wanted))
    assert figures["forward"]["H"]["area"] is None
    json.dumps(figures, allow_nan=False)


def test_a_checkpoint_without_predictions_is_named() -> None:
    frame = pl.DataFrame({"checkpoint": ["H/3"], "time": [1], "label": [0], "pred": [0]})
    with pytest.raises(DriftlineError, match=r"'H'; there are some by: H/3"):
        summarise_transfer(frame, {"H/3": 5, "H": 9})
