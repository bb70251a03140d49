"""Batch normalisation over all processes that share a batch: as if one process had the whole batch.

In: a model with batch norm layers and the process group. Out: the same model whose layers take their statistics from the samples of
all processes, counted exactly where parts are unequal. It works with gloo too, where torch's SyncBatchNorm does not.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class SyncedBatchNorm(nn.BatchNorm2d):
    """nn.BatchNorm2d whose batch is spread over the ranks of a group. Weights and buffers keep their names."""

    def __init__(self, original: nn.BatchNorm2d, group: dist.ProcessGroup) -> None:
        super().__init__(original.num_features, original.eps, original.momentum, original.affine)
        self.load_state_dict(original.state_dict())
        self.group = group
        self.counts = True
        """False while this rank's samples are a stand-in that must not enter the statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalised by mean and variance over all ranks' samples, which also move the running averages."""
        if not self.training:
            return super().forward(x)
        values = x.float()
        weight = 1.0 if self.counts else 0.0
        num_here = values.new_full((1,), weight * (values.numel() // self.num_features))
        sums = _summed(torch.cat([weight * values.sum(dim=(0, 2, 3)), num_here]), self.group)
        num = sums[-1].detach()
        mean = sums[:-1] / num
        centred = values - mean[:, None, None]
        # Two passes: the difference of two large sums would lose what torch's own layer keeps.
        squares = _summed(weight * centred.square().sum(dim=(0, 2, 3)), self.group)
        variance = squares / num
        self._follow(mean.detach(), (squares / (num - 1)).detach())
        scale = torch.rsqrt(variance + self.eps) * self.weight
        normalised: Tensor = centred * scale[:, None, None] + self.bias[:, None, None]
        return normalised.to(x.dtype)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance, momentum)


class Summed(torch.autograd.Function):
    """The sum over a group of ranks; the gradient of the ranks' summed losses flows back through it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Sum of all ranks' values."""
        ctx.group = group
        total = values.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Each rank's value reached every rank's loss."""
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def _summed(values: Tensor, group: dist.ProcessGroup) -> Tensor:
    total: Tensor = Summed.apply(values, group)  # type: ignore[no-untyped-call]
    return total


def synchronise(model: nn.Module, group: dist.ProcessGroup) -> list[SyncedBatchNorm]:
    """Replace the batch norm layers of a model; the new layers."""
    found: list[SyncedBatchNorm] = []
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.BatchNorm2d) and not isinstance(layer, SyncedBatchNorm):
                synced = SyncedBatchNorm(layer, group)
                setattr(parent, name, synced)
                found.append(synced)
    return found
