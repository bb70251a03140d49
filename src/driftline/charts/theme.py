"""The look of every chart: fonts, sizes, and colours that people who see few colours can tell apart.

A series is known by its colour and by its dash pattern, so that a chart survives a black-and-white printer. In: names of
series. Out: scales for altair and a Vega-Lite config for a light page, a dark page, or paper.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

Mode = Literal["light", "dark", "paper"]
Chart = alt.Chart | alt.LayerChart | alt.FacetChart
"""What the builders make."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C6BB1")
"""Okabe and Ito's colours without yellow and black, which vanish on white and on black; and a violet."""
NIGHT = dict(
    zip(PALETTE, ("#4FA8E0", "#F28C48", "#2FC49A", "#DE9BC0", "#8CCBF0", "#F2BC4B", "#B39BD6"), strict=True)
)
"""The same hues, lighter, for a dark ground."""
DASHES: tuple[tuple[int, ...], ...] = (
    (1, 0),
    (7, 3),
    (2, 2),
    (9, 3, 2, 3),
    (4, 2),
    (12, 3),
    (6, 2, 1, 2, 1, 2),
)
REFERENCE_DASHES: tuple[tuple[int, ...], ...] = ((3, 3), (1, 3), (6, 4), (2, 5))
REFERENCE_COLORS = ("#7a7a7a", "#a3a3a3", "#5e5e5e", "#8f8f8f")

SEQUENTIAL: Literal["viridis"] = "viridis"
DIVERGING = ("#D55E00", "#0072B2")
"""Lost, gained."""

PAGE_FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
)
PAPER_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"

_INK = {
    "light": {"text": "#1f2933", "quiet": "#5b6770", "line": "#c9d1d8", "grid": "#e8ecef"},
    "dark": {"text": "#e6e9ec", "quiet": "#a3adb6", "line": "#4a545d", "grid": "#2c343b"},
    "paper": {"text": "#000000", "quiet": "#222222", "line": "#666666", "grid": "#e4e4e4"},
}


@dataclass(frozen=True)
class Series:
    """Names in the order of their colours, then names of references (drawn in grey), both fixed whatever is shown."""

    names: tuple[str, ...]
    references: tuple[str, ...] = ()
    slots: tuple[int, ...] = ()
    """Place of each name in the palette; by default its place among the names."""

    def only(self, present: Collection[str]) -> Series:
        """The names that are present, in the colours they have among all.

        >>> Series(("a", "b")).only({"b"}).color().range
        ['#D55E00']
        """
        kept = [(n, s) for n, s in zip(self.names, self._slots, strict=True) if n in present]
        references = tuple(r for r in self.references if r in present)
        return Series(tuple(n for n, _ in kept), references, tuple(s for _, s in kept))

    @property
    def _slots(self) -> tuple[int, ...]:
        return self.slots or tuple(range(len(self.names)))

    @property
    def all(self) -> list[str]:
        """Every name, references last."""
        return [*self.names, *self.references]

    def color(self) -> alt.Scale:
        """Colour of each name.

        >>> Series(("a", "b"), ("blind",)).color().range
        ['#0072B2', '#D55E00', '#7a7a7a']
        """
        own = [PALETTE[i % len(PALETTE)] for i in self._slots]
        return alt.Scale(domain=self.all, range=own + _cycle(REFERENCE_COLORS, len(self.references)))

    def dash(self) -> alt.Scale:
        """Dash pattern of each name; more names than colours get a new pattern with the second round of colours.

        >>> len({tuple(d) for d in Series(tuple("abcdefg")).dash().range})
        7
        """
        own = [list(DASHES[(i + i // len(PALETTE)) % len(DASHES)]) for i in self._slots]
        references = [list(d) for d in _cycle(REFERENCE_DASHES, len(self.references))]
        return alt.Scale(domain=self.all, range=own + references)


def _cycle(values: Sequence[Any], count: int) -> list[Any]:
    return [values[i % len(values)] for i in range(count)]


def config(mode: Mode = "light") -> dict[str, Any]:
    """Vega-Lite's config for a page in daylight, a page at night, or a printed column.

    >>> config("paper")["axis"]["labelFontSize"] < config("light")["axis"]["labelFontSize"]
    True
    """
    ink = _INK[mode]
    paper = mode == "paper"
    font, small, normal = (PAPER_FONT, 7, 8) if paper else (PAGE_FONT, 12, 13)
    label = {"labelFont": font, "labelFontSize": small, "labelColor": ink["quiet"]}
    title = {"titleFont": font, "titleFontSize": small if paper else normal, "titleColor": ink["text"]}
    return {
        "background": "white" if paper else None,
        "font": font,
        "padding": 2 if paper else 4,
        "view": {
            "stroke": None,
            "continuousHeight": 140 if paper else 300,
            "discreteHeight": {"step": 11 if paper else 28},
        },
        "axis": {
            **label,
            **title,
            "titleFontWeight": "normal",
            "titlePadding": 4 if paper else 10,
            "domainColor": ink["line"],
            "tickColor": ink["line"],
            "gridColor": ink["grid"],
            "tickSize": 3 if paper else 5,
            "labelOverlap": True,
        },
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False, "labelPadding": 4 if paper else 8},
        "legend": {
            "gradientThickness": 6 if paper else 14,
            **label,
            **title,
            "orient": "top",
            "direction": "horizontal",
            "columns": 3,
            "symbolStrokeWidth": 1.3 if paper else 2.5,
            "symbolSize": 60 if paper else 220,
            "labelLimit": 150 if paper else 320,
            "columnPadding": 8 if paper else 18,
            "rowPadding": 1 if paper else 4,
            "offset": 4 if paper else 12,
        },
        "header": {"labelFont": font, "labelFontSize": normal, "labelColor": ink["text"], "title": None},
        "title": {
            "font": font,
            "fontSize": normal,
            "color": ink["text"],
            "fontWeight": "bold",
            "anchor": "start",
        },
        "line": {"strokeWidth": 1.1 if paper else 2.2, "strokeCap": "butt"},
        "rule": {"color": "#9a9a9a" if paper else ink["line"], "strokeWidth": 0.6 if paper else 1},
        "text": {"font": font, "fontSize": small, "color": ink["quiet"]},
        "range": {"category": list(PALETTE)},
        "locale": {"number": {"decimal": ".", "thousands": "\u202f", "grouping": [3], "currency": ["", ""]}},
    }
