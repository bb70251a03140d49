"""What one step showed of each member: sums over samples, which add up over processes to what a single one would have seen.

In: logits and labels of this process. Out: loss, accuracies and health of every member, from the sums of all processes. Counts are
whole numbers, whose sums are exact, so that decisions do not depend on how many processes counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
import torch
from torch import Tensor

from driftline.learners.base import LearnResult
from driftline.learners.team import Team


@dataclass
class Seen:
    """One member's sums."""

    loss: float = 0.0
    right_stream: float = 0.0
    """Training samples of the stream that were right before the update; and of the replay."""
    right_replay: float = 0.0
    right_predicted: float = 0.0
    """Samples that were right when they were predicted for the record."""
    bad_logits: float = 0.0
    """How many processes predicted non-finite numbers."""

    def training(self, loss: float, logits: Tensor, labels: Tensor, num_stream: int) -> None:
        """Note the first gradient step."""
        right = (logits.argmax(dim=1) == labels).cpu().numpy()
        self.loss = loss
        self.right_stream = float(np.count_nonzero(right[:num_stream]))
        self.right_replay = float(np.count_nonzero(right[num_stream:]))

    def predictions(self, logits: Tensor, labels: Tensor) -> None:
        """Note what was predicted, now that the labels are known."""
        self.right_predicted = float((logits.argmax(dim=1) == labels).sum())
        self.bad_logits = float(not bool(torch.isfinite(logits).all()))

    def accuracy(self, num_stream: int) -> float:
        """Online accuracy of a member; one that has diverged guesses at random and must not be chosen by luck."""
        return 0.0 if self.bad_logits else share_right(self.right_predicted, num_stream)

    def result(self, num_stream: int, num_replay: int) -> LearnResult:
        """As the engine wants it."""
        acc_replay = share_right(self.right_replay, num_replay) if num_replay else None
        return LearnResult(self.loss, share_right(self.right_stream, num_stream), acc_replay)


def share_right(num_right: float, num: int) -> float:
    """A share in the precision in which it is logged.

    >>> share_right(1, 4), share_right(0, 0)
    (0.25, nan)
    """
    return float(np.float32(num_right / num)) if num else math.nan


def start_sums(seen: Sequence[Seen], team: Team) -> Callable[[], list[Seen]]:
    """Every member's sums over all processes, from those of the members that are here, once they are called for.

    >>> start_sums([Seen(loss=1.5)], Team.alone())()[0].loss
    1.5
    """
    if team.size == 1:
        return lambda: list(seen)
    rows = np.zeros((team.ranks.num_members, len(fields(Seen))))
    rows[list(team.ranks.members)] = [astuple(one) for one in seen]
    sums = team.start_sum(rows)
    return lambda: [Seen(*row) for row in sums().tolist()]
