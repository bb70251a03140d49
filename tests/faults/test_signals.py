"""SIGTERM and SIGINT end a run well: the step is finished, all is saved, and a line says how to go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from driftline.config import RunConfig
from driftline.engine.run import Run

FLAGS = ["--stream", "world:2000", "--batch-size", "10", "--limit", "400", "--device", "cpu"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "driftline", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    )


def when(process: subprocess.Popen[str], is_time: Callable[[], bool]) -> None:
    while not is_time():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.002)


def stopped_by(number: signal.Signals, code: int, out: Path) -> None:
    """A run that is sent a signal after its first steps: the step is finished, all is saved, the last line says how to go on."""
    process = start("run", *FLAGS, "--out", str(out), "--checkpoint-every", "100%")
    curves = out / "curves.bin"
    when(process, lambda: curves.exists() and curves.stat().st_size > 0)
    process.send_signal(number)
    said, _ = process.communicate()
    assert process.returncode == code, said
    assert f"go on with: driftline resume {out}" in said.splitlines()[-1]
    (state,) = (out / "checkpoints").glob("state-*")
    assert 0 < int(state.stem[6:]) < 40


def test_interrupted_from_the_keyboard_a_run_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    stopped_by(signal.SIGINT, 130, tmp_path / "run")


def test_terminated_while_learning_and_while_finishing_a_run_loses_nothing(
    tmp_path: Path, fingerprints_of: Callable[[Path], dict[str, str]]
) -> None:
    out = tmp_path / "run"
    stopped_by(signal.SIGTERM, 143, out)
    # `run` on it says that it is unfinished, and how to go on.
    again = start("run", *FLAGS, "--out", str(out))
    assert f"`driftline resume {out}`" in again.communicate()[0]
    assert again.returncode == 2
    # While it finishes there is nothing to save: it stops at once, and finishing is repeated.
    process = start("resume", str(out), "--workers", "1")
    when(process, (out / "curves.parquet").exists)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate()
    if process.returncode:  # it may have been just done
        assert process.returncode == 143, said
        assert f"go on with: driftline resume {out}" in said.splitlines()[-1]
        assert not list(out.glob(".*.tmp"))
        Run.resume(out).execute()
    config = RunConfig(stream="world:2000", batch_size=10, limit=400, device="cpu")
    Run(config, tmp_path / "whole").execute()
    assert fingerprints_of(out) == fingerprints_of(tmp_path / "whole")
