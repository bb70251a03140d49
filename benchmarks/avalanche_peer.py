"""The same job through Avalanche's API (written for 0.6), where that package is installed; skipped where it is not.

    python benchmarks/avalanche_peer.py --quick      buffers of 1 K and 5 K
    python benchmarks/avalanche_peer.py --full       buffers of 1 K, 10 K and 40 K

The embedded world at 32 px with the small model: each batch of 64 is predicted, then learned from together with 64 replayed samples
from a reservoir. Both sides hold the images in memory. Samples a second, after the buffer has been filled.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _measure import line, show, sizes
from driftline.config import RunConfig
from driftline.engine.run import Run
from driftline.models.build import build_model
from driftline.streams.worlds.world import World

BATCH = 64
STEPS = 20


def avalanche_rate(world: World, capacity: int) -> float:
    """Samples a second with Naive + ReplayPlugin over experiences of one batch."""
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.scenarios.online import split_online_stream
    from avalanche.benchmarks.utils import as_classification_dataset
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
    from avalanche.training.storage_policy import ReservoirSamplingBuffer
    from avalanche.training.supervised import Naive
    from torch.utils.data import TensorDataset

    num = capacity + BATCH * STEPS
    pixels = torch.from_numpy(world.train.images(np.arange(num))).permute(0, 3, 1, 2).float().div(255)
    data = TensorDataset(pixels, torch.from_numpy(world.train.labels(np.arange(num)).astype(np.int64)))
    data.targets = data.tensors[1].tolist()
    dataset = as_classification_dataset(data)
    model = build_model("resnet-tiny", len(world.classes), "group", 0)
    policy = ReservoirSamplingBuffer(capacity)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4),
        train_mb_size=BATCH,
        eval_mb_size=BATCH,
        plugins=[ReplayPlugin(capacity, batch_size=BATCH, batch_size_mem=BATCH, storage_policy=policy)],
        evaluator=EvaluationPlugin(),
    )
    first = benchmark_from_datasets(train=[dataset.subset(range(capacity))]).train_stream[0]
    policy.update_from_dataset(first.dataset)
    rest = benchmark_from_datasets(train=[dataset.subset(range(capacity, num))]).train_stream
    started = time.perf_counter()
    for experience in split_online_stream(rest, experience_size=BATCH, shuffle=False):
        strategy.eval(experience)
        strategy.train(experience, num_workers=0)
    return BATCH * STEPS / (time.perf_counter() - started)


def driftline_rate(world: World, capacity: int) -> float:
    """Samples a second of a run from the moment its buffer is full."""
    config = RunConfig(
        stream=world.name,
        buffer_size=str(capacity),
        replay="reservoir",
        limit=capacity + BATCH * STEPS,
        lr=0.4,
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder) / "run", stream=world)
        seconds = [run.seconds for _ in run.records()]
    return BATCH * STEPS / (seconds[-1] - seconds[-1 - STEPS])


def main() -> dict[str, Any]:
    args = sizes(__doc__, quick="about a minute", full="about ten minutes")
    if importlib.util.find_spec("avalanche") is None:
        return show([], skipped="avalanche is not installed (pip install avalanche-lib)")
    capacities = (1_000, 10_000, 40_000) if args.full else (1_000, 5_000)
    world = World(int((capacities[-1] + BATCH * STEPS) * 1.3))
    lines, details = [], {}
    for capacity in capacities:
        rates = {"driftline": driftline_rate(world, capacity), "avalanche": avalanche_rate(world, capacity)}
        details[str(capacity)] = rates
        what = f"driftline / Avalanche, samples/s, buffer of {capacity:,}"
        lines.append(line(what, rates["driftline"] / rates["avalanche"], at_least=1.0))
    return show(lines, samples_per_second=details)


if __name__ == "__main__":
    main()
