"""Experience replay, alone or as a population: SGD on the stream batch joined with a replay batch.

In: uint8 batches. Out: logits and training statistics. One member with a fixed schedule is plain experience replay; several
under `RateSearch` are PoLRS. All members see the same batches, which are fetched and put on the device once.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
from torch import Tensor, nn

from driftline.learners.base import LearnResult, State, TrainBatch
from driftline.learners.lanes import Lanes
from driftline.learners.schedules import RateSearch
from driftline.learners.seen import Seen, start_sums
from driftline.learners.team import Team
from driftline.models.passes import Passes
from driftline.models.synced_norm import SyncedBatchNorm, synchronise
from driftline.streams.fetch import TrainView
from driftline.streams.views import crop_batch
from driftline.types import DriftlineError

MEAN, STD = 0.45 * 255, 0.25 * 255
"""Pixels are shifted and scaled by these, alike in all channels, so that they lie around 0."""
LARGEST_BY_HAND = 64
"""Networks on larger images leave their passes to autograd: there is nothing to save by sharing them."""
MOST_SHARED_PIXELS = 2**22
"""With more than that to learn from, over all members, images are predicted by themselves: what is computed for them would stay in memory until they have
learned, and little is saved by computing still more at once."""


@dataclass(frozen=True)
class Arithmetic:
    """Where and how the model computes."""

    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def choose(device: str, precision: str) -> Arithmetic:
        """The device and precision that the settings mean on this machine.

        >>> Arithmetic.choose("cpu", "float32").dtype
        torch.float32
        """
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            chosen = torch.device(device)
        except RuntimeError:
            chosen = torch.device("meta")
        if chosen.type not in ("cpu", "cuda"):
            raise DriftlineError(f"device = {device!r}: choose auto, cpu, cuda or cuda:N")
        if chosen.type == "cuda" and not torch.cuda.is_available():
            raise DriftlineError(f"device = {device!r}: this machine has no usable GPU, use --device cpu")
        if precision == "auto":
            precision = "bfloat16" if _has_bfloat16(chosen) else "float32"
        return Arithmetic(chosen, getattr(torch, precision))

    @property
    def lower(self) -> torch.dtype | None:
        """The precision of products, where it is lower than that of the weights.

        >>> Arithmetic.choose("cpu", "float32").lower is None
        True
        """
        return None if self.dtype == torch.float32 else self.dtype

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The context in which the model runs."""
        if self.lower is None:
            return contextlib.nullcontext()
        # No weight is used twice in a forward pass, and what is kept for a second use all threads would share.
        return torch.autocast(self.device.type, self.dtype, cache_enabled=False)

    @property
    def name(self) -> str:
        """How results computed this way are named in the summary.

        >>> Arithmetic.choose("cpu", "float32").name
        'float32, contiguous'
        """
        kind = (
            "float32" if self.dtype == torch.float32 else f"{str(self.dtype).removeprefix('torch.')} autocast"
        )
        return f"{kind}, contiguous"

    def pixels(self, images: Tensor) -> Tensor:
        """uint8 or float images on the device, scaled for the model.

        Contiguous, not channels-last: there group norm in 16 bits takes 15 times as long (docs/benchmarks.md).
        """
        on_device = images.to(self.device, non_blocking=True)
        return on_device.to(torch.float32, memory_format=torch.contiguous_format).sub(MEAN).div_(STD)


def _has_bfloat16(device: torch.device) -> bool:
    """Whether 16-bit arithmetic is faster than 32-bit there, not merely possible."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


Gradients = tuple[Tensor, ...]


class PlainSGD(torch.optim.SGD):
    """Torch's SGD without its provisions for compiled code, whose first use imports the compiler: a second of start-up.

    >>> model = nn.Linear(2, 1)
    >>> PlainSGD(model.parameters(), lr=0.1).param_groups[0]["lr"]
    0.1
    """

    add_param_group = inspect.unwrap(torch.optim.SGD.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.SGD.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


@dataclass
class Member:
    """One model with its optimizer."""

    number: int
    model: nn.Module
    optimizer: torch.optim.SGD
    training: nn.Module
    """The model or its passes, or what sums their gradients over the processes that train it together."""
    norms: list[SyncedBatchNorm]
    """Its batch norm layers, where they take their statistics from several processes."""
    by_hand: bool
    """Whether `training` is `Passes`, which predicts as well."""

    def set_rate(self, lr: float) -> None:
        """The rate of the next update."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def update(self, parts: Sequence[Gradients]) -> None:
        """One step of SGD with the sum of the gradients of a batch's parts."""
        total = list(parts[0])
        for part in parts[1:]:
            torch._foreach_add_(total, list(part))
        for parameter, gradient in zip(self.model.parameters(), total, strict=True):
            parameter.grad = gradient
        self.optimizer.step()

    def forget_momentum(self) -> None:
        """Start the optimizer afresh."""
        self.optimizer.state.clear()


@dataclass(frozen=True)
class Learned:
    """What rows of a batch showed to a member, before its update."""

    loss: float
    logits: Tensor
    gradients: Gradients = ()
    """Empty once the member has been updated."""


class ReplayLearner:
    """One or several models that learn by SGD from stream and replay samples."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        *,
        arithmetic: Arithmetic,
        size: int,
        momentum: float,
        weight_decay: float,
        rate: Callable[[int], float] | RateSearch,
        team: Team | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        self.search = rate if isinstance(rate, RateSearch) else None
        self._rate_at = None if isinstance(rate, RateSearch) else rate
        self.num_members = self.search.num_members if self.search else 1
        self.arithmetic = arithmetic
        self.size = size
        self._rates = self.search.rates if self.search else [rate(0)]  # type: ignore[operator]
        self.team = team or Team.alone(self.num_members)
        self.lanes = lanes or Lanes()
        """Two only for models that compute each image by itself."""
        self._logits: list[Tensor] = []
        self.members: list[Member] = []
        """Those that learn in this process: all, unless several processes share them out."""
        # Written out, a backward pass needs the interpreter all the time, for which two lanes would wait in turn.
        by_hand = arithmetic.device.type == "cpu" and not self.lanes.are_two and size <= LARGEST_BY_HAND
        for number in self.team.ranks.members:
            model = build().to(arithmetic.device)
            is_divided = self.team.ranks.parts > 1
            norms = synchronise(model, self.team.norm_group(number)) if is_divided else []
            optimizer = PlainSGD(
                model.parameters(),
                lr=self._rates[0],
                momentum=momentum,
                weight_decay=weight_decay,
                fused=True,
            )
            passes = Passes.of(model) if by_hand else None
            training = self.team.divided(passes or model, number)
            self.members.append(Member(number, model, optimizer, training, norms, passes is not None))
        self._expected: TrainView | None = None
        self._begun: tuple[TrainView, list[Tensor]] | None = None
        """What is to be learned from next, and every member's logits of it, where they were computed along with a prediction."""

    @property
    def precision(self) -> str:
        """How results are computed, for the summary."""
        return self.arithmetic.name

    @property
    def member(self) -> int:
        """The member that predicts for the record."""
        return self.search.best if self.search else 0

    @property
    def rates(self) -> list[float]:
        """Learning rate of each member."""
        return list(self._rates)

    @property
    def metrics(self) -> list[float]:
        """Running accuracy of each member of a population."""
        return list(self.search.metrics) if self.search else [math.nan]

    # -- predict

    def expect(self, view: TrainView) -> None:
        """Where it pays, what `learn` begins with shares the forward pass of the prediction."""
        num_pixels = len(view.images) * self.size**2 * len(self.members)
        shares = self.members[0].by_hand and 0 < num_pixels <= MOST_SHARED_PIXELS
        self._expected = view if shares else None

    def predict(self, images: Tensor) -> Tensor:
        """Logits of the member that predicts; the other members' are kept to judge them by once labels are known."""
        expected, self._expected = self._expected, None
        if not len(images):  # this process has no part in a small last batch
            self._logits = [torch.empty(0, 1) for _ in self.members]
        elif expected:
            self._logits = self._predict_and_begin(images, expected)
        else:
            pixels = self._over_rows(lambda rows: self.arithmetic.pixels(images[rows]), len(images))
            parts = self.lanes.map(partial(self._forward, pixels), len(self.members), len(images))
            self._logits = [torch.cat(of_member) for of_member in parts]
        return self._logits[self._here(self.member)]

    def _predict_and_begin(self, images: Tensor, view: TrainView) -> list[Tensor]:
        """Every member's predictions, from the forward pass in which it begins to learn."""
        parts = [self.arithmetic.pixels(images), self._pixels(view, slice(None))]
        lower = self.arithmetic.lower
        pixels = torch.cat([part.to(lower) if lower else part for part in parts])
        both = [member.training(pixels, len(images), lower) for member in self.members]
        self._begun = view, [logits for _, logits in both]
        return [predicted for predicted, _ in both]

    def _over_rows(self, job: Callable[[slice], Tensor], num: int) -> Tensor:
        """A tensor whose rows are computed in all lanes."""
        (parts,) = self.lanes.map(lambda _, rows: job(rows), 1, num)
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _here(self, number: int) -> int:
        """Where a member stands among those of this process; the first stands in for one that is elsewhere."""
        members = self.team.ranks.members
        return members.index(number) if number in members else 0

    def _forward(self, pixels: Tensor, index: int, rows: slice) -> Tensor:
        model = self.members[index].model
        model.eval()
        with torch.no_grad(), self.arithmetic.autocast():
            logits: Tensor = model(pixels[rows])
        return logits.float()

    # -- learn

    def learn(self, batch: TrainBatch, step: int) -> LearnResult:
        """`len(batch.views)` gradient steps for every member."""
        is_real = len(batch.labels) > 0
        batch = batch if is_real else _stand_in(batch, self.size)
        labels = batch.labels.to(self.arithmetic.device, non_blocking=True)
        weights = _sample_weights(batch, self.arithmetic.device) if is_real else torch.zeros_like(labels)
        if self._rate_at:
            self._rates = [self._rate_at(step)]
        rates = tuple(self._rates)
        seen = [Seen() for _ in self.members]
        for member in self.members:
            member.model.train()
            member.set_rate(rates[member.number])
            for norm in member.norms:
                norm.counts = is_real
        if self.search and is_real:
            for its, predicted in zip(seen, self._logits, strict=True):
                its.predictions(predicted, labels[: batch.num_stream])
        totals: Callable[[], list[Seen]] | None = None

        def before_backward(index: int, learned: Learned) -> None:
            nonlocal totals
            if index == 0:
                batch.meanwhile()
            if self.team.size > 1:  # the sums travel while the gradients are computed
                if is_real:
                    seen[index].training(learned.loss, learned.logits, labels, batch.num_stream)
                if index + 1 == len(self.members):
                    totals = start_sums(seen, self.team)

        for gd_step, view in enumerate(batch.views):
            logits_of = self._logits_to_learn(view, len(labels))
            job = partial(
                self._learn_rows, logits_of, labels, weights, _nothing if gd_step else before_backward
            )
            learned = self.lanes.map(job, len(self.members), len(labels))
            for member, its, parts in zip(self.members, seen, learned, strict=True):
                if len(parts) > 1:
                    member.update([part.gradients for part in parts])
                if gd_step == 0 and self.team.size == 1:
                    logits = torch.cat([part.logits for part in parts])
                    its.training(sum(part.loss for part in parts), logits, labels, batch.num_stream)
        totals = totals or start_sums(seen, self.team)
        return replace(self._judge(batch, totals(), step), rates=rates)

    def _pixels(self, view: TrainView, rows: slice) -> Tensor:
        images = view.images[rows].to(self.arithmetic.device, non_blocking=True)
        if view.crops is None:
            return self.arithmetic.pixels(images)
        return crop_batch(images, view.crops[rows], self.size, self.arithmetic.dtype, mean=MEAN, std=STD)

    def _logits_to_learn(self, view: TrainView, num: int) -> Callable[[int, slice], Tensor]:
        """What gives the logits of a member for some rows."""
        begun, self._begun = self._begun, None
        if begun and begun[0] is view:
            logits = begun[1]
            return lambda index, rows: logits[index][rows]
        pixels = self._over_rows(partial(self._pixels, view), num)
        return partial(self._forward_to_learn, pixels)

    def _forward_to_learn(self, pixels: Tensor, index: int, rows: slice) -> Tensor:
        member = self.members[index]
        logits: Tensor
        if member.by_hand:
            _, logits = member.training(pixels[rows], 0, self.arithmetic.lower)
            return logits
        with self.arithmetic.autocast():
            logits = member.training(pixels[rows])
        return logits.float()

    def _learn_rows(
        self,
        logits_of: Callable[[int, slice], Tensor],
        labels: Tensor,
        weights: Tensor,
        before_backward: Callable[[int, Learned], None],
        index: int,
        rows: slice,
    ) -> Learned:
        """Update a member; or, where it learns from these rows only, give the gradients for the rest of the batch to join."""
        member = self.members[index]
        logits = logits_of(index, rows)
        losses = nn.functional.cross_entropy(logits, labels[rows], reduction="none")
        loss = (losses * weights[rows]).sum()
        learned = Learned(float(loss.detach()), logits.detach())
        before_backward(index, learned)
        if len(logits) < len(labels):
            return replace(learned, gradients=torch.autograd.grad(loss, list(member.model.parameters())))
        member.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        member.optimizer.step()
        return learned

    def _judge(self, batch: TrainBatch, totals: list[Seen], step: int) -> LearnResult:
        """What the step showed over all processes, and what PoLRS makes of it."""
        num_stream, num_replay = batch.totals
        result = totals[self.member].result(num_stream, num_replay)
        if self.search:
            best = self.search.update(step=step, accuracies=[its.accuracy(num_stream) for its in totals])
            self._rates = self.search.rates
            if best is not None:
                self._copy_to_all(best)
        return result

    def _copy_to_all(self, best: int) -> None:
        """Lines 6 to 9 of Alg. 1: all start again from the best."""
        source = self._here(best)
        weights = self.members[source].model.state_dict()
        self.team.spread(list(weights.values()), best)
        for j, member in enumerate(self.members):
            if j != source:
                member.model.load_state_dict(weights)
            member.forget_momentum()

    # -- state

    def weights(self) -> State:
        """A copy of the weights of the member that predicts (of several processes, the first one has it)."""
        return self._copied_weights(self.member)

    def _copied_weights(self, number: int) -> State:
        tensors = self.members[self._here(number)].model.state_dict()
        return dict(zip(tensors, self.team.to_first(list(tensors.values()), number), strict=False))

    def load_weights(self, weights: State) -> None:
        """Predict with these weights."""
        self._begun = None
        self.members[self._here(self.member)].model.load_state_dict(weights)

    def state(self) -> State:
        """Weights and momentum of every member, and the state of the search (of several processes, the first has it)."""
        numbers = range(self.num_members)
        return {
            "models": [self._copied_weights(number) for number in numbers],
            "momentum": [self._copied_momentum(number) for number in numbers],
            "search": self.search.state() if self.search else {},
            "rates": list(self._rates),
        }

    def _copied_momentum(self, number: int) -> list[Tensor | None]:
        """None for a parameter that has not been updated since its momentum was last forgotten."""
        member = self.members[self._here(number)]
        buffers = [
            member.optimizer.state.get(p, {}).get("momentum_buffer") for p in member.model.parameters()
        ]
        copies = iter(self.team.to_first([b for b in buffers if b is not None], number))
        return [None if b is None else next(copies, None) for b in buffers]

    def load(self, state: State) -> None:
        """Restore."""
        self._begun = None
        for member in self.members:
            momentum = state["momentum"][member.number]
            member.model.load_state_dict(state["models"][member.number])
            member.forget_momentum()
            for parameter, buffer in zip(member.model.parameters(), momentum, strict=True):
                if buffer is not None:
                    # In the parameter's memory layout: arithmetic on another one may round differently.
                    kept = torch.empty_like(parameter).copy_(buffer)
                    member.optimizer.state[parameter]["momentum_buffer"] = kept
        self._rates = list(state["rates"])
        if self.search:
            self.search.load(state["search"])


def _nothing(index: int, learned: Learned) -> None:
    """What there is to do before later backward passes of a step."""


def _sample_weights(batch: TrainBatch, device: torch.device) -> Tensor:
    """Weights that make the loss half the mean over the stream plus half the mean over the replay, of all processes."""
    return _weights(batch.num_stream, len(batch.labels) - batch.num_stream, batch.totals, device)


@lru_cache(maxsize=8)
def _weights(num_stream: int, num_replay: int, totals: tuple[int, int], device: torch.device) -> Tensor:
    """The same step after step, but for the first and the last."""
    present = [(num, total) for num, total in zip((num_stream, num_replay), totals, strict=True) if total]
    share = 1 / len(present)
    return torch.cat([torch.full((num,), share / total, device=device) for num, total in present])


def _stand_in(batch: TrainBatch, size: int) -> TrainBatch:
    """One blank image, to be weighted by nothing: a process without samples takes part in the sums of the others."""
    blank = TrainView(torch.zeros(1, 3, size, size, dtype=torch.uint8), None)
    return replace(batch, views=[blank] * len(batch.views), labels=torch.zeros(1, dtype=torch.int64))
