"""Learning rates. Constant and cosine are functions of the step; PoLRS (Alg. 1 of the paper) searches with a population.

In: step numbers, or the accuracies of the members. Out: rates, the member that predicts, and when to copy its weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


def constant(lr: float, step: int, num_steps: int) -> float:
    """The same rate always.

    >>> constant(0.05, 7, 10)
    0.05
    """
    return lr


def cosine(lr: float, step: int, num_steps: int) -> float:
    """One half wave from `lr` at the first step down to 0 after the last.

    >>> cosine(1.0, 0, 10), round(cosine(1.0, 5, 10), 6), cosine(1.0, 10, 10)
    (1.0, 0.5, 0.0)
    """
    return lr * 0.5 * (1 + math.cos(math.pi * step / num_steps))


SCHEDULES = {"constant": constant, "cosine": cosine}


@dataclass
class RateSearch:
    """PoLRS: members with rates around the best one; every so often all start again from the best.

    With three members and factor 2 the rates are {2l, l, l/2}. `best` is chosen from what was known before a step, so the
    member that predicts for the record has not seen the step's labels. The middle member wins ties it is part of; among
    others the first one does. A member that has diverged (accuracy NaN) is out until the next reset.

    >>> search = RateSearch(lr=0.1, num_members=3, factor=2.0, every_steps=2)
    >>> search.update(step=0, accuracies=[0.5, 0.2, 0.1]), search.best
    (None, 0)
    >>> search.update(step=1, accuracies=[0.5, 0.2, 0.1]), search.rates
    (0, [0.4, 0.2, 0.1])
    """

    lr: float
    num_members: int
    factor: float
    every_steps: int
    rates: list[float] = field(init=False)
    totals: list[float] = field(init=False)
    """Sum of each member's accuracies since the last reset. Sums of shares of a batch are exact where running means are
    rounded, so that members which were equally good tie."""
    num_steps: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._centre_at(self.lr)

    def _centre_at(self, lr: float) -> None:
        middle = self.num_members // 2
        self.rates = [lr * self.factor ** (middle - j) for j in range(self.num_members)]
        self.totals = [0.0] * self.num_members
        self.num_steps = 0

    @property
    def metrics(self) -> list[float]:
        """Mean online accuracy of each member since the last reset."""
        return [total / max(1, self.num_steps) for total in self.totals]

    @property
    def best(self) -> int:
        """The member with the best running accuracy since the last reset."""
        middle = self.num_members // 2
        scores = [-math.inf if math.isnan(total) else total for total in self.totals]
        highest = max(scores)
        return middle if scores[middle] == highest else scores.index(highest)

    def update(self, *, step: int, accuracies: list[float]) -> int | None:
        """Take in the members' accuracies on one step; the member to copy to all others if it is time, else None."""
        self.num_steps += 1
        self.totals = [total + a for total, a in zip(self.totals, accuracies, strict=True)]
        if (step + 1) % self.every_steps:
            return None
        best = self.best
        self._centre_at(self.rates[best])
        return best

    def state(self) -> dict[str, list[float] | int]:
        """Everything that `load` needs."""
        return {"rates": list(self.rates), "totals": list(self.totals), "num_steps": self.num_steps}

    def load(self, state: dict[str, list[float] | int]) -> None:
        """Restore."""
        rates, totals, num_steps = state["rates"], state["totals"], state["num_steps"]
        assert isinstance(rates, list)
        assert isinstance(totals, list)
        assert isinstance(num_steps, int)
        self.rates, self.totals, self.num_steps = list(rates), list(totals), num_steps
