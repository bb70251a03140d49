"""Engine over bare arithmetic: what a whole step of a run costs beside the model's own work on tensors that lie ready.

    python benchmarks/engine.py --quick     small model at 32 px raw, B = 64 and 256, one model and PoLRS; ResNet18 at 64 px JPEG
    python benchmarks/engine.py --full      more steps, and ResNet50 at 224 px JPEG

A block of steps of the engine (plan, fetch, decode, augment, predict, log, learn, checkpoint) and a block of bare steps
(predict, forward, backward, update of the same model in the same precision, as one writes it with autograd) alternate in one process.
The engine computes what is predicted and what is learned from in one forward pass where it can, so that the ratio may be below 1; the
details also have its ratio to that shared pass on resident tensors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from _measure import alternate, jpeg_stream, line, median_ratio, raw_stream, show, sizes
from driftline.config import RunConfig
from driftline.engine.run import Run
from driftline.engine.setup import Setup
from driftline.learners.replay import MOST_SHARED_PIXELS, Arithmetic, PlainSGD
from driftline.models.build import build_model
from driftline.models.passes import Passes
from driftline.types import Stream

WORLD_SAMPLES = 39_000
"""What is left to learn from of a world of 50,000 photos, the shortest stream that is worth a run."""


def bare_step(config: RunConfig, num_classes: int, size: int) -> Callable[[], None]:
    """Predict, forward, backward, update for every member, on resident tensors, in the engine's arithmetic."""
    arithmetic = Arithmetic.choose(config.device, config.precision)
    models = [
        build_model(config.model, num_classes, config.norm, config.seed) for _ in range(config.num_members)
    ]
    optimizers = [
        torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
        for m in models
    ]
    test = torch.randn(config.batch_size, 3, size, size)
    train = torch.randn(2 * config.batch_size, 3, size, size)
    labels = torch.randint(0, num_classes, (len(train),))

    def step() -> None:
        for model in models:
            model.eval()
            with torch.no_grad(), arithmetic.autocast():
                model(test)
        for model, optimizer in zip(models, optimizers, strict=True):
            model.train()
            with arithmetic.autocast():
                logits = model(train)
            loss = nn.functional.cross_entropy(logits.float(), labels)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()

    return step


def shared_step(config: RunConfig, num_classes: int, size: int) -> Callable[[], None]:
    """The same with the forward pass that prediction and training share."""
    arithmetic = Arithmetic.choose(config.device, config.precision)
    model = build_model(config.model, num_classes, config.norm, config.seed)
    passes = Passes.of(model)
    assert passes is not None
    optimizer = PlainSGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    images = torch.randn(3 * config.batch_size, 3, size, size).to(arithmetic.dtype)
    labels = torch.randint(0, num_classes, (2 * config.batch_size,))

    def step() -> None:
        _, logits = passes(images, config.batch_size, arithmetic.lower)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def compare(
    config: RunConfig, stream: Stream, *, block: int, rounds: int
) -> tuple[float, dict[str, list[float]]]:
    """Ratio of engine to bare, and the seconds of each block of engine, bare, and (where there is one) shared steps."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder) / "run", stream=stream)
        size = Setup(config, stream).image_size
        records = run.records()
        steps: dict[str, Callable[[], object]] = {
            "engine": partial(next, records),
            "bare": bare_step(config, len(stream.classes), size),
        }
        if config.num_members == 1 and 2 * config.batch_size * size**2 <= MOST_SHARED_PIXELS:
            steps["shared"] = shared_step(config, len(stream.classes), size)

        seconds = alternate({name: repeated(step, block) for name, step in steps.items()}, rounds)
        records.close()
    return median_ratio(seconds["engine"], seconds["bare"]), seconds


def of_population(stream: Stream, *, block: int, rounds: int) -> float:
    """Step of a run with PoLRS of three members over that of a run with one."""
    with tempfile.TemporaryDirectory() as folder:
        configs = {
            schedule: config_of("raw", 64, schedule, (rounds + 1) * block + 8)
            for schedule in ("constant", "polrs")
        }
        runs = {
            name: Run(config, Path(folder) / name, stream=stream).records()
            for name, config in configs.items()
        }
        jobs = {name: repeated(partial(next, records), block) for name, records in runs.items()}
        seconds = alternate(jobs, rounds)
        for records in runs.values():
            records.close()
    return median_ratio(seconds["polrs"], seconds["constant"])


def repeated(step: Callable[[], object], times: int) -> Callable[[], None]:
    """A block of steps."""

    def block() -> None:
        for _ in range(times):
            step()

    return block


def config_of(name: str, batch_size: int, schedule: str, steps: int) -> RunConfig:
    """Settings of a run that is longer than the steps to be measured."""
    return RunConfig(
        stream=name,
        model={"raw": "resnet-tiny", "64px": "resnet18", "224px": "resnet50"}[name],
        image_size=64 if name == "64px" else None,
        batch_size=batch_size,
        schedule=schedule,  # type: ignore[arg-type]
        limit=batch_size * steps,
        buffer_size="10%",
        # As often as in the embedded world of 50,000 photos; shares of so short a stream would come every few steps.
        polrs_every=str(min(WORLD_SAMPLES // 18, batch_size * steps)),
        checkpoint_every=str(WORLD_SAMPLES // 20),
    )


def main() -> dict[str, Any]:
    args = sizes(__doc__, quick="about a minute on two cores", full="about five minutes")
    cases = [
        # stream, batch size, schedule, steps a block (two workers decode for two steps at once), rounds, limit
        ("raw", 64, "constant", 12, 15 if args.full else 6, 1.05),
        ("raw", 256, "constant", 4, 15 if args.full else 4, 1.05),
        ("raw", 64, "polrs", 6, 15 if args.full else 4, 1.05),
        ("64px", 64, "constant", 2, 12 if args.full else 3, 1.03),
    ]
    if args.full:
        cases += [
            ("64px", 256, "constant", 2, 5, 1.03),
            ("64px", 64, "polrs", 2, 5, 1.03),
            ("224px", 64, "constant", 2, 2, 1.03),
        ]
    lines, details = [], {}
    with tempfile.TemporaryDirectory() as folder:
        streams = {"raw": raw_stream(Path(folder) / "raw", 60_000 if args.full else 32_000)}
        streams["64px"] = streams["224px"] = jpeg_stream(Path(folder) / "jpeg", 16_384)
        for name, batch_size, schedule, block, rounds, limit in cases:
            config = config_of(name, batch_size, schedule, (rounds + 1) * block + 8)
            ratio, seconds = compare(config, streams[name], block=block, rounds=rounds)
            what = f"engine/bare, {config.model}, {name}, B={batch_size}, {schedule}"
            lines.append(line(what, ratio, at_most=limit))
            best = {key: min(value) / block for key, value in seconds.items()}
            details[what] = {f"{key}_step_ms": round(1e3 * value, 2) for key, value in best.items()}
            if "shared" in seconds:
                details[what]["engine/shared"] = round(median_ratio(seconds["engine"], seconds["shared"]), 4)
        population = of_population(streams["raw"], block=10, rounds=10 if args.full else 4)
    lines.append(line("PoLRS of 3 / one member, resnet-tiny, B=64", population, at_most=2.9))
    return show(lines, steps=details)


if __name__ == "__main__":
    main()
