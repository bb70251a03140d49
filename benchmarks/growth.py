"""Growth: does a step cost more, or a run take more memory, when the buffer or the stream is longer?

    python benchmarks/growth.py --quick     buffers of 1 K to 39 M positions; memory of runs over 20 K and 400 K samples
    python benchmarks/growth.py --full      the same with more steps; memory of runs over 20 K, 2 M and 39 M samples

Steps with different buffers alternate in one process: FIFO and reservoir, filled to their size, the small model at 32 px. Memory is the
peak of a process of its own that goes through the whole stream with its plan, fetching and logs (its learner only guesses).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from _endless import NUM_CLASSES, EndlessStream
from _measure import alternate, line, median_ratio, show
from driftline.config import RunConfig
from driftline.engine.loop import Loop
from driftline.engine.memory import peak_memory_mb
from driftline.engine.plan import OnlinePlan
from driftline.engine.run import Run
from driftline.engine.setup import Setup
from driftline.learners.base import LearnResult, State, TrainBatch
from driftline.replay.buffers import BUFFERS
from driftline.streams.fetch import Pipeline

BUFFER_SIZES = (1_000, 40_000, 4_000_000, 39_000_000)
BATCH = 64
STEP_LIMIT, STEP_LIMIT_10M = 1.03, 1.05
MEMORY_LIMIT_MB = 200.0
BYTES_A_SLOT = 8
CHUNK = 1 << 20


def loop_with(kind: str, capacity: int, steps: int) -> Loop:
    """A run in full swing: the buffer is full, the stream goes on."""
    filled = -(-capacity // BATCH) * BATCH
    stream = EndlessStream(filled + BATCH * (steps + 8))
    config = RunConfig(replay=kind, buffer_size=str(capacity), batch_size=BATCH)  # type: ignore[arg-type]
    setup = Setup(config, stream)
    buffer = BUFFERS[kind](capacity, NUM_CLASSES, 0)
    for start in range(0, filled, CHUNK):
        buffer.extend(start, min(start + CHUNK, filled), None)
    plan = OnlinePlan(
        len(stream.train),
        batch_size=BATCH,
        gd_steps=1,
        replay_ratio=1.0,
        seed=0,
        buffer=buffer,
        labels=None,
        decide_every=None,
    )
    plan.step = filled // BATCH
    pipeline = Pipeline(setup.fetcher(stream.train), plan.next, workers=2)
    return Loop(
        plan,
        pipeline,
        setup.learner(plan.num_steps),
        None,
        learns=True,
        batch_size=BATCH,
        test_every=256,
        seed=0,
    )


def steps_by_size(kind: str, block: int, rounds: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Step time at each buffer size over that at the smallest."""
    loops = {size: loop_with(kind, size, (rounds + 1) * block) for size in BUFFER_SIZES}
    records = {size: loop.records() for size, loop in loops.items()}

    def job(size: int) -> None:
        for _ in range(block):
            next(records[size])

    seconds = alternate({str(size): (lambda size=size: job(size)) for size in BUFFER_SIZES}, rounds)
    lines, details = [], {}
    for size in BUFFER_SIZES:
        ratio = median_ratio(seconds[str(size)], seconds[str(BUFFER_SIZES[0])])
        details[f"{kind} {size}"] = {
            "step_ms": round(1e3 * min(seconds[str(size)]) / block, 2),
            "ratio": ratio,
        }
        state = loops[size].plan.state()
        slot_bytes = round(sum(array.nbytes for array in state.values()) / size, 3)
        details[f"{kind} {size}"]["bytes_a_slot"] = slot_bytes
        loops[size].pipeline.close()
    lines.append(line(f"step at R = 39 M / at 1 K, {kind}", ratio, at_most=STEP_LIMIT))
    lines.append(line(f"bytes a buffer slot at R = 39 M, {kind}", slot_bytes, at_most=BYTES_A_SLOT))
    return lines, details


class Guesser:
    """A learner that always says the same: what is left is the engine."""

    num_members = 1
    member = 0
    rates = (0.0,)
    metrics = (0.0,)

    def predict(self, images: Tensor) -> Tensor:
        return torch.zeros(len(images), NUM_CLASSES)

    def learn(self, batch: TrainBatch, step: int) -> LearnResult:
        return LearnResult(0.0, 0.0, 0.0)

    def weights(self) -> State:
        return {"none": torch.zeros(1)}

    def load_weights(self, weights: State) -> None:
        pass

    def state(self) -> State:
        return self.weights()

    def load(self, state: State) -> None:
        pass


def whole_run(num: int) -> dict[str, float]:
    """Peak memory and time of going through a stream of so many samples, up to the last step and with all figures of the end."""
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(batch_size=1024, buffer_size="10%", replay="reservoir")
        started = time.perf_counter()
        run = Run(config, Path(folder) / "run", stream=EndlessStream(num), learner=lambda *_: Guesser())
        for _ in run.records():
            pass
        steps_mb = peak_memory_mb()
        run.finish()
        seconds = time.perf_counter() - started
    return {
        "peak_mb_of_steps": round(steps_mb, 1),
        "peak_mb": round(peak_memory_mb(), 1),
        "us_a_sample": round(1e6 * seconds / num, 2),
    }


def memory_by_length(lengths: list[int]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Each length in a process of its own."""
    found: dict[str, Any] = {}
    for num in lengths:
        command = [sys.executable, __file__, "--run", str(num)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[f"run of {num}"] = json.loads(output.splitlines()[-1])
    shortest = found[f"run of {lengths[0]}"]
    lines = []
    for num in lengths[1:]:
        # A reservoir of 10 % holds 8 bytes a slot; the rest must not depend on the length.
        slots_mb = 0.8 * num / 2**20
        for peak, of_what in (("peak_mb_of_steps", "all steps of a run"), ("peak_mb", "a run")):
            more_mb = found[f"run of {num}"][peak] - shortest[peak] - slots_mb
            what = f"memory of {of_what} over {num:,} beyond {lengths[0]:,} and the buffer's slots (MB)"
            lines.append(line(what, more_mb, at_most=MEMORY_LIMIT_MB))
    return lines, found


def main() -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about a minute (the default)")
    size.add_argument("--full", action="store_true", help="about half an hour")
    parser.add_argument("--run", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        print(json.dumps(result := whole_run(args.run)))
        return result
    lines, details = [], {}
    for kind in ("fifo", "reservoir"):
        more_lines, more = steps_by_size(kind, block=5, rounds=30 if args.full else 6)
        lines += more_lines
        details |= more
    more_lines, more = memory_by_length([20_000, 2_000_000, 39_000_000] if args.full else [20_000, 400_000])
    return show(lines + more_lines, steps=details, runs=more)


if __name__ == "__main__":
    main()
