"""Storage that hangs, fails or lies: a clear message and nothing lost, or the sample is set aside."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftline.streams import fetch
from driftline.types import DriftlineError, Images, IntArray

Bench = Any
Fingerprints = Callable[[Path], dict[str, str]]
WHEN = 900


def test_a_read_that_hangs_ends_in_a_message_and_the_run_can_be_resumed(
    bench: Bench, fingerprints_of: Fingerprints, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = bench.uninterrupted()
    answered = threading.Event()

    def hang(positions: IntArray) -> Images | None:
        if WHEN in positions:
            answered.wait()
        return None

    bench.stream.train.hook = hang
    monkeypatch.setattr(fetch, "HANG_SECONDS", 0.3)
    # Ten steps are read together here: the first of those with step 56.
    with pytest.raises(DriftlineError, match=r"step 50: reading the images took more than 0.3 s"):
        bench.start().execute()
    answered.set()
    bench.resume().execute()
    assert fingerprints_of(bench.folder / "run") == expected


def test_a_hanging_thread_does_not_keep_the_process_from_ending() -> None:
    program = """
import threading
import numpy as np
from driftline.streams.fetch import Fetcher, FetchRequest, Pipeline
class Hangs:
    def images(self, positions): threading.Event().wait()
none = np.empty(0, np.int64)
pipeline = Pipeline(Fetcher(Hangs(), True, 8, 0, 0.5, 5), lambda: FetchRequest(0, none, none, 1), 2, hang_seconds=0.1)
try:
    pipeline.next()
finally:
    pipeline.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "does not answer" in done.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(5, "Input/output error"), "could not be read .*Input/output error"),
        (PermissionError(13, "Permission denied"), "could not be read .*Permission denied"),
        (MemoryError("no memory for 9 GB"), "could not be read .*no memory for 9 GB"),
    ],
)
def test_a_failing_fetch_thread_ends_in_a_message_and_the_run_can_be_resumed(
    bench: Bench, fingerprints_of: Fingerprints, error: BaseException, message: str
) -> None:
    expected = bench.uninterrupted()

    def fail(positions: IntArray) -> Images | None:
        if WHEN in positions:
            raise error
        return None

    bench.stream.train.hook = fail
    with pytest.raises(DriftlineError, match=f"step 56: the images {message}.*resume"):
        bench.start().execute()
    bench.stream.train.hook = lambda positions: None
    bench.resume().execute()
    assert fingerprints_of(bench.folder / "run") == expected


def test_a_bug_in_a_stream_shows_as_it_is(bench: Bench) -> None:
    """An error that no user can put right keeps its type and its traceback."""

    def wrong(positions: IntArray) -> Images | None:
        return {}["no such key"]  # type: ignore[no-any-return]

    bench.stream.train.hook = wrong
    with pytest.raises(KeyError, match="no such key"):
        bench.start().execute()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("fetch")]


def test_a_clock_that_jumps_changes_nothing(
    bench: Bench, fingerprints_of: Fingerprints, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = bench.uninterrupted()
    jumps = iter(np.random.default_rng(0).integers(-(10**9), 10**9, 10**6).tolist())
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    bench.settings = {"checkpoint_seconds": 0.05}
    bench.interrupted(67)
    summary = bench.resume().execute()
    assert 0 < summary["seconds"] < 10**6
    assert fingerprints_of(bench.folder / "run") == expected
