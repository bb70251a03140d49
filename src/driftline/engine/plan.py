"""Which positions each step tests, trains on and replays: bookkeeping on integers, nothing of pixels or models.

In: the settings and the stream's length. Out: a request a step, in order. A plan runs ahead of the computation as far as the
next point at which a decision (ADRep) may change it. What it draws depends only on (seed, step) and on what entered before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from driftline import draws
from driftline.replay.buffers import Buffer, State
from driftline.streams.fetch import FetchRequest
from driftline.types import IntArray, LabelArray


class Plan(Protocol):
    """Gives the next step's positions while it can."""

    num_steps: int
    total: int
    """Samples that all steps together go through."""

    def next(self) -> FetchRequest | None:
        """The next request; None at the end, or while a decision is pending."""
        ...

    def resize(self, step: int, size: int) -> None:
        """Step `step` is done and the buffer's size is decided."""
        ...

    def state(self) -> State:
        """Everything that `load` needs."""
        ...

    def load(self, state: State) -> None:
        """Restore."""
        ...


class OnlinePlan:
    """The stream in order: each batch is tested, trained on together with replay, and enters the buffer."""

    def __init__(
        self,
        num_samples: int,
        *,
        batch_size: int,
        gd_steps: int,
        replay_ratio: float,
        seed: int,
        buffer: Buffer,
        labels: Callable[[IntArray], LabelArray] | None,
        decide_every: int | None,
    ) -> None:
        self.num_samples = self.total = num_samples
        self.num_steps = -(-num_samples // batch_size)
        self.batch_size = batch_size
        self.gd_steps = gd_steps
        self.replay_ratio = replay_ratio
        self.seed = seed
        self.buffer = buffer
        self.labels = labels
        self.decide_every = decide_every
        self.step = 0
        self.barrier = decide_every or self.num_steps
        """The first step that cannot be planned before the decision on the buffer's size."""

    def next(self) -> FetchRequest | None:
        """The next batch, and what to replay from the buffer as it was before this batch entered it."""
        if self.step >= min(self.barrier, self.num_steps):
            return None
        start = self.step * self.batch_size
        stop = min(start + self.batch_size, self.num_samples)
        stream = np.arange(start, stop)
        rng = draws.generator(self.seed, "replay", self.step)
        replay = self.buffer.sample(rng, round((stop - start) * self.replay_ratio))
        request = FetchRequest(self.step, stream, replay, self.gd_steps, buffer_size=self.buffer.capacity)
        self.buffer.extend(start, stop, self.labels(stream) if self.labels else None)
        self.step += 1
        return request

    def resize(self, step: int, size: int) -> None:
        """Sample from a buffer of this size from now on, and plan up to the next decision."""
        assert self.decide_every is not None
        assert step + 1 == self.barrier
        self.buffer.resize(size)
        self.barrier += self.decide_every

    def state(self) -> State:
        """Where the plan is, and the buffer."""
        return {"step": np.array([self.step, self.barrier])} | self.buffer.state()

    def load(self, state: State) -> None:
        """Restore."""
        self.step, self.barrier = (int(x) for x in state["step"])
        self.buffer.load(state)


class ShuffledPlan:
    """The supervised baseline: epochs over a training set, each in an order of its own, none of it tested."""

    def __init__(
        self,
        first: int,
        num_samples: int,
        *,
        sample_of: int | None,
        batch_size: int,
        gd_steps: int,
        epochs: int,
        seed: int,
    ) -> None:
        self.first = first
        self.num_samples = num_samples
        self.sample_of = sample_of
        """Draw the training set from this many positions instead of taking consecutive ones."""
        self.batch_size = batch_size
        self.gd_steps = gd_steps
        self.seed = seed
        self.num_steps = -(-num_samples * epochs // batch_size)
        self.total = num_samples * epochs
        self.step = 0

    def next(self) -> FetchRequest | None:
        """The next shuffled batch; a batch may end one epoch and begin the next."""
        if self.step >= self.num_steps:
            return None
        start = self.step * self.batch_size
        index = np.arange(start, min(start + self.batch_size, self.total))
        request = FetchRequest(
            self.step, self._positions(index), np.empty(0, np.int64), self.gd_steps, test=False
        )
        self.step += 1
        return request

    def _positions(self, index: IntArray) -> IntArray:
        positions = np.empty(len(index), np.int64)
        for epoch in np.unique(index // self.num_samples):
            of_epoch = index // self.num_samples == epoch
            positions[of_epoch] = draws.permuted(
                self.seed, index[of_epoch] % self.num_samples, self.num_samples, "epoch", int(epoch)
            )
        if self.sample_of is not None:
            positions = draws.permuted(self.seed, positions, self.sample_of, "subset")
        return positions + self.first

    def resize(self, step: int, size: int) -> None:
        """There is no buffer to resize."""
        raise AssertionError("a shuffled plan has no buffer")

    def state(self) -> State:
        """Where the plan is."""
        return {"step": np.array([self.step])}

    def load(self, state: State) -> None:
        """Restore."""
        self.step = int(state["step"][0])
