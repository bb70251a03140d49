"""The embedded world as a stream: the same however it is asked, split and labelled by the build's rules, small in memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.geo import s2
from driftline.streams.building.splits import is_validation, preprocessing_count
from driftline.streams.open import open_stream
from driftline.streams.worlds.world import World, class_limits, parse_world
from driftline.types import DriftlineError

WORLD = World(12_000, seed=2)


@given(st.sampled_from(["train", "validation"]), st.data())
@settings(max_examples=40)
def test_columns_labels_and_images_agree_however_they_are_asked_for(name, data):
    split = getattr(WORLD, name)
    start = data.draw(st.integers(0, len(split) - 1))
    stop = data.draw(st.integers(start, min(start + 200, len(split))))
    columns = split.samples(start, stop)
    assert columns.position.tolist() == list(range(start, stop))
    positions = np.arange(start, stop)
    order = np.random.default_rng(start).permutation(len(positions))
    assert np.array_equal(split.labels(positions[order]), columns.label[order])
    chosen = np.concatenate([order[:4], order[:1]])
    images = split.images(positions[chosen])
    assert images.shape == (len(chosen), 32, 32, 3)
    for row, i in zip(images, chosen, strict=True):
        assert np.array_equal(row, split.images(positions[[i]])[0])


def test_two_worlds_of_one_name_are_the_same_to_the_pixel():
    a, b = open_stream("world:12000:2"), WORLD
    assert a.fingerprint == b.fingerprint
    rows = np.array([0, 500, len(b.train) - 1])
    assert np.array_equal(a.train.images(rows), b.train.images(rows))
    assert np.array_equal(a.train.labels(rows), b.train.labels(rows))
    other = open_stream("world:12000:3")
    assert other.fingerprint != b.fingerprint
    assert not np.array_equal(other.train.images(rows[:2]), b.train.images(rows[:2]))


def test_splits_and_labels_are_those_of_the_build_s_rules():
    """Each photo put through the rules of a build one by one."""
    world = WORLD
    time_s, user, lat, lon = world.photographers.photos(np.arange(world.length))
    num_first = preprocessing_count(world.length, 0.05)
    fewest, most = class_limits(num_first)
    leaves = s2.cell_ids(lat, lon)

    cells, kept = s2.faces().tolist(), []
    while cells:
        cell = cells.pop()
        first, last = (int(x[0]) for x in s2.range_of(np.array([cell], np.uint64)))
        count = sum(first <= leaf <= last for leaf in leaves[:num_first].tolist())
        if count > most:
            cells += s2.children_of(np.array([cell], np.uint64)).tolist()
        elif count >= fewest:
            kept.append((cell, first, last))
    kept.sort()
    assert [cell for cell, _, _ in kept] == world.classes.cells.tolist()

    share = 0.1  # of a world shorter than 40,000 photos
    held_out = is_validation(world.seed, np.arange(world.length), share)
    expected: dict[bool, list[tuple[int, int, int]]] = {False: [], True: []}
    for i in range(num_first, world.length):
        leaf = int(leaves[i])
        label = next((k for k, (_, first, last) in enumerate(kept) if first <= leaf <= last), -1)
        if label >= 0:
            expected[bool(held_out[i])].append((int(time_s[i]), int(user[i]), label))
    for split, rows in ((world.train, expected[False]), (world.validation, expected[True])):
        columns = split.samples(0, len(split))
        found = list(zip(columns.time.tolist(), columns.user.tolist(), columns.label.tolist(), strict=True))
        assert found == rows


def test_time_strictly_increases_and_validation_spans_it_all():
    train = WORLD.train.samples(0, len(WORLD.train))
    validation = WORLD.validation.samples(0, len(WORLD.validation))
    assert (np.diff(train.time) > 0).all()
    assert (np.diff(validation.time) > 0).all()
    assert not set(train.time.tolist()) & set(validation.time.tolist())
    year = 365 * 86_400
    assert validation.time[0] < train.time[0] + 2 * year
    assert validation.time[-1] > train.time[-1] - 2 * year


def test_most_photos_are_in_some_class_and_every_class_is_met():
    assert len(WORLD.train) > 0.8 * 0.94 * WORLD.length
    counts = np.bincount(WORLD.train.labels(np.arange(len(WORLD.train))), minlength=len(WORLD.classes))
    assert (counts > 0).all()
    assert counts.max() < 0.5 * counts.sum()


@pytest.mark.parametrize("length", [2_000, 2_001, 4_999, 30_000])
def test_any_length_works(length):
    world = World(length)
    assert len(world.classes) >= 2
    assert len(world.train) + len(world.validation) <= length - preprocessing_count(length, 0.05)
    last = np.array([len(world.train) - 1])
    assert world.train.images(last).shape == (1, 32, 32, 3)
    assert world.train.samples(len(world.train), len(world.train)).position.tolist() == []


@pytest.mark.parametrize("position", [-1, 10**9])
def test_a_position_outside_the_stream_is_refused(position):
    with pytest.raises(DriftlineError, match=rf"position {position} is outside the stream"):
        WORLD.train.labels(np.array([3, position]))


@pytest.mark.parametrize(
    "text",
    [
        "world:",
        "world:x",
        "world:5000:1:2",
        "world:-5000",
        "world:100",
        "world:70000001",
        "world:5000:" + "9" * 20,
        "world:²²²²",
    ],
)
def test_a_name_that_means_no_world_is_refused(text):
    with pytest.raises(DriftlineError, match=r"world"):
        parse_world(text)


def test_names_can_leave_out_what_is_usual():
    assert parse_world("world") == World()
    assert parse_world("world:20_000") == World(20_000, 0)
    assert World(20_000, 7).name == "world:20000:7"
    assert parse_world(World(20_000, 7).name) == World(20_000, 7)


def test_a_long_world_opens_in_little_memory():
    """Two million photos against twenty thousand, each in a process of its own, images of both rendered."""
    probe = (
        "import sys, numpy as np\n"
        "from driftline.engine.memory import peak_memory_mb\n"
        "from driftline.streams.worlds.world import World\n"
        "world = World(int(sys.argv[1]))\n"
        "world.train.images(np.arange(64)); world.validation.samples(0, 10)\n"
        "print(peak_memory_mb())\n"
        "print(sum(x.nbytes for s in (world.train, world.validation) for x in (s.bits, s.before)) / 2**20)"
    )
    peak, kept = zip(
        *(
            map(
                float,
                subprocess.run(
                    [sys.executable, "-c", probe, length], capture_output=True, text=True, check=True
                ).stdout.split(),
            )
            for length in ("20000", "2000000")
        ),
        strict=True,
    )
    # Plain arrays of time, user, place and label would take 80 MB for good; the world keeps bits, and works in blocks.
    assert peak[1] - peak[0] < 50
    assert kept[1] < 1
