"""Runs as processes of their own, several at a time: what is missing is run, what was interrupted is resumed.

In: jobs. Out: their directories, filled, and the reason of each that failed. A run's progress is read from the length of its
log, so nothing has to be asked of it. Stopping the pool stops its runs, which save themselves and can go on later.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from driftline.config import RunConfig
from driftline.types import curve_dtype

POLL_SECONDS = 0.2
STOP_SECONDS = 60.0
"""How long a run may take to save itself."""


@dataclass(frozen=True)
class Job:
    """A run to be made."""

    name: str
    config: RunConfig
    out: Path
    num_steps: int
    cost: float
    """Images that models look at, in all: what the time is about proportional to."""

    @property
    def is_finished(self) -> bool:
        """The summary is written last."""
        return (self.out / "summary.json").exists()

    @property
    def log(self) -> Path:
        """What the process printed."""
        return self.out.with_name(f"{self.out.name}.log")

    @property
    def settings(self) -> Path:
        """The config the process starts from."""
        return self.out.with_name(f"{self.out.name}.toml")

    def progress(self) -> float:
        """Share of the steps that are done.

        >>> Job("a", RunConfig(), Path("/nowhere"), 10, 1.0).progress()
        0.0
        """
        if self.is_finished:
            return 1.0
        try:
            size = (self.out / "curves.bin").stat().st_size
        except FileNotFoundError:
            return 0.0
        return min(1.0, size / curve_dtype(self.config.num_members).itemsize / self.num_steps)

    def command(self, num_processes: int = 1) -> list[str]:
        """How the run is started: anew, or where it stopped; by torchrun if it is to have several processes.

        >>> Job("a", RunConfig(), Path("/nowhere/a"), 10, 1.0).command(4)[2:5]
        ['torch.distributed.run', '--standalone', '--nproc-per-node=4']
        """
        start = [sys.executable, "-m", "driftline"]
        if num_processes > 1:
            torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
            start = [sys.executable, "-m", *torchrun, "-m", "driftline"]
        if (self.out / "config.toml").exists():
            return [*start, "resume", str(self.out)]
        return [*start, "run", "--config", str(self.settings), "--out", str(self.out)]


@dataclass
class Pool:
    """The jobs of a study and how far they are."""

    jobs: Sequence[Job]
    num_parallel: int
    threads: int
    """Threads of the arithmetic in each process."""
    num_processes: int = 1
    """Processes of each run."""
    failed: dict[str, str] = field(default_factory=dict)
    """Reason of each run that failed, by the name of its directory."""
    _running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = field(default_factory=dict)

    def run(self, show: Callable[[Pool], None]) -> None:
        """Go through all jobs, the longest first; `show` is called again and again meanwhile."""
        waiting = sorted((j for j in self.jobs if not j.is_finished), key=lambda j: j.cost)
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self.num_parallel:
                    self._start(waiting.pop())
                show(self)
                time.sleep(POLL_SECONDS)
                self._collect()
            show(self)
        finally:
            self.stop()

    @property
    def running(self) -> list[Job]:
        """Those that go on now."""
        return [job for job, _ in self._running.values()]

    def _start(self, job: Job) -> None:
        job.out.parent.mkdir(parents=True, exist_ok=True)
        job.settings.write_text(replace(job.config, workers=self.threads).to_toml(), encoding="utf-8")
        number = str(self.threads)
        environment = os.environ | {"OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number}
        with job.log.open("ab") as log:
            process = subprocess.Popen(
                job.command(self.num_processes),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        self._running[job.out.name] = (job, process)

    def _collect(self) -> None:
        for key, (job, process) in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[key]
            if code or not job.is_finished:
                self.failed[key] = _reason(job, code)

    def stop(self) -> None:
        """Ask every running process to save itself and end; wait for it."""
        for _, process in self._running.values():
            process.terminate()
        for _, process in self._running.values():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


def _reason(job: Job, code: int) -> str:
    """The last line that the process printed, which for a mistake in the settings says what to do."""
    lines = [line for line in job.log.read_text(errors="replace").splitlines() if line.strip()]
    last = lines[-1].removeprefix("error: ") if lines else "it printed nothing"
    return f"{last} (exit code {code}; see {job.log})"
