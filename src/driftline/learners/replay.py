"""Experience replay, alone or as a population: SGD on the stream batch joined with a replay batch.

In: uint8 batches. Out: logits and training statistics. One member with a fixed schedule is plain experience replay; several
under `RateSearch` are PoLRS. All members see the same batches, which are fetched and put on the device once.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from driftline.learners.base import LearnResult, State, TrainBatch
from driftline.learners.schedules import RateSearch
from driftline.streams.fetch import TrainView
from driftline.streams.views import crop_batch
from driftline.types import DriftlineError

MEAN, STD = 0.45 * 255, 0.25 * 255
"""Pixels are shifted and scaled by these, alike in all channels, so that they lie around 0."""


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

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The context in which the model runs."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

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
        scaled = on_device.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
        return scaled.sub_(MEAN).div_(STD)


def _has_bfloat16(device: torch.device) -> bool:
    """Whether 16-bit arithmetic is faster than 32-bit there, not merely possible."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@dataclass
class Member:
    """One model with its optimizer."""

    model: nn.Module
    optimizer: torch.optim.SGD

    def set_rate(self, lr: float) -> None:
        """The rate of the next update."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def forget_momentum(self) -> None:
        """Start the optimizer afresh."""
        self.optimizer.state.clear()


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
    ) -> None:
        self.search = rate if isinstance(rate, RateSearch) else None
        self._rate_at = None if isinstance(rate, RateSearch) else rate
        self.num_members = self.search.num_members if self.search else 1
        self.arithmetic = arithmetic
        self.size = size
        self._rates = self.search.rates if self.search else [rate(0)]  # type: ignore[operator]
        self._logits: list[Tensor] = []
        self.members = []
        for _ in range(self.num_members):
            model = build().to(arithmetic.device)
            optimizer = torch.optim.SGD(
                model.parameters(),
                lr=self._rates[0],
                momentum=momentum,
                weight_decay=weight_decay,
                foreach=True,
            )
            self.members.append(Member(model, optimizer))

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

    def predict(self, images: Tensor) -> Tensor:
        """Logits of the member that predicts; the other members' are kept to judge them by once labels are known."""
        pixels = self.arithmetic.pixels(images)
        self._logits = [self._forward(member.model, pixels) for member in self.members]
        return self._logits[self.member]

    def _forward(self, model: nn.Module, pixels: Tensor) -> Tensor:
        model.eval()
        with torch.no_grad(), self.arithmetic.autocast():
            logits: Tensor = model(pixels)
        return logits.float()

    # -- learn

    def learn(self, batch: TrainBatch, step: int) -> LearnResult:
        """`len(batch.views)` gradient steps for every member."""
        labels = batch.labels.to(self.arithmetic.device, non_blocking=True)
        weights = _sample_weights(batch, self.arithmetic.device)
        if self._rate_at:
            self._rates = [self._rate_at(step)]
        rates = tuple(self._rates)
        results: list[LearnResult] = []
        for gd_step, view in enumerate(batch.views):
            pixels = self._pixels(view)
            for j, member in enumerate(self.members):
                member.set_rate(rates[j])
                loss, logits = self._update(member, pixels, labels, weights)
                if gd_step == 0:
                    results.append(_result(loss, logits, labels, batch.num_stream))
        chosen = replace(results[self.member], rates=rates)
        if self.search:
            self._judge(labels[: batch.num_stream], step)
        return replace(chosen, finite_weights=_all_finite(self.members[self.member].model))

    def _pixels(self, view: TrainView) -> Tensor:
        images = view.images.to(self.arithmetic.device, non_blocking=True)
        if view.crops is not None:
            images = crop_batch(images, view.crops, self.size)
        return self.arithmetic.pixels(images)

    def _update(
        self, member: Member, pixels: Tensor, labels: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        member.model.train()
        with self.arithmetic.autocast():
            logits = member.model(pixels)
        logits = logits.float()
        loss = (nn.functional.cross_entropy(logits, labels, reduction="none") * weights).sum()
        member.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        member.optimizer.step()
        return loss.detach(), logits.detach()

    def _judge(self, labels: Tensor, step: int) -> None:
        """Line 4 to 9 of Alg. 1: the members' metrics, and now and then a new start from the best."""
        assert self.search is not None
        # A member that has diverged guesses at random: it must not be chosen by luck.
        accuracies = [
            _accuracy(logits, labels) if bool(torch.isfinite(logits).all()) else 0.0
            for logits in self._logits
        ]
        best = self.search.update(step=step, accuracies=accuracies)
        self._rates = self.search.rates
        if best is None:
            return
        weights = self.members[best].model.state_dict()
        for j, member in enumerate(self.members):
            if j != best:
                member.model.load_state_dict(weights)
            member.forget_momentum()

    # -- state

    def weights(self) -> State:
        """A copy of the weights of the member that predicts."""
        return _copied(self.members[self.member].model.state_dict())

    def load_weights(self, weights: State) -> None:
        """Predict with these weights."""
        self.members[self.member].model.load_state_dict(weights)

    def state(self) -> State:
        """Weights and momentum of every member, and the state of the search."""
        return {
            "models": [_copied(member.model.state_dict()) for member in self.members],
            "momentum": [self._momentum(member) for member in self.members],
            "search": self.search.state() if self.search else {},
            "rates": list(self._rates),
        }

    def _momentum(self, member: Member) -> list[Tensor | None]:
        """None for a parameter that has not been updated since its momentum was last forgotten."""
        buffers = [
            member.optimizer.state.get(p, {}).get("momentum_buffer") for p in member.model.parameters()
        ]
        return [None if b is None else b.detach().cpu().clone() for b in buffers]

    def load(self, state: State) -> None:
        """Restore."""
        for member, weights, momentum in zip(self.members, state["models"], state["momentum"], strict=True):
            member.model.load_state_dict(weights)
            member.forget_momentum()
            for parameter, buffer in zip(member.model.parameters(), momentum, strict=True):
                if buffer is not None:
                    # In the parameter's memory layout: arithmetic on another one may round differently.
                    kept = torch.empty_like(parameter).copy_(buffer)
                    member.optimizer.state[parameter]["momentum_buffer"] = kept
        self._rates = list(state["rates"])
        if self.search:
            self.search.load(state["search"])


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _all_finite(model: nn.Module) -> bool:
    """Whether all weights are finite numbers: one norm a tensor, each weight only where a norm is not finite."""
    weights = [parameter.detach() for parameter in model.parameters()]
    if bool(torch.isfinite(torch.stack(torch._foreach_norm(weights)).sum())):
        return True
    return all(bool(torch.isfinite(weight).all()) for weight in weights)


def _sample_weights(batch: TrainBatch, device: torch.device) -> Tensor:
    """Weights that make the loss half the mean over the stream plus half the mean over the replay."""
    num_replay = len(batch.labels) - batch.num_stream
    parts: Sequence[tuple[int, float]] = [(batch.num_stream, 0.5), (num_replay, 0.5)]
    present = [(num, share) for num, share in parts if num]
    scale = 1 / sum(share for _, share in present)
    return torch.cat([torch.full((num,), scale * share / num, device=device) for num, share in present])


def _result(loss: Tensor, logits: Tensor, labels: Tensor, num_stream: int) -> LearnResult:
    has_replay = len(labels) > num_stream
    acc_replay = _accuracy(logits[num_stream:], labels[num_stream:]) if has_replay else None
    return LearnResult(float(loss), _accuracy(logits[:num_stream], labels[:num_stream]), acc_replay)


def _accuracy(logits: Tensor, labels: Tensor) -> float:
    if not len(labels):
        return math.nan
    return float((logits.argmax(dim=1) == labels).float().mean())
