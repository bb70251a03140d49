"""Residual networks: a small one for images of about 32 pixels, and ResNet18 and ResNet50 for large ones.

In: float images, N x 3 x H x W. Out: one logit a class. Normalisation is by groups (independent of the batch, the
right choice for a stream whose batches are alike) or by batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

Norm = Literal["group", "batch"]
NUM_GROUPS = 8


def make_norm(norm: Norm, channels: int) -> nn.Module:
    """A normalisation layer for so many channels."""
    return nn.GroupNorm(NUM_GROUPS, channels) if norm == "group" else nn.BatchNorm2d(channels)


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the image's size (apart from the stride)."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Convolutions with a short cut around them: two of 3x3, or 1x1, 3x3, 1x1 (a bottleneck)."""

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm, expansion: int) -> None:
        super().__init__()
        outputs = width * expansion
        if expansion == 1:
            layers = [conv(inputs, width, 3, stride), conv(width, outputs, 3)]
        else:
            layers = [conv(inputs, width, 1), conv(width, width, 3, stride), conv(width, outputs, 1)]
        self.convs = nn.ModuleList(layers)
        self.norms = nn.ModuleList([make_norm(norm, layer.out_channels) for layer in layers])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), make_norm(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = x
        last = len(self.convs) - 1
        for i, (layer, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(layer(y))
            if i < last:
                y = torch.relu_(y)
        return torch.relu_(y + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, stages of blocks that halve the image, mean over the image, one linear layer."""

    def __init__(
        self,
        num_classes: int,
        *,
        widths: tuple[int, ...],
        depths: tuple[int, ...],
        expansion: int,
        norm: Norm,
        small: bool,
    ) -> None:
        super().__init__()
        stem = widths[0]
        if small:
            # Down to 8 x 8 at once: as accurate as a stem of 3 x 3 at stride 2 and two thirds of its time.
            self.stem = nn.Sequential(conv(3, stem, 7, 4), make_norm(norm, stem), nn.ReLU(inplace=True))
        else:
            self.stem = nn.Sequential(
                conv(3, stem, 7, 2), make_norm(norm, stem), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
            )
        blocks: list[nn.Module] = []
        channels = stem
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            for i in range(depth):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(Block(channels, width, stride, norm, expansion))
                channels = width * expansion
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_classes)
        initialise(self)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        """Logits, N x classes."""
        features: Tensor = self.blocks(self.stem(images_NCHW)).mean(dim=(2, 3))
        logits: Tensor = self.head(features)
        return logits


def initialise(model: nn.Module) -> None:
    """He's initialisation, the last norm of each block at zero so that blocks start as short cuts."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(module, Block):
            last = module.norms[-1]
            assert isinstance(last, nn.GroupNorm | nn.BatchNorm2d)
            nn.init.zeros_(last.weight)


def resnet_tiny(num_classes: int, norm: Norm) -> ResNet:
    """Three stages of one block: 0.3 M weights, made for 32 pixels.

    >>> resnet_tiny(10, "group")(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return ResNet(num_classes, widths=(32, 64, 128), depths=(1, 1, 1), expansion=1, norm=norm, small=True)


def resnet18(num_classes: int, norm: Norm) -> ResNet:
    """He et al. 2016, 18 layers."""
    return ResNet(
        num_classes, widths=(64, 128, 256, 512), depths=(2, 2, 2, 2), expansion=1, norm=norm, small=False
    )


def resnet50(num_classes: int, norm: Norm) -> ResNet:
    """He et al. 2016, 50 layers: the paper's network."""
    return ResNet(
        num_classes, widths=(64, 128, 256, 512), depths=(3, 4, 6, 3), expansion=4, norm=norm, small=False
    )


MODELS: dict[str, Callable[[int, Norm], nn.Module]] = {
    "resnet-tiny": resnet_tiny,
    "resnet18": resnet18,
    "resnet50": resnet50,
}
