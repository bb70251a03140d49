"""What a recipe of the study is: the runs behind a figure of the paper, how it is drawn, and what it is to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from driftline.charts import Column
from driftline.charts.theme import Chart
from driftline.config import RunConfig
from driftline.experiments.results import Results
from driftline.experiments.setting import Setting
from driftline.experiments.verdicts import Finding

Drawing = Chart | alt.ConcatChart
"""A figure: one chart, or several in panels."""


@dataclass(frozen=True)
class Recipe:
    """A figure: label -> settings of each run, a chart, and findings; both of the latter from the runs' files."""

    name: str
    title: str
    caption: str
    """How to read the figure."""
    runs: Callable[[Setting], Mapping[str, RunConfig]]
    draw: Callable[[Results], Drawing]
    findings: Callable[[Results], Sequence[Finding]]
    compares: Literal["same batch", "batch sizes"] = "same batch"
    """Decides the scoring, see `blocks`."""
    width: Column = "double"
