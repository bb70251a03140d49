"""Run directories with planted answers: every accuracy, loss and size is what the test says it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from driftline.config import RunConfig
from driftline.experiments.recipe import Recipe
from driftline.experiments.results import Results, RunResult
from driftline.experiments.setting import Setting
from driftline.metrics.albums import make_log
from driftline.metrics.summary import summarise_online
from driftline.types import ClassTable, Samples

NUM, NUM_VALIDATION, NUM_CLASSES = 256 * 48, 3000, 20
START, STOP = 1_104_537_600, 1_420_070_400  # 2005 to 2015


@dataclass(frozen=True)
class Planted:
    """What a run shall show. `online` in each third; `past`, `future` and `year` on the validation set."""

    online: tuple[float, float, float] = (0.4, 0.4, 0.4)
    past: float = 0.4
    future: float = 0.4
    year: float | None = None
    """Accuracy on validation samples of 2010, where it differs."""
    loss: float = 2.0
    acc_stream: float = 0.4
    acc_replay: float = 0.4
    buffer: tuple[int, int] = (64, 64)
    within: float = 0.5


def steady(accuracy: float, **more: object) -> Planted:
    return Planted(
        online=(accuracy,) * 3,
        past=accuracy,
        future=accuracy,
        acc_stream=accuracy,
        **more,  # type: ignore[arg-type]
    )


def write_run(path: Path, config: RunConfig, planted: Planted) -> RunResult:
    rng = np.random.default_rng([config.seed, len(path.name), *path.name.encode()])
    path.mkdir(parents=True)
    (path / "config.toml").write_text(config.to_toml())
    summary: dict[str, object] = {
        "chance": 1 / NUM_CLASSES,
        "samples": NUM,
        "gradient_steps": 10,
        "seconds": 1.0,
    }
    summary["geolocation_error_km"] = {
        "median": 500.0,
        "share_under": dict.fromkeys(("200", "750", "2500"), planted.within),
    }
    if config.learner == "supervised":
        summary["validation_accuracy"] = planted.past
        _transfer(path, planted, rng, {"H": STOP})
    else:
        summary |= _online(path, config, planted, rng)
        times = {"H/3": START + (STOP - START) // 3, "2H/3": START + 2 * (STOP - START) // 3, "H": STOP}
        summary["checkpoints"] = {name: {"time": time} for name, time in times.items()}
        _transfer(path, planted, rng, times)
    _curves(path, planted)
    (path / "summary.json").write_text(json.dumps(summary))
    return RunResult(path)


def flags(rng: np.random.Generator, num: int, share: float) -> np.ndarray:
    """Exactly the share of True (to the nearest sample), in a random order."""
    return rng.permutation(np.arange(num) < round(share * num))


def _online(path: Path, config: RunConfig, planted: Planted, rng: np.random.Generator) -> dict[str, object]:
    fixed = np.random.default_rng(7)  # the stream is the same for every run
    label = fixed.integers(0, NUM_CLASSES, NUM).astype(np.int32)
    user = np.repeat(np.arange(NUM // 2), 2)
    right = np.concatenate([flags(rng, NUM // 3, share) for share in planted.online])
    pred = np.where(right, label, (label + 1) % NUM_CLASSES).astype(np.int32)
    time = np.linspace(START, STOP, NUM).astype(np.int64)
    log = make_log(label, pred, user, time, batch_size=config.batch_size)
    columns = ("position", "time", "user", "label", "pred", "step", "scored")
    pl.DataFrame({name: getattr(log, name) for name in columns}).write_parquet(path / "predictions.parquet")
    return summarise_online(log, NUM_CLASSES)


def _transfer(path: Path, planted: Planted, rng: np.random.Generator, times: Mapping[str, int]) -> None:
    time = np.linspace(START, STOP - 1, NUM_VALIDATION).astype(np.int64)
    in_2010 = time.astype("datetime64[s]").astype("datetime64[Y]").astype(int) == 40
    label = np.arange(NUM_VALIDATION, dtype=np.int32) % NUM_CLASSES
    frames = []
    for name, at in times.items():
        right = np.empty(NUM_VALIDATION, bool)
        parts = [(time <= at, planted.past), (time > at, planted.future)]
        if planted.year is not None:
            parts.append((in_2010, planted.year))
        for rows, share in parts:
            right[rows] = flags(rng, int(rows.sum()), share)
        pred = np.where(right, label, (label + 1) % NUM_CLASSES).astype(np.int32)
        columns = {"position": np.arange(NUM_VALIDATION), "time": time, "label": label, "pred": pred}
        frames.append(pl.DataFrame(columns).select(pl.lit(name).alias("checkpoint"), pl.all()))
    pl.concat(frames).write_parquet(path / "transfer.parquet")


def _curves(path: Path, planted: Planted) -> None:
    num = 240
    ripple = 0.01 * np.sin(np.arange(num))
    first, last = planted.buffer
    size = np.geomspace(first, last, num).round().astype(np.int64)
    size[0], size[-1] = first, last
    frame = pl.DataFrame(
        {
            "step": np.arange(num),
            "time": np.linspace(START, STOP, num).astype(np.int64),
            "loss": planted.loss + ripple,
            "lr": np.linspace(0.1, 0.01, num),
            "buffer_size": size,
            "acc_stream": planted.acc_stream + ripple,
            "acc_replay": planted.acc_replay - ripple,
        }
    )
    frame.write_parquet(path / "curves.parquet")
    pl.DataFrame({"distance_km": [1.0, 750.0], "share": [0.1, 1.0]}).write_parquet(
        path / "geolocation.parquet"
    )


@dataclass(frozen=True)
class FakeSplit:
    length: int

    def __len__(self) -> int:
        return self.length

    def samples(self, start: int, stop: int) -> Samples:
        position = np.arange(start, stop)
        time = START + position * (STOP - START) // self.length
        nowhere = np.zeros(len(position))
        return Samples(position, time, position, np.zeros(len(position), np.int32), nowhere, nowhere)


CLASSES = ClassTable(tuple("ab"), np.zeros(2), np.zeros(2), np.array([1, 3], np.uint64))


@dataclass(frozen=True)
class FakeStream:
    """A stream with the columns of one, and no images."""

    train: FakeSplit
    validation: FakeSplit = FakeSplit(NUM_VALIDATION)
    name: str = "fake"
    fingerprint: str = "fake-1"
    image_size: int = 256
    fixed_size: bool = False
    classes: ClassTable = CLASSES


def planted_results(
    folder: Path,
    recipe: Recipe,
    setting: Setting,
    plant: Callable[[str], Planted],
    seeds: int = 3,
    scoring: str = "sample",
) -> Results:
    runs: dict[str, list[RunResult]] = {}
    for seed in range(seeds):
        changed = Setting(setting.stream, setting.name, setting.scale, seed)
        for label, config in recipe.runs(changed).items():
            path = folder / f"{label.replace('/', '-')} {seed}"
            runs.setdefault(label, []).append(write_run(path, config, plant(label)))
    return Results(runs, setting.name, scoring)  # type: ignore[arg-type]
