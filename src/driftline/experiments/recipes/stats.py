"""Statistics of the stream: cells, images per country, images per year, distance to the class centre. No runs.

    driftline reproduce stats --stream world

Duration: seconds (CLOC: a few minutes).

The paper saw (CLOC): 712 cells, smaller where there are more photos; most photos from North America and Europe; numbers of photos
that change over the years; about 5 % of the photos within 1 km of their class centre, 30 % within 25 km, 80 % within 200 km.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from driftline.charts import Series, bars, error_cdf, panels, world_map
from driftline.charts.theme import Chart
from driftline.config import RunConfig
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.recipes.shift import year_of
from driftline.experiments.results import Results
from driftline.experiments.setting import Setting
from driftline.experiments.verdicts import Finding, of_stream
from driftline.geo.countries import continent_of, country_codes, country_name
from driftline.geo.distance import great_circle_km
from driftline.geo.outlines import cell_polygons, land
from driftline.metrics.geolocation import error_cdf as distribution
from driftline.types import DriftlineError, FloatArray, IntArray, Samples, Stream

Key = TypeVar("Key")

CHUNK = 1 << 18
NUM_COUNTRIES = 20
PAPER_SHARE = {1: 0.05, 25: 0.30, 200: 0.80}
RICH = ("North America", "Europe")


@dataclass(frozen=True, eq=False)
class Statistics:
    """What the samples of a stream's training split are."""

    per_class: IntArray
    per_country: Mapping[str, int]
    """By two-letter code."""
    per_year: Mapping[int, int]
    distance_km: FloatArray
    """From each photo to its class centre."""

    def share_within(self, km: float) -> float:
        """Share of the photos closer than this to their class centre."""
        return float(np.mean(self.distance_km < km)) if len(self.distance_km) else float("nan")


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """None; but the stream must have places."""
    _centres(setting.stream)
    return {}


def _centres(stream: Stream) -> tuple[FloatArray, FloatArray]:
    classes = stream.classes
    if classes.lat is None or classes.lon is None:
        raise DriftlineError(
            f"the stream {stream.name} has classes without places: leave out the figure stats"
        )
    return classes.lat, classes.lon


def statistics(stream: Stream) -> Statistics:
    """One pass over the stream's columns."""
    lat, lon = _centres(stream)
    per_class = np.zeros(len(stream.classes), np.int64)
    countries: dict[str, int] = {}
    years: dict[int, int] = {}
    distances = []
    for part in _chunks(stream):
        per_class += np.bincount(part.label, minlength=len(per_class))
        _count(countries, country_codes(part.lat, part.lon))
        _count(years, year_of(part.time))
        distances.append(great_circle_km(part.lat, part.lon, lat[part.label], lon[part.label]))
    return Statistics(per_class, countries, dict(sorted(years.items())), np.concatenate(distances))


def _chunks(stream: Stream) -> Iterator[Samples]:
    for start in range(0, len(stream.train), CHUNK):
        yield stream.train.samples(start, min(start + CHUNK, len(stream.train)))


def _count(into: dict[Key, int], values: NDArray[Any]) -> None:
    for value, num in zip(*np.unique(values, return_counts=True), strict=True):
        key: Key = value.item()
        into[key] = into.get(key, 0) + int(num)


def draw(results: Results) -> Drawing:
    """The paper's four panels."""
    stream = results.stream
    found = statistics(stream)
    top = sorted(found.per_country.items(), key=lambda item: -item[1])[:NUM_COUNTRIES]
    countries = pl.DataFrame({"name": [country_name(c) for c, _ in top], "value": [n for _, n in top]})
    years = pl.DataFrame({"name": [str(y) for y in found.per_year], "value": list(found.per_year.values())})
    cdf = distribution(found.distance_km)
    frame = pl.DataFrame({"x": np.maximum(cdf.distance_km, 0.01), "value": cdf.share}).with_columns(
        run=pl.lit("class centre")
    )
    return panels(
        {
            f"(a) {len(stream.classes)} S2 cells": _map(stream, found),
            f"(b) Images per country (the {len(top)} largest)": bars(countries, "images"),
            "(c) Images per year": bars(years, "images"),
            "(d) Distance to the class centre": _label_error(frame),
        }
    )


def _label_error(frame: pl.DataFrame) -> Chart:
    chart = error_cdf(frame, Series(("class centre",)))
    for layer in chart.layer:
        layer.encoding.x.title = "distance between photo and class centre (km)"
    return chart


def _map(stream: Stream, found: Statistics) -> Chart:
    assert stream.classes.cells is not None
    features = cell_polygons(stream.classes.cells)["features"]
    shapes = {label: feature["geometry"] for label, feature in enumerate(features)}
    rows = {"label": list(shapes), "name": list(stream.classes.names), "count": found.per_class.tolist()}
    frame = pl.DataFrame(rows).with_columns(accuracy=pl.lit(None, pl.Float64)).filter(pl.col("count") > 0)
    return world_map(land()["geometry"], shapes, frame, measure="count")


def findings(results: Results) -> list[Finding]:
    """What the paper says of its stream, of this one."""
    found = statistics(results.stream)
    rich = sum(n for code, n in found.per_country.items() if continent_of(code) in RICH)
    total = max(sum(found.per_country.values()), 1)
    shares = ", ".join(
        f"{found.share_within(km):.0%} within {km} km (paper ≈ {share:.0%})"
        for km, share in PAPER_SHARE.items()
    )
    return [
        Finding(
            "classes-locate",
            "Most photos lie within 200 km of their class centre.",
            "About 5 % within 1 km, 30 % within 25 km, 80 % within 200 km.",
            (of_stream("share within 200 km, over one half", found.share_within(200), over=0.5),),
            f"Here: {shares}; {len(results.stream.classes)} classes (paper: 712).",
        ),
        Finding(
            "north-america-and-europe",
            "Most photos come from North America and Europe.",
            "A dominating number of images came from North America and Europe.",
            (of_stream("share of North America and Europe, over one half", rich / total, over=0.5),),
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
