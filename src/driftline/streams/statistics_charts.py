"""Figures of a stream's statistics: map of the cells, countries, years, distance to the class centre, albums."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import polars as pl

from driftline.charts import Series, bars, lines, save, world_map
from driftline.charts.theme import PALETTE, Chart
from driftline.geo.countries import country_name
from driftline.geo.outlines import cell_polygons, land
from driftline.streams.statistics import NUM_TOP_COUNTRIES, PAPER_WITHIN_KM, SCALES_KM, Statistics

MAP_HEIGHT = 250
"""Half the width of a page: the shape of an equal-area map of the world."""
HERE, PAPER = "this stream", "the paper"


def figures(statistics: Statistics) -> dict[str, Chart]:
    """Name of the figure -> chart; those about places only where the stream has them."""
    charts: dict[str, Chart] = {}
    if statistics.classes.cells is not None:
        charts["cells"] = cells_map(statistics)
    if statistics.countries:
        top = list(statistics.countries.items())[:NUM_TOP_COUNTRIES]
        rows = {"name": [country_name(code) for code, _ in top], "value": [num for _, num in top]}
        charts["countries"] = bars(pl.DataFrame(rows), "images")
    years = {"name": [str(year) for year in statistics.years], "value": list(statistics.years.values())}
    charts["years"] = bars(pl.DataFrame(years), "images")
    if statistics.has_places:
        charts["distance"] = distance_chart(statistics)
    sizes = pl.DataFrame({"size": list(statistics.album_sizes), "num": list(statistics.album_sizes.values())})
    grouped = (
        sizes.group_by(pl.col("size").clip(upper_bound=10).alias("size"))
        .agg(pl.col("num").sum())
        .sort("size")
    )
    name = pl.when(pl.col("size") == 10).then(pl.lit("10 or more")).otherwise(pl.col("size").cast(pl.String))
    charts["albums"] = bars(grouped.select(name.alias("name"), pl.col("num").alias("value")), "albums")
    return charts


def cells_map(statistics: Statistics) -> Chart:
    """The cells on a map, coloured by their number of images."""
    classes = statistics.classes
    assert classes.cells is not None
    shapes = {f["properties"]["label"]: f["geometry"] for f in cell_polygons(classes.cells)["features"]}
    frame = pl.DataFrame(
        {
            "label": range(len(classes)),
            "name": list(classes.names),
            "accuracy": [0.0] * len(classes),
            "count": statistics.class_counts.clip(min=1),
        }
    )
    return world_map(land()["geometry"], shapes, frame, measure="count").properties(height=MAP_HEIGHT)


def distance_chart(statistics: Statistics) -> Chart:
    """Share of the images within each distance of their class centre, with the paper's scales and its three figures."""
    distance_km, share = statistics.distance_cdf()
    frame = pl.DataFrame({"x": distance_km, "value": share}).with_columns(pl.lit(HERE).alias("run"))
    x = alt.X(
        "x:Q",
        title="distance between photo and class centre (km)",
        scale=alt.Scale(type="log", domain=[0.5, 20_100], nice=False),
        axis=alt.Axis(values=[*SCALES_KM, 10_000], format="~f", grid=False),
    )
    marks = alt.Chart(pl.DataFrame({"x": list(SCALES_KM), "scale": list(SCALES_KM.values())})).encode(x=x)
    rules = marks.mark_rule(strokeDash=[2, 3])
    names = marks.mark_text(baseline="bottom", align="left", dx=-2).encode(text="scale:N", y=alt.value(-4))
    paper = pl.DataFrame({"x": list(PAPER_WITHIN_KM), "value": list(PAPER_WITHIN_KM.values())})
    points = (
        alt.Chart(paper.with_columns(pl.lit(PAPER).alias("run")))
        .mark_point(size=60, filled=True, opacity=1)
        .encode(
            x=x,
            y="value:Q",
            color=alt.value(PALETTE[1]),
            shape=alt.Shape("run:N", title=None, legend=alt.Legend(orient="bottom-right")),
        )
    )
    return lines(
        frame.filter(pl.col("x") >= 0.5),
        Series((HERE,)),
        "share of images",
        x=x,
        under=(rules, names, points),
    )


def save_figures(statistics: Statistics, folder: Path) -> list[Path]:
    """Write every figure as PNG and SVG; returns the files."""
    files: list[Path] = []
    for name, chart in figures(statistics).items():
        width = "double" if name == "cells" else "single"
        files += save(chart, folder / name, ("png", "svg"), width=width)  # type: ignore[arg-type]
    return files
