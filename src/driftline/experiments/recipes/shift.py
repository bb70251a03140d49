"""Distribution shift: a supervised model of one year and one of the whole range, equally many photos, over time.

    driftline reproduce shift --stream world --scale quick

Duration: a quarter of a minute a seed on two quiet cores.

The paper saw: the model of 2010 drops sharply on photos of other years, while the one of the whole range does not peak in 2010.
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import polars as pl

from driftline.charts import Series, over_time
from driftline.config import RunConfig
from driftline.engine.plan import ShuffledPlan
from driftline.engine.setup import Setup
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.results import Results, RunResult
from driftline.experiments.setting import Setting
from driftline.experiments.verdicts import Check, Finding, Measure, comparable, greater
from driftline.metrics.periods import by_calendar
from driftline.types import BoolArray, IntArray

ONE, ALL = "one year", "whole range"
PAPERS_YEAR = 2010


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """A year of the stream, and as many samples of the whole range."""
    year = chosen_year(setting)
    epochs = setting.scale.shift_epochs
    one = setting.offline(train_years=str(year), epochs_baseline=epochs)
    num = _num_samples(setting, one)
    return {ONE: one, ALL: setting.offline(train_samples=num, epochs_baseline=epochs)}


def chosen_year(setting: Setting) -> int:
    """2010, or the middle year of a stream that does not have it."""
    first, last = (
        year_of(setting.stream.train.samples(p, p + 1).time)[0] for p in (0, setting.num_samples - 1)
    )
    return PAPERS_YEAR if first < PAPERS_YEAR < last else int(first + last) // 2


def _num_samples(setting: Setting, config: RunConfig) -> int:
    """How many samples the year has; a year with fewer than a batch is refused by the set-up."""
    plan = Setup(config, setting.stream).plan()
    assert isinstance(plan, ShuffledPlan)
    return plan.num_samples


def year_of(time_s: IntArray) -> IntArray:
    """Calendar years (UTC) of times.

    >>> year_of(np.array([0, 1_262_304_000])).tolist()
    [1970, 2010]
    """
    return time_s.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970


def draw(results: Results) -> Drawing:
    """Validation accuracy in each year, mean over seeds."""
    parts = []
    for label, of in results.runs.items():
        found = [by_calendar(time, correct, "Y") for _, time, correct in (run.validation() for run in of)]
        middle = (found[0].start_s + found[0].stop_s) / 2
        accuracy = np.mean([f.accuracy for f in found], axis=0)
        parts.append(pl.DataFrame({"x": middle, "value": accuracy}).with_columns(run=pl.lit(label)))
    year = int(results.runs[ONE][0].config.train_years or 0)
    ends = [int(np.datetime64(str(y)).astype("datetime64[ms]").astype(np.int64)) for y in (year, year + 1)]
    shade = (
        alt.Chart(alt.InlineData(values=[{"start": ends[0], "stop": ends[1]}]))
        .mark_rect(opacity=0.15, color="#7a7a7a")
        .encode(x="start:T", x2="stop:T")
    )
    chart = over_time(
        pl.concat(parts), Series(results.labels), "validation accuracy in each year", under=(shade,)
    )
    return chart.properties(title=f"Accuracy over time; {year} is shaded")


def findings(results: Results) -> list[Finding]:
    """The drop of the one-year model, and the flatness of the other."""
    return [
        Finding(
            "one-year-model-drops",
            "A model of one year is better on photos of that year than on others, and more so than a model of the whole range.",
            "The model of 2010 dropped sharply on other years.",
            (_inside_over_outside(results, ONE), _difference_of_differences(results)),
        ),
        Finding(
            "whole-range-model-does-not-peak",
            "A model of the whole range does not peak in that year.",
            "No sharp increase in 2010.",
            (_alike_inside_and_outside(results),),
        ),
    ]


def _inside(run: RunResult, year: int) -> BoolArray:
    return np.asarray(year_of(run.validation()[1]) == year)


def _sides(results: Results, label: str) -> tuple[list[Measure], list[Measure]]:
    """Accuracy on validation photos of the year, and on those of other years."""
    year = int(results.runs[ONE][0].config.train_years or 0)
    inside = [run.validated(_inside(run, year)) for run in results.runs[label]]
    outside = [run.validated(~_inside(run, year)) for run in results.runs[label]]
    return inside, outside


def _inside_over_outside(results: Results, label: str) -> Check:
    return greater(f"{label}: its year over other years", *_sides(results, label))


def _alike_inside_and_outside(results: Results) -> Check:
    return comparable(f"{ALL}: the year and other years", *_sides(results, ALL))


def _difference_of_differences(results: Results) -> Check:
    """What the one-year model has ahead of the other in its year, against what it has elsewhere; photo by photo."""
    ahead = []
    for one, other in zip(_sides(results, ONE), _sides(results, ALL), strict=True):
        ahead.append([_minus(a, b) for a, b in zip(one, other, strict=True)])
    return greater(f"lead of {ONE} over {ALL} in its year, over that in other years", *ahead)


def _minus(a: Measure, b: Measure) -> Measure:
    assert a.items is not None
    assert b.items is not None
    return Measure(a.value - b.value, a.items - b.items, a.ids)


RECIPE = Recipe(
    "shift",
    "Distribution shift",
    "Two supervised models trained on equally many photos, evaluated on the validation photos of each year.",
    runs,
    draw,
    findings,
    width="single",
)
