"""What the benchmarks share: alternating measurements, streams to measure on, and the form of a result.

On a machine that others use too, only times taken side by side can be compared: `alternate` runs its jobs in turn, many times,
and keeps the median of each, so that a disturbance meets them all alike.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from driftline.streams.store import ImageFormat, ShardWriter, StoredStream, finish_stream
from driftline.streams.worlds.world import World
from driftline.types import ClassTable
from driftline.version import VERSION

PER_SHARD = 4096


def alternate(
    jobs: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each job in each round; the first round warms up and does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            start = clock()
            job()
            if number:
                seconds[name].append(clock() - start)
    return seconds


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the ratios of neighbours: what disturbs one round disturbs both of its times."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def line(
    what: str, ratio: float, *, at_most: float | None = None, at_least: float | None = None
) -> dict[str, Any]:
    """One line of the table: a ratio (or a figure) and the limit it should keep."""
    kept = (at_most is None or ratio <= at_most) and (at_least is None or ratio >= at_least)
    limit = f"<= {at_most:g}" if at_most is not None else f">= {at_least:g}" if at_least is not None else ""
    return {"what": what, "value": round(ratio, 4), "limit": limit, "kept": kept}


def machine() -> dict[str, object]:
    """What was measured, and on what."""
    model = next(
        (row.partition(":")[2].strip() for row in _cpuinfo() if row.startswith("model name")),
        platform.processor(),
    )
    return {
        "processor": model,
        "cores": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "driftline": VERSION,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def sizes(doc: str | None, *, quick: str, full: str) -> argparse.Namespace:
    """The flags all benchmarks have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{quick} (the default)")
    size.add_argument("--full", action="store_true", help=full)
    return parser.parse_args()


def show(lines: list[dict[str, Any]], **details: object) -> dict[str, Any]:
    """Print the result as JSON, the form in which `benchmarks/run.py` reads it."""
    result = {"lines": lines, "details": details, "machine": machine()}
    print(json.dumps(result, indent=2))
    return result


# -- streams


def texture(height: int, width: int, seed: int) -> np.ndarray:
    """A picture with detail at every scale, as photographs have."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for octave in range(2, 9):
        cells = rng.normal(0, 2.0 ** (6 - octave), (2**octave + 1, 2**octave + 1, 3))
        rows = np.linspace(0, 2**octave, height).astype(int)
        columns = np.linspace(0, 2**octave, width).astype(int)
        total += cells[rows][:, columns]
    return (128 + 3 * total).clip(0, 255).astype(np.uint8)


def store(
    path: Path, payloads: Sequence[bytes], labels: np.ndarray, num_classes: int, image: ImageFormat
) -> StoredStream:
    """A stream on disk with one payload a sample (repeated from the start when there are fewer)."""
    num = len(labels)
    (path / "validation").mkdir(parents=True)
    for number, start in enumerate(range(0, num, PER_SHARD)):
        with ShardWriter(path, number) as writer:
            for i in range(start, min(start + PER_SHARD, num)):
                writer.append(payloads[i % len(payloads)])
            writer.commit()
    rows = pl.DataFrame(
        {"id": [str(i) for i in range(num)], "time": range(num), "user": np.arange(num) // 2, "label": labels}
        | {"lat": [0.0] * num, "lon": [0.0] * num}
    )
    rows.write_parquet(path / "rows.parquet")
    finish_stream(
        path,
        name="bench",
        classes=ClassTable(tuple(f"class {i}" for i in range(num_classes))),
        how={},
        train_rows=path / "rows.parquet",
        validation_rows=[],
        image=image,
    )
    return StoredStream(path)


def raw_stream(path: Path, num: int) -> StoredStream:
    """Photos of the embedded world, stored as raw pixels of 32 x 32."""
    world = World(max(2_000, int(num * 1.2)))
    num = min(num, len(world.train))
    payloads: list[bytes] = []
    labels = world.train.labels(np.arange(num))
    for start in range(0, num, PER_SHARD):
        images = world.train.images(np.arange(start, min(start + PER_SHARD, num)))
        payloads += [image.tobytes() for image in images]
    return store(path, payloads, labels, len(world.classes), ImageFormat("raw", 32, fixed=True))


def jpeg_stream(path: Path, num: int, num_different: int = 64) -> StoredStream:
    """JPEGs of 256 x 341 pixels, about 17 KB each."""
    from driftline.streams.store.decode import encode

    payloads = [encode(texture(256, 341, seed)) for seed in range(num_different)]
    return store(path, payloads, np.arange(num) % 100, 100, ImageFormat("jpeg", 256))
