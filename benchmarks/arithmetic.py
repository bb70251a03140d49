"""The chosen arithmetic over plain eager float32: how much faster a step is, and what it costs in accuracy.

    python benchmarks/arithmetic.py --quick     small model, a short stream, one seed
    python benchmarks/arithmetic.py --full      also ResNet18 at 64 px; 20 K samples, three seeds

Both steps predict 64 images and train on 128, alternating in one process. The plain one is what one writes first: float32 tensors in
PyTorch's default layout, nn modules, torch.optim.SGD. Accuracy is online accuracy (every sample counts alike) on the embedded world.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from _measure import alternate, line, median_ratio, show, sizes
from driftline.config import RunConfig
from driftline.engine.run import Run
from driftline.learners.base import TrainBatch
from driftline.learners.replay import Arithmetic, ReplayLearner
from driftline.models.build import build_model
from driftline.streams.fetch import TrainView

BATCH = 64
NUM_CLASSES = 116
LIMIT = 2.0
NOISE = 0.01
"""Difference of accuracies over short streams that two seeds of one arithmetic show as well."""


def plain_step(model_name: str, size: int) -> Callable[[], None]:
    """Predict, forward, backward, update as one writes it first."""
    model = build_model(model_name, NUM_CLASSES, "group", 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    test, train = torch.randn(BATCH, 3, size, size), torch.randn(2 * BATCH, 3, size, size)
    labels = torch.randint(0, NUM_CLASSES, (2 * BATCH,))

    def step() -> None:
        model.eval()
        with torch.no_grad():
            model(test)
        model.train()
        loss = nn.functional.cross_entropy(model(train), labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def chosen_step(model_name: str, size: int) -> Callable[[], None]:
    """The same work as the learner does it, its statistics and checks included."""
    learner = ReplayLearner(
        partial(build_model, model_name, NUM_CLASSES, "group", 0),
        arithmetic=Arithmetic.choose("cpu", "auto"),
        size=size,
        momentum=0.9,
        weight_decay=1e-4,
        rate=lambda step: 0.01,
    )
    test, train = torch.randn(BATCH, 3, size, size), torch.randn(2 * BATCH, 3, size, size)
    batch = TrainBatch((TrainView(train, None),), torch.randint(0, NUM_CLASSES, (2 * BATCH,)), BATCH)

    def step() -> None:
        learner.expect(batch.views[0])
        learner.predict(test)
        learner.learn(batch, 0)

    return step


def speed_up(model_name: str, size: int, rounds: int) -> float:
    """How many times faster the chosen step is."""
    jobs = {"plain": plain_step(model_name, size), "chosen": chosen_step(model_name, size)}
    seconds = alternate(jobs, rounds)
    return median_ratio(seconds["plain"], seconds["chosen"])


def online_accuracy(config: RunConfig) -> float:
    """Share of all samples that were predicted right."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder) / "run")
        right = [r.predictions["pred"] == r.predictions["label"] for r in run.records()]
    return float(np.concatenate(right).mean())


def main() -> dict[str, Any]:
    args = sizes(__doc__, quick="half a minute", full="several minutes")
    name = Arithmetic.choose("cpu", "auto").name
    lines = [
        line(
            f"eager float32 / chosen ({name}), resnet-tiny, 32 px",
            speed_up("resnet-tiny", 32, 60 if args.full else 25),
            at_least=LIMIT,
        )
    ]
    if args.full:
        lines.append(
            line("eager float32 / chosen, resnet18, 64 px", speed_up("resnet18", 64, 15), at_least=LIMIT)
        )
    num, seeds = (20_000, 3) if args.full else (6_400, 1)
    accuracies: dict[str, list[float]] = {"auto": [], "float32": []}
    for seed in range(seeds):
        config = RunConfig(
            stream=f"world:{max(num * 5 // 4, 10_000)}", lr=0.4, crop_scale=0.5, limit=num, seed=seed
        )
        for precision, found in accuracies.items():
            found.append(online_accuracy(replace(config, precision=precision)))  # type: ignore[arg-type]
    difference = abs(np.mean(accuracies["auto"]) - np.mean(accuracies["float32"]))
    lines.append(line("difference in online accuracy to float32", float(difference), at_most=NOISE))
    return show(lines, online_accuracy=accuracies, samples=num)


if __name__ == "__main__":
    main()
