"""A split that remembers gives exactly what the split itself gives, whatever is asked for and by whom."""

from __future__ import annotations

import threading

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from driftline.streams.recent import RecentImages
from driftline.types import BadSampleError

SIZE = 4
BYTES = SIZE * SIZE * 3


class Counting:
    """Images that show their position; some cannot be read. Remembers what was asked for."""

    def __init__(self, num, bad=(), as_list=False):
        self.num, self.bad, self.as_list = num, set(bad), as_list
        self.asked = []

    def __len__(self):
        return self.num

    def image(self, position):
        return np.full((SIZE, SIZE, 3), position % 251, np.uint8)

    def images(self, positions):
        self.asked += positions.tolist()
        if self.bad & set(positions.tolist()) or self.as_list:
            return [
                BadSampleError(p, "broken") if p in self.bad else self.image(p) for p in positions.tolist()
            ]
        return np.stack([self.image(p) for p in positions.tolist()])


def check(split, positions, found):
    assert len(found) == len(positions)
    for position, image in zip(positions, found, strict=True):
        if position in split.bad:
            assert isinstance(image, BadSampleError)
            assert image.position == position
        else:
            assert (image == split.image(position)).all()


@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=12, unique=True), max_size=12),
    st.integers(1, 120),
    st.sets(st.integers(0, 99), max_size=5),
    st.booleans(),
)
def test_the_same_images_whatever_was_asked_before(batches, num_places, bad, as_list):
    split = Counting(100, bad, as_list)
    recent = RecentImages(split, SIZE, max_bytes=num_places * BYTES)
    for batch in batches:
        check(split, batch, recent.images(np.array(batch)))


def test_the_last_samples_are_read_once_and_memory_stays_bounded():
    split = Counting(1000)
    recent = RecentImages(split, SIZE, max_bytes=100 * BYTES)
    for start in range(0, 1000, 10):
        replay = np.arange(max(0, start - 90), start, 7)
        recent.images(np.concatenate([replay, np.arange(start, start + 10)]))
    assert sorted(split.asked) == list(range(1000)), "every image was read exactly once"
    assert recent._planes.nbytes == 100 * BYTES


def test_a_bad_image_is_tried_again():
    split = Counting(10, bad=[3])
    recent = RecentImages(split, SIZE)
    recent.images(np.array([2, 3]))
    split.bad.clear()
    check(split, [2, 3], recent.images(np.array([2, 3])))
    assert split.asked == [2, 3, 3]


def test_threads_do_not_mix_up_images():
    split = Counting(5000)
    recent = RecentImages(split, SIZE, max_bytes=50 * BYTES)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            positions = rng.integers(0, 120, 20)
            expected = [split.image(p) for p in positions.tolist()]
            if not (np.asarray(recent.images(positions)) == expected).all():
                wrong.append(positions)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
