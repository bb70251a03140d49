"""Replay buffers: time to sample and insert a batch of 256 in a buffer of 39 M positions, and bytes a slot, against their limits.

Each buffer is measured in a process of its own: filled, then stepped through many batches, small and large size alternating. The
plain reference is what many libraries do: a Python list of indices that is rebuilt at every step (measured at a small size).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from driftline import draws
from driftline.replay.buffers import BUFFERS, Buffer
from driftline.types import IntArray, LabelArray

BATCH = 256
NUM_CLASSES = 712
SMALL = 1_000
LIMIT_MS = 1.0
LIMIT_BYTES = {"fifo": 0.0, "reservoir": 8.0, "ring": 8.0}
"""Bytes a slot, to a hundredth; what a FIFO needs does not depend on its size, so that it is nothing a slot."""
BYTES_ASIDE = 1 << 16
"""What a buffer may use whatever its size: counters, one for each class."""
LIST_SIZE = 40_000
FILL = 1 << 20


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="1 M positions (default)")
    size.add_argument("--full", action="store_true", help="39 M positions, the length of CLOC")
    parser.add_argument("--measure", choices=list(LIMIT_BYTES), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    capacity = 39_000_000 if options.full else 1_000_000
    if options.measure:
        print(json.dumps(measure(options.measure, capacity)))
        return {}
    print(f"sample {BATCH} + insert {BATCH} positions, buffer of {capacity:,}")
    result = {name: in_process(name, full=options.full) for name in LIMIT_BYTES}
    reference_ms = list_step_ms()
    for name, found in result.items():
        found["list_over_this"] = reference_ms / found["step_ms"]
        print(
            f"  {name:<10} {found['step_ms']:.3f} ms ({found['step_over_limit']:.2f} of the limit of {LIMIT_MS:g} ms), "
            f"{found['large_over_small']:.2f} x that of {SMALL:,}; {found['bytes_a_slot']:.2f} bytes a slot "
            f"(limit {LIMIT_BYTES[name]:g}); an index list of {LIST_SIZE:,} takes {found['list_over_this']:.0f} x as long"
        )
    print(json.dumps(result))
    return result


def in_process(name: str, *, full: bool) -> dict[str, float]:
    """The measurement of one buffer in a fresh process, so that its memory is its own."""
    command = [sys.executable, __file__, "--measure", name, "--full" if full else "--quick"]
    found: dict[str, float] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    return found


def measure(name: str, capacity: int) -> dict[str, float]:
    """Times of a step of a full buffer, and the memory that filling it took."""
    warm = filled(name, SMALL)
    step_times_ms(warm, 2 * SMALL, 5)
    tracemalloc.start()
    large = filled(name, capacity)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    small = filled(name, SMALL)
    # Alternating, so that whatever else the machine does meets both alike.
    times: dict[int, list[float]] = {SMALL: [], capacity: []}
    for i in range(20):
        for size, buffer in ((SMALL, small), (capacity, large)):
            times[size] += step_times_ms(buffer, 2 * size + i * 20 * BATCH, 20)
    step_ms, small_ms = (float(np.median(times[size])) for size in (capacity, SMALL))
    return {
        "capacity": float(capacity),
        "step_ms": step_ms,
        "step_over_limit": step_ms / LIMIT_MS,
        "large_over_small": step_ms / small_ms,
        "bytes_a_slot": round(held / capacity, 2),
        "within_bytes": held <= LIMIT_BYTES[name] * capacity + BYTES_ASIDE,
    }


def filled(name: str, capacity: int) -> Buffer:
    """A buffer that twice its capacity has entered."""
    buffer = BUFFERS[name](capacity, min(NUM_CLASSES, capacity), 0)
    for start in range(0, 2 * capacity, FILL):
        stop = min(start + FILL, 2 * capacity)
        buffer.extend(start, stop, labels_of(np.arange(start, stop), min(NUM_CLASSES, capacity)))
    return buffer


def labels_of(positions: IntArray, num_classes: int) -> LabelArray:
    """Labels of uneven frequency."""
    return (draws.uniform(1, "label", positions) ** 2 * num_classes).astype(np.int32)


def step_times_ms(buffer: Buffer, seen: int, num: int) -> list[float]:
    """Milliseconds of some steps: draw a batch to replay, let a batch enter."""
    times = []
    for i in range(num):
        start = seen + i * BATCH
        labels = labels_of(np.arange(start, start + BATCH), min(NUM_CLASSES, buffer.capacity))
        rng = draws.generator(0, "replay", start)
        began = time.perf_counter()
        buffer.sample(rng, BATCH)
        buffer.extend(start, start + BATCH, labels)
        times.append((time.perf_counter() - began) * 1e3)
    return times


def list_step_ms() -> float:
    """The plain reference: an index list of the last positions, rebuilt at every step."""
    held = list(range(LIST_SIZE))
    rng = np.random.default_rng(0)

    def step() -> None:
        nonlocal held
        [held[i] for i in rng.permutation(len(held))[:BATCH]]
        held = [*held, *range(BATCH)][-LIST_SIZE:]

    return quickest_ms(step, 20)


def quickest_ms(action: Callable[[], None], num: int) -> float:
    times = []
    for _ in range(num):
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1e3)
    return float(np.median(times))


if __name__ == "__main__":
    main()
