"""Bars and matrices: what was gained and lost, how many of each, and accuracy by year of training and of testing.

In: frames with one row a bar or a cell. Out: altair charts.
"""

from __future__ import annotations

import altair as alt
import polars as pl

from driftline.charts.lines import PERCENT
from driftline.charts.theme import DIVERGING, PALETTE, SEQUENTIAL, Chart


def bars(frame: pl.DataFrame, title: str, *, value_format: str = ",", interactive: bool = False) -> alt.Chart:
    """One horizontal bar a row of `name`, `value`, in the order given.

    >>> bars(pl.DataFrame({"name": ["2004"], "value": [3]}), "photos").to_dict()["mark"]["type"]
    'bar'
    """
    chart: alt.Chart = (
        alt.Chart(frame)
        .mark_bar(color=PALETTE[0])
        .encode(
            y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(domain=False, ticks=False)),
            x=alt.X("value:Q", title=title, axis=alt.Axis(format=value_format.replace(",", "~s"), grid=True)),
        )
    )
    if not interactive:
        return chart
    hovered: alt.Chart = chart.encode(
        tooltip=[
            alt.Tooltip("name:N", title="name"),
            alt.Tooltip("value:Q", title=title, format=value_format),
        ]
    )
    return hovered


def difference_bars(frame: pl.DataFrame, *, interactive: bool = False) -> alt.Chart:
    """Bars to the left for what was lost and to the right for what was gained, sorted.

    Columns: `name`, `early`, `late` (accuracies), `change`, `count`.

    >>> row = pl.DataFrame({"name": ["Rome"], "early": [0.1], "late": [0.3], "change": [0.2], "count": [9]})
    >>> difference_bars(row).to_dict()["encoding"]["x"]["field"]
    'change'
    """
    lost, gained = DIVERGING
    chart: alt.Chart = (
        alt.Chart(frame)
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            y=alt.Y(
                "name:N",
                sort=None,
                title=None,
                axis=alt.Axis(labelLimit=260, domain=False, ticks=False, labelPadding=8),
            ),
            x=alt.X(
                "change:Q", title="change of accuracy", axis=alt.Axis(format="+.0~%", grid=True, tickCount=6)
            ),
            color=alt.condition("datum.change < 0", alt.value(lost), alt.value(gained)),
        )
    )
    if not interactive:
        return chart
    hovered: alt.Chart = chart.encode(
        tooltip=[
            alt.Tooltip("name:N", title="class"),
            alt.Tooltip("early:Q", title="first third", format=PERCENT),
            alt.Tooltip("late:Q", title="last third", format=PERCENT),
            alt.Tooltip("change:Q", title="change", format="+.1%"),
            alt.Tooltip("count:Q", title="photos", format=","),
        ]
    )
    return hovered


def heat_matrix(
    frame: pl.DataFrame, *, rows_title: str, columns_title: str, interactive: bool = False
) -> Chart:
    """A matrix of accuracies with the figure written in each cell; columns `row`, `column`, `value`, `count`.

    >>> cell = pl.DataFrame({"row": ["H"], "column": ["2010"], "value": [0.5], "count": [7]})
    >>> heat_matrix(cell, rows_title="until", columns_title="tested on").to_dict()["layer"][1]["mark"]["type"]
    'text'
    """
    highest = max([1e-9, *frame["value"].to_list()])
    base = alt.Chart(frame).encode(
        x=alt.X("column:O", title=columns_title, axis=alt.Axis(labelAngle=0, domain=False, ticks=False)),
        y=alt.Y("row:O", sort=None, title=rows_title, axis=alt.Axis(domain=False, ticks=False)),
    )
    color = alt.Color(
        "value:Q",
        title="accuracy",
        scale=alt.Scale(scheme=SEQUENTIAL, domain=[0, highest]),
        legend=alt.Legend(format=".0%", gradientLength=120, symbolType="square"),
    )
    cells = base.mark_rect().encode(color=color)
    if interactive:
        cells = cells.encode(
            tooltip=[
                alt.Tooltip("row:O", title=rows_title),
                alt.Tooltip("column:O", title=columns_title),
                alt.Tooltip("value:Q", title="accuracy", format=PERCENT),
                alt.Tooltip("count:Q", title="photos", format=","),
            ]
        )
    dark_cell = f"datum.value < {0.6 * highest}"
    # Where columns are narrow, as on a phone, the figures would run into each other.
    figures = base.mark_text(opacity=alt.expr("bandwidth('x') < 28 ? 0 : 1")).encode(
        text=alt.Text("value:Q", format=".0%"),
        color=alt.condition(dark_cell, alt.value("white"), alt.value("black")),
    )
    return alt.layer(cells, figures)
