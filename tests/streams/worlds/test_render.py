"""The rendered pixels: the real picture in the right place, and cameras, light and snow that change it as described."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.streams.worlds.render import SIZE, render

NOON = 12 * 3600


def at(year, month=6, day=15):
    return int(datetime(year, month, day, tzinfo=UTC).timestamp()) + NOON


def photos(lat, lon, time_s, num=200, seed=0):
    """Views of one place by many people, at noon there."""
    user = np.arange(num)
    when = np.full(num, time_s - int(lon / 15 * 3600))
    return render(seed, user + 1000, when, user, np.full(num, lat), np.full(num, lon)).astype(float)


@given(st.integers(0, 2**62), st.floats(-89.9, 89.9), st.floats(-180, 179.99), st.integers(0, 2**40))
@settings(max_examples=40)
def test_an_image_depends_on_its_photo_alone(seed, lat, lon, ordinal):
    def make(order):
        ordinals, lats, lons = (
            np.array([ordinal, 5, 9]),
            np.array([lat, 10.0, -20.0]),
            np.array([lon, 3.0, 99.0]),
        )
        time_s, user = np.array([at(2008), at(2005), at(2013)]), np.array([3, 4, 5])
        return render(seed, ordinals[order], time_s[order], user[order], lats[order], lons[order])

    together = make([0, 1, 2])
    assert together.shape == (3, SIZE, SIZE, 3)
    assert together.dtype == np.uint8
    assert np.array_equal(make([0]), together[:1])
    assert np.array_equal(make([2, 0, 1]), together[[2, 0, 1]])


def colour(lat, lon):
    return photos(lat, lon, at(2009, 7 if lat > 0 else 1)).mean(axis=(0, 1, 2))


def test_oceans_deserts_and_forests_look_like_themselves():
    pacific, sahara, amazon = colour(0, -140), colour(23, 13), colour(-5, -63)
    assert pacific[2] > 1.5 * pacific[0]  # blue
    assert sahara.mean() > 2.5 * pacific.mean()
    assert sahara[0] > 1.2 * sahara[2]  # sand
    assert amazon[1] > amazon[0]
    assert amazon[1] > amazon[2]  # green
    assert amazon.mean() < sahara.mean()


def test_a_coast_has_land_on_its_landward_side():
    image = photos(42.0, -70.7, at(2009)).mean(
        axis=0
    )  # Massachusetts: land in the west, the Atlantic in the east
    redness = image[..., 0] - image[..., 2]
    assert redness[:, :8].mean() > redness[:, -8:].mean() + 10


def test_the_date_line_is_no_edge():
    a, b = photos(-17.0, 179.99, at(2009)), photos(-17.0, -179.99, at(2009))
    assert np.abs(a.mean(axis=0) - b.mean(axis=0)).mean() < 6


def noise_of(images):
    """What is left when the mean over people is taken away, between neighbouring pixels."""
    own = images - images.mean(axis=(1, 2), keepdims=True)
    return np.abs(np.diff(own, axis=2)).mean()


def test_cameras_get_less_noisy_sharper_and_bluer_over_the_decade():
    early, late = photos(0, -140, at(2004)), photos(0, -140, at(2014))
    assert noise_of(early) > 2 * noise_of(late)
    early, late = (photos(42.0, -70.7, at(year)).mean(axis=0) for year in (2004, 2014))
    sharpness = [np.abs(np.diff(image, axis=1)).mean() for image in (early, late)]
    assert sharpness[1] > 1.1 * sharpness[0]
    blueness = [image[..., 2].mean() / image[..., 0].mean() for image in (early, late)]
    assert blueness[1] > 1.15 * blueness[0]


def test_one_camera_keeps_its_colours_and_a_new_one_has_others():
    user, lat, lon = np.full(12, 7), np.full(12, 20.0), np.full(12, 10.0)
    months = np.array([at(2004 + i // 2, 6) + (i % 2) * 86_400 for i in range(12)])
    means = render(0, np.arange(12), months, user, lat, lon).mean(axis=(1, 2))
    ratio = means[:, 0] / means[:, 2]
    same_day = np.abs(np.diff(ratio))[0::2]
    years = np.abs(np.diff(ratio))[1::2]
    assert same_day.max() < 0.05
    assert years.max() > 3 * same_day.max()


def test_evenings_are_darker():
    lat, lon = np.zeros(100), np.zeros(100)
    noon = render(0, np.arange(100), np.full(100, at(2009)), np.arange(100), lat + 23, lon + 13)
    night = render(0, np.arange(100), np.full(100, at(2009) + 9 * 3600), np.arange(100), lat + 23, lon + 13)
    assert night.mean() < 0.85 * noon.mean()


@pytest.mark.parametrize(("lat", "lon", "winter", "summer"), [(60.0, 30.0, 1, 7), (-50.0, -72.0, 7, 1)])
def test_winters_are_white_far_from_the_equator(lat, lon, winter, summer):
    cold, warm = (photos(lat, lon, at(2009, month)).mean() for month in (winter, summer))
    assert cold > warm + 20


def test_the_tropics_have_no_winter():
    january, july = (photos(5.0, 10.0, at(2009, month)).mean() for month in (1, 7))
    assert abs(january - july) < 5
