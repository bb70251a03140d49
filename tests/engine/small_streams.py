"""A stream in memory whose images tell their position, and learners that note what they are shown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import nn

from driftline.learners.base import LearnResult
from driftline.learners.replay import Arithmetic, ReplayLearner
from driftline.types import BadSampleError, ClassTable, Samples

SIZE = 8
YEAR_S = 31_556_952
START_S = 1_072_915_200


@dataclass
class MemorySplit:
    """Samples in arrays. Pixels: the first two hold the position, the rest the class as brightness."""

    columns: Samples
    bad: frozenset[int] = frozenset()
    reads: list[np.ndarray] = field(default_factory=list)
    """Positions of every call of `images`."""

    def __len__(self):
        return len(self.columns)

    def samples(self, start, stop):
        return Samples(*(column[start:stop] for column in vars(self.columns).values()))

    def labels(self, positions):
        return self.columns.label[positions]

    def images(self, positions):
        self.reads.append(positions.copy())
        labels = self.columns.label[positions]
        images = np.repeat(labels.astype(np.uint8), SIZE * SIZE * 3).reshape(-1, SIZE, SIZE, 3) * 20
        images[:, 0, 0, :2] = np.stack([positions // 256, positions % 256], axis=1)
        if not self.bad:
            return images
        return [
            BadSampleError(int(p), "undecodable") if int(p) in self.bad else image
            for p, image in zip(positions, images, strict=True)
        ]


@dataclass(frozen=True)
class MemoryStream:
    train: MemorySplit
    validation: MemorySplit
    classes: ClassTable
    name: str = "memory"
    fingerprint: str = "memory:1"
    image_size: int = SIZE
    fixed_size: bool = True


def make_split(num, num_classes, seed, places):
    rng = np.random.default_rng(seed)
    user = np.repeat(rng.integers(0, 30, num), rng.integers(1, 4, num))[:num]
    time = START_S + np.sort(rng.integers(0, 10 * YEAR_S, num))
    lat, lon = rng.uniform(-60, 60, num), rng.uniform(-170, 170, num)
    if not places:
        lat, lon = np.full(num, np.nan), np.full(num, np.nan)
    label = np.repeat(rng.integers(0, num_classes, num), rng.integers(1, 6, num))[:num].astype(np.int32)
    return MemorySplit(Samples(np.arange(num), time, user.astype(np.int64), label, lat, lon))


def memory_stream(num=300, num_classes=6, num_validation=60, *, seed=0, places=True, bad=()):
    """A stream of `num` samples over ten years."""
    rng = np.random.default_rng(seed + 1)
    lat, lon = rng.uniform(-60, 60, num_classes), rng.uniform(-170, 170, num_classes)
    names = tuple(f"class {i}" for i in range(num_classes))
    train = make_split(num, num_classes, seed, places)
    train.bad = frozenset(bad)
    classes = ClassTable(names, lat, lon) if places else ClassTable(names)
    return MemoryStream(train, make_split(num_validation, num_classes, seed + 2, places), classes)


def positions_in(images_NCHW):
    """The positions that these images tell."""
    corner = images_NCHW[:, :2, 0, 0].long()
    return (corner[:, 0] * 256 + corner[:, 1]).tolist()


def small_learner(setup, num_steps, *, rate=None):
    """The usual learner with a linear model, which takes no time."""

    def build():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(setup.config.seed)
            return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, len(setup.stream.classes)))

    usual = setup.learner(num_steps)
    return ReplayLearner(
        build,
        arithmetic=Arithmetic.choose("cpu", "float32"),
        size=SIZE,
        momentum=setup.config.momentum,
        weight_decay=setup.config.weight_decay,
        rate=rate or usual.search or partial(_rate_of, usual),
    )


def _rate_of(usual, step):
    return usual._rate_at(step)


class Spy:
    """Notes every call, and answers as the script says: (acc_stream, acc_replay) by step."""

    num_members = 1
    member = 0

    def __init__(self, num_classes, script=None, loss=lambda step: 1.0):
        self.num_classes = num_classes
        self.script = script
        self.loss = loss
        self.predicted: list[list[int]] = []
        self.trained: list[list[int]] = []
        self.replayed: list[list[int]] = []
        self.calls: list[str] = []

    rates = property(lambda self: [0.1])
    metrics = property(lambda self: [math.nan])

    def predict(self, images):
        self.calls.append("predict")
        self.predicted.append(positions_in(images))
        return torch.zeros(len(images), self.num_classes)

    def learn(self, batch, step):
        self.calls.append("learn")
        positions = positions_in(batch.views[0].images)
        assert all(positions_in(view.images) == positions for view in batch.views)
        self.trained.append(positions[: batch.num_stream])
        self.replayed.append(positions[batch.num_stream :])
        acc_stream, acc_replay = self.script(step) if self.script else (0.0, 0.0)
        result = LearnResult(self.loss(step), acc_stream, acc_replay)
        return result if self.replayed[-1] else replace(result, acc_replay=None)

    def weights(self):
        return {}

    def load_weights(self, weights):
        pass

    def state(self):
        return {}

    def load(self, state):
        pass
