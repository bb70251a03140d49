"""A small stream held in memory and a learner that is fast, so that a fault can be injected into hundreds of steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from driftline.config import RunConfig
from driftline.engine.run import Run
from driftline.engine.setup import Setup
from driftline.learners.replay import Arithmetic, ReplayLearner
from driftline.types import ClassTable, Images, IntArray, LabelArray, Samples

SIDE = 8
NUM_CLASSES = 5
VOLATILE = ("seconds", "samples_per_second", "peak_rss_mb", "resumed")

Hook = Callable[[IntArray], Images | None]


@dataclass
class SmallSplit:
    """Photos of five colours; `hook` may answer in place of the images, fail, or hang."""

    length: int
    hook: Hook = field(default=lambda positions: None)

    def __len__(self) -> int:
        return self.length

    def labels(self, positions: IntArray) -> LabelArray:
        return ((positions * 7919) % 97 % NUM_CLASSES).astype(np.int32)

    def samples(self, start: int, stop: int) -> Samples:
        positions = np.arange(start, stop)
        place = np.full(len(positions), np.nan)
        return Samples(
            positions, 10**9 + positions * 60, positions // 3 % 11, self.labels(positions), place, place
        )

    def images(self, positions: IntArray) -> Images:
        answer = self.hook(positions)
        if answer is not None:
            return answer
        noise = np.random.default_rng(0).integers(0, 60, (97, SIDE, SIDE, 3))
        colour = self.labels(positions)[:, None, None, None] * np.array([40, 7, 23])
        return (noise[positions % 97] + colour).astype(np.uint8)


@dataclass
class SmallStream:
    """The stream made of two such splits."""

    train: SmallSplit = field(default_factory=lambda: SmallSplit(2000))
    validation: SmallSplit = field(default_factory=lambda: SmallSplit(50))
    name: str = "small"
    fingerprint: str = "small-1"
    classes: ClassTable = field(default_factory=lambda: ClassTable(tuple("abcde")))
    image_size: int = SIDE
    fixed_size: bool = True


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(12, NUM_CLASSES))


def small_learner(setup: Setup, num_steps: int) -> ReplayLearner:
    """SGD on a linear model: the state of a real learner, a thousandth of its work."""
    return ReplayLearner(
        small_model,
        arithmetic=Arithmetic.choose("cpu", "float32"),
        size=SIDE,
        momentum=0.9,
        weight_decay=1e-4,
        rate=lambda step: setup.config.lr * (1 - step / (2 * num_steps)),
    )


@dataclass
class Bench:
    """Starts and resumes small runs in a folder, and takes their fingerprints."""

    folder: Path
    stream: SmallStream = field(default_factory=SmallStream)
    warnings: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self) -> RunConfig:
        given = {
            "limit": 1600,
            "batch_size": 16,
            "checkpoint_every": "160",
            "replay": "reservoir",
            **self.settings,
        }
        return RunConfig(stream="small", **given)

    def start(self, name: str = "run") -> Run:
        return Run(
            self.config(),
            self.folder / name,
            stream=self.stream,
            learner=small_learner,
            warn=self.warnings.append,
        )

    def resume(self, name: str = "run", **options: Any) -> Run:
        return Run.resume(
            self.folder / name,
            stream=self.stream,
            learner=small_learner,
            warn=self.warnings.append,
            **options,
        )

    def interrupted(self, num_steps: int, name: str = "run") -> Path:
        """A run that was left after some steps, without saving: what it has is its last checkpoint."""
        run = self.start(name)
        for record in run.records():
            if record.step + 1 == num_steps:
                break
        run.close()
        return run.out

    def uninterrupted(self) -> dict[str, str]:
        """Fingerprints of the run that nothing happened to."""
        self.start("uninterrupted").execute()
        return fingerprints(self.folder / "uninterrupted")


def fingerprints(out: Path) -> dict[str, str]:
    """Hashes of every file of a finished run that must not depend on how it was carried out."""
    paths = [*out.glob("*.parquet"), *out.glob("checkpoints/weights-*")]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    summary = json.loads((out / "summary.json").read_text())
    found["summary.json"] = json.dumps({k: v for k, v in summary.items() if k not in VOLATILE})
    assert {"curves.parquet", "transfer.parquet", "weights-H.safetensors"} <= found.keys()
    return found


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny models gain nothing from more threads, and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def fingerprints_of() -> Callable[[Path], dict[str, str]]:
    return fingerprints
