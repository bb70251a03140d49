"""A run boiled down to what the report draws: at most a few hundred points a line, whatever the run's length.

In: a RunFiles, and a LogFold that has taken in its log. Out: a RunDigest of small frames, in the columns that the chart
builders take (`x` in unix seconds, `value`, `kind`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from driftline.metrics.online import SCORINGS, Scoring, spread
from driftline.metrics.transfer import backward_curve, forward_curve
from driftline.report.log_fold import LogFold, curve_of
from driftline.report.run_files import (
    CLASS_COLUMNS,
    ERROR_COLUMNS,
    SAMPLE_COLUMNS,
    TRANSFER_COLUMNS,
    RunFiles,
    load_run,
)
from driftline.types import IntArray

MAX_POINTS = 400
"""Points a line; more cannot be told apart on a screen."""
NOISY_POINTS = 150
"""Points a line of what jumps from step to step; each is the mean of a stretch."""
FEWEST_PHOTOS = 30
"""A transfer curve begins where it rests on so many validation photos; before that it is noise."""
CHECKPOINTS = {"H/3": 1 / 3, "2H/3": 2 / 3, "H": 1.0}
NEAREST_KM = 0.5
"""Errors are drawn on a logarithmic axis that begins here."""
SECONDS_A_YEAR = 31_556_952
MIN_PHOTOS = 20
"""A class needs so many photos in both thirds to count as gained or lost."""


@dataclass(frozen=True)
class RunDigest:
    """Everything that the report shows of one run."""

    run: RunFiles
    name: str
    fold: LogFold

    @cached_property
    def steps(self) -> dict[str, IntArray]:
        """Counts of each step."""
        return self.fold.steps()

    @cached_property
    def curves(self) -> pl.DataFrame:
        """The curves of the run, one row a step."""
        return self.run.curves()

    @cached_property
    def classes(self) -> pl.DataFrame:
        """What the labels mean; labels without a row get their number as name."""
        table = self.run.table("classes", CLASS_COLUMNS)
        if table is not None:
            return table.select(CLASS_COLUMNS)
        num = max((c.shape[1] for c in self.fold.months.values()), default=0)
        empty = {"cell": pl.Series([None] * num, dtype=pl.String), "lat": [None] * num, "lon": [None] * num}
        return pl.DataFrame(
            {"label": np.arange(num, dtype=np.int32), "name": [f"class {i}" for i in range(num)], **empty}
        )

    @cached_property
    def transfer(self) -> pl.DataFrame | None:
        """Predictions for the validation set by the kept weights."""
        return self.run.table("transfer", TRANSFER_COLUMNS)

    def time_range(self) -> tuple[int, int] | None:
        """First and last time of the photos that the run was tested on."""
        rows = self.transfer if self.run.is_supervised else self.curves
        if rows is None or not len(rows):
            return None
        return int(rows["time"].min()), int(rows["time"].max())  # type: ignore[arg-type]

    @cached_property
    def samples(self) -> pl.DataFrame | None:
        """A few images over time."""
        return self.run.table("samples", SAMPLE_COLUMNS)

    @property
    def places(self) -> pl.DataFrame:
        """Classes that are places."""
        return self.classes.filter(pl.col("cell").is_not_null() & pl.col("lat").is_not_null())

    def online(self, who: str = "correct") -> pl.DataFrame:
        """Average online accuracy over time in the three scorings, of the learner or of the blind classifier."""
        parts = [_points(self._curve(s, who), s) for s in SCORINGS] if self.fold.num_rows else []
        return pl.concat(parts) if parts else _no_points()

    def _curve(self, scoring: Scoring, who: str) -> tuple[Any, Any]:
        curve = curve_of(self.steps, scoring, who, MAX_POINTS)
        return curve.time, curve.accuracy

    def online_accuracy(self, who: str = "correct") -> dict[Scoring, float]:
        """The last value of each online curve."""
        return {s: float(v[-1]) for s in SCORINGS if len(v := self._curve(s, who)[1])}

    def by_month(self) -> pl.DataFrame:
        """Share of correct predictions in each month; of a supervised run, on that month's validation photos.

        Where these are few, the validation photos are taken by quarter or by year.
        """
        if self.run.is_supervised:
            return self._validation_by_month()
        months = sorted(self.fold.months)
        counts = np.array([self.fold.months[m].sum(axis=1) for m in months]).reshape(-1, 2)
        start_s = np.array(months).astype("datetime64[M]").astype("datetime64[s]").astype(np.int64)
        return pl.DataFrame(
            {"x": start_s, "value": counts[:, 1] / np.maximum(counts[:, 0], 1), "count": counts[:, 0]}
        )

    def _validation_by_month(self) -> pl.DataFrame:
        last = self._at("H")
        stretch = next((s for s in ("1mo", "1q") if _median_count(last, s) >= FEWEST_PHOTOS), "1y")
        month = pl.from_epoch("time").dt.truncate(stretch).dt.epoch("s").alias("x")
        return (
            last.select(month, pl.col("correct"))
            .group_by("x")
            .agg(value=pl.col("correct").mean(), count=pl.len())
            .sort("x")
        )

    def line(self, column: str, *, changes: bool = False, num_points: int = NOISY_POINTS) -> pl.DataFrame:
        """One column of the curves: means over stretches of steps, or with `changes` the points where it changes."""
        # The photos of a supervised run come shuffled: its steps have no time of their own.
        along = "step" if self.run.is_supervised else "time"
        rows = self.curves.select(
            x=pl.col(along).cast(pl.Float64), value=pl.col(column).cast(pl.Float64)
        ).filter(pl.col("value").is_finite())
        if not len(rows):
            return _no_points().drop("kind")
        if changes:
            changed = rows["value"].to_numpy()
            kept = np.flatnonzero(np.diff(changed, prepend=np.nan) != 0)
            kept = np.union1d(
                kept if len(kept) <= MAX_POINTS else kept[spread(len(kept), MAX_POINTS)], [len(rows) - 1]
            )
            return rows[kept.tolist()]
        stretch = pl.int_range(pl.len()) * min(num_points, len(rows)) // pl.len()
        return (
            rows.group_by(stretch.alias("part"), maintain_order=True)
            .agg(pl.col("x").last(), pl.col("value").mean())
            .drop("part")
        )

    def members(self) -> pl.DataFrame:
        """Learning rate of each member of the population, or the rate of the one model."""
        num = self.run.config.num_members
        names = {f"lr_{j}": f"member {j + 1}" for j in range(num)} if num > 1 else {"lr": "rate"}
        return pl.concat([self.line(c, changes=True).with_columns(kind=pl.lit(k)) for c, k in names.items()])

    def training(self) -> pl.DataFrame:
        """Accuracy on the stream batch and on the replay batch while training."""
        names = {"acc_stream": "stream batch", "acc_replay": "replay batch"}
        return pl.concat([self.line(c).with_columns(kind=pl.lit(k)) for c, k in names.items()])

    def checkpoint_time(self, checkpoint: str) -> int:
        """Time of the last sample that the weights of a checkpoint have seen."""
        known = self.run.summary.get("checkpoints", {}).get(checkpoint, {})
        if "time" in known:
            return int(known["time"])
        times = self.curves["time"]
        return int(times[max(0, int(len(times) * CHECKPOINTS[checkpoint]) - 1)])

    def _at(self, checkpoint: str) -> pl.DataFrame:
        table = (
            self.transfer
            if self.transfer is not None
            else pl.DataFrame(schema=dict.fromkeys(TRANSFER_COLUMNS, pl.Int64))
        )
        rows = table.filter(pl.col("checkpoint").cast(pl.String) == checkpoint)
        return rows.with_columns(correct=pl.col("label") == pl.col("pred"))

    def checkpoints(self) -> list[str]:
        """Checkpoints that the validation set was predicted at."""
        return [] if self.transfer is None else [c for c in CHECKPOINTS if len(self._at(c))]

    def transfer_curves(self, direction: str) -> pl.DataFrame:
        """Backward or forward transfer at each checkpoint; `x` in years from the checkpoint outwards."""
        make = backward_curve if direction == "backward" else forward_curve
        parts = [_no_points()]
        for checkpoint in [] if self.run.is_supervised else self.checkpoints():
            rows = self._at(checkpoint)
            at = self.checkpoint_time(checkpoint)
            time_s = rows["time"].to_numpy()
            curve = make(time_s, rows["correct"].to_numpy(), at, MAX_POINTS // 2)
            spans = np.sort(
                at - time_s[time_s <= at] + 1 if direction == "backward" else time_s[time_s > at] - at
            )
            if len(spans):
                kept = curve.span_s >= spans[min(FEWEST_PHOTOS, 1 + len(spans) // 10) - 1]
                parts.append(_points((curve.span_s[kept] / SECONDS_A_YEAR, curve.accuracy[kept]), checkpoint))
        return pl.concat(parts)

    @cached_property
    def errors(self) -> pl.DataFrame:
        """Distribution of the geolocation error (`x` in km); empty where there are no places or the run goes on."""
        table = self.run.table("geolocation", ERROR_COLUMNS)
        if table is None:
            return _no_points().drop("kind")
        kept: pl.DataFrame = table[spread(len(table), MAX_POINTS).tolist()]
        return kept.select(x=pl.col("distance_km").clip(NEAREST_KM).cast(pl.Float64), value=pl.col("share"))

    def year_matrix(self) -> pl.DataFrame:
        """Accuracy by trained-until and tested-on year: validation photos by the kept weights, and the online predictions."""
        year = pl.from_epoch("time").dt.year().cast(pl.String).alias("column")
        parts = []
        for checkpoint in self.checkpoints():
            until = str(np.datetime64(self.checkpoint_time(checkpoint), "s").astype("datetime64[M]"))
            row = "all years" if self.run.is_supervised else f"{until} ({checkpoint})"
            cells = _by_column(self._at(checkpoint).select(year, value="correct", count=pl.lit(1)))
            parts.append(cells.select(pl.lit(row).alias("row"), pl.all()))
        if parts and self.fold.num_rows:
            online = self.by_month().with_columns(
                pl.from_epoch("x").dt.year().cast(pl.String).alias("column")
            )
            parts.append(_by_column(online).select(pl.lit("just before (online)").alias("row"), pl.all()))
        return pl.concat(parts) if parts else pl.DataFrame()

    @cached_property
    def by_class(self) -> pl.DataFrame:
        """Photos and accuracy of each class, over all and in the first and the last third of the stream."""
        num = len(self.classes)
        months = sorted(self.fold.months)
        counts = np.zeros((len(months), 2, num), np.int64)
        for i, month in enumerate(months):
            here = self.fold.months[month][:, :num]
            counts[i, :, : here.shape[1]] = here
        photos = counts[:, 0].sum(axis=1)
        share = np.cumsum(photos) / max(photos.sum(), 1)
        parts = {"": counts, "early_": counts[share <= 1 / 3], "late_": counts[share > 2 / 3]}
        found: dict[str, NDArray[Any]] = {}
        for part, rows in parts.items():
            total = rows.sum(axis=0)
            found[part + "count"] = total[0]
            found[part + "accuracy"] = total[1] / np.maximum(total[0], 1)
        return self.classes.hstack(pl.DataFrame(found))

    def most_changed(self, num: int = 8) -> pl.DataFrame:
        """The classes whose accuracy rose most and fell most from the first to the last third, best first."""
        seen = pl.min_horizontal("early_count", "late_count") >= MIN_PHOTOS
        change = (pl.col("late_accuracy") - pl.col("early_accuracy")).alias("change")
        rows = self.by_class.filter(seen).with_columns(change).sort("change", descending=True)
        gained, lost = (
            rows.filter(pl.col("change") > 0).head(num),
            rows.filter(pl.col("change") < 0).tail(num),
        )
        return pl.concat([gained, lost]).select(
            "name", early="early_accuracy", late="late_accuracy", change="change", count="count"
        )


def _median_count(rows: pl.DataFrame, stretch: str) -> float:
    counts = rows.group_by(pl.from_epoch("time").dt.truncate(stretch)).len()["len"]
    return float(counts.median() or 0)  # type: ignore[arg-type]


def _by_column(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean of `value`, weighted by `count`, for each `column`."""
    mean = (pl.col("value") * pl.col("count")).sum() / pl.col("count").sum()
    return rows.group_by("column").agg(value=mean, count=pl.col("count").sum().cast(pl.Int64)).sort("column")


def _points(xy: tuple[Any, Any], kind: str) -> pl.DataFrame:
    return pl.DataFrame({"x": xy[0], "value": xy[1]}).with_columns(
        pl.col("x").cast(pl.Float64), pl.lit(kind).alias("kind")
    )


def _no_points() -> pl.DataFrame:
    return pl.DataFrame(schema={"x": pl.Float64, "value": pl.Float64, "kind": pl.String})


def open_fold(run: RunFiles) -> LogFold:
    """An empty fold, with the window of the blind classifier that the summary reports."""
    return LogFold(blind_k=int(run.summary.get("blind", {}).get("k", 10)))


def digest(run: RunFiles, name: str | None = None) -> RunDigest:
    """Read the run's log once and keep what the report needs."""
    fold = open_fold(run)
    for block in run.log_blocks():
        fold.add(block)
    return RunDigest(run, name or run.name, fold)


def digests(paths: Sequence[Path]) -> list[RunDigest]:
    """The runs in the order given; two directories of one name are told apart by their parents."""
    runs = [load_run(path) for path in paths]
    names = [run.name for run in runs]
    found: list[RunDigest] = []
    for i, run in enumerate(runs):
        name = run.name if names.count(run.name) == 1 else f"{run.path.resolve().parent.name}/{run.name}"
        taken = [d.name for d in found]
        found.append(replace(digest(run), name=name if name not in taken else f"{name} ({i + 1})"))
    return found
