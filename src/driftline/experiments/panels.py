"""The panels that the paper's figures are made of: a metric over time, one line a run, a band over seeds.

In: the results of a figure. Out: altair charts in the style of `driftline.charts`. Time runs as the stream's own dates; transfer
is drawn from the checkpoint's date outwards. A line is the mean over seeds, the band their range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import altair as alt
import numpy as np
import polars as pl

from driftline.charts import Series, lines, over_time
from driftline.charts.lines import PERCENT
from driftline.charts.theme import Chart
from driftline.experiments.results import Results, RunResult
from driftline.experiments.setting import StudyScoring
from driftline.metrics.online import spread
from driftline.metrics.transfer import backward_curve, forward_curve
from driftline.types import FloatArray

NUM_POINTS = 240
SKIPPED_SHARE = 0.01
"""A running average over fewer of the first samples than this is noise and would set the scale of the axis."""
SCORING_WORDS: Mapping[StudyScoring, str] = {
    "album": "album scoring",
    "sample": "all samples",
    "window": "first 64 samples after each test point",
}

Curve = tuple[FloatArray, FloatArray]
"""x and value."""


def accuracy_title(results: Results) -> str:
    """Title of an axis of online accuracy: it names its scoring."""
    return f"avg. online accuracy ({SCORING_WORDS[results.scoring]})"


def online_panel(
    results: Results, series: Series, levels: Mapping[str, float] | None = None, *, blind: bool = False
) -> Chart:
    """Average online accuracy over time; `levels` are references that stay the same, `blind` adds the blind classifier."""
    online = {k: runs for k, runs in results.runs.items() if not runs[0].is_offline}
    frame = _frame(online, lambda run: _running(run, results.scoring))
    parts = [frame]
    if blind:
        some = {"blind": next(iter(online.values()))[:1]}
        parts.append(_frame(some, lambda run: _running(run, results.scoring, blind=True)))
    ends = [float(frame["x"].min()), float(frame["x"].max())]  # type: ignore[arg-type]
    for name, value in (levels or {}).items():
        parts.append(_points(name, np.array(ends), np.array([value, value])))
    return _over_time(pl.concat(parts), series, accuracy_title(results))


def _running(run: RunResult, scoring: StudyScoring, *, blind: bool = False) -> Curve:
    found = run.blocks(scoring, blind=blind)
    first = int(SKIPPED_SHARE * len(found.index))
    kept = first + spread(len(found.index) - first, NUM_POINTS)
    return found.time[kept].astype(np.float64), found.running()[kept]


def backward_panel(results: Results, series: Series, checkpoint: str) -> Chart:
    """acc_B@T: at each date the accuracy over the validation photos from there to the checkpoint."""

    def curve(run: RunResult) -> Curve:
        _, time, correct = run.validation(checkpoint)
        at = run.checkpoint_time(checkpoint)
        found = backward_curve(time, correct, at, NUM_POINTS)
        return (at - found.span_s).astype(np.float64), found.accuracy

    return _transfer(results, series, curve, f"accuracy from date to {checkpoint}")


def forward_panel(results: Results, series: Series, checkpoint: str) -> Chart:
    """acc_F@T: at each date the accuracy over the validation photos from the checkpoint to there."""

    def curve(run: RunResult) -> Curve:
        _, time, correct = run.validation(checkpoint)
        at = run.checkpoint_time(checkpoint)
        found = forward_curve(time, correct, at, NUM_POINTS)
        return (at + found.span_s).astype(np.float64), found.accuracy

    return _transfer(results, series, curve, f"accuracy from {checkpoint} to date")


def _transfer(results: Results, series: Series, curve: Callable[[RunResult], Curve], title: str) -> Chart:
    def settled(run: RunResult) -> Curve:
        x, value = curve(run)
        first = min(len(x) // 20, max(len(x) - 2, 0))
        return x[first:], value[first:]

    return _over_time(_frame(results.runs, settled), series, title)


def rate_panel(results: Results, series: Series) -> Chart:
    """Learning rate in use over time, of the first seed."""
    return _steps(results, series, "lr", "learning rate", value_format="~g")


def buffer_panel(results: Results, series: Series) -> Chart:
    """Size of the replay buffer over time, of the first seed."""
    return _steps(results, series, "buffer_size", "buffer size (samples)", value_format=",.0f", log=True)


def _steps(
    results: Results, series: Series, column: str, title: str, *, value_format: str, log: bool = False
) -> Chart:
    """Something that moves in steps: seeds are not averaged, since their steps fall on different values."""
    parts = []
    for label, runs in results.runs.items():
        curves = runs[0].curves
        kept = spread(len(curves), NUM_POINTS)
        x, value = (curves[c].to_numpy()[kept].astype(np.float64) for c in ("time", column))
        parts.append(_points(label, x, value))
    frame = _complete(pl.concat(parts), series)
    return over_time(frame, series, title, step=True, value_format=value_format, log=log)


def training_panel(results: Results, series: Series, column: str, title: str) -> Chart:
    """A training statistic over time, averaged in equal parts of the stream."""

    def curve(run: RunResult) -> Curve:
        at, values = run.binned(column)
        time = run.curves["time"].to_numpy()
        rows = np.minimum((at * len(time)).astype(np.int64), len(time) - 1)
        return time[rows].astype(np.float64), values

    is_share = column.startswith("acc")
    frame = _frame(results.runs, curve)
    return _over_time(frame, series, title, value_format=PERCENT if is_share else "~g", zero=is_share)


def progress_panel(results: Results, series: Series, column: str, title: str) -> Chart:
    """A training statistic of supervised runs against how much of the training is done."""
    frame = _complete(_frame(results.runs, lambda run: run.binned(column)), series)
    x = alt.X("x:Q", title="share of the training", axis=alt.Axis(format=".0%", tickCount=5))
    return lines(
        frame, series, title, x=x, value_format="~g", zero=False, under=(_band(frame, series, x, title),)
    )


# -- frames


def _frame(runs: Mapping[str, Sequence[RunResult]], curve: Callable[[RunResult], Curve]) -> pl.DataFrame:
    """Mean and range over seeds of a curve of each run; the seeds of a label have their points at the same places."""
    return pl.concat([_seeds(label, [curve(run) for run in of]) for label, of in runs.items()])


def _seeds(label: str, curves: Sequence[Curve]) -> pl.DataFrame:
    num = min(len(x) for x, _ in curves)
    values = np.array([value[:num] for _, value in curves])
    return _points(label, curves[0][0][:num], values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def _points(
    label: str,
    x: FloatArray,
    value: FloatArray,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
) -> pl.DataFrame:
    columns = {
        "x": np.asarray(x, np.float64),
        "value": np.round(value, 6),
        "low": np.round(value if low is None else low, 6),
        "high": np.round(value if high is None else high, 6),
    }
    return pl.DataFrame(columns).with_columns(run=pl.lit(label))


def _complete(frame: pl.DataFrame, series: Series) -> pl.DataFrame:
    """The frame with an empty row for each series that it lacks.

    Panels share their colours only if all of them know all series.
    """
    absent = [name for name in series.all if name not in set(frame["run"])]
    return pl.concat([frame, pl.DataFrame({"run": absent}, schema={"run": pl.String})], how="diagonal")


def _over_time(
    frame: pl.DataFrame, series: Series, title: str, *, value_format: str = PERCENT, zero: bool = True
) -> Chart:
    x = alt.X("x:T", title=None, scale=alt.Scale(type="utc", nice=False), axis=alt.Axis(tickCount=5))
    in_ms = _complete(frame, series).with_columns(pl.col("x") * 1000)
    band = _band(in_ms, series, x, title)
    return lines(in_ms, series, title, x=x, value_format=value_format, zero=zero, under=(band,))


def _band(frame: pl.DataFrame, series: Series, x: alt.X, title: str) -> alt.Chart:
    """The range over seeds, under the lines."""
    legend = alt.Legend(symbolType="stroke", symbolOpacity=1)
    color = alt.Color("run:N", scale=series.color(), title=None, legend=legend)
    band: alt.Chart = (
        alt.Chart(frame)
        .mark_area(opacity=0.16, clip=True)
        .encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=color)
    )
    return band
