"""The figures of what happened inside a run: rate, replay buffer, training accuracies, loss.

In: digests of online runs, or of supervised runs alone, whose curves are drawn over steps because their photos come shuffled.
Out: Figure values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import polars as pl

from driftline.charts import Series, over_steps, over_time
from driftline.charts.theme import Chart
from driftline.report.digest import RunDigest
from driftline.report.figure import Figure, Table, gather, number, rounded, yearly

Axis = Literal["time", "step"]


def linear_log(
    frame: pl.DataFrame,
    series: Series,
    title: str,
    interactive: bool,
    *,
    axis: Axis = "time",
    log_first: bool = False,
    **options: Any,
) -> dict[str, Chart]:
    """The same lines on a linear and on a logarithmic axis; for paper the first of the two alone."""
    draw = over_time if axis == "time" else over_steps
    forms = {"Log": True, "Linear": False} if log_first else {"Linear": False, "Log": True}
    shown = list(forms) if interactive else list(forms)[:1]
    return {
        name: draw(frame, series, title, log=forms[name], interactive=interactive, **options)
        for name in shown
    }


def _axis(found: Sequence[RunDigest]) -> Axis:
    return "step" if all(d.run.is_supervised for d in found) else "time"


def _table(found: Sequence[RunDigest], frame: pl.DataFrame, names: Series) -> Table:
    """Values at the end of each year; of supervised runs the last value."""
    if _axis(found) == "time":
        return yearly(frame, names.names, text="number")
    last = frame.group_by("run", maintain_order=True).agg(pl.col("value").last())
    return Table(
        ["run", "last"], [[run, number(value)] for run, value in last.select("run", "value").iter_rows()]
    )


def rate_figure(found: Sequence[RunDigest], names: Series, interactive: bool) -> Figure | None:
    """Learning rate of each member."""
    frame = gather(found, [d.members() for d in found])
    if frame.is_empty():
        return None
    first_kind = frame.filter(pl.col("kind") == pl.col("kind").first().over("run"))
    kinds = tuple(sorted(set(frame["kind"]), key=lambda k: (k != "rate", k)))
    kinds_shown = kinds if len(kinds) > 1 else ()
    frame = frame if kinds_shown else frame.drop("kind")
    charts = linear_log(
        frame, names, "learning rate", interactive, axis=_axis(found), log_first=True, step=True, zero=False, value_format=".3~g",
        kinds=kinds_shown,
    )  # fmt: skip
    return Figure(
        "rate",
        "Learning rate",
        "The rate in use. A population (PoLRS) shows one line a member: every so often all take over the best member's weights "
        "and its rate becomes the middle one.",
        "Learning rate over the stream.",
        charts,
        _table(found, first_kind, names),
    )


def buffer_figure(found: Sequence[RunDigest], names: Series, interactive: bool) -> Figure | None:
    """Size of the replay buffer."""
    replaying = [d for d in found if d.run.config.replay != "none" and not d.run.is_supervised]
    frame = gather(replaying, [d.line("buffer_size", changes=True) for d in replaying])
    if frame.is_empty():
        return None
    charts = linear_log(
        frame, names, "samples in the replay buffer", interactive, step=True, value_format=",.0f"
    )
    return Figure(
        "buffer",
        "Replay buffer",
        "How many past samples replay draws from. An adaptive buffer (ADRep) doubles while replayed photos are easier than new ones "
        "and halves when they are harder.",
        "Size of the replay buffer over the stream.",
        charts,
        yearly(frame, names.names, text="number"),
    )


def training_figure(found: Sequence[RunDigest], names: Series, interactive: bool) -> Figure | None:
    """Training accuracy on stream and replay batches."""
    online = [d for d in found if not d.run.is_supervised]
    frame = gather(online, [d.training() for d in online])
    if frame.is_empty():
        return None
    return Figure(
        "training",
        "Accuracy while training",
        "Accuracy on the new batch and on the replayed batch, both before the update. Replay far above stream: the buffer is being "
        "memorised. Replay below stream: the buffer holds photos too old to help.",
        "Training accuracy on stream and on replay batches.",
        linear_log(
            rounded(frame), names, "training accuracy", interactive, kinds=("stream batch", "replay batch")
        ),
        yearly(frame.filter(pl.col("kind") == "stream batch"), names.names),
    )


def loss_figure(found: Sequence[RunDigest], names: Series, interactive: bool) -> Figure | None:
    """Training loss."""
    frame = gather(found, [d.line("loss") for d in found])
    if frame.is_empty():
        return None
    frame = rounded(frame)
    return Figure(
        "loss",
        "Loss",
        "Cross-entropy of the training batches, averaged over stretches of steps.",
        "Training loss over the stream.",
        linear_log(frame, names, "loss", interactive, axis=_axis(found), value_format=".3f", zero=False),
        _table(found, frame, names),
    )
