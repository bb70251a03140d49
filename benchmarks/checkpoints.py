"""Checkpoints: how long a run pauses for them at the default interval, how large they are, how long a resume takes.

    python benchmarks/checkpoints.py --quick     the small model over 5 K samples of the embedded world, alone and as PoLRS
    python benchmarks/checkpoints.py --full      over 50 K samples; and ResNet-18 with a reservoir of 4 M positions

The pause is what the loop waits: copying the state, keeping the weights, and waiting for a write that has not ended. Beside it stands the
whole price: the same run with its default checkpoints and with none, taken in turn.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _endless import EndlessStream
from _measure import alternate, line, median_ratio, show, sizes
from driftline.config import RunConfig
from driftline.engine import tensor_file
from driftline.engine.run import Run
from driftline.types import Stream

LIMIT = 0.05
NONE = {"checkpoint_every": "100%", "checkpoint_seconds": 1e9}


@dataclass
class Pauses:
    """Time that the loop spends in some methods of a run."""

    seconds: float = 0.0
    count: int = 0

    def timed(self, method: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*args: Any, **options: Any) -> None:
            start = time.perf_counter()
            method(*args, **options)
            self.seconds += time.perf_counter() - start
            self.count += 1

        return wrapped


def measured(
    config: RunConfig, out: Path, stream: Stream | None = None, num_steps: int | None = None
) -> dict[str, Any]:
    """One run with its default interval: share of its time that it paused, and the size of its state."""
    run = Run(config, out, stream=stream)
    saves, kept = Pauses(), Pauses()
    run.save = saves.timed(run.save)  # type: ignore[method-assign]
    run._keep_weights = kept.timed(run._keep_weights)  # type: ignore[method-assign]
    start = time.perf_counter()
    for record in run.records():
        if num_steps and record.step + 1 >= num_steps:
            break
    if not saves.count:
        run.save(wait=True)
    seconds = time.perf_counter() - start
    run.close()
    newest = run.checkpoints.paths()[0]
    start = time.perf_counter()
    tensor_file.load(newest)
    return {
        "pause_share": (saves.seconds + kept.seconds) / seconds,
        "checkpoints": saves.count,
        "pause_ms_each": 1e3 * saves.seconds / saves.count,
        "state_mb": newest.stat().st_size / 2**20,
        "load_ms": 1e3 * (time.perf_counter() - start),
        "seconds": seconds,
    }


def price(config: dict[str, Any], folder: Path, rounds: int) -> float:
    """Time with default checkpoints over time with none."""
    number = iter(range(10**6))

    def job(settings: dict[str, Any]) -> Callable[[], object]:
        def go() -> None:
            run = Run(RunConfig(**config, **settings), folder / str(next(number)))
            for _ in run.records():
                pass
            run.close()

        return go

    seconds = alternate({"with": job({}), "without": job(NONE)}, rounds)
    return median_ratio(seconds["with"], seconds["without"])


def main() -> dict[str, Any]:
    arguments = sizes(__doc__, quick="5 K samples", full="50 K samples, and a state of the size of CLOC's")
    num = 50_000 if arguments.full else 5_000
    lines, details = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, settings in [("one model", {}), ("PoLRS", {"schedule": "polrs"})]:
            config: dict[str, Any] = {"stream": f"world:{num}", **settings}
            details[title] = measured(RunConfig(**config), folder / title)
            lines.append(
                line(f"{title}: share of the time paused", details[title]["pause_share"], at_most=LIMIT)
            )
        lines.append(
            line(
                "time with checkpoints / without",
                price({"stream": "world:4000", "limit": 2000}, folder / "price", 3),
            )
        )
        if arguments.full:
            # A step of a long run: the default interval is 5 % of the stream or ten minutes, here ten minutes of work are spread
            # over one checkpoint.
            config = {
                "model": "resnet18",
                "schedule": "polrs",
                "replay": "reservoir",
                "buffer_size": "4000000",
            }
            stream = EndlessStream(39_000_000)
            found = measured(RunConfig(**config, stream="endless"), folder / "large", stream, num_steps=20)
            details["ResNet-18, PoLRS, 4 M slots"] = found
            lines.append(
                line("large state: pause / 10 minutes", found["pause_ms_each"] / 600e3, at_most=LIMIT)
            )
    return show(lines, **details)


if __name__ == "__main__":
    main()
