"""The study's learning rates: a grid of rates for the online and for the supervised runs, on another stream than the study's.

    driftline reproduce tuning --stream world:50000:1 --scale quick

Duration: about 2 minutes on two quiet cores. Not part of `all`: it is what the study's settings were chosen by.

The paper chose its rates (0.05 online) on the preprocessing set, which is never tested on, and those of the supervised baseline (0.025) on
the whole data set. Here both are chosen on a world of another seed: other photographers, other photos, other cells.
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import polars as pl

from driftline.charts import Series, lines
from driftline.config import RunConfig
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.results import Results
from driftline.experiments.setting import QUICK, Setting
from driftline.experiments.verdicts import Finding, Measure, near

RATES = (0.2, 0.4, 0.8, 1.6)
ONLINE, OFFLINE = "online", "supervised"


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """Each rate (at B = 256), online with a constant schedule and supervised for one epoch."""
    grid = _grid(setting)
    return {f"{ONLINE} {r:g}": setting.online(schedule="constant", lr=r) for r in grid} | {
        f"{OFFLINE} {r:g}": setting.offline(lr=r) for r in grid
    }


def _grid(setting: Setting) -> list[float]:
    """The rates, always with those in use among them."""
    return sorted({*RATES, setting.scale.online["lr"], setting.scale.offline["lr"]})


def _accuracy(results: Results, label: str) -> list[Measure]:
    return results.validated(label) if label.startswith(OFFLINE) else results.online(label)


def draw(results: Results) -> Drawing:
    """Accuracy against the rate."""
    rows = []
    for label in results.labels:
        kind, rate = label.split(" ")
        mean = float(np.mean([m.value for m in _accuracy(results, label)]))
        rows.append({"x": float(rate), "value": mean, "run": kind})
    x = alt.X("x:Q", title="rate at B = 256", scale=alt.Scale(type="log", nice=False))
    chart = lines(pl.DataFrame(rows), Series((ONLINE, OFFLINE)), "accuracy", x=x)
    return chart.properties(title="Online and validation accuracy by rate (↑)")


def findings(results: Results) -> list[Finding]:
    """Whether the rates in use are near the best of the grid."""
    made = []
    for kind, in_use in ((ONLINE, QUICK.online["lr"]), (OFFLINE, QUICK.offline["lr"])):
        accuracy = {label: _accuracy(results, label) for label in results.labels if label.startswith(kind)}
        best = max(accuracy, key=lambda label: np.mean([m.value for m in accuracy[label]]))
        used = accuracy[f"{kind} {in_use:g}"]
        made.append(
            Finding(
                f"rate-{kind}",
                f"The study's rate of {kind} runs ({in_use:g} at B = 256) is near the best of the grid.",
                "0.05 online, 0.025 supervised, chosen on other data than those tested on.",
                (near(f"rate {in_use:g} near {best}", used, accuracy[best]),),
                f"Best: {best}.",
            )
        )
    return made


RECIPE = Recipe(
    "tuning",
    "Choice of the learning rates",
    "Average online accuracy of the online runs and validation accuracy of the supervised runs.",
    runs,
    draw,
    findings,
    width="single",
)
