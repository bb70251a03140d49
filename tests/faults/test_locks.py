"""One run a directory: a second one is refused while the first lives, and not because a dead one left its lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from driftline.types import DriftlineError

Bench = Any
HOLDER = "import fcntl, sys, time; f = open(sys.argv[1], 'a+'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(600)"


def holder(lock: Path) -> subprocess.Popen[bytes]:
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_live_run_keeps_others_out_and_a_killed_one_does_not(bench: Bench) -> None:
    out = bench.interrupted(20)
    other = holder(out / ".lock")
    for attempt in (bench.start, bench.resume):
        with pytest.raises(DriftlineError, match="in use by another run"):
            attempt()
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert (out / ".lock").exists()
    bench.resume().execute()


def test_the_message_names_the_process(bench: Bench) -> None:
    run = bench.start()
    with pytest.raises(DriftlineError, match=f"process {os.getpid()}"):
        bench.start()
    run.close()
    bench.resume().close()


def test_a_failed_run_lets_go_of_its_directory(bench: Bench) -> None:
    def fail(positions: object) -> None:
        raise OSError(5, "Input/output error")

    bench.stream.train.hook = fail
    with pytest.raises(DriftlineError) as kept:  # the error, and with it the run, is still referred to
        bench.start().execute()
    bench.stream.train.hook = lambda positions: None
    bench.resume().execute()
    assert kept.value


def test_a_file_in_place_of_the_directory_is_refused(bench: Bench) -> None:
    (bench.folder / "run").write_text("a file")
    with pytest.raises(DriftlineError, match="is a file"):
        bench.start()
