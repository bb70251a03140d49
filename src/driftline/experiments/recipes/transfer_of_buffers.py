"""Transfer of replay buffer sizes: the runs of `buffer-size`, judged by backward and forward transfer.

    driftline reproduce transfer-of-buffers --stream world --scale quick

Duration: that of `buffer-size`, whose runs it shares.

The paper saw: R = 4 M better than R = 39 M at 2H/3, backward and forward, and comparable at H, so the largest buffer is not
always best for transfer either. ADRep, which aims at online accuracy, did not do well in transfer.
"""

from __future__ import annotations

from driftline.charts import Series, panels
from driftline.experiments.panels import backward_panel, forward_panel
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.recipes.buffer_size import ADREP, LARGE, MIDDLE, runs
from driftline.experiments.results import Results
from driftline.experiments.verdicts import Finding, comparable, greater


def draw(results: Results) -> Drawing:
    """The paper's three panels."""
    series = Series(results.labels)
    return panels(
        {
            "(a) Backward transfer at H (↑)": backward_panel(results, series, "H"),
            "(b) Backward transfer at 2H/3 (↑)": backward_panel(results, series, "2H/3"),
            "(c) Forward transfer at 2H/3 (↑)": forward_panel(results, series, "2H/3"),
        },
        columns=3,
    )


def findings(results: Results) -> list[Finding]:
    """The largest buffer against the middle one, and ADRep against it."""
    back, ahead = results.backward, results.forward
    return [
        Finding(
            "largest-buffer-not-best",
            "At 2H/3 a buffer of 10 % of the stream transfers better than one that holds all of it.",
            "R = 4 M was better than R = 39 M at 2H/3, backward and forward.",
            (
                greater("R 10 % over R 100 %, backward at 2H/3", back(MIDDLE, "2H/3"), back(LARGE, "2H/3")),
                greater("R 10 % over R 100 %, forward at 2H/3", ahead(MIDDLE, "2H/3"), ahead(LARGE, "2H/3")),
            ),
        ),
        Finding(
            "largest-buffer-comparable-at-h",
            "At H the two have comparable backward transfer.",
            "R = 39 M and R = 4 M were comparable at H.",
            (comparable("R 10 % and R 100 %, backward at H", back(MIDDLE, "H"), back(LARGE, "H")),),
        ),
        Finding(
            "adrep-transfers-worse",
            "ADRep, made for online accuracy, transfers worse than a fixed buffer of 10 %.",
            "ADRep did not perform well in transfer compared with the other sizes.",
            (greater("R 10 % over ADRep, backward at H", back(MIDDLE, "H"), back(ADREP, "H")),),
        ),
    ]


RECIPE = Recipe(
    "transfer-of-buffers",
    "Transfer of buffer sizes",
    "The runs of the buffer sizes, judged on validation photos before and after the checkpoint.",
    runs,
    draw,
    findings,
)
