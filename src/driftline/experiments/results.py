"""What the runs of a figure showed, read from their files.

In: run directories, by label and seed. Out: measures for the findings and frames for the panels. Large logs are read once and
kept only as sums between test points.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from driftline.config import RunConfig, read_config
from driftline.experiments.blocks import Blocks, blocks
from driftline.experiments.setting import StudyScoring
from driftline.experiments.verdicts import Measure
from driftline.metrics.blind import blind_predictions
from driftline.metrics.log import PredictionLog
from driftline.types import BoolArray, FloatArray, IntArray

BINS = 60
"""Points of the curves that are averaged over steps: loss and training accuracy."""


class RunResult:
    """One finished run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blocks: dict[tuple[str, bool], Blocks] = {}

    @cached_property
    def config(self) -> RunConfig:
        """Its settings."""
        return read_config(self.path / "config.toml")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Its figures."""
        found: dict[str, Any] = json.loads((self.path / "summary.json").read_text(encoding="utf-8"))
        return found

    @cached_property
    def curves(self) -> pl.DataFrame:
        """One row a step."""
        return pl.read_parquet(self.path / "curves.parquet")

    @cached_property
    def transfer(self) -> pl.DataFrame:
        """Predictions for the validation set."""
        return pl.read_parquet(
            self.path / "transfer.parquet", columns=["checkpoint", "position", "time", "label", "pred"]
        )

    @property
    def is_offline(self) -> bool:
        """Whether it is a supervised run, which predicts nothing online."""
        return self.config.learner == "supervised"

    # -- online

    def blocks(self, scoring: StudyScoring, *, blind: bool = False) -> Blocks:
        """The prediction log between test points; `blind` puts the blind classifier in the model's place."""
        if (scoring, blind) not in self._blocks:
            log = PredictionLog.read(self.path)
            if blind:
                log = log.with_pred(blind_predictions(log.label, int(self.summary["blind"]["k"])))
            self._blocks[scoring, blind] = blocks(log, scoring, self.config.test_every)
        return self._blocks[scoring, blind]

    # -- transfer

    def checkpoint_time(self, checkpoint: str) -> int:
        """When the weights of a checkpoint were taken."""
        return int(self.summary["checkpoints"][checkpoint]["time"])

    def validation(self, checkpoint: str = "H") -> tuple[IntArray, IntArray, BoolArray]:
        """Position, time and correctness of each validation sample."""
        rows = self.transfer.filter(pl.col("checkpoint") == checkpoint)
        correct = (rows["label"] == rows["pred"]).to_numpy()
        return rows["position"].to_numpy(), rows["time"].to_numpy(), correct

    def backward(self, checkpoint: str) -> Measure:
        """Accuracy over all validation samples up to the checkpoint: the end of acc_B@T."""
        position, time, correct = self.validation(checkpoint)
        past = time <= self.checkpoint_time(checkpoint)
        return Measure.mean_of(correct[past].astype(np.float64), position[past])

    def forward(self, checkpoint: str) -> Measure:
        """Accuracy over all validation samples after the checkpoint: the end of acc_F@T."""
        position, time, correct = self.validation(checkpoint)
        future = time > self.checkpoint_time(checkpoint)
        return Measure.mean_of(correct[future].astype(np.float64), position[future])

    def validated(self, rows: BoolArray | None = None) -> Measure:
        """Accuracy of the last weights over the validation set, or over some of it."""
        position, _, correct = self.validation()
        chosen = np.ones(len(position), bool) if rows is None else rows
        return Measure.mean_of(correct[chosen].astype(np.float64), position[chosen])

    # -- training

    def binned(self, column: str, num_bins: int = BINS) -> tuple[FloatArray, FloatArray]:
        """A column of the curves averaged in equal parts of the training, by its progress in 0..1."""
        values = self.curves[column].to_numpy().astype(np.float64)
        progress = (np.arange(len(values)) + 0.5) / max(len(values), 1)
        part = np.minimum((progress * num_bins).astype(np.int64), num_bins - 1)
        known = np.isfinite(values)
        sums = np.bincount(part[known], values[known], num_bins)
        counts = np.bincount(part[known], minlength=num_bins)
        kept = counts > 0
        return (np.flatnonzero(kept) + 0.5) / num_bins, sums[kept] / counts[kept]

    def trained(self, column: str, first: float = 0.0, last: float = 1.0) -> Measure:
        """Mean of a column of the curves over a part of the training."""
        at, values = self.binned(column)
        kept = (at >= first) & (at < last)
        return Measure.mean_of(values[kept], np.flatnonzero(kept))


@dataclass(frozen=True)
class Results:
    """The runs of a figure: a list over seeds for each label."""

    runs: Mapping[str, Sequence[RunResult]]
    stream_name: str
    scoring: StudyScoring

    @property
    def labels(self) -> tuple[str, ...]:
        """In the order of the recipe."""
        return tuple(self.runs)

    def only(self, *labels: str) -> Results:
        """Some of the runs."""
        return self.renamed({label: label for label in labels})

    def renamed(self, names: Mapping[str, str]) -> Results:
        """Some of the runs under other labels."""
        return Results({new: self.runs[old] for old, new in names.items()}, self.stream_name, self.scoring)

    def online(self, label: str, first: float = 0.0, last: float = 1.0) -> list[Measure]:
        """Average online accuracy over a part of the stream."""
        return [run.blocks(self.scoring).measure(first, last) for run in self.runs[label]]

    def blind(self, label: str) -> list[Measure]:
        """The blind classifier on the same samples."""
        return [run.blocks(self.scoring, blind=True).measure() for run in self.runs[label]]

    def backward(self, label: str, checkpoint: str) -> list[Measure]:
        """End of the backward transfer curve."""
        return [run.backward(checkpoint) for run in self.runs[label]]

    def forward(self, label: str, checkpoint: str) -> list[Measure]:
        """End of the forward transfer curve."""
        return [run.forward(checkpoint) for run in self.runs[label]]

    def validated(self, label: str) -> list[Measure]:
        """Accuracy of the last weights over the whole validation set."""
        return [run.validated() for run in self.runs[label]]

    def trained(self, label: str, column: str, first: float = 0.0, last: float = 1.0) -> list[Measure]:
        """Mean of a column of the curves over a part of the training."""
        return [run.trained(column, first, last) for run in self.runs[label]]
