"""FIFO against reservoir: two ways to fill the replay buffer, at 0.1 % and at 10 % of the stream; cosine rate.

    driftline reproduce fifo-vs-reservoir --stream world --scale quick

Duration: a little more than a minute a seed on two quiet cores.

The paper saw (supplement): comparable online accuracy and backward transfer at H; reservoir slightly better with 40 K, slightly
worse with 4 M.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftline.charts import Series, panels
from driftline.charts.theme import Chart
from driftline.config import RunConfig
from driftline.experiments.panels import backward_panel, online_panel
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.results import Results
from driftline.experiments.setting import Setting
from driftline.experiments.verdicts import Finding, comparable

SIZES = ("0.1 %", "10 %")


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """Both buffers in both sizes."""
    sizes = dict(zip(SIZES, (setting.small_buffer, setting.scale.middle_buffer), strict=True))
    return {
        f"{kind} {share}": setting.online(schedule="cosine", replay=replay, buffer_size=size)
        for share, size in sizes.items()
        for kind, replay in (("FIFO", "fifo"), ("reservoir", "reservoir"))
    }


def draw(results: Results) -> Drawing:
    """The supplement's four panels."""
    series = Series(("FIFO", "reservoir"))
    charts: dict[str, Chart] = {}
    for share, letters in zip(SIZES, ("ab", "cd"), strict=True):
        some = results.renamed({f"{kind} {share}": kind for kind in series.names})
        charts[f"({letters[0]}) Average online accuracy (↑), R {share}"] = online_panel(some, series)
        charts[f"({letters[1]}) Backward transfer at H (↑), R {share}"] = backward_panel(some, series, "H")
    return panels(charts)


def findings(results: Results) -> list[Finding]:
    """Comparable in both metrics, a claim for each size."""
    return [
        Finding(
            f"fifo-like-reservoir-{'small' if share == SIZES[0] else 'middle'}",
            f"With R = {share} of the stream, FIFO and reservoir are comparable online and in backward transfer at H.",
            paper,
            (
                comparable(
                    "FIFO and reservoir, online",
                    results.online(f"FIFO {share}"),
                    results.online(f"reservoir {share}"),
                ),
                comparable(
                    "FIFO and reservoir, backward at H",
                    results.backward(f"FIFO {share}", "H"),
                    results.backward(f"reservoir {share}", "H"),
                ),
            ),
        )
        for share, paper in zip(
            SIZES,
            (
                "Comparable, reservoir slightly better with 40 K.",
                "Comparable, reservoir slightly worse with 4 M.",
            ),
            strict=True,
        )
    ]


RECIPE = Recipe(
    "fifo-vs-reservoir",
    "FIFO against reservoir",
    "FIFO keeps the newest samples, the reservoir a uniform sample of all seen so far.",
    runs,
    draw,
    findings,
)
