"""Views: boxes inside the image, of the sizes asked for, drawn anew for each use, and cut where they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from driftline.streams.views import Crops, centre_box, crop_batch, crop_one, random_crops


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.01, 1.0), st.floats(0.2, 5.0))
def test_boxes_lie_inside_the_image_and_keep_the_area_asked_for(seed, step, smallest, aspect):
    crops = random_crops(seed, step, 0, np.arange(50), np.full(50, aspect), smallest)
    top, left, height, width = crops.boxes.T
    for low, size in ((top, height), (left, width)):
        assert (low >= 0).all()
        assert (size > 0).all()
        assert (low + size <= 1 + 1e-12).all()
    # A box keeps its area unless the image is too narrow for its shape.
    fits = (height < 1) & (width < 1)
    assert (height[fits] * width[fits] >= smallest - 1e-9).all()
    shape = width[fits] / height[fits] * aspect
    assert ((shape > 3 / 4 - 1e-9) & (shape < 4 / 3 + 1e-9)).all()


def test_areas_places_and_mirrorings_are_evenly_spread():
    crops = random_crops(0, 1, 0, np.arange(20_000), np.ones(20_000), 0.08)
    top, left, height, width = crops.boxes.T
    assert crops.flips.mean() == pytest.approx(0.5, abs=0.02)
    for low, size in ((top, height), (left, width)):
        free = size < 0.95
        place = low[free] / (1 - size[free])
        assert np.histogram(place, 4, (0, 1))[0] / free.sum() == pytest.approx([0.25] * 4, abs=0.02)
    # Uniform areas from 0.08 to 1; those below a half always fit whatever their shape, so a fifth is below 0.264.
    area = height * width
    assert (area < 0.08 + 0.92 / 5).mean() == pytest.approx(0.2, abs=0.02)
    assert area.min() >= 0.08


def test_a_draw_depends_on_its_keys_alone():
    def boxes(seed=0, step=3, gd_step=0, positions=(5, 9)):
        return random_crops(seed, step, gd_step, np.array(positions), np.ones(len(positions)), 0.08).boxes

    assert np.array_equal(boxes(), boxes())
    assert np.array_equal(boxes(positions=(9, 5))[::-1], boxes())
    assert np.array_equal(boxes(positions=(9,)), boxes()[1:])
    for other in (boxes(seed=1), boxes(step=4), boxes(gd_step=1), boxes(positions=(6, 10))):
        assert not np.array_equal(other, boxes())


def obvious_crop(image, box, flip, size):
    """Bilinear sampling at the centres of the pixels of the box, one pixel at a time."""
    height, width = image.shape[:2]
    top, left, tall, wide = box
    out = np.zeros((size, size, 3))
    for i in range(size):
        for j in range(size):
            column = size - 1 - j if flip else j
            y = np.clip((top + (i + 0.5) / size * tall) * height - 0.5, 0, height - 1)
            x = np.clip((left + (column + 0.5) / size * wide) * width - 0.5, 0, width - 1)
            y0, x0 = int(y), int(x)
            y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
            fy, fx = y - y0, x - x0
            upper = image[y0, x0] * (1 - fx) + image[y0, x1] * fx
            lower = image[y1, x0] * (1 - fx) + image[y1, x1] * fx
            out[i, j] = upper * (1 - fy) + lower * fy
    return out


@given(st.integers(0, 10**6), st.integers(3, 12))
def test_a_batch_is_cut_as_one_image_at_a_time_would_be(seed, size):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (4, 9, 9, 3), dtype=np.uint8)
    crops = random_crops(seed, 0, 0, np.arange(4), np.ones(4), 0.2)
    got = crop_batch(torch.from_numpy(images).permute(0, 3, 1, 2), crops, size).permute(0, 2, 3, 1).numpy()
    for i in range(4):
        expected = obvious_crop(images[i].astype(float), crops.boxes[i], crops.flips[i], size)
        np.testing.assert_allclose(got[i], expected, atol=0.05)


@given(st.integers(0, 10**6))
def test_sixteen_bits_cut_as_thirty_two_do(seed):
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    crops = random_crops(seed, 0, 0, np.arange(4), np.ones(4), 0.2)
    short, long = (crop_batch(images, crops, 32, dtype).float() for dtype in (torch.bfloat16, torch.float32))
    assert float((short - long).abs().max()) <= 2


def test_the_whole_image_unmirrored_is_the_image():
    images = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
    whole = Crops(np.tile([0.0, 0.0, 1.0, 1.0], (3, 1)), np.zeros(3, bool))
    np.testing.assert_allclose(crop_batch(images, whole, 8).numpy(), images.float().numpy(), atol=1e-3)


def test_a_large_image_is_cut_where_its_box_says():
    image = np.zeros((100, 200, 3), np.uint8)
    image[:50, 100:] = 200  # the upper right quarter
    box = np.array([0.0, 0.5, 0.5, 0.5])
    # Smoothing may take in a little of what lies across the border, never more than a pixel of the result.
    assert (crop_one(image, box, False, 16)[1:-1, 1:-1] == 200).all()
    left_half = crop_one(image, np.array([0.0, 0.25, 0.5, 0.5]), False, 16)
    assert left_half[:-1, 0].max() == 0
    assert left_half[:-1, -1].min() == 200
    mirrored = crop_one(image, np.array([0.0, 0.25, 0.5, 0.5]), True, 16)
    assert np.array_equal(mirrored, left_half[:, ::-1])


@given(st.integers(10, 500), st.integers(10, 500))
def test_the_centre_is_a_square_in_the_middle(height, width):
    top, left, tall, wide = centre_box(height, width, 0.875)
    assert tall * height == pytest.approx(wide * width)
    assert tall * height == pytest.approx(0.875 * min(height, width))
    assert top == pytest.approx((1 - tall) / 2)
    assert left == pytest.approx((1 - wide) / 2)
