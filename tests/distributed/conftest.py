"""Real processes that meet on 127.0.0.1: `launch(3, arguments)` starts three ranks, `.wait()` gives their exit codes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from driftline.engine import tensor_file

COMMON = [
    *["--stream", "world:4000", "--device", "cpu", "--precision", "float32", "--lr", "0.02"],
    *["--batch-size", "8", "--buffer-size", "15%", "--workers", "1"],
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Launcher:
    """The process that forks ranks."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("launcher.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, task: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class Job:
    """The ranks of one run."""

    launcher: Launcher
    pids: list[int]
    logs: list[Path]
    codes: list[int] = field(default_factory=list)

    def wait(self) -> list[int]:
        while len(self.codes) < len(self.pids):
            self.codes.append(self.launcher.ask({"wait": self.pids[len(self.codes)]}))
        return self.codes

    def kill(self) -> None:
        for pid in self.pids[len(self.codes) :]:
            os.kill(pid, signal.SIGKILL)
        self.wait()

    def said(self, rank: int) -> str:
        return self.logs[rank].read_text()

    def succeed(self) -> None:
        assert self.wait() == [0] * len(self.pids), "\n".join(map(self.said, range(len(self.pids))))


@pytest.fixture(scope="session")
def launcher():
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture(scope="session")
def launch(launcher, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    numbers = itertools.count()
    jobs = []

    def start(size, arguments, *, of_rank=None, folders=None, bad=(), double=False, port=None, **environment):
        """`size` ranks with these arguments; `of_rank` gives more of them to some ranks."""
        number, port = next(numbers), port or free_port()
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
        ranks = [
            {
                "arguments": [*map(str, arguments), *(of_rank or {}).get(rank, [])],
                "log": str(folder / f"job-{number}-rank-{rank}.log"),
                "environment": meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | environment,
                "folder": str(folders[rank] if folders else folder),
                "bad": list(bad),
                "double": double,
            }
            for rank in range(size)
        ]
        job = Job(launcher, launcher.ask({"ranks": ranks}), [Path(rank["log"]) for rank in ranks])
        jobs.append(job)
        return job

    yield start
    for job in jobs:
        job.kill()


@dataclass(frozen=True)
class Outcome:
    """The files of a finished run."""

    out: Path

    @property
    def predictions(self) -> pl.DataFrame:
        return pl.read_parquet(self.out / "predictions.parquet")

    @property
    def curves(self) -> pl.DataFrame:
        return pl.read_parquet(self.out / "curves.parquet")

    @property
    def transfer(self) -> pl.DataFrame:
        return pl.read_parquet(self.out / "transfer.parquet")

    @property
    def weights(self) -> dict[str, Any]:
        return tensor_file.load(self.out / "checkpoints" / "weights-H.safetensors")["weights"]


def difference(a: Outcome, b: Outcome) -> float:
    """The largest difference between the last weights of two runs, beside the largest weight of each tensor."""
    ours, theirs = a.weights, b.weights
    assert list(ours) == list(theirs)
    return max(
        float((ours[name] - theirs[name]).abs().max() / ours[name].abs().max().clamp(min=1e-3))
        for name in ours
    )


def check_decisions_and_order(a: Outcome, b: Outcome) -> None:
    """Positions, order, scored samples, members, rates and buffer sizes are the same in both."""
    whole = ["position", "time", "user", "label", "member", "step", "scored"]
    assert a.predictions.select(whole).equals(b.predictions.select(whole))
    decided = [
        c
        for c in a.curves.columns
        if c in ("step", "position", "time", "member", "buffer_size") or c.startswith("lr")
    ]
    assert a.curves.select(decided).equals(b.curves.select(decided))
    assert a.transfer.select("checkpoint", "position", "label").equals(
        b.transfer.select("checkpoint", "position", "label")
    )
