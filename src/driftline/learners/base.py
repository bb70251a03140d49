"""What a learner is: it predicts, it learns, its state can be taken out and put back.

In: uint8 images and labels. Out: logits, losses, accuracies. The engine knows learners only through this protocol, so a
learner of your own needs these methods and nothing else (see docs/own-learner.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from driftline.streams.fetch import TrainView

State = dict[str, Any]
"""Tensors, numbers, strings, lists and dicts of these: what `torch.load(weights_only=True)` accepts."""


@dataclass(frozen=True)
class TrainBatch:
    """One step's training data: `num_stream` stream samples, then the replayed ones; a view for each gradient step."""

    views: Sequence[TrainView]
    labels: Tensor
    num_stream: int
    over_all: tuple[int, int] | None = None
    """Stream and replay samples of the step over all processes, where this one has only a part of them."""
    meanwhile: Callable[[], None] = lambda: None
    """May be called once when the interpreter is about to be idle, best before the backward pass: later batches are then fetched
    beside the arithmetic instead of taking turns with it. Results do not depend on it."""

    @property
    def totals(self) -> tuple[int, int]:
        """Stream and replay samples that the step learns from, wherever they are."""
        return self.over_all or (self.num_stream, len(self.labels) - self.num_stream)


@dataclass(frozen=True)
class LearnResult:
    """What one step of learning showed, of the member that predicts: before its update, in the first gradient step."""

    loss: float
    acc_stream: float
    acc_replay: float | None
    """None when nothing was replayed."""
    rates: tuple[float, ...] = ()
    """The rate that each member learned with."""


class Learner(Protocol):
    """A model, or several, that keep learning."""

    num_members: int

    @property
    def member(self) -> int:
        """The member that predicts for the record."""
        ...

    @property
    def rates(self) -> list[float]:
        """Learning rate of each member."""
        ...

    @property
    def metrics(self) -> list[float]:
        """What each member's choice rests on (its running accuracy); NaN where there is no choice."""
        ...

    def predict(self, images: Tensor) -> Tensor:
        """Logits for uint8 images N x 3 x H x W, in float32; changes nothing that shows in later results."""
        ...

    def learn(self, batch: TrainBatch, step: int) -> LearnResult:
        """Learn from one step's samples, which `predict` has just been shown."""
        ...

    def weights(self) -> State:
        """The weights that predict, to be kept and evaluated later."""
        ...

    def load_weights(self, weights: State) -> None:
        """Predict with these weights from now on."""
        ...

    def state(self) -> State:
        """Everything that `load` needs to go on as if nothing had happened."""
        ...

    def load(self, state: State) -> None:
        """Become the learner that `state` came from."""
        ...


@runtime_checkable
class LooksAhead(Protocol):
    """A learner that can use the time of a prediction for what it learns from next."""

    def expect(self, view: TrainView) -> None:
        """Before `predict`: the first view of the `learn` that follows, without its labels."""
        ...
