"""Lines: accuracy over time, rates and buffer sizes in steps, and the distribution of distances.

In: a frame with one row a point, in the columns `x` (unix seconds for time), `value` and `run`, and if asked `kind`. Out: an
altair chart. `interactive` adds what only a browser can use: hover and zoom.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from driftline.charts.theme import Chart, Series

PERCENT = ".1%"
ERROR_SCALES_KM = ((1, "street"), (25, "city"), (200, "region"), (750, "country"), (2500, "continent"))
"""Distances at which geolocation is commonly judged."""


def over_time(frame: pl.DataFrame, series: Series, title: str, **options: Any) -> Chart:
    """Lines over the stream's own time; `x` in unix seconds.

    >>> frame = pl.DataFrame({"x": [0, 86400], "value": [0.1, 0.2], "run": ["a", "a"]})
    >>> over_time(frame, Series(("a",)), "accuracy").to_dict()["layer"][0]["mark"]["type"]
    'line'
    """
    in_ms = frame.with_columns(pl.col("x") * 1000)
    x = alt.X("x:T", title=None, scale=alt.Scale(type="utc", nice=False), axis=alt.Axis(tickCount=8))
    when = alt.Tooltip("x:T", title="date", format="%Y-%m-%d", formatType="utcFormat")
    return lines(in_ms, series, title, x=x, x_tooltip=when, **options)


def over_steps(frame: pl.DataFrame, series: Series, title: str, **options: Any) -> Chart:
    """Lines over the steps of a run; `x` is the step's number.

    >>> frame = pl.DataFrame({"x": [0, 1], "value": [0.1, 0.2], "run": ["a", "a"]})
    >>> over_steps(frame, Series(("a",)), "loss").to_dict()["layer"][0]["encoding"]["x"]["title"]
    'step'
    """
    x = alt.X("x:Q", title="step", scale=alt.Scale(nice=False), axis=alt.Axis(format="~s"))
    tooltip = alt.Tooltip("x:Q", title="step", format=",.0f")
    return lines(frame, series, title, x=x, x_tooltip=tooltip, **options)


def lines(
    frame: pl.DataFrame,
    series: Series,
    title: str,
    *,
    x: alt.X,
    x_tooltip: alt.Tooltip | None = None,
    value_format: str = PERCENT,
    step: bool = False,
    log: bool = False,
    zero: bool = True,
    kinds: tuple[str, ...] = (),
    under: tuple[alt.Chart, ...] = (),
    interactive: bool = False,
) -> Chart:
    """Lines of `value` against `x`, one a run; with `kinds` the dash tells kinds apart and the colour runs. `under` lies below.

    >>> frame = pl.DataFrame({"x": [1, 2], "value": [0.1, 0.2], "run": ["a", "a"]})
    >>> chart = lines(frame, Series(("a",)), "rate", x=alt.X("x:Q"), log=True)
    >>> chart.to_dict()["layer"][0]["encoding"]["y"]["scale"]["type"]
    'log'
    """
    series = series.only(set(frame["run"]))
    positive = frame.filter(pl.col("value") > 0) if log else frame
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=zero, nice=True)
    axis = alt.Axis(format=_axis_format(value_format), tickCount=6)
    color = alt.Color("run:N", scale=series.color(), title=None, legend=_legend(series, bool(kinds)))
    base = alt.Chart(positive).encode(
        x=x, y=alt.Y("value:Q", title=title, scale=scale, axis=axis), color=color
    )
    drawn = base.mark_line(interpolate="step-after" if step else "linear", clip=True).encode(
        strokeDash=_dash(series, kinds)
    )
    if not interactive:
        return alt.layer(*under, drawn)
    tooltips = [_text("run", "run"), *([_text("kind", "what")] if kinds else [])]
    tooltips += [
        x_tooltip or alt.Tooltip("x:Q", format=",.4~g"),
        alt.Tooltip("value:Q", title=title, format=value_format),
    ]
    return alt.layer(*under, drawn.add_params(_zoom()), _hover(base, tooltips))


def _text(field: str, title: str) -> alt.Tooltip:
    """A word in a tooltip. Without a format Vega-Lite 6.4 looks for it in the wrong object when the nearest point is meant."""
    return alt.Tooltip(f"{field}:N", title=title, format="text", formatType="toString")


def _axis_format(value_format: str) -> str:
    return {PERCENT: ".0~%", ",.0f": "~s"}.get(value_format, "~g")


def _legend(series: Series, has_kinds: bool) -> alt.Legend | None:
    """One series needs no legend."""
    if len(series.all) == 1 and not has_kinds:
        return None
    return alt.Legend(symbolType="stroke")


def _dash(series: Series, kinds: tuple[str, ...]) -> alt.StrokeDash:
    if not kinds:
        return alt.StrokeDash("run:N", scale=series.dash(), title=None, legend=_legend(series, False))
    scale = Series(kinds).dash()
    return alt.StrokeDash(
        "kind:N", scale=scale, title=None, legend=alt.Legend(orient="bottom", symbolType="stroke")
    )


def _zoom() -> alt.Parameter:
    """Drag to move along x; the wheel zooms only with Shift held, so that it still scrolls the page."""
    return alt.selection_interval(
        name="zoom", bind="scales", encodings=["x"], zoom="wheel![event.shiftKey]", clear="dblclick"
    )


def _hover(base: alt.Chart, tooltips: list[alt.Tooltip]) -> alt.Chart:
    """Invisible points over the lines; the one nearest to the pointer shows itself and its figures."""
    near = alt.selection_point(name="hover", nearest=True, on="pointerover", clear="pointerout", empty=False)
    points: alt.Chart = (
        base.mark_point(filled=True, size=70, clip=True)
        .encode(opacity=alt.when(near).then(alt.value(1)).otherwise(alt.value(0)), tooltip=tooltips)
        .add_params(near)
    )
    return points


def error_cdf(frame: pl.DataFrame, series: Series, *, interactive: bool = False) -> Chart:
    """Share of photos placed within each distance (`x` in km, logarithmic), with the five usual scales marked.

    >>> frame = pl.DataFrame({"x": [1.0, 100.0], "value": [0.1, 0.9], "run": ["a", "a"]})
    >>> [layer["mark"]["type"] for layer in error_cdf(frame, Series(("a",))).to_dict()["layer"]]
    ['rule', 'text', 'text', 'line']
    """
    x = alt.X(
        "x:Q",
        title="distance between photo and predicted place (km)",
        scale=alt.Scale(type="log", domain=[0.5, 20100], nice=False),
        axis=alt.Axis(values=[km for km, _ in ERROR_SCALES_KM] + [10000], format="~f", grid=False),
    )
    within = alt.Tooltip("x:Q", title="within km", format=",.3~r")
    rules = _marks(ERROR_SCALES_KM, x).mark_rule(strokeDash=[2, 3])
    # In a narrow column neighbouring names would touch: every other one stands a line lower.
    names = tuple(
        _marks(ERROR_SCALES_KM[odd::2], x)
        .mark_text(align="left", baseline="top", dx=3, dy=11 * odd)
        .encode(text="scale:N", y=alt.value(0))
        for odd in (0, 1)
    )
    under = (rules, *names)
    return lines(
        frame, series, "share of photos", x=x, x_tooltip=within, under=under, interactive=interactive
    )


def _marks(scales: tuple[tuple[int, str], ...], x: alt.X) -> alt.Chart:
    rows = [{"x": km, "scale": name} for km, name in scales]
    marks: alt.Chart = alt.Chart(alt.InlineData(values=rows)).encode(x=x)
    return marks
