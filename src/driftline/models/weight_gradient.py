"""The gradient of a convolution's weights where its output has few pixels.

In: the gradient of the output, and the input. Out: that of the weights, the same as `convolution_backward` gives to rounding. Each place of
the kernel joins some pairs of an output pixel and an input pixel; with the pixels first in memory these are products of plain matrices, and
places of equally many pairs are computed together. On 2 x 2 pixels that takes a third of oneDNN's time, which pads them to 4 x 4.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

MOST_PIXELS = 16
"""Of an output for which this pays in 16 bits (docs/benchmarks.md)."""


@dataclass(frozen=True)
class Pairs:
    """Which pixels belong together, ordered by how many pairs a place of the kernel has."""

    outputs: Tensor
    inputs: Tensor
    groups: list[tuple[slice, int]]
    """Pairs of the places with equally many, and how many places these are."""
    order: Tensor
    """Where each place of the kernel is among the groups' places."""


@functools.lru_cache(maxsize=64)
def pairs(side: int, kernel: int, stride: int) -> Pairs:
    """Pairs of pixels for a square image, by their numbers.

    >>> found = pairs(2, kernel=3, stride=1)
    >>> [(len(found.outputs[part]), num) for part, num in found.groups]
    [(4, 4), (8, 4), (4, 1)]
    """
    padding = kernel // 2
    side_out = (side + 2 * padding - kernel) // stride + 1
    along = [
        [
            (at, at * stride + tap - padding)
            for at in range(side_out)
            if 0 <= at * stride + tap - padding < side
        ]
        for tap in range(kernel)
    ]
    places = [
        [(y * side_out + x, v * side + u) for (y, v), (x, u) in product(along[down], along[across])]
        for down, across in product(range(kernel), repeat=2)
    ]
    by_size = sorted(range(len(places)), key=lambda place: len(places[place]))
    ordered = [pair for place in by_size for pair in places[place]]
    groups, stop = [], 0
    for size in sorted({len(place) for place in places}):
        num = sum(len(place) == size for place in places)
        groups.append((slice(stop, stop := stop + num * size), num))
    outputs, inputs = torch.tensor(ordered).T
    return Pairs(outputs, inputs, groups, torch.tensor(by_size).argsort())


def weight_gradient(gradient: Tensor, x: Tensor, kernel: int, stride: int) -> Tensor:
    """The gradient of the weights of a convolution of square images, from the gradient of its output and its input; kernels have odd sizes and
    are padded by half of that.

    >>> x, weight = torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 3, 3, requires_grad=True)
    >>> torch.conv2d(x, weight, padding=1).sum().backward()
    >>> bool((weight_gradient(torch.ones(1, 1, 2, 2), x, 3, 1) == weight.grad).all())
    True
    """
    if kernel == stride == 1:
        rows = (values.transpose(0, 1).reshape(values.shape[1], -1) for values in (gradient, x))
        return torch.mm(next(rows), next(rows).t())[:, :, None, None]
    found = pairs(x.shape[2], kernel, stride)
    outputs, inputs = (
        values.flatten(2).permute(2, 0, 1).contiguous().index_select(0, numbers)
        for values, numbers in ((gradient, found.outputs), (x, found.inputs))
    )
    products = [
        torch.bmm(
            outputs[part].view(num, -1, outputs.shape[2]).transpose(1, 2),
            inputs[part].view(num, -1, inputs.shape[2]),
        )
        for part, num in found.groups
    ]
    taps = torch.cat(products)[found.order]
    return taps.permute(1, 2, 0).reshape(gradient.shape[1], x.shape[1], kernel, kernel)
