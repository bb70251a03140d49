"""The figures of the report, each made from the digests of the runs that have what it shows.

In: digests, and whether the charts are for a screen (hover, zoom) or for paper. Out: Figure values in the order of the page.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from driftline.charts import Series, difference_bars, heat_matrix, lines
from driftline.report.compare import stream_of
from driftline.report.digest import CHECKPOINTS, RunDigest
from driftline.report.figure import DECIMALS, Choice, Figure, Table, count, gather, percent, rounded, yearly
from driftline.report.inside import buffer_figure, linear_log, loss_figure, rate_figure, training_figure
from driftline.report.places import error_figure, map_figure

BLIND, CHANCE = "blind classifier", "chance"


def build_figures(found: Sequence[RunDigest], *, interactive: bool) -> list[Figure]:
    """Every figure that these runs have data for."""
    names = Series(tuple(d.name for d in found))
    # Supervised runs see the photos shuffled: their curves have no place on the stream's time and stand alone or not at all.
    learning = [d for d in found if not d.run.is_supervised] or found
    made = [
        online_figure(found, names, interactive),
        month_figure(found, names, interactive),
        rate_figure(learning, names, interactive),
        buffer_figure(learning, names, interactive),
        training_figure(learning, names, interactive),
        loss_figure(learning, names, interactive),
        transfer_figure(found, names, "backward", interactive),
        transfer_figure(found, names, "forward", interactive),
        matrix_figure(found, interactive),
        map_figure(found, interactive),
        error_figure(found, names, interactive),
        changed_figure(found, interactive),
    ]
    return [figure for figure in made if figure is not None]


def online_figure(found: Sequence[RunDigest], names: Series, interactive: bool) -> Figure | None:
    """Average online accuracy over time, with the blind classifier, chance, and supervised runs as level lines."""
    online = [d for d in found if d.fold.num_rows]
    if not online:
        return None
    first = online[0]
    # Runs on several streams have several blind classifiers; the first run's is shown, and named after it.
    same_stream = len({stream_of(d.run) for d in online}) == 1
    references = tuple(name if same_stream else f"{name} ({first.name})" for name in (BLIND, CHANCE))
    parts = [gather(online, [d.online() for d in online])]
    parts += [first.online("blind").with_columns(run=pl.lit(references[0]))]
    parts += _levels(found, first, references[1])
    frame = rounded(pl.concat(parts, how="diagonal_relaxed"))
    series = Series(names.names, references)
    album = frame.filter(pl.col("kind") == "album")
    shown = frame if interactive else album
    last = ", ".join(f"{d.name} {percent(d.online_accuracy().get('album'))}" for d in online)
    blind = percent(first.online_accuracy("blind").get("album"))
    return Figure(
        "online",
        "Online accuracy",
        "Average accuracy from the start of the stream up to each date, every photo predicted before it was learned from. "
        "A learner that only copies recent labels reaches the blind line.",
        f"Average online accuracy, album scoring, at the end: {last}; blind classifier {blind}.",
        linear_log(shown, series, "average online accuracy", interactive),
        yearly(album, series.all),
        [Choice("kind", "Scoring", ("album", "batch", "sample"), "album")],
    )


def _levels(found: Sequence[RunDigest], first: RunDigest, chance: str) -> list[pl.DataFrame]:
    """Chance and the validation accuracy of supervised runs: lines that stay level, in every scoring."""
    ends = [float(first.steps["time"][0]), float(first.steps["time"][-1])]
    levels = {chance: 1 / max(len(first.classes), 1)}
    levels |= {
        d.name: d.run.summary["validation_accuracy"] for d in found if "validation_accuracy" in d.run.summary
    }
    rows = [(x, v, k, n) for n, v in levels.items() for k in ("album", "batch", "sample") for x in ends]
    return [pl.DataFrame(rows, schema=["x", "value", "kind", "run"], orient="row")]


def month_figure(found: Sequence[RunDigest], names: Series, interactive: bool) -> Figure | None:
    """Accuracy of each month alone."""
    frame = gather(found, [d.by_month() for d in found])
    if frame.is_empty():
        return None
    frame = rounded(frame)
    return Figure(
        "months",
        "Accuracy month by month",
        "Share of the month's photos that were predicted correctly, each photo once. Dips mark months in which the stream "
        "changed faster than the learner. A supervised run shows its accuracy on that month's validation photos.",
        f"Accuracy of each month; the latest: {_latest(frame)}.",
        linear_log(frame.drop("count"), names, "accuracy of the month", interactive),
        yearly(frame, names.names),
    )


def _latest(frame: pl.DataFrame) -> str:
    last = frame.sort("x").group_by("run", maintain_order=True).agg(pl.col("value").last())
    return ", ".join(f"{run} {percent(value)}" for run, value in last.select("run", "value").iter_rows())


TRANSFER_CAPTION = {
    "backward": "Weights kept on the way, tested on validation photos older than themselves: accuracy over all photos within so "
    "many years before. A line that falls to the right shows forgetting.",
    "forward": "The same weights on photos newer than themselves, which nobody had seen yet: accuracy over all photos within so "
    "many years after. The faster it falls, the faster the world moves away from the model.",
}


def transfer_figure(
    found: Sequence[RunDigest], names: Series, direction: str, interactive: bool
) -> Figure | None:
    """Transfer curves: of one run at all checkpoints, of several runs at one of them."""
    frame = gather(found, [d.transfer_curves(direction) for d in found])
    if frame.is_empty():
        return None
    frame = rounded(frame).with_columns(pl.col("x").round(3))
    order = [c for c in CHECKPOINTS if c in set(frame["kind"])]
    chosen = "H" if direction == "backward" and "H" in order else order[0]
    ends = frame.group_by("run", "kind", maintain_order=True).agg(pl.col("value").last())
    cells = {(r, k): v for r, k, v in ends.select("run", "kind", "value").iter_rows()}
    runs = [n for n in names.names if any(r == n for r, _ in cells)]
    if len(runs) > 1 and not interactive:
        frame = frame.filter(pl.col("kind") == chosen)
    side = "before" if direction == "backward" else "after"
    at_end = ", ".join(f"{r} at {k} {percent(v)}" for (r, k), v in cells.items() if k == chosen)
    chart = lines(
        frame,
        names,
        "accuracy",
        x=alt.X("x:Q", title=f"years {side} the checkpoint", scale=alt.Scale(nice=False, zero=True)),
        x_tooltip=alt.Tooltip("x:Q", title=f"years {side}", format=".2f"),
        kinds=tuple(order) if len(runs) == 1 else (),
        interactive=interactive,
    )
    return Figure(
        direction,
        f"{direction.capitalize()} transfer",
        TRANSFER_CAPTION[direction],
        f"{direction.capitalize()} transfer, over the whole range: {at_end}.",
        {"Linear": chart},
        Table(["run", *order], [[r, *(percent(cells.get((r, k))) for k in order)] for r in runs]),
        [Choice("kind", "Weights kept at", order, chosen)] if len(runs) > 1 else [],
    )


def matrix_figure(found: Sequence[RunDigest], interactive: bool) -> Figure | None:
    """Accuracy by trained-until and tested-on year."""
    shown = found if interactive else found[:1]
    frame = gather(shown, [d.year_matrix() for d in shown])
    if frame.is_empty():
        return None
    frame = rounded(frame)
    runs = list(dict.fromkeys(frame["run"]))
    chart = heat_matrix(
        frame, rows_title="trained until", columns_title="tested on photos of", interactive=interactive
    )
    years = sorted(set(frame["column"]))
    cells = {(r, row, c): v for r, row, c, v in frame.select("run", "row", "column", "value").iter_rows()}
    lines_of = list(dict.fromkeys(frame.select("run", "row").iter_rows()))
    return Figure(
        "matrix",
        "Trained until, tested on",
        "Each row is one set of weights, each column the year of the photos it is tested on. The last row is the online accuracy of "
        "that year: every photo predicted by the weights of that moment.",
        f"Accuracy by year for {', '.join(runs)}; the table below holds all figures.",
        {"Linear": chart},
        Table(
            ["run", "trained until", *years],
            [[r, row, *(percent(cells.get((r, row, y))) for y in years)] for r, row in lines_of],
        ),
        [Choice("run", "Run", runs, runs[0])] if interactive else [],
        "double",
    )


def changed_figure(found: Sequence[RunDigest], interactive: bool) -> Figure | None:
    """Classes most gained and lost."""
    shown = [d for d in (found if interactive else found[:1]) if d.fold.num_rows]
    frame = gather(shown, [d.most_changed() for d in shown])
    if frame.is_empty():
        return None
    runs = list(dict.fromkeys(frame["run"]))
    frame = frame.with_columns(pl.col("early", "late", "change").round(DECIMALS))
    rows = frame.select("run", "name", "early", "late", "change", "count").iter_rows()
    table = [
        [r, n, percent(e), percent(late), f"{100 * c:+.1f} points", count(k)] for r, n, e, late, c, k in rows
    ]
    return Figure(
        "changed",
        "Classes most gained and lost",
        "Online accuracy of a class in the last third of the stream less that in the first third, for classes with at least 20 photos "
        "in both.",
        "Classes whose accuracy rose and fell most; the table below holds all figures.",
        {"Linear": difference_bars(frame, interactive=interactive)},
        Table(["run", "class", "first third", "last third", "change", "photos"], table),
        [Choice("run", "Run", runs, runs[0])] if interactive else [],
    )
