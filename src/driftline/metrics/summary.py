"""The figures of `summary.json` that come from logs.

In come a prediction log, validation predictions or distances; out come dicts that JSON can hold (a figure that cannot be
had is None).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from driftline.metrics.blind import SWEEP, blind_predictions, blind_sweep, majority_predictions
from driftline.metrics.geolocation import SCALES_KM, median_km, share_under
from driftline.metrics.log import PredictionLog
from driftline.metrics.online import SCORINGS, online_accuracy
from driftline.metrics.transfer import TransferCurve, area, backward_curve, forward_curve
from driftline.types import DriftlineError

Figures = dict[str, Any]


def summarise_online(log: PredictionLog, num_classes: int, ks: Sequence[int] = SWEEP) -> Figures:
    """Online accuracy of the log, and beside it the blind classifier (best k by album), the majority and chance.

    >>> from driftline.metrics.albums import make_log
    >>> labels = np.array([0, 0, 1, 1])
    >>> log = make_log(labels, labels, user=np.arange(4), time=np.arange(4), batch_size=2, test_every=2)
    >>> figures = summarise_online(log, num_classes=2)
    >>> figures["online_accuracy"], figures["chance"]
    ({'album': 1.0, 'batch': 1.0, 'sample': 1.0}, 0.5)
    """
    if num_classes < 1:
        raise DriftlineError(f"num_classes = {num_classes}: must be at least 1")
    k = blind_sweep(log, ks).best_k
    return {
        "online_accuracy": _scores(log),
        "blind": _scores(log.with_pred(blind_predictions(log.label, k))) | {"k": k},
        "majority": _scores(log.with_pred(majority_predictions(log.label))),
        "chance": 1 / num_classes,
    }


def summarise_transfer(frame: pl.DataFrame, times: dict[str, int]) -> Figures:
    """Backward and forward transfer of each checkpoint in the columns of `transfer.parquet`.

    `times` gives the time T at which each checkpoint's weights were taken.

    >>> frame = pl.DataFrame({"checkpoint": ["H"] * 2, "time": [10, 20], "label": [1, 2], "pred": [1, 0]})
    >>> summarise_transfer(frame, {"H": 20})["backward"]
    {'H': {'area': 0.0, 'start': 0.0, 'end': 0.5}}
    """
    figures: Figures = {"backward": {}, "forward": {}}
    for checkpoint, at_time in times.items():
        rows = frame.filter(pl.col("checkpoint") == checkpoint)
        if not len(rows):
            held = ", ".join(frame["checkpoint"].unique(maintain_order=True).cast(pl.String))
            raise DriftlineError(
                f"no predictions by checkpoint {checkpoint!r}; there are some by: {held or 'none'}"
            )
        time_s = rows["time"].to_numpy()
        correct = (rows["label"] == rows["pred"]).to_numpy()
        figures["backward"][checkpoint] = _ends(backward_curve(time_s, correct, at_time, num_points=None))
        figures["forward"][checkpoint] = _ends(forward_curve(time_s, correct, at_time, num_points=None))
    return figures


def summarise_geolocation(distance_km: NDArray[np.floating[Any]]) -> Figures:
    """Median error, and the share of errors under each scale, keyed by kilometres.

    >>> summarise_geolocation(np.array([0.5, 300.0]))
    {'median': 150.25, 'share_under': {'1': 0.5, '25': 0.5, '200': 0.5, '750': 1.0, '2500': 1.0}}
    """
    shares = share_under(distance_km, tuple(SCALES_KM.values()))
    return {
        "median": _finite(median_km(distance_km)),
        "share_under": {f"{scale:g}": _finite(share) for scale, share in shares.items()},
    }


def _scores(log: PredictionLog) -> Figures:
    return {scoring: _finite(online_accuracy(log, scoring)) for scoring in SCORINGS}


def _ends(curve: TransferCurve) -> Figures:
    return {"area": _finite(area(curve)), "start": _finite(curve.start), "end": _finite(curve.end)}


def _finite(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if math.isfinite(value) else None
