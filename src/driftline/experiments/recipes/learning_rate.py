"""Learning rates: constant, cosine and PoLRS on the same replay, and a single model given PoLRS's compute.

    driftline reproduce learning-rate --stream world --scale quick

Duration: about 2 minutes a seed on two quiet cores.

The paper saw (39 M photos, ResNet50, B = 256): PoLRS best in average online accuracy; cosine worst online but best in
backward transfer at H, and best in both directions at 2H/3, where its rate was already small; large rates went with poor transfer.
It says that the population keeps the total computing the same; three models cost three gradient steps a batch. Later
work found that a single model given that compute beats PoLRS on CLOC, so one stands beside it here.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftline.charts import Series, panels
from driftline.config import RunConfig
from driftline.experiments.panels import backward_panel, forward_panel, online_panel, rate_panel
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.results import Results
from driftline.experiments.setting import POPULATION, Setting
from driftline.experiments.verdicts import Finding, greater

CONSTANT, COSINE, POLRS = "constant", "cosine", "PoLRS"
MATCHED = f"constant, {POPULATION} steps"


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """The schedules, all with a FIFO buffer of the middle size."""
    return {
        CONSTANT: setting.online(schedule="constant"),
        COSINE: setting.online(schedule="cosine"),
        POLRS: setting.online(schedule="polrs", polrs_members=POPULATION),
        MATCHED: setting.online(schedule="constant", gd_steps=POPULATION),
    }


def draw(results: Results) -> Drawing:
    """The paper's seven panels."""
    series = Series(results.labels)
    return panels(
        {
            "(a) Learning rate (first seed)": rate_panel(results, series),
            "(b) Average online accuracy (↑)": online_panel(results, series),
            "(c) Backward transfer at H (↑)": backward_panel(results, series, "H"),
            "(d) Backward transfer at 2H/3 (↑)": backward_panel(results, series, "2H/3"),
            "(e) Forward transfer at 2H/3 (↑)": forward_panel(results, series, "2H/3"),
            "(f) Backward transfer at H/3 (↑)": backward_panel(results, series, "H/3"),
            "(g) Forward transfer at H/3 (↑)": forward_panel(results, series, "H/3"),
        }
    )


def findings(results: Results) -> list[Finding]:
    """PoLRS online, cosine online and in transfer, and PoLRS at equal compute."""
    online = {label: results.online(label) for label in results.labels}
    others = (CONSTANT, POLRS)
    return [
        Finding(
            "polrs-best-online",
            "PoLRS has the best average online accuracy of the three schedules.",
            "PoLRS was above constant and cosine throughout.",
            tuple(greater(f"PoLRS over {b}", online[POLRS], online[b]) for b in (CONSTANT, COSINE)),
        ),
        Finding(
            "polrs-at-equal-compute",
            f"PoLRS beats a single model with a constant rate and the same compute ({POPULATION} gradient steps a batch).",
            "Not compared. Later work on CLOC found the opposite: a single model given PoLRS's compute was better.",
            (greater(f"PoLRS over {MATCHED}", online[POLRS], online[MATCHED]),),
        ),
        Finding(
            "cosine-worst-online",
            "Cosine has the worst average online accuracy of the three schedules.",
            "Cosine was below both others.",
            tuple(greater(f"{a} over cosine", online[a], online[COSINE]) for a in others),
        ),
        Finding(
            "cosine-best-backward",
            "Cosine has the best backward transfer at H of the three schedules.",
            "Cosine was above both others, its rate being near 0 by then.",
            tuple(
                greater(
                    f"cosine over {b}, backward at H",
                    results.backward(COSINE, "H"),
                    results.backward(b, "H"),
                )
                for b in others
            ),
        ),
        Finding(
            "cosine-transfer-at-2h3",
            "At 2H/3, where its rate is already small, cosine has the best transfer in both directions.",
            "Cosine was above both others, backward and forward.",
            tuple(
                greater(f"cosine over {b}, {way} at 2H/3", of(COSINE, "2H/3"), of(b, "2H/3"))
                for way, of in (("backward", results.backward), ("forward", results.forward))
                for b in others
            ),
        ),
    ]


RECIPE = Recipe(
    "learning-rate",
    "Learning rate analysis",
    "H is the end of the stream. Backward transfer at a date: accuracy over the validation photos from that date to the "
    "checkpoint; forward: from the checkpoint to that date. Arrows point to better.",
    runs,
    draw,
    findings,
)
