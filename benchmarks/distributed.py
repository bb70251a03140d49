"""Several processes on one machine: speed beside one process with as many threads, traffic of gradients, gatherings of the log.

    python benchmarks/distributed.py --quick     3,200 samples of the embedded world, two rounds
    python benchmarks/distributed.py --full      12,800 samples, five rounds

The small model with replay, gloo over loopback. Both sides do the whole run, from the first step to the last; they take turns.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _measure import line, median_ratio, show, sizes

SETTINGS = {"stream": "world:20000", "device": "cpu", "checkpoint_every": "100%", "workers": 1}
SPEED, TRAFFIC, GATHERS = 0.85, 1.0, 1 / 50


def rank(out: Path, num_samples: int) -> None:
    """What each process does: the run, and on the first rank a file with its figures."""
    from driftline.config import RunConfig
    from driftline.engine.run import Run

    run = Run(RunConfig(**SETTINGS, limit=num_samples), out)  # type: ignore[arg-type]
    for _ in run.records():
        pass
    team, learner = run.team, run.learner
    model_bytes = sum(p.numel() * p.element_size() for p in learner.members[0].model.parameters())  # type: ignore[attr-defined]
    if team.is_first:
        figures = {
            "samples_per_second": num_samples / run.seconds,
            "traffic": team.gradient_bytes / run.num_steps / model_bytes,
            "gathers": run.gathering.count / run.num_steps,
        }
        out.with_suffix(".json").write_text(json.dumps(figures))
    run.close()


def figures(num_ranks: int, num_threads: int, num_samples: int) -> dict[str, Any]:
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        common |= {"OMP_NUM_THREADS": str(num_threads), "WORLD_SIZE": str(num_ranks)}
        out = Path(folder) / "run"
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", str(out), str(num_samples)],
                env=os.environ | common | {"RANK": str(r), "LOCAL_RANK": str(r)},
            )
            for r in range(num_ranks)
        ]
        for process in processes:
            if process.wait():
                sys.exit(f"a process ended with code {process.returncode}")
        found: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
        return found


def main() -> dict[str, Any]:
    arguments = sizes(__doc__, quick="3,200 samples, two rounds", full="12,800 samples, five rounds")
    num_samples, rounds = (12_800, 5) if arguments.full else (3_200, 2)
    one, two = [], []
    for _ in range(rounds):
        one.append(figures(1, 2, num_samples))
        two.append(figures(2, 1, num_samples))
    speed = median_ratio(*([run["samples_per_second"] for run in runs] for runs in (two, one)))
    return show(
        [
            line("two processes of one thread / one of two threads, samples/s", speed, at_least=SPEED),
            line("bytes of gradients a step / bytes of the model", two[0]["traffic"], at_most=TRAFFIC),
            line("gatherings of the log a step", two[0]["gathers"], at_most=GATHERS),
        ],
        samples=num_samples,
        one_process=round(statistics.median(run["samples_per_second"] for run in one)),
        two_processes=round(statistics.median(run["samples_per_second"] for run in two)),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(Path(sys.argv[2]), int(sys.argv[3]))
        os._exit(0)  # as the command does: see `driftline.cli.run`
    else:
        main()
