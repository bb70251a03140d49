"""Geolocation error: how far from the photo the predicted cell's centre lies, best online model against supervised learning.

    driftline reproduce geolocation --stream world --scale quick

Duration: that of `best-model`, whose runs it shares.

The paper saw: most predictions far off, as geolocation is hard, but those of the online model closer than those of supervised learning.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from driftline.charts import Series, error_cdf
from driftline.config import RunConfig
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.recipes import best_model
from driftline.experiments.recipes.best_model import BEST, OFFLINE
from driftline.experiments.results import Results, RunResult
from driftline.experiments.setting import GD_STEPS, Setting
from driftline.experiments.verdicts import Finding, Measure, greater
from driftline.types import DriftlineError

SCALES_KM = {"region": 200, "country": 750, "continent": 2500}
"""Where the models are compared. Street and city are finer than the cells."""


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """The best model and the supervised baselines."""
    if setting.stream.classes.lat is None:
        raise DriftlineError(
            f"the stream {setting.stream.name} has classes without places: leave out the figure geolocation"
        )
    wanted = {*BEST.values(), *OFFLINE.values()}
    return {label: config for label, config in best_model.runs(setting).items() if label in wanted}


def draw(results: Results) -> Drawing:
    """Distributions of the error, of the first seed."""
    parts = []
    for label, of in results.runs.items():
        cdf = pl.read_parquet(of[0].path / "geolocation.parquet")
        parts.append(
            cdf.select(x=pl.col("distance_km").round(2), value=pl.col("share").round(4), run=pl.lit(label))
        )
    return error_cdf(pl.concat(parts), Series(results.labels)).properties(
        title="Distance of the prediction (first seed)"
    )


def findings(results: Results) -> list[Finding]:
    """The share of photos placed within each distance."""
    return [
        Finding(
            "online-closer",
            "The online model's predictions are closer to the photos than those of supervised learning with a like budget.",
            "OCL was better than supervised learning in geolocation error.",
            tuple(
                greater(
                    f"{BEST[n]} over {OFFLINE[n]}, within {km} km",
                    [within(run, km) for run in results.runs[BEST[n]]],
                    [within(run, km) for run in results.runs[OFFLINE[n]]],
                )
                for n in GD_STEPS
                for km in SCALES_KM.values()
            ),
        )
    ]


def within(run: RunResult, km: int) -> Measure:
    """Share of a run's predictions within a distance, with as many items as it predicted."""
    share = float(run.summary["geolocation_error_km"]["share_under"][str(km)])
    num = len(run.validation()[0]) if run.is_offline else int(run.summary["samples"])
    return Measure(share, (np.arange(num) < round(share * num)).astype(np.float64))


RECIPE = Recipe(
    "geolocation",
    "Geolocation error",
    "Share of photos whose predicted cell has its centre within each distance: online predictions of the best model, validation "
    "predictions of supervised learning. Further left and higher is better.",
    runs,
    draw,
    findings,
)
