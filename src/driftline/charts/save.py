"""Charts into files, without a browser and without a network.

In: an altair chart. Out: PNG (300 dots an inch), SVG and PDF in the width of one or of both columns of a paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from driftline.charts.theme import config
from driftline.types import DriftlineError

Column = Literal["single", "double"]

FORMATS = ("png", "svg", "pdf")
WIDTH_PT = {"single": 252, "double": 516}
"""Widths of a column and of a page in the usual two-column layout (3.5 and 7.17 inches)."""
DOTS_PER_INCH = 300
WORLD_ASPECT = 2.06
"""Width over height of the world in equal areas."""


def save(
    chart: alt.TopLevelMixin, stem: Path, formats: Sequence[str] = FORMATS, *, width: Column = "single"
) -> list[Path]:
    """Write the chart to `stem`.png, .svg and .pdf; returns the files written."""
    unknown = [f for f in formats if f not in FORMATS]
    if unknown or not formats:
        raise DriftlineError(
            f"figure format {', '.join(unknown) or 'missing'}: choose from {', '.join(FORMATS)}"
        )
    spec = paper_spec(chart, width)
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = []
    for name in formats:
        path = stem.with_name(f"{stem.name}.{name}")
        path.write_bytes(_render(spec, name))
        files.append(path)
    return files


def spec_of(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The chart as a Vega-Lite document, its data (of any length) in `datasets`.

    >>> spec_of(alt.Chart(alt.InlineData(values=[{"x": 1}])).mark_bar())["mark"]["type"]
    'bar'
    """
    # Altair refuses 5,000 rows and more to keep notebooks small, and checks each row against its schema.
    with alt.data_transformers.enable("default", max_rows=None), debug_mode(False):
        spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec


def paper_spec(chart: alt.TopLevelMixin, width: Column = "single") -> dict[str, Any]:
    """The chart as a Vega-Lite document that fills the column, axes and legend included.

    >>> paper_spec(alt.Chart(alt.InlineData(values=[])).mark_bar(), "single")["width"]
    252
    """
    spec = spec_of(chart)
    spec["config"] = config("paper")
    total = WIDTH_PT[width]
    if "concat" not in spec:
        spec["width"] = total
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
        if "projection" in spec:
            spec["height"] = round(total / WORLD_ASPECT)
        return spec
    # A grid cannot be fitted as a whole: each panel gets its share, less the room its own axis takes.
    columns = min(spec.get("columns", len(spec["concat"])), len(spec["concat"]))
    for panel in spec["concat"]:
        panel["width"] = total / columns - 44
    return spec


def _render(spec: dict[str, Any], name: str) -> bytes:
    local: dict[str, Any] = {"allowed_base_urls": []}
    if name == "svg":
        text: str = vl_convert.vegalite_to_svg(spec, **local)
        return text.encode()
    if name == "pdf":
        pdf: bytes = vl_convert.vegalite_to_pdf(spec, **local)
        return pdf
    # One unit of the chart is a point, 1/72 inch.
    png: bytes = vl_convert.vegalite_to_png(spec, scale=DOTS_PER_INCH / 72, ppi=72, **local)
    return png
