"""From measured values to a verdict: did the claim hold, by how much, and how sure is that?

In: one `Measure` a seed for each side of a comparison. Out: a `Check` with the effect and its interval, and a `Finding` that
gathers the checks of one claim. Everything here is pure arithmetic; nothing knows of runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from driftline.types import FloatArray, IntArray

Verdict = Literal["held", "did not hold", "undecided"]
Unit = Literal["points", "nats", "doublings"]

ALIKE_SHARE = 0.05
"""Two accuracies are called comparable when they differ by less than this share of the larger one."""
FEWEST_ITEMS = 10
"""A comparison that rests on fewer photos (or stretches of the stream) than this decides nothing."""
Z90 = 1.645
_T90 = {2: 6.314, 3: 2.920, 4: 2.353, 5: 2.132, 6: 2.015, 7: 1.943, 8: 1.895, 9: 1.860, 10: 1.833}
"""Student's t for 90 % of the middle, by number of seeds."""

RULE = (
    "A claim is a set of comparisons. Each effect is a mean over seeds with a 90 % interval that takes in both the spread over "
    "seeds (Student's t) and the sampling error of the photos it was measured on (paired where both sides saw the same photos). "
    "The claim held if every comparison's interval lies on the claimed side, did not hold if one interval lies wholly on the "
    "other side, and is undecided otherwise. With one seed there is no spread over seeds, and the interval is that of the photos "
    f"alone. A comparison on fewer than {FEWEST_ITEMS} photos decides nothing. Two accuracies count as comparable when they differ "
    f"by less than {ALIKE_SHARE:.0%} of the larger one."
)


@dataclass(frozen=True, eq=False)
class Measure:
    """A value measured in one run, and if known the items it is the mean of, so that its error can be told.

    `ids` says which item is which (photo, stretch of the stream), so that two runs can be compared item by item.
    """

    value: float
    items: FloatArray | None = None
    ids: IntArray | None = None

    @staticmethod
    def mean_of(items: FloatArray, ids: IntArray | None = None) -> Measure:
        """The mean of some items.

        >>> Measure.mean_of(np.array([1.0, 0.0])).value
        0.5
        """
        return Measure(float(np.mean(items)) if len(items) else math.nan, np.asarray(items, np.float64), ids)


@dataclass(frozen=True)
class Check:
    """One comparison: `effect` = first side minus second, its interval, and what was claimed of it."""

    what: str
    first: float
    second: float
    effects: tuple[float, ...]
    """One a seed."""
    item_error: float | None
    """Standard error that comes from the photos; None where it cannot be told."""
    claim: Literal["greater", "comparable"]
    margin: float
    """greater: the effect must exceed it; comparable: its size must stay below it."""
    unit: Unit = "points"
    num_items: int | None = None
    """Photos, or stretches of the stream, on the side that has fewer; None where the value is no mean."""
    by_seed: bool = True
    """False for a property of the stream, which has nothing to do with seeds."""

    @property
    def effect(self) -> float:
        """Mean over seeds."""
        return float(np.mean(self.effects)) if self.effects else math.nan

    @property
    def seed_error(self) -> float | None:
        """Standard error of the mean over seeds; one seed has none."""
        if len(self.effects) < 2:
            return None
        return float(np.std(self.effects, ddof=1) / math.sqrt(len(self.effects)))

    @property
    def interval(self) -> tuple[float, float]:
        """90 % interval of the effect."""
        num = len(self.effects)
        t90 = _T90.get(num, Z90 + 1.524 / max(num - 1, 1))
        half = math.hypot(t90 * (self.seed_error or 0.0), Z90 * (self.item_error or 0.0))
        return self.effect - half, self.effect + half

    @property
    def verdict(self) -> Verdict:
        """Whether the effect is on the claimed side.

        >>> greater("a beats b", [Measure(0.4)], [Measure(0.3)]).verdict
        'held'
        """
        low, high = self.interval
        too_few = self.num_items is not None and self.num_items < FEWEST_ITEMS
        if too_few or not (math.isfinite(low) and math.isfinite(high)):
            return "undecided"
        if self.claim == "greater":
            return "held" if low > self.margin else "did not hold" if high < self.margin else "undecided"
        if -self.margin < low and high < self.margin:
            return "held"
        return "did not hold" if low > self.margin or high < -self.margin else "undecided"


def greater(
    what: str,
    first: Sequence[Measure],
    second: Sequence[Measure],
    *,
    by: float = 0.0,
    unit: Unit = "points",
) -> Check:
    """Claims that the first side is greater than the second by more than `by` (negative: not much worse)."""
    return _compared(what, first, second, "greater", by, unit)


def comparable(what: str, first: Sequence[Measure], second: Sequence[Measure]) -> Check:
    """Claims that two accuracies differ by less than `ALIKE_SHARE` of the larger one.

    >>> comparable("a is like b", [Measure(0.40)], [Measure(0.41)]).verdict
    'held'
    """
    margin = ALIKE_SHARE * max(_mean(first), _mean(second))
    return _compared(what, first, second, "comparable", margin, "points")


def near(what: str, first: Sequence[Measure], second: Sequence[Measure]) -> Check:
    """Claims that the first accuracy is not below the second by more than `ALIKE_SHARE` of it."""
    return greater(what, first, second, by=-ALIKE_SHARE * _mean(second))


def of_stream(what: str, value: float, over: float) -> Check:
    """Claims that a share of the stream is greater than `over`; it was counted, so it has no error.

    >>> of_stream("share of summers", 0.4, over=0.25).verdict
    'held'
    """
    return Check(what, value, over, (value - over,), None, "greater", 0.0, by_seed=False)


def constant(value: float, like: Sequence[Measure]) -> list[Measure]:
    """A fixed value as a side of a comparison with so many seeds."""
    return [Measure(value) for _ in like]


def _compared(
    what: str,
    first: Sequence[Measure],
    second: Sequence[Measure],
    claim: Literal["greater", "comparable"],
    margin: float,
    unit: Unit,
) -> Check:
    assert len(first) == len(second), "one measure a seed on each side"
    effects = tuple(a.value - b.value for a, b in zip(first, second, strict=True))
    error = _item_error(first, second)
    numbers = [len(m.items) for m in (*first, *second) if m.items is not None]
    fewest = min(numbers) if numbers else None
    return Check(what, _mean(first), _mean(second), effects, error, claim, margin, unit, fewest)


def _mean(measures: Sequence[Measure]) -> float:
    return float(np.mean([m.value for m in measures])) if measures else math.nan


def _item_error(first: Sequence[Measure], second: Sequence[Measure]) -> float | None:
    """Standard error of the difference that comes from the items: paired by id where that is possible."""
    if not first:
        return None
    ids = _shared_ids([*first, *second])
    if ids is not None:
        return _error(_by_id(first, ids) - _by_id(second, ids))
    sides = [_side_error(side) for side in (first, second)]
    known = [error for error in sides if error is not None]
    return math.hypot(*known) if known else None


def _shared_ids(measures: Sequence[Measure]) -> IntArray | None:
    """Ids that every measure has, or None when some have no ids or fewer than two are shared."""
    shared: IntArray | None = None
    for measure in measures:
        if measure.ids is None:
            return None
        shared = measure.ids if shared is None else np.intersect1d(shared, measure.ids)
    return shared if shared is not None and len(shared) > 1 else None


def _by_id(measures: Sequence[Measure], ids: IntArray) -> FloatArray:
    """Items of these ids, averaged over seeds."""
    rows = []
    for measure in measures:
        assert measure.ids is not None
        assert measure.items is not None
        order = np.argsort(measure.ids, kind="stable")
        rows.append(measure.items[order[np.searchsorted(measure.ids[order], ids)]])
    return np.asarray(np.mean(rows, axis=0), np.float64)


def _side_error(side: Sequence[Measure]) -> float | None:
    """Standard error of one side: its seeds saw the same photos, so more seeds do not make it smaller."""
    errors = [_error(m.items) for m in side if m.items is not None]
    known = [error for error in errors if error is not None]
    return float(np.mean(known)) if known else None


def _error(items: FloatArray) -> float | None:
    if len(items) < 2:
        return None
    return float(np.std(items, ddof=1) / math.sqrt(len(items)))


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, what the paper saw, and the comparisons that decide it here."""

    key: str
    claim: str
    paper: str
    checks: tuple[Check, ...]
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """All comparisons must hold; one that did not is enough against.

        >>> Finding("k", "claim", "paper", ()).verdict
        'undecided'
        """
        verdicts = {check.verdict for check in self.checks}
        if "did not hold" in verdicts:
            return "did not hold"
        return "held" if verdicts == {"held"} else "undecided"
