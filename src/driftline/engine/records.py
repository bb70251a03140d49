"""What a step leaves behind: the rows for the logs, and the samples that were set aside.

In: logits and samples. Out: a record a step, which logs, progress displays and users' own code read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from driftline.types import PREDICTION, TOP, BadSampleError, Samples


@dataclass(frozen=True)
class StepRecord:
    """What one step showed."""

    step: int
    predictions: NDArray[np.void]
    """Rows of `types.PREDICTION`; none for the supervised baseline."""
    curve: NDArray[np.void]
    """One row of `types.curve_dtype`."""
    bad: tuple[BadSampleError, ...] = ()
    """Stream samples that were set aside."""

    @property
    def accuracy(self) -> float:
        """Share of the step's samples that were predicted right."""
        rows = self.predictions
        return float((rows["pred"] == rows["label"]).mean()) if len(rows) else math.nan


def prediction_rows(
    logits: Tensor, samples: Samples, member: int, step: int, scored: NDArray[np.bool_]
) -> NDArray[np.void]:
    """Rows of the prediction log: the five best classes, the probability of the first, the likelihood of the truth."""
    log_prob = torch.log_softmax(logits, dim=1)
    num_top = min(TOP, logits.shape[1])
    best, classes = log_prob.topk(num_top, dim=1)
    truth = torch.from_numpy(samples.label.astype(np.int64)).to(logits.device)
    rows = np.zeros(len(samples), PREDICTION)
    for name in ("position", "time", "user", "label"):
        rows[name] = getattr(samples, name)
    rows["top5"] = -1
    rows["top5"][:, :num_top] = classes.cpu().numpy()
    rows["pred"] = rows["top5"][:, 0]
    rows["prob"] = best[:, 0].exp().cpu().numpy()
    rows["loglik"] = log_prob.gather(1, truth[:, None])[:, 0].cpu().numpy()
    rows["member"], rows["step"], rows["scored"] = member, step, scored
    return rows
