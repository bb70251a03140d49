"""Several charts side by side with one legend, as the figures of a paper need them.

In: charts made by the builders, a title each. Out: one chart in rows of panels.
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from driftline.charts.theme import Chart


def panels(charts: Mapping[str, Chart], *, columns: int = 2) -> alt.ConcatChart:
    """Charts in a grid, each under its title; colours and dashes mean the same in all of them.

    >>> import polars as pl
    >>> from driftline.charts.lines import over_time
    >>> from driftline.charts.theme import Series
    >>> frame = pl.DataFrame({"x": [0, 1], "value": [0.1, 0.2], "run": ["a", "a"]})
    >>> chart = over_time(frame, Series(("a",)), "accuracy")
    >>> [c["title"] for c in panels({"(a)": chart, "(b)": chart}).to_dict()["concat"]]
    ['(a)', '(b)']
    """
    titled = [chart.properties(title=title) for title, chart in charts.items()]
    grid: alt.ConcatChart = alt.concat(*titled, columns=columns).resolve_scale(
        color="shared", strokeDash="shared"
    )
    return grid
