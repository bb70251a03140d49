"""The prequential loop: predict all, record, learn, adapt. A generator of step records; everything else wraps around it.

In: a plan, a pipeline that fetches what is planned, a learner. Out: one StepRecord a step, in stream order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from driftline import draws
from driftline.engine.plan import Plan
from driftline.engine.records import StepRecord, prediction_rows
from driftline.engine.together import Step, start_usable, whole_step
from driftline.learners.base import Learner, LearnResult, LooksAhead, TrainBatch
from driftline.learners.lanes import Lanes
from driftline.learners.team import Team
from driftline.metrics.albums import is_test_point, scored_mask
from driftline.replay.adaptive import AdaptiveSize
from driftline.streams.fetch import Fetched, Pipeline
from driftline.types import PREDICTION, BoolArray, DriftlineError, curve_dtype


@dataclass
class Loop:
    """The loop and the little state it has of its own: how many steps are done, and the user of the last sample."""

    plan: Plan
    pipeline: Pipeline
    learner: Learner
    adaptive: AdaptiveSize | None
    learns: bool
    seed: int
    batch_size: int
    test_every: int
    team: Team = field(default_factory=Team.alone)
    lanes: Lanes = field(default_factory=Lanes)
    step: int = 0
    last_user: int | None = None
    _learned_at: tuple[int, int] = (0, 0)
    """Step and position of the last batch that was learned from."""
    _usable_told: Callable[[], BoolArray] | None = None
    """What the processes have begun to tell each other of the step to come."""

    def records(self) -> Iterator[StepRecord]:
        """One record a step until the stream ends."""
        while (fetched := self.pipeline.next()) is not None:
            with self.lanes.narrowed():
                record = self._step(fetched)
            self.step += 1
            yield record

    def _step(self, fetched: Fetched) -> StepRecord:
        told, self._usable_told = self._usable_told, None
        whole = whole_step(fetched, self.team, told)
        member = self.learner.member
        # Test: all samples of the step, before any of them is trained on.
        rows = self._predict(fetched, whole, member)
        # Train: on the stream batch joined with the replay batch.
        metrics = self.learner.metrics
        result = self._learn(fetched, whole)
        # Adapt: the size of the buffer from which later steps are planned.
        self._adapt(fetched, result)
        curve = self._curve(fetched, whole, result, member, metrics)
        return StepRecord(fetched.request.step, rows, curve, whole.bad)

    def _predict(self, fetched: Fetched, whole: Step, member: int) -> NDArray[np.void]:
        """The rows of the samples that this process has, if the member that predicts for the record is here."""
        samples, images = whole.samples, fetched.test_images
        if samples is None or images is None or fetched.samples is None or not len(samples):
            return np.empty(0, PREDICTION)
        step = fetched.request.step
        if self.learns and whole.num_stream and isinstance(self.learner, LooksAhead):
            self.learner.expect(fetched.train[0])
        logits = self.learner.predict(images)
        is_here = self.team.ranks.hosts(member)
        if is_here and not bool(torch.isfinite(logits).all()):
            raise DriftlineError(self._diverged("weights are not finite"))
        scored = scored_mask(
            samples.user, self.last_user, is_test_point(step, self.batch_size, self.test_every)
        )
        self.last_user = int(samples.user[-1])
        if not is_here or not len(images):
            return np.empty(0, PREDICTION)
        return prediction_rows(logits, fetched.samples, member, step, scored[whole.here])

    def _learn(self, fetched: Fetched, whole: Step) -> LearnResult:
        if not self.learns or not whole.num_stream:
            return LearnResult(math.nan, math.nan, None)
        over_all = (whole.num_stream, whole.num_replay) if self.team.size > 1 else None
        batch = TrainBatch(
            fetched.train, fetched.labels, fetched.num_stream, over_all, meanwhile=self._meanwhile
        )
        # What a model draws while it learns (dropout) depends on the step alone, so a resumed run draws the same.
        drawn = int(draws.bits(self.seed, "learn", fetched.request.step)) >> 1
        _seed_torch(drawn + self.team.ranks.part)
        result = self.learner.learn(batch, fetched.request.step)
        self._learned_at = (fetched.request.step, int(fetched.request.stream[0]))
        if not math.isfinite(result.loss):
            raise self.team.error(self._diverged(f"the loss is {result.loss:g}"))
        return result

    def _meanwhile(self) -> None:
        """What can go on beside the arithmetic: fetching; and several processes tell each other what is usable of the next step."""
        self.pipeline.top_up()
        if self.team.size > 1 and (fetched := self.pipeline.peek()) is not None:
            self._usable_told = start_usable(fetched, self.team)

    def check_weights(self) -> None:
        """Raise unless the weights that predict from now on are finite numbers; a state with others must not be kept."""
        weights = self.learner.weights()  # all processes take part; the first one has them
        tensors = [tensor for tensor in weights.values() if isinstance(tensor, Tensor)]
        is_bad = not all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
        if self.team.sum(np.array([float(is_bad)]))[0]:
            raise self.team.error(self._diverged("weights are not finite"))

    def _diverged(self, seen: str) -> str:
        """What is wrong since the last step that learned."""
        step, position = self._learned_at
        rates = ", ".join(f"{rate:g}" for rate in self.learner.rates)
        return f"step {step}, position {position}: {seen}: training has diverged; lower --lr (rates in use: {rates})"

    def _adapt(self, fetched: Fetched, result: LearnResult) -> None:
        if self.adaptive is None:
            return
        step = fetched.request.step
        seen = int(fetched.request.stream[-1]) + 1
        size = self.adaptive.update(
            step=step, acc_stream=result.acc_stream, acc_replay=result.acc_replay, seen=seen
        )
        if self.adaptive.decides_after(step):
            self.plan.resize(step, size)

    def _curve(
        self, fetched: Fetched, whole: Step, result: LearnResult, member: int, metrics: list[float]
    ) -> NDArray[np.void]:
        request = fetched.request
        rates = result.rates or self.learner.rates
        row = np.zeros(1, curve_dtype(self.learner.num_members))
        row["step"], row["position"] = request.step, request.stream[-1] if request.test else -1
        row["time"] = whole.samples.time[-1] if whole.samples is not None and len(whole.samples) else 0
        row["loss"], row["lr"], row["member"] = result.loss, rates[member], member
        row["buffer_size"] = request.buffer_size
        row["acc_stream"] = result.acc_stream
        row["acc_replay"] = math.nan if result.acc_replay is None else result.acc_replay
        for j in range(self.learner.num_members):
            row[f"lr_{j}"], row[f"metric_{j}"] = rates[j], metrics[j]
        return row

    def state(self) -> dict[str, Any]:
        """The loop's own state and that of the rule that adapts the buffer."""
        return {
            "step": self.step,
            "last_user": self.last_user,
            "adaptive": self.adaptive.state() if self.adaptive else {},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore."""
        self.step, self.last_user = state["step"], state["last_user"]
        if self.adaptive:
            self.adaptive.load(state["adaptive"])


def _seed_torch(seed: int) -> None:
    """What `torch.manual_seed` does, without the tenth of a millisecond it spends on devices that are not there."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
