"""Views of an image: the centre crop it is tested on, and the random crops it is trained on.

In: sizes of images and the keys of the draw. Out: boxes, and images cut to them. What a crop draws depends on
(seed, step, gradient step, position) and on the image's size, never on who decodes it or when.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from driftline import draws
from driftline.types import BoolArray, FloatArray, ImageArray, IntArray

RATIO = (3 / 4, 4 / 3)
"""Narrowest and widest crop, width over height."""


@dataclass(frozen=True)
class Crops:
    """Boxes in shares of height and width (top, left, height, width), one row an image, and whether to mirror."""

    boxes: FloatArray
    flips: BoolArray

    def __getitem__(self, rows: NDArray[np.int64] | slice) -> Crops:
        return Crops(self.boxes[rows], self.flips[rows])


def random_crops(
    seed: int, step: int, gd_step: int, positions: IntArray, aspect: FloatArray, smallest_area: float
) -> Crops:
    """Random resized crops and mirrorings; aspect is the images' width over height.

    >>> crops = random_crops(0, 3, 0, np.array([5, 9]), np.ones(2), 0.08)
    >>> bool((crops.boxes[:, 0] + crops.boxes[:, 2] <= 1).all())
    True
    """

    def draw(purpose: str) -> FloatArray:
        return draws.uniform(seed, "view", step, gd_step, purpose, positions)

    area = smallest_area + (1 - smallest_area) * draw("area")
    ratio = np.exp(np.log(RATIO[0]) + np.log(RATIO[1] / RATIO[0]) * draw("ratio")) / aspect
    # A crop that does not fit is narrowed to the image, as large as its shape allows.
    height = np.minimum(np.sqrt(area / ratio), 1.0)
    width = np.minimum(np.sqrt(area * ratio), 1.0)
    top = (1 - height) * draw("top")
    left = (1 - width) * draw("left")
    return Crops(np.stack([top, left, height, width], axis=1), draw("flip") < 0.5)


def crop_batch(images_NCHW: Tensor, crops: Crops, size: int) -> Tensor:
    """Equal images cut to their boxes and scaled to size x size, the whole batch at once, on the images' device.

    >>> whole = Crops(np.array([[0.0, 0.0, 1.0, 1.0]]), np.array([True]))
    >>> image = torch.arange(12, dtype=torch.uint8).reshape(1, 3, 2, 2)
    >>> crop_batch(image, whole, 2)[0, 0].tolist()
    [[1.0, 0.0], [3.0, 2.0]]
    """
    device = images_NCHW.device
    num, channels, tall, wide = images_NCHW.shape
    top, left, height, width = torch.from_numpy(crops.boxes.T.astype(np.float32)).to(device)
    flips = torch.from_numpy(crops.flips).to(device)
    # Rows first, then columns, each time whole rows of memory: less than half of grid_sample's time.
    rows = images_NCHW.permute(0, 2, 3, 1).reshape(num * tall, wide * channels)
    cut = _resample(rows, top, height, None, size, tall)
    columns = cut.view(num, size, wide, channels).permute(0, 2, 3, 1).reshape(num * wide, channels * size)
    cut = _resample(columns, left, width, flips, size, wide)
    return cut.view(num, size, channels, size).permute(0, 2, 3, 1).contiguous()


def _resample(
    lines: Tensor, start: Tensor, length: Tensor, mirror: Tensor | None, size: int, source: int
) -> Tensor:
    """Linear interpolation between the `source` lines of each image at `size` places from start to start + length."""
    place = (torch.arange(size, device=lines.device, dtype=torch.float32) + 0.5) / size
    if mirror is not None:
        place = torch.where(mirror[:, None], 1 - place, place)
    at = ((start[:, None] + length[:, None] * place) * source - 0.5).clamp_(0, source - 1)
    below = at.floor()
    first = below.long()
    base = torch.arange(len(start), device=lines.device)[:, None] * source
    low = lines.index_select(0, (base + first).view(-1)).float()
    high = lines.index_select(0, (base + (first + 1).clamp_(max=source - 1)).view(-1)).float()
    return torch.lerp(low, high, (at - below).view(-1, 1))


def crop_one(image: ImageArray, box: FloatArray, flip: bool, size: int) -> ImageArray:
    """One image cut to its box, scaled to size x size with smoothing, and mirrored if asked.

    >>> crop_one(np.zeros((40, 60, 3), np.uint8), np.array([0.0, 0.0, 1.0, 1.0]), False, 16).shape
    (16, 16, 3)
    """
    height, width = image.shape[:2]
    top, left, tall, wide = box
    rows, columns = _whole(top, tall, height), _whole(left, wide, width)
    # The copy is of the needed pixels only; torch scales bytes in a quarter of Pillow's time, smoothed alike.
    pixels = torch.from_numpy(image[rows, columns].copy()).permute(2, 0, 1)[None]
    scaled = torch.nn.functional.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
    view: ImageArray = scaled[0].permute(1, 2, 0).numpy()
    return view[:, ::-1] if flip else view


def _whole(start: float, length: float, num: int) -> slice:
    """A stretch given in shares, as whole pixels; at least one.

    >>> _whole(0.26, 0.5, 10), _whole(0.99, 0.01, 10)
    (slice(3, 8, None), slice(9, 10, None))
    """
    first = min(round(start * num), num - 1)
    return slice(first, max(first + 1, min(round((start + length) * num), num)))


def centre_box(height: int, width: int, share: float) -> FloatArray:
    """The box of a square in the middle whose side is a share of the image's short side.

    >>> centre_box(256, 256, 0.875).tolist()
    [0.0625, 0.0625, 0.875, 0.875]
    """
    side = share * min(height, width)
    tall, wide = side / height, side / width
    return np.array([(1 - tall) / 2, (1 - wide) / 2, tall, wide])
