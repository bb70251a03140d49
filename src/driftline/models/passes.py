"""The forward and backward pass of our own networks, written out, so that images to be predicted and images to be learned from share a
forward pass.

In: images, of which the first so many are only predicted. Out: logits of both; gradients flow back through the second ones alone.
Autograd would differentiate all of them. The operations are those that it runs, some of them arranged better for a processor, and results
are the same to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from driftline.models.resnet import Block, ResNet
from driftline.models.weight_gradient import MOST_PIXELS, weight_gradient

aten = torch.ops.aten
Back = Callable[[Tensor], Tensor]
"""From the gradient of what a layer gave to the gradient of what it got; gradients of weights are put aside on the way."""


class Passes(nn.Module):
    """Both passes of a network with group norm, whose weights they share.

    >>> from driftline.models.resnet import resnet_tiny
    >>> model = resnet_tiny(10, "group")
    >>> images = torch.randn(3, 3, 32, 32)
    >>> predicted, learned = Passes(model)(images, 1)
    >>> bool(torch.allclose(learned, model(images[1:]), atol=1e-5)), predicted.requires_grad
    (True, False)
    >>> learned.sum().backward()
    >>> model.head.bias.grad.tolist() == [2.0] * 10
    True
    """

    def __init__(self, model: ResNet) -> None:
        super().__init__()
        self.model = model
        self._weights = list(model.parameters())
        stem = list(model.stem)
        self._stem = self._layer(stem[0], stem[1], is_first=True)
        self._pools = isinstance(stem[-1], nn.MaxPool2d)
        self._blocks = [self._block(block) for block in model.blocks]
        self._head = self._numbers(model.head)

    @staticmethod
    def of(model: nn.Module) -> Passes | None:
        """The passes of a model that is one of ours and normalised by groups; None for any other.

        >>> Passes.of(nn.Linear(2, 2)) is None
        True
        """
        by_batch = any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
        return Passes(model) if type(model) is ResNet and not by_batch else None

    def forward(
        self, images: Tensor, num_predicted: int, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits in float32 of the first so many images, without gradient, and of the others; computed in the precision of the parameters, or
        in a lower one.
        """
        predicted, learned = _Run.apply(self, images, num_predicted, dtype, *self._weights)  # type: ignore[no-untyped-call]
        return predicted, learned

    # -- structure

    def _numbers(self, *modules: nn.Module) -> list[int]:
        """Where the parameters of modules stand among those of the network."""
        numbers = {id(parameter): i for i, parameter in enumerate(self._weights)}
        return [numbers[id(parameter)] for module in modules for parameter in module.parameters()]

    def _layer(self, conv: nn.Module, norm: nn.Module, *, is_first: bool = False) -> _Layer:
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.GroupNorm)
        weight, scale, shift = self._numbers(conv, norm)
        return _Layer(
            weight, scale, shift, conv.kernel_size[0], conv.stride[0], norm.num_groups, norm.eps, is_first
        )

    def _block(self, block: nn.Module) -> tuple[list[_Layer], _Layer | None]:
        assert isinstance(block, Block)
        layers = [self._layer(conv, norm) for conv, norm in zip(block.convs, block.norms, strict=True)]
        around = block.shortcut
        return layers, self._layer(*around) if isinstance(around, nn.Sequential) else None

    # -- passes

    def run(self, images: Tensor, tape: _Tape) -> Tensor:
        """Logits of all images; the tape takes what the way back needs."""
        x = tape.rectified(self._stem.forward(images, tape))
        if self._pools:
            x = tape.pooled(x)
        for layers, around in self._blocks:
            x = _through_block(x, layers, around, tape)
        height, width = x.shape[2:]
        features = x.mean(dim=(2, 3))
        weight, bias = (tape.weights[i] for i in self._head)
        kept = features[tape.skipped :]

        def back(gradient: Tensor) -> Tensor:
            tape.gradients[self._head[0]] = gradient.t() @ kept
            tape.gradients[self._head[1]] = gradient.sum(dim=0)
            spread = (gradient @ weight).div_(height * width)
            return spread[:, :, None, None].expand(-1, -1, height, width)

        tape.backs.append(back)
        return torch.addmm(bias.to(features.dtype), features, weight.t())


class _Tape:
    """What the backward pass needs: the steps back, in the order of the forward pass."""

    def __init__(self, weights: list[Tensor], skipped: int) -> None:
        self.weights = weights
        self.skipped = skipped
        """So many rows of everything are predicted only."""
        self.backs: list[Back] = []
        self.gradients: list[Tensor] = list(weights)

    def branch(self) -> _Tape:
        """A tape for a part of the network; gradients are put aside in the same place."""
        part = _Tape(self.weights, self.skipped)
        part.gradients = self.gradients
        return part

    def rewind(self, gradient: Tensor) -> Tensor:
        """Through all steps back."""
        while self.backs:
            gradient = self.backs.pop()(gradient)
        return gradient

    def rectified(self, x: Tensor) -> Tensor:
        """Negative values become zero, in place."""
        kept = x.relu_()[self.skipped :]
        self.backs.append(lambda gradient: aten.threshold_backward.default(gradient, kept, 0))
        return x

    def pooled(self, x: Tensor) -> Tensor:
        """The largest of 3 x 3, every second one."""
        size, stride, padding = [3, 3], [2, 2], [1, 1]
        kept = x[self.skipped :]
        # With the channels last it takes a third of the time, changes of layout included; the results are the same.
        y, places = aten.max_pool2d_with_indices.default(
            x.contiguous(memory_format=torch.channels_last), size, stride, padding
        )
        places = places[self.skipped :].contiguous()
        self.backs.append(
            lambda gradient: aten.max_pool2d_with_indices_backward.default(
                gradient, kept, size, stride, padding, [1, 1], False, places
            )
        )
        pooled: Tensor = y.contiguous()
        return pooled


@dataclass(frozen=True)
class _Layer:
    """A convolution and the norm after it; parameters by their numbers."""

    weight: int
    scale: int
    shift: int
    kernel: int
    stride: int
    groups: int
    eps: float
    is_first: bool
    """Nobody asks for the gradient of its input."""

    @property
    def sees(self) -> slice:
        """The rows and columns of its input that it looks at: a kernel of one pixel passes over the others."""
        return slice(None, None, self.stride if self.kernel == 1 else 1)

    def forward(self, x: Tensor, tape: _Tape) -> Tensor:
        """Convolved and normed; the step back gives the gradient of those pixels that the layer sees."""
        weight, scale = tape.weights[self.weight], tape.weights[self.scale]
        x = x[:, :, self.sees, self.sees].contiguous()
        stride = 1 if self.kernel == 1 else self.stride
        how = ([stride] * 2, [self.kernel // 2] * 2, [1, 1], False, [0, 0], 1)
        convolved = torch.convolution(x, weight, None, *how)
        num, channels, height, width = convolved.shape
        shape = (channels, height * width, self.groups)
        normed, mean, spread = torch.native_group_norm(
            convolved, scale, tape.weights[self.shift], num, *shape, self.eps
        )
        x, convolved, mean, spread = (kept[tape.skipped :] for kept in (x, convolved, mean, spread))

        def back(gradient: Tensor) -> Tensor:
            gradient, for_scale, for_shift = aten.native_group_norm_backward.default(
                gradient, convolved, mean, spread, scale, len(convolved), *shape, [True] * 3
            )
            # In full precision results stay those of autograd to the bit, also where several processes divide a batch.
            few = height * width <= MOST_PIXELS and gradient.dtype == torch.bfloat16
            by_pairs = weight_gradient(gradient, x, self.kernel, stride) if few else None
            gradient, by_convolution, _ = aten.convolution_backward.default(
                gradient, x, weight, None, *how, [not self.is_first, not few, False]
            )
            tape.gradients[self.weight] = by_convolution if by_pairs is None else by_pairs
            tape.gradients[self.scale], tape.gradients[self.shift] = for_scale, for_shift
            return gradient

        tape.backs.append(back)
        return normed


def _through_block(x: Tensor, layers: Sequence[_Layer], around: _Layer | None, tape: _Tape) -> Tensor:
    through, beside = tape.branch(), tape.branch()
    y = x
    for i, layer in enumerate(layers):
        y = layer.forward(y, through)
        if i < len(layers) - 1:
            y = through.rectified(y)
    y += around.forward(x, beside) if around else x

    def back(gradient: Tensor) -> Tensor:
        total = through.rewind(gradient)
        seen = around.sees if around else slice(None)
        total[:, :, seen, seen] += beside.rewind(gradient)
        return total

    tape.backs.append(back)
    return tape.rectified(y)


class _Run(torch.autograd.Function):
    """A network's passes as one operation of autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        passes: Passes,
        images: Tensor,
        num_predicted: int,
        dtype: torch.dtype | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Logits of the predicted images and of the others."""
        # Scales and shifts of norms stay in full precision, as under autocast.
        ctx.dtype = dtype or parameters[0].dtype
        weights = [p.to(ctx.dtype) if p.dim() > 1 else p.detach() for p in parameters]
        ctx.tape = _Tape(weights, num_predicted)
        ctx.full = parameters[0].dtype
        logits = passes.run(images.to(ctx.dtype), ctx.tape).float()
        predicted, learned = logits[:num_predicted], logits[num_predicted:].clone()
        ctx.mark_non_differentiable(predicted)
        return predicted, learned

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the parameters, by the images that are learned from."""
        ctx.tape.rewind(gradients[1].to(ctx.dtype))
        # In full precision, laid out as parameters are; where the precision stays, `to` would leave the layout.
        found = [
            g.to(ctx.full, memory_format=torch.contiguous_format) if g.dtype != ctx.full else g.contiguous()
            for g in ctx.tape.gradients
        ]
        return (None, None, None, None, *found)
