"""Statistics of the stream: cells, images per country, images per year, distance to the class centre. No runs.

    driftline reproduce stats --stream world

Duration: seconds (CLOC: a few minutes).

The paper saw (CLOC): 712 cells, smaller where there are more photos; most photos from North America and Europe; numbers of photos
that change over the years; about 5 % of the photos within 1 km of their class centre, 30 % within 25 km, 80 % within 200 km.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftline.charts import panels
from driftline.charts.theme import Chart
from driftline.config import RunConfig
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.results import Results
from driftline.experiments.setting import Setting
from driftline.experiments.verdicts import Finding, of_stream
from driftline.geo.countries import continent_of
from driftline.streams.statistics import PAPER_WITHIN_KM, stream_statistics
from driftline.streams.statistics_charts import figures
from driftline.types import DriftlineError

PANELS = {
    "cells": "(a) S2 cells",
    "countries": "(b) Images per country (the largest)",
    "years": "(c) Images per year",
    "distance": "(d) Distance to the class centre",
}
RICH = ("North America", "Europe")


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """None; but the stream must have places."""
    if setting.stream.classes.cells is None:
        raise DriftlineError(
            f"the stream {setting.stream.name} has classes without places: leave out the figure stats"
        )
    return {}


def draw(results: Results) -> Drawing:
    """The paper's four panels."""
    charts: dict[str, Chart] = figures(stream_statistics(results.stream_name))
    return panels({title: charts[key] for key, title in PANELS.items() if key in charts})


def findings(results: Results) -> list[Finding]:
    """What the paper says of its stream, of this one."""
    found = stream_statistics(results.stream_name)
    rich = sum(num for code, num in found.countries.items() if continent_of(code) in RICH)
    shares = ", ".join(
        f"{found.within_km[km]:.0%} within {km} km (paper ≈ {share:.0%})"
        for km, share in PAPER_WITHIN_KM.items()
    )
    return [
        Finding(
            "classes-locate",
            "Most photos lie within 200 km of their class centre.",
            "About 5 % within 1 km, 30 % within 25 km, 80 % within 200 km.",
            (of_stream("share within 200 km, over one half", found.within_km[200], over=0.5),),
            f"Here: {shares}; {len(found.classes)} classes (paper: 712).",
        ),
        Finding(
            "north-america-and-europe",
            "Most photos come from North America and Europe.",
            "A dominating number of images came from North America and Europe.",
            (
                of_stream(
                    "share of North America and Europe, over one half",
                    rich / max(sum(found.countries.values()), 1),
                    over=0.5,
                ),
            ),
        ),
    ]


RECIPE = Recipe(
    "stats",
    "Statistics of the stream",
    "(a) classes are S2 cells, coloured by number of images; (b), (c) images per country and year; (d) share of images within each "
    "distance of their class centre.",
    runs,
    draw,
    findings,
)
