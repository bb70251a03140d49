"""A world map: land in grey, the cells of the classes in colour.

In: GeoJSON geometries of land and of cells, and one value a cell. Out: an altair chart. The projection takes its scale and
centre from parameters (`map_zoom`, `map_lon`, `map_lat`), so that a page can zoom and move it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import altair as alt
import polars as pl
from altair.utils.schemapi import debug_mode

from driftline.charts.lines import PERCENT
from driftline.charts.theme import SEQUENTIAL, Chart

Measure = Literal["accuracy", "count"]


def world_map(
    land: Mapping[str, Any],
    cells: Mapping[int, Mapping[str, Any]],
    frame: pl.DataFrame,
    *,
    measure: Measure = "accuracy",
    interactive: bool = False,
) -> Chart:
    """Cells coloured by accuracy or by count; `frame` has `label`, `name`, `accuracy`, `count`.

    >>> square = {"type": "Polygon", "coordinates": [[[0, 0], [0, 9], [9, 9], [9, 0], [0, 0]]]}
    >>> row = pl.DataFrame({"label": [0], "name": ["sea"], "accuracy": [0.5], "count": [3]})
    >>> chart = world_map(square, {0: square}, row)
    >>> [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]
    ['geoshape', 'geoshape']
    """
    # Altair would check every coordinate against its schema, which takes seconds.
    with debug_mode(False):
        shapes = [
            {"label": label, "shape": {"type": "Feature", "geometry": dict(g)}} for label, g in cells.items()
        ]
        ground = alt.Chart(
            alt.InlineData(values=[{"type": "Feature", "geometry": dict(land)}])
        ).mark_geoshape(fill="#9aa5ae", fillOpacity=0.28, stroke=None)
        areas: alt.Chart = (
            alt.Chart(frame)
            .transform_lookup(
                lookup="label",
                from_=alt.LookupData(data=alt.InlineData(values=shapes), key="label", fields=["shape"]),
            )
            .mark_geoshape(stroke="#ffffff", strokeWidth=0.4, fillOpacity=0.85)
            .encode(shape=alt.Shape("shape:G"), color=_color(measure), description=alt.Description("name:N"))
        )
        if interactive:
            areas = areas.encode(tooltip=_tooltips())
        return alt.layer(ground, areas).project(**_projection(interactive)).add_params(*_params(interactive))


def _color(measure: Measure) -> alt.Color:
    if measure == "accuracy":
        legend = alt.Legend(format=".0%", gradientLength=160)
        return alt.Color("accuracy:Q", scale=alt.Scale(scheme=SEQUENTIAL), title="accuracy", legend=legend)
    legend = alt.Legend(format="~s", gradientLength=160)
    return alt.Color("count:Q", scale=alt.Scale(scheme=SEQUENTIAL, type="log"), title="photos", legend=legend)


def _tooltips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title="class"),
        alt.Tooltip("accuracy:Q", title="accuracy", format=PERCENT),
        alt.Tooltip("count:Q", title="photos", format=","),
    ]


def _params(interactive: bool) -> list[alt.Parameter]:
    if not interactive:
        return []
    return [
        alt.param(name="map_zoom", value=1),
        alt.param(name="map_lon", value=0),
        alt.param(name="map_lat", value=0),
    ]


def _projection(interactive: bool) -> dict[str, Any]:
    """Equal areas, so that a cell looks as large as it is."""
    if not interactive:
        return {"type": "equalEarth"}
    return {
        "type": "equalEarth",
        "scale": {"expr": "width / 5.5 * map_zoom"},
        "rotate": {"expr": "[-map_lon, 0, 0]"},
        "center": {"expr": "[0, map_lat]"},
        "translate": {"expr": "[width / 2, height / 2]"},
    }
