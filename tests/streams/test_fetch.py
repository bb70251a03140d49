"""Fetching: one read an image and step, the same batches from any number of threads, bad samples set aside."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from driftline.streams.fetch import Fetcher, FetchRequest, Pipeline
from driftline.streams.views import crop_batch, crop_one
from driftline.types import BadSampleError, DriftlineError, Samples

SIZE = 8


class Split:
    """Images whose pixels are their position; of different shapes when they are large."""

    def __init__(self, num=500, *, large=False, bad=(), labels=None):
        self.num, self.large, self.bad = num, large, set(bad)
        self._labels = np.arange(num).astype(np.int32) % 5 if labels is None else labels
        self.reads: list[list[int]] = []
        self.lock = threading.Lock()

    def __len__(self):
        return self.num

    def samples(self, start, stop):
        at = np.arange(start, stop)
        return Samples(at, at + 1000, at // 3, self._labels[start:stop], at * 0.1, at * 0.1)

    def labels(self, positions):
        return self._labels[positions]

    def images(self, positions):
        with self.lock:
            self.reads.append(positions.tolist())
        if not self.large and not self.bad:
            return np.stack([self.image(p) for p in positions.tolist()])
        return [
            BadSampleError(p, "undecodable") if p in self.bad else self.image(p) for p in positions.tolist()
        ]

    def image(self, position):
        height, width = (20 + position % 7, 30 - position % 5) if self.large else (SIZE, SIZE)
        image = np.random.default_rng(position).integers(0, 200, (height, width, 3)).astype(np.uint8)
        image[0, 0] = position % 200
        return image


def fetcher(split, **settings):
    values = {"fixed_size": not split.large, "size": SIZE, "seed": 3, "crop_scale": 0.3, "num_classes": 5}
    return Fetcher(split, **(values | settings))


def request(stream, replay=(), *, step=4, gd_steps=1, test=True):
    return FetchRequest(step, np.array(stream), np.array(replay, dtype=np.int64), gd_steps, test)


@pytest.mark.parametrize("large", [False, True])
def test_stream_first_then_replay_each_read_once(large):
    split = Split(large=large)
    fetched = fetcher(split).fetch(request([100, 101, 102], [7, 101, 7], gd_steps=3))
    assert split.reads == [[7, 100, 101, 102]]
    assert fetched.num_stream == 3
    assert fetched.labels.tolist() == [100 % 5, 101 % 5, 102 % 5, 7 % 5, 101 % 5, 7 % 5]
    assert fetched.samples.position.tolist() == [100, 101, 102]
    assert fetched.test_images.shape == (3, 3, SIZE, SIZE)
    assert len(fetched.train) == 3
    assert all(view.images.shape == (6, 3, SIZE, SIZE) for view in fetched.train)
    assert fetched.bad == ()


def cut(view):
    return view.images.float() if view.crops is None else crop_batch(view.images, view.crops, SIZE)


@pytest.mark.parametrize("large", [False, True])
def test_a_view_depends_on_seed_step_gradient_step_and_position_alone(large):
    split = Split(large=large)
    a = fetcher(split).fetch(request([100, 101], [7, 8], gd_steps=2))
    b = fetcher(split).fetch(request([101, 102], [8, 100], gd_steps=2))
    for g in range(2):
        first, second = cut(a.train[g]), cut(b.train[g])
        # 101, 8 and 100 are in both requests, at different places.
        for i, j in ((1, 0), (3, 2), (0, 3)):
            assert (first[i] == second[j]).all()
    assert (cut(a.train[0]) != cut(a.train[1])).any()
    other_step = fetcher(split).fetch(request([100, 101], [7, 8], step=5))
    other_seed = fetcher(split, seed=4).fetch(request([100, 101], [7, 8]))
    for other in (other_step, other_seed):
        assert (cut(a.train[0]) != cut(other.train[0])).any()


def test_small_images_are_tested_whole_and_large_ones_in_the_middle():
    small, large = Split(), Split(large=True)
    whole = fetcher(small).fetch(request([5, 6])).test_images.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(whole, np.stack([small.image(5), small.image(6)]))
    middle = fetcher(large).fetch(request([5])).test_images[0].permute(1, 2, 0).numpy()
    image = large.image(5)
    side = 7 / 8 * min(image.shape[:2])
    tall, wide = side / image.shape[0], side / image.shape[1]
    expected = crop_one(image, np.array([(1 - tall) / 2, (1 - wide) / 2, tall, wide]), False, SIZE)
    assert np.array_equal(middle, expected)


@pytest.mark.parametrize("large", [False, True])
def test_bad_samples_are_left_out_of_every_batch_and_reported_once(large):
    split = Split(large=large, bad={101, 7})
    fetched = fetcher(split).fetch(request([100, 101, 102], [7, 8, 7]))
    assert fetched.num_stream == 2
    assert fetched.labels.tolist() == [0, 2, 3]
    assert fetched.samples.position.tolist() == [100, 102]
    assert len(fetched.test_images) == 2
    assert len(fetched.train[0].images) == 3
    assert sorted(error.position for error in fetched.bad) == [7, 101]


def test_a_label_that_is_no_class_makes_a_bad_sample():
    labels = np.arange(500).astype(np.int32) % 5
    labels[[100, 102]] = -1, 5
    fetched = fetcher(Split(labels=labels)).fetch(request([100, 101, 102]))
    assert fetched.samples.position.tolist() == [101]
    assert [error.position for error in fetched.bad] == [100, 102]
    assert "label -1 is not one of the 5 classes" in str(fetched.bad[0])


def test_a_step_of_bad_samples_alone_is_empty():
    fetched = fetcher(Split(bad={1, 2})).fetch(request([1, 2]))
    assert fetched.num_stream == 0
    assert len(fetched.labels) == 0
    assert len(fetched.test_images) == 0


def test_training_only_needs_no_columns():
    fetched = fetcher(Split()).fetch(request([9, 3, 200], test=False))
    assert fetched.samples is None
    assert fetched.labels.tolist() == [4, 3, 0]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("large", [False, True])
def test_steps_come_in_order_and_alike_from_any_number_of_threads(workers, large):
    requests = [request(range(8 * s, 8 * s + 8), range(8 * s), step=s) for s in range(12)]
    expected = [fetcher(Split(large=large)).fetch(r) for r in requests]
    waiting = list(requests)
    pipeline = Pipeline(fetcher(Split(large=large)), lambda: waiting.pop(0) if waiting else None, workers)
    got = []
    while (fetched := pipeline.next()) is not None:
        got.append(fetched)
    pipeline.close()
    assert [f.request.step for f in got] == list(range(12))
    for a, b in zip(got, expected, strict=True):
        assert (cut(a.train[0]) == cut(b.train[0])).all()
        assert (a.test_images == b.test_images).all()


def test_it_works_ahead_and_says_what_was_planned_but_not_handed_out():
    requests = [request([s], step=s) for s in range(20)]
    waiting = list(requests)
    pipeline = Pipeline(fetcher(Split()), lambda: waiting.pop(0) if waiting else None, 3)
    assert pipeline.next().request.step == 0
    ahead = [r.step for r in pipeline.pending()]
    assert ahead == list(range(1, 1 + len(ahead)))
    assert 3 <= len(ahead) < 12
    assert len(ahead) + 1 + len(waiting) == 20
    pipeline.close()


def test_it_waits_for_a_plan_that_cannot_say_yet():
    waiting = [request([0], step=0)]
    pipeline = Pipeline(fetcher(Split()), lambda: waiting.pop(0) if waiting else None, 2)
    assert pipeline.next().request.step == 0
    assert pipeline.next() is None
    waiting.append(request([1], step=1))
    assert pipeline.next().request.step == 1
    pipeline.close()


def test_an_error_of_the_storage_reaches_the_one_who_waits():
    class Broken(Split):
        def images(self, positions):
            raise OSError("the disk is gone")

    waiting = [request([0])]
    pipeline = Pipeline(fetcher(Broken()), lambda: waiting.pop(0) if waiting else None, 1)
    with pytest.raises(DriftlineError, match="the disk is gone"):
        pipeline.next()
    pipeline.close()
