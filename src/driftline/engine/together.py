"""One step and its records over all processes: who has which samples, which are bad, and the whole log in stream order.

In: what this process fetched and predicted. Out: what the step is made of everywhere; and on the first process, now and then, the
records of all. With one process everything is passed through.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from driftline.engine.records import StepRecord
from driftline.learners.team import Team
from driftline.streams.fetch import Fetched, share
from driftline.types import PREDICTION, BadSampleError, BoolArray, Samples

GATHER_EVERY = 50
"""Steps between two gatherings of the log, unless a checkpoint needs it before."""


@dataclass(frozen=True)
class Step:
    """One step over all processes."""

    samples: Samples | None
    """Columns of all usable stream samples, where they are tested."""
    here: slice
    """Those among them that this process has."""
    num_stream: int
    num_replay: int
    bad: tuple[BadSampleError, ...]
    """Stream samples that were set aside."""


def whole_step(fetched: Fetched, team: Team, usable_told: Callable[[], BoolArray] | None = None) -> Step:
    """What all processes together have of a step; they may have begun before to tell each other what is usable."""
    bad = tuple(error for error in fetched.bad if error.position in fetched.request.stream)
    if team.size == 1:
        num_replay = len(fetched.labels) - fetched.num_stream
        return Step(fetched.samples, slice(None), fetched.num_stream, num_replay, bad)
    num = len(fetched.request.stream)
    usable = (usable_told or start_usable(fetched, team))()
    if not usable[:num].all():
        bad = _all_bad(bad, team)
    samples, here = fetched.samples, slice(None)
    if team.ranks.parts > 1:
        part = share(num, team.ranks.part, team.ranks.parts)
        here = slice(int(usable[: part.start].sum()), int(usable[: part.stop].sum()))
        samples = fetched.whole.take(usable[:num]) if fetched.whole is not None else None
    return Step(samples, here, int(usable[:num].sum()), int(usable[num:].sum()), bad)


def start_usable(fetched: Fetched, team: Team) -> Callable[[], BoolArray]:
    """Which samples of the step, stream and then replay, no process has found bad; waited for when called."""
    positions = np.concatenate([fetched.request.stream, fetched.request.replay])
    bad = np.isin(positions, [error.position for error in fetched.bad])
    num_bad = team.start_sum(bad.astype(np.float64))
    return lambda: num_bad() == 0


def _all_bad(bad: tuple[BadSampleError, ...], team: Team) -> tuple[BadSampleError, ...]:
    """The bad samples that any process has, with their reasons."""
    told = team.gather(json.dumps([(error.position, error.reason) for error in bad]).encode())
    everything = team.from_first(
        lambda: json.dumps(sorted(dict(pair for one in told for pair in json.loads(one)).items())).encode()
    )
    return tuple(BadSampleError(position, reason) for position, reason in json.loads(everything))


@dataclass
class Gathering:
    """Collects the records of all processes on the first one, in stream order."""

    team: Team
    count: int = 0
    """How often the processes have gathered their records."""
    _waiting: list[StepRecord] = field(default_factory=list)

    def add(self, record: StepRecord, *, now: bool) -> list[StepRecord]:
        """Take in this process's record of a step; the whole records that have become complete.

        On the others than the first process: their own records, as they come.
        """
        if self.team.size == 1:
            return [record]
        self._waiting.append(record)
        if now or len(self._waiting) >= GATHER_EVERY:
            self.count += 1
            waiting, self._waiting = self._waiting, []
            told = self.team.gather(b"".join(one.predictions.tobytes() for one in waiting))
            if self.team.is_first:
                return _completed(waiting, told)
        return [] if self.team.is_first else [record]


def _completed(records: list[StepRecord], told: list[bytes]) -> list[StepRecord]:
    rows = np.frombuffer(b"".join(told), PREDICTION)
    rows = rows[np.argsort(rows["position"], kind="stable")]
    starts = np.searchsorted(rows["step"], [record.step for record in records])
    stops = np.append(starts[1:], len(rows))
    return [
        replace(record, predictions=rows[start:stop])
        for record, start, stop in zip(records, starts, stops, strict=True)
    ]
