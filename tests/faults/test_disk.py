"""A disk that is full, limited or read-only stops a run with a message; with room again it goes on and nothing is lost."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.types import DriftlineError

Bench = Any
Fingerprints = Callable[[Path], dict[str, str]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a file system needs root; the limit on file sizes is tested in any case")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, *, but: int) -> Path:
    """A file that takes all room but so many bytes."""
    ballast = disk / "ballast"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - but)
    return ballast


@pytest.mark.parametrize("room", [8192, 40960, 163840])
@pytest.mark.parametrize("checkpoint_every", ["16", "100%"])
def test_a_disk_that_fills_while_a_run_goes_on(
    bench: Bench, small_disk: Path, fingerprints_of: Fingerprints, room: int, checkpoint_every: str
) -> None:
    """With a checkpoint a step it is the checkpoint that meets the end of the disk, else a log, in the middle of a record."""
    bench.settings = {"checkpoint_every": checkpoint_every}
    expected = bench.uninterrupted()
    bench.folder = small_disk
    ballast = fill(small_disk, but=room)
    with pytest.raises(DriftlineError, match=r"is full .*go on with `driftline resume"):
        bench.start().execute()
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith(("fetch", "checkpoint-"))
    ]
    ballast.unlink()
    out = small_disk / "run"
    run = bench.resume() if (out / "config.toml").exists() else bench.start()
    run.execute()
    assert fingerprints_of(out) == expected


@pytest.mark.parametrize("room", [0, 4096, 12288, 24576])
def test_a_disk_that_fills_while_a_run_finishes(
    bench: Bench, small_disk: Path, fingerprints_of: Fingerprints, room: int
) -> None:
    expected = bench.uninterrupted()
    bench.folder = small_disk
    run = bench.start()
    for _ in run.records():
        pass
    ballast = fill(small_disk, but=room)
    with pytest.raises(DriftlineError, match="is full"):
        run.finish()
    assert not (run.out / "summary.json").exists()
    ballast.unlink()
    bench.resume().execute()
    assert fingerprints_of(run.out) == expected


@pytest.mark.parametrize("limit", [500, 3000, 20_000])
def test_files_that_may_not_grow_further(bench: Bench, fingerprints_of: Fingerprints, limit: int) -> None:
    """The kernel's limit on the size of files, which needs no root: it tears a record as a full disk does."""
    expected = bench.uninterrupted()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(DriftlineError, match="is full"):
            bench.start().execute()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    out = bench.folder / "run"
    run = bench.resume() if (out / "config.toml").exists() else bench.start()
    run.execute()
    assert fingerprints_of(out) == expected


def test_a_failed_checkpoint_stops_the_run_soon_and_leaves_the_one_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftline.engine import checkpoint

    write = checkpoint.save
    written: list[Path] = []

    def fails_at_first(state: dict[str, Any], path: Path) -> None:
        written.append(path)
        if len(written) == 4:
            raise OSError(28, "No space left on device")
        write(state, path)

    monkeypatch.setattr(checkpoint, "save", fails_at_first)
    steps: list[int] = []

    def slowly() -> None:
        for record in bench.start().records():
            steps.append(record.step)
            time.sleep(0.005)

    with pytest.raises(DriftlineError, match="is full"):
        slowly()
    assert 39 <= steps[-1] < 49  # well before the next checkpoint would be due
    names = sorted(path.name for path in (bench.folder / "run" / "checkpoints").glob("*state*"))
    assert names == ["state-000000000020.safetensors", "state-000000000030.safetensors"]


def test_a_read_only_place_is_refused(bench: Bench, small_disk: Path) -> None:
    bench.folder = small_disk
    bench.interrupted(30)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for attempt in (lambda: bench.start("other"), bench.resume):
        with pytest.raises(DriftlineError, match=r"cannot write to .*Read-only"):
            attempt()
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    bench.resume().execute()
