"""What limits a run on many GPUs: a simulation of storage, decoding, computing and summing gradients, step by step.

    python benchmarks/pipeline_simulation.py --quick       measure decoding here, simulate, print the tables of docs/scale.md
    python benchmarks/pipeline_simulation.py --full        also measure ResNet50 forward and backward on this CPU
    python benchmarks/pipeline_simulation.py --plot FILE   draw images a second over ranks, workers and bandwidths

Each step, each rank needs its share of the batch and of the replay. The images come from a store that all ranks share, are decoded by
the rank's workers, which run a few steps ahead, and are computed on; then all ranks sum their gradients and nobody goes on before. Decoding
times vary, so the slowest rank of each step sets the pace. GPU figures are assumptions, not measurements: put in your own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import simplejpeg
import torch

from _measure import line, machine, texture
from driftline.models.build import build_model
from driftline.streams.views import crop_one

STREAM = 39_000_000
NUM_STEPS = 400
JITTER = 0.3
"""Standard deviation of the logarithm of an image's decoding time."""


@dataclass(frozen=True)
class Machinery:
    """One way to carry out a run. Times in seconds, sizes in bytes."""

    ranks: int = 1
    batch: int = 256
    workers: int = 8
    """Decoding threads of each rank."""
    storage: float = 2e9
    """Bytes a second that the store delivers to all ranks together."""
    network: float = 25e9
    """Bytes a second between two ranks."""
    image_bytes: float = 25e3
    decode: float = 2.0e-3
    train: float = 1 / 2500
    """Forward and backward of an image on one GPU in large batches; and forward alone."""
    test: float = 1 / 7500
    overhead: float = 20e-3
    """Time of a step that does not shrink with the batch: launching kernels, the optimizer."""
    model_bytes: float = 100e6
    members: int = 1
    """Members of the population that each rank trains one after the other."""
    parts: int | None = None
    """Ranks that share a batch, where members are spread over ranks; default: all."""


def step_seconds(m: Machinery, seed: int = 0, jitter: float = JITTER) -> float:
    """Mean time of a step, from a simulation of so many of them."""
    rng = np.random.default_rng(seed)
    parts = m.parts or m.ranks
    num_here = 2 * m.batch / parts
    ahead = m.workers + 2
    compute = m.members * (m.batch / parts * m.test + num_here * m.train + m.overhead)
    reduce = m.members * 2 * (parts - 1) / parts * m.model_bytes / m.network
    read = np.zeros(m.ranks)
    decoded = np.zeros((NUM_STEPS, m.ranks))
    done = np.zeros(NUM_STEPS + 1)
    busy = np.zeros(m.ranks)
    for k in range(NUM_STEPS):
        wanted = done[max(0, k - ahead)]
        read = np.maximum(read, wanted) + m.ranks * num_here * m.image_bytes / m.storage
        noise = np.exp(jitter * rng.standard_normal(m.ranks) / np.sqrt(num_here) - jitter**2 / (2 * num_here))
        busy = np.maximum(busy, read) + num_here * m.decode / m.workers * noise
        decoded[k] = busy
        # Most of the sum overlaps with the backward pass, which is about two thirds of the computing.
        done[k + 1] = max(done[k], float(decoded[k].max())) + max(compute + reduce / 10, compute / 3 + reduce)
    half = NUM_STEPS // 2
    return float(done[-1] - done[half]) / (NUM_STEPS - half)


def samples_per_second(m: Machinery, **options: float) -> float:
    """Stream samples a second."""
    return m.batch / step_seconds(m, **options)  # type: ignore[arg-type]


def limits(m: Machinery) -> dict[str, float]:
    """Stream samples a second that each part alone could do: what the simulation cannot exceed."""
    parts = m.parts or m.ranks
    compute = m.members * (m.batch / parts * (m.test + 2 * m.train) + m.overhead)
    return {
        "storage": m.storage / (2 * m.image_bytes) * parts / m.ranks,
        "decoding": parts * m.workers / (2 * m.decode),
        "computing": m.batch / compute,
    }


# -- what this machine does


def decode_seconds(num: int = 200) -> float:
    """One photo of 341 x 256 pixels: decode, and cut the two views of test and training, on one thread."""
    picture = texture(256, 341, 0)
    payload = simplejpeg.encode_jpeg(picture, quality=90)
    box = np.array([0.1, 0.1, 0.6, 0.6])
    times = []
    for _ in range(num):
        start = time.perf_counter()
        image = simplejpeg.decode_jpeg(payload)
        for flip in (False, True):
            crop_one(image, box, flip, 224)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def network_seconds(num: int = 8) -> tuple[float, float]:
    """Forward, and forward with backward, of an image of 224 pixels through ResNet50 on this CPU."""
    model = build_model("resnet50", 712, "group", 0)
    images = torch.randn(num, 3, 224, 224)
    start = time.perf_counter()
    with torch.no_grad():
        model(images)
    forward = time.perf_counter() - start
    start = time.perf_counter()
    model(images).square().mean().backward()
    return forward / num, (time.perf_counter() - start) / num


# -- tables and plot

CASES = {
    "1 GPU": Machinery(ranks=1, workers=4),
    "4 GPUs": Machinery(ranks=4, workers=4, network=200e9),
    "32 GPUs": Machinery(ranks=32, workers=4, storage=8e9),
    "1 GPU, PoLRS": Machinery(ranks=1, workers=4, members=3),
    "3 GPUs, PoLRS": Machinery(ranks=3, workers=4, parts=1, network=200e9),
    "24 GPUs, PoLRS": Machinery(ranks=24, workers=4, parts=8, storage=8e9),
}


def table(decode: float) -> pl.DataFrame:
    """Speed and duration of CLOC by number of GPUs, and what sets the limit."""
    rows = []
    for name, case in CASES.items():
        case = replace(case, decode=decode)
        speed = samples_per_second(case)
        slowest = min(limits(case).items(), key=lambda item: item[1])
        hours = STREAM / speed / 3600
        rows.append(
            {
                "case": name,
                "samples/s": round(speed),
                "hours": round(hours, 1),
                "GPU hours": round(hours * case.ranks),
                "limit": slowest[0],
                "storage MB/s": round(
                    speed * 2 * case.image_bytes * case.ranks / (case.parts or case.ranks) / 1e6
                ),
                "decoding cores busy": round(speed * 2 * decode * case.ranks / (case.parts or case.ranks)),
            }
        )
    return pl.DataFrame(rows)


def networks(decode: float) -> dict[str, int]:
    """Samples a second of 32 GPUs by the network between them."""
    speeds = {"200 Gb/s": 25e9, "100 Gb/s": 12.5e9, "25 Gb/s": 3.1e9, "10 Gb/s": 1.25e9}
    base = replace(CASES["32 GPUs"], decode=decode)
    return {
        name: round(samples_per_second(replace(base, network=bytes_s))) for name, bytes_s in speeds.items()
    }


def grid(decode: float) -> pl.DataFrame:
    """Samples a second over ranks x workers x bandwidth."""
    rows = [
        {
            "ranks": ranks,
            "speed": samples_per_second(
                Machinery(ranks=ranks, workers=workers, storage=storage, decode=decode)
            ),
            "workers": f"{workers} decoding threads a GPU",
            "storage": f"{storage / 1e9:g} GB/s",
        }
        for ranks in (1, 2, 4, 8, 16, 32)
        for workers in (1, 2, 4)
        for storage in (0.1e9, 0.4e9, 8e9)
    ]
    return pl.DataFrame(rows)


def plot(path: Path, decode: float) -> None:
    """One panel a number of workers, one line a bandwidth."""
    import altair as alt

    chart = (
        alt.Chart(alt.Data(values=grid(decode).to_dicts()))
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "ranks:Q",
                scale=alt.Scale(type="log", base=2),
                title="GPUs",
                axis=alt.Axis(values=[1, 2, 4, 8, 16, 32]),
            ),
            y=alt.Y("speed:Q", title="stream samples a second"),
            color=alt.Color("storage:N", title="storage"),
            column=alt.Column(
                "workers:N",
                title=None,
                sort=["1 decoding threads a GPU", "2 decoding threads a GPU", "4 decoding threads a GPU"],
            ),
        )
        .properties(width=220, height=240)
    )
    chart.save(str(path), scale_factor=2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true", help="also ResNet50 on this CPU")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    decode = decode_seconds()
    smooth = [
        samples_per_second(case, jitter=0.0) / min(limits(case).values())
        for case in (Machinery(workers=1), Machinery(storage=2e7), Machinery(workers=64, storage=1e12))
    ]
    details: dict[str, object] = {
        "decode_ms": round(1000 * decode, 2),
        "cases": table(decode).to_dicts(),
        "networks": networks(decode),
    }
    if arguments.full:
        forward, both = network_seconds()
        details |= {"forward_ms": round(1000 * forward), "forward_backward_ms": round(1000 * both)}
    if arguments.plot:
        plot(arguments.plot, decode)
    lines = [
        line(f"simulated speed / its limit where {name} is the limit", ratio, at_most=1.001, at_least=0.9)
        for name, ratio in zip(("decoding", "storage", "computing"), smooth, strict=True)
    ]
    print(json.dumps({"lines": lines, "details": details, "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
