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
    seed: int,
    step: int | IntArray,
    gd_step: int,
    positions: IntArray,
    aspect: FloatArray,
    smallest_area: float,
) -> Crops:
    """Random resized crops and mirrorings; aspect is the images' width over height. All of one step, or each of its own.

    >>> crops = random_crops(0, 3, 0, np.array([5, 9]), np.ones(2), 0.08)
    >>> bool((crops.boxes[:, 0] + crops.boxes[:, 2] <= 1).all())
    True
    """
    for_area, for_ratio, for_top, for_left, for_flip = draws.uniform(
        seed, "view", step, gd_step, np.arange(5)[:, None], positions
    )
    area = smallest_area + (1 - smallest_area) * for_area
    ratio = np.exp(np.log(RATIO[0]) + np.log(RATIO[1] / RATIO[0]) * for_ratio) / aspect
    # A crop that does not fit is narrowed to the image, as large as its shape allows.
    height = np.minimum(np.sqrt(area / ratio), 1.0)
    width = np.minimum(np.sqrt(area * ratio), 1.0)
    top = (1 - height) * for_top
    left = (1 - width) * for_left
    return Crops(np.stack([top, left, height, width], axis=1), for_flip < 0.5)


def crop_batch(
    images_NCHW: Tensor,
    crops: Crops,
    size: int,
    dtype: torch.dtype = torch.float32,
    *,
    mean: float = 0.0,
    std: float = 1.0,
) -> Tensor:
    """Square images of one size cut to their boxes and scaled to size x size, the whole batch at once, on their device.

    Values are shifted and scaled by mean and std. In bfloat16, which holds every value of a byte, the result is within two of 255
    of that in float32, in half the time.

    >>> whole = Crops(np.array([[0.0, 0.0, 1.0, 1.0]]), np.array([True]))
    >>> image = torch.arange(12, dtype=torch.uint8).reshape(1, 3, 2, 2)
    >>> crop_batch(image, whole, 2)[0, 0].tolist()
    [[1.0, 0.0], [3.0, 2.0]]
    """
    num, channels, side, _ = images_NCHW.shape
    top, left, height, width = crops.boxes.T
    first, right_to_left = np.where(crops.flips, left + width, left), np.where(crops.flips, -width, width)
    # Linear interpolation as two products with small matrices, one pair an image: a third of grid_sample's time.
    across, down = _weights(
        np.stack([first, top]), np.stack([right_to_left, height]), size, side, images_NCHW.device, dtype
    )
    planes = images_NCHW.to(dtype, memory_format=torch.contiguous_format)
    lines = torch.bmm(planes.view(num, channels * side, side), across.transpose(1, 2))
    shift = torch.full((1, 1, 1), -mean / std, dtype=dtype, device=images_NCHW.device)
    of_planes = down.repeat_interleave(channels, dim=0)
    cut = torch.baddbmm(shift, of_planes, lines.view(num * channels, side, size), alpha=1 / std)
    return cut.view(num, channels, size, size)


def _weights(
    start: FloatArray, length: FloatArray, size: int, source: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """What each of `source` lines adds to each of `size` places from start to start + length: ... x size x source.

    A negative length goes backwards. The few numbers an image needs are computed here, the many on the device.
    """
    stride = length * (source / size)
    begin = start * source + (stride / 2 - 0.5)
    both = torch.from_numpy(np.stack([begin, stride]).astype(np.float32)).to(device)[..., None]
    place = torch.arange(size, device=device, dtype=torch.float32)
    at = torch.addcmul(both[0], both[1], place).clamp_(0, source - 1)
    away = at[..., None] - torch.arange(source, device=device, dtype=torch.float32)
    return torch.relu_(1 - away.abs_()).to(
        dtype
    )  # only then rounded: the weights of a place must add up to 1


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
