"""Batch sizes on shuffled data: the control of `batch-size`, one supervised epoch at B = 64, 128, 256.

    driftline reproduce batch-size-supervised --stream world --scale quick

Duration: half a minute a seed on two quiet cores.

The paper saw (rates 0.0125, 0.025, 0.05): like training losses and 16.61, 17.07 and 17.21 % validation accuracy, so the batch
size does no harm by itself; the harm comes from the online setting. On a short stream an epoch at B = 256 has few steps, which
may cost accuracy for that reason alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from driftline.charts import Series, bars, panels
from driftline.config import RunConfig
from driftline.experiments.panels import progress_panel
from driftline.experiments.recipe import Drawing, Recipe
from driftline.experiments.results import Results
from driftline.experiments.setting import BATCH_SIZES, Setting
from driftline.experiments.verdicts import Finding, comparable

LABEL = {b: f"B {b}, shuffled" for b in BATCH_SIZES}


def runs(setting: Setting) -> Mapping[str, RunConfig]:
    """One epoch each, the same rate for a sample."""
    return {LABEL[b]: setting.offline(batch_size=b, lr=setting.scale.offline_batch_lr) for b in BATCH_SIZES}


def draw(results: Results) -> Drawing:
    """The paper's training losses, and its table as bars."""
    accuracy = [float(np.mean([m.value for m in results.validated(label)])) for label in results.labels]
    frame = pl.DataFrame({"name": list(results.labels), "value": accuracy})
    return panels(
        {
            "(a) Training loss (↓)": progress_panel(results, Series(results.labels), "loss", "training loss"),
            "(b) Validation accuracy (↑)": bars(frame, "validation accuracy", value_format=".1%"),
        }
    )


def findings(results: Results) -> list[Finding]:
    """Neither half nor a quarter of the batch size matters."""
    accuracy = {label: results.validated(label) for label in results.labels}
    small, middle, large = results.labels
    return [
        Finding(
            "no-batch-effect-on-shuffled-data",
            "On shuffled data the batch size makes no difference to validation accuracy.",
            "16.61, 17.07 and 17.21 % at B = 64, 128 and 256: minor, and if anything in favour of large B.",
            tuple(
                comparable(f"{a} and {b}", accuracy[a], accuracy[b])
                for a, b in ((small, middle), (middle, large), (small, large))
            ),
        )
    ]


RECIPE = Recipe(
    "batch-size-supervised",
    "Batch size on shuffled data",
    "Supervised learning for one epoch: the data are shuffled, everything else is as in the online runs.",
    runs,
    draw,
    findings,
)
