"""Batch sizes online: B = 64, 128, 256 with the linear rate rule, with replay and without; cosine rate.

    driftline reproduce batch-size --stream world --scale quick

Duration: about 1.5 minutes a seed on two quiet cores.

The paper saw (R = 4 M): increasing B, even by a factor of two, raised the training loss and lowered average online accuracy,
forward and backward transfer at 2H/3, with replay (main text) and without (supplement). All are scored at the same test
points, every 256 photos, with the newest model.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftline.charts import Series, panels
from driftline.charts.theme import Chart
from driftline.config import RunConfig
from driftline.experiments.panels import backward_panel, forward_panel, online_panel, training_panel
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.results import Results
from driftline.experiments.setting import BATCH_SIZES, Setting
from driftline.experiments.verdicts import Check, Finding, greater

REPLAY = {b: f"B {b}" for b in BATCH_SIZES}
ALONE = {b: f"B {b}, no replay" for b in BATCH_SIZES}
LATE = 0.5
"""The training loss is compared over the second half of the stream."""


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """Each batch size with the middle buffer and with none."""
    with_replay = {REPLAY[b]: setting.online(schedule="cosine", batch_size=b) for b in BATCH_SIZES}
    without = {ALONE[b]: setting.online(schedule="cosine", batch_size=b, replay="none") for b in BATCH_SIZES}
    return with_replay | without


def draw(results: Results) -> Drawing:
    """The four panels of the main text, and the same four without replay."""
    series = Series(tuple(REPLAY.values()))
    charts: dict[str, Chart] = {}
    for part, labels, letters in (
        ("replay", REPLAY, "abcd"),
        ("no replay", ALONE, "efgh"),
    ):
        some = results.renamed({labels[b]: REPLAY[b] for b in BATCH_SIZES})
        made = {
            "Training loss (↓)": training_panel(some, series, "loss", "training loss"),
            "Average online accuracy (↑)": online_panel(some, series),
            "Forward transfer at 2H/3 (↑)": forward_panel(some, series, "2H/3"),
            "Backward transfer at 2H/3 (↑)": backward_panel(some, series, "2H/3"),
        }
        charts |= {f"({a}) {title}, {part}": c for a, (title, c) in zip(letters, made.items(), strict=True)}
    return panels(charts)


def findings(results: Results) -> list[Finding]:
    """One claim with replay, one without."""
    return [
        Finding(
            "larger-batch-hurts",
            "With replay, larger batches are worse in online accuracy, training loss, and transfer at 2H/3.",
            "A consistent and strong negative effect of B on the loss and on every metric.",
            _all_metrics(results, REPLAY),
        ),
        Finding(
            "larger-batch-hurts-without-replay",
            "Without replay, larger batches are worse in online accuracy, training loss, and transfer at 2H/3.",
            "The same as with replay, so it is not an effect of the algorithm.",
            _all_metrics(results, ALONE),
        ),
    ]


def _all_metrics(results: Results, labels: Mapping[int, str]) -> tuple[Check, ...]:
    small, middle, large = (labels[b] for b in BATCH_SIZES)
    online = {label: results.online(label) for label in labels.values()}
    return (
        greater(f"{small} over {middle}, online", online[small], online[middle]),
        greater(f"{middle} over {large}, online", online[middle], online[large]),
        greater(
            f"loss of {large} over that of {small}",
            results.trained(large, "loss", LATE),
            results.trained(small, "loss", LATE),
            unit="nats",
        ),
        greater(
            f"{small} over {large}, forward at 2H/3",
            results.forward(small, "2H/3"),
            results.forward(large, "2H/3"),
        ),
        greater(
            f"{small} over {large}, backward at 2H/3",
            results.backward(small, "2H/3"),
            results.backward(large, "2H/3"),
        ),
    )


RECIPE = Recipe(
    "batch-size",
    "Batch size online",
    "The rate follows the linear rule (rate proportional to B). All runs are scored at the same test points, with the newest model.",
    runs,
    draw,
    findings,
    compares="batch sizes",
)
