"""The figures of runs whose classes are places: the map of cells and the distribution of distances.

In: digests. Out: Figure values.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from driftline.charts import Series, error_cdf, world_map
from driftline.charts.lines import ERROR_SCALES_KM
from driftline.geo import s2
from driftline.geo.outlines import cell_polygons, land
from driftline.report.compare import stream_of
from driftline.report.digest import RunDigest
from driftline.report.figure import Choice, Figure, Table, count, gather, number, percent

MAX_ROWS = 40
"""Rows of the map's table: the largest classes."""


def error_figure(found: Sequence[RunDigest], names: Series, interactive: bool) -> Figure | None:
    """Distribution of the geolocation error, with the five usual scales."""
    frame = gather(found, [d.errors for d in found])
    if frame.is_empty():
        return None
    shown = [d for d in found if len(d.errors)]
    marks = {d.name: _marks(d) for d in shown}
    head = ["run", *(f"{name}, {km} km" for km, name in ERROR_SCALES_KM), "median, km"]
    medians = ", ".join(f"{d.name} {number(_error(d).get('median'))} km" for d in shown)
    return Figure(
        "error",
        "Geolocation error",
        "Share of photos whose predicted cell has its centre within each distance of the photo. Higher and further left is better; "
        "the dotted lines are the usual scales.",
        f"Distribution of the distance between photo and prediction; median: {medians}.",
        {
            "Linear": error_cdf(
                frame.with_columns(pl.col("x").round(2), pl.col("value").round(4)),
                names,
                interactive=interactive,
            )
        },
        Table(
            head,
            [[d.name, *(percent(s) for s in marks[d.name]), number(_error(d).get("median"))] for d in shown],
        ),
    )


def _error(d: RunDigest) -> dict[str, float]:
    return d.run.summary.get("geolocation_error_km") or {}


def _marks(d: RunDigest) -> list[float | None]:
    shares: dict[str, float] = d.run.summary.get("geolocation_error_km", {}).get("share_under", {})
    return [shares.get(str(km)) for km, _ in ERROR_SCALES_KM]


def map_figure(found: Sequence[RunDigest], interactive: bool) -> Figure | None:
    """The world's cells coloured by accuracy or by count."""
    shown = [d for d in (found if interactive else found[:1]) if d.fold.num_rows and len(d.places)]
    if not shown:
        return None
    # Cells belong to a stream: a run on another one has other cells.
    shown = [d for d in shown if stream_of(d.run) == stream_of(shown[0].run)]
    frames = [d.by_class.filter(pl.col("cell").is_not_null() & (pl.col("count") > 0)) for d in shown]
    frame = gather(shown, [f.select("label", "name", pl.col("accuracy").round(4), "count") for f in frames])
    runs = [d.name for d in shown]
    measures = {"Accuracy": "accuracy", "Photos": "count"} if interactive else {"Accuracy": "accuracy"}
    shapes = _shapes(shown[0])
    return Figure(
        "map",
        "Map of the cells",
        "Each class is a cell of the globe; many photos make small cells. Hover for figures. Drag, arrow keys, + and - move and zoom.",
        f"World map of {count(len(shapes))} cells; the table below lists the largest.",
        {
            title: world_map(land()["geometry"], shapes, frame, measure=measure, interactive=interactive)  # type: ignore[arg-type]
            for title, measure in measures.items()
        },
        _largest(frame),
        [Choice("run", "Run", runs, runs[0])] if interactive else [],
        "double",
    )


def _shapes(d: RunDigest) -> dict[int, dict[str, object]]:
    """Outline of each class that is a cell, by label."""
    features = cell_polygons(s2.from_tokens(d.places["cell"].to_list()))["features"]
    return {int(label): f["geometry"] for label, f in zip(d.places["label"], features, strict=True)}


def _largest(frame: pl.DataFrame) -> Table:
    top = frame.sort("count", descending=True).head(MAX_ROWS)
    rows = top.select("name", "run", "accuracy", "count").iter_rows()
    return Table(
        ["class", "run", "accuracy", "photos"], [[n, r, percent(a), count(c)] for n, r, a, c in rows]
    )
