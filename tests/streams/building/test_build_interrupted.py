"""Builds that are killed, run out of disk, or find the leftovers of another build."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftline.streams.building.build import build
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.building.workshop import FOLDER, workshop
from driftline.types import DriftlineError

NUM_ROWS = 40_000


def digest(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Places over eleven years in three files, some rows twice."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(1)
    ids = rng.integers(0, NUM_ROWS * 20, NUM_ROWS)
    frame = pl.DataFrame(
        {
            "id": ids.astype(str),
            "user": rng.integers(0, 500, NUM_ROWS),
            "time": rng.integers(1_072_915_200, 1_420_070_399, NUM_ROWS),
            "lat": rng.uniform(-90, 90, NUM_ROWS),
            "lon": rng.uniform(-180, 180, NUM_ROWS),
        }
    )
    for number in range(3):
        frame[number::3].write_csv(folder / f"{number}.csv")
    return folder


def config(table: Path, out: Path, **options: object) -> BuildConfig:
    return BuildConfig((str(table / "*.csv"),), out, min_per_class=5, max_per_class=60, **options)  # type: ignore[arg-type]


DRIVER = textwrap.dedent(
    """
    import os, signal, sys, threading, time
    from pathlib import Path
    from driftline.streams.building.build import build
    from driftline.streams.building.build_config import BuildConfig
    from driftline.types import DriftlineError
    table, out, delay = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    config = BuildConfig((table + "/*.csv",), out, min_per_class=5, max_per_class=60)
    if delay >= 0:
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
    started = time.perf_counter()
    try:
        report = build(config)
    except DriftlineError as error:
        print(error)
        sys.exit(2)
    print(time.perf_counter() - started, ",".join(report.resumed))
    sys.stdout.flush()
    os._exit(0)
    """
)


def run(table: Path, out: Path, delay: float = -1.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", DRIVER, str(table), str(out), str(delay)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_killed_at_any_moment_and_run_again_gives_the_same_bytes(table: Path, tmp_path: Path) -> None:
    whole = run(table, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    seconds = float(whole.stdout.split()[0])
    expected = digest(tmp_path / "whole")
    draw = random.Random()
    out = tmp_path / "killed"
    num_killed, delays = 0, []
    for _ in range(4):
        delays.append(draw.uniform(0, seconds))
        attempt = run(table, out, delays[-1])
        num_killed += attempt.returncode == -signal.SIGKILL
        if attempt.returncode == 0:
            shutil.rmtree(out)  # was faster than its death: again from the start
    last = run(table, out)
    assert last.returncode == 0, (delays, last.stderr)
    assert num_killed > 0, delays
    assert digest(out) == expected, delays


def test_half_written_files_of_a_killed_build_disappear(table: Path, tmp_path: Path) -> None:
    expected = build(config(table, tmp_path / "whole"))

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "store":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(config(table, tmp_path / "out"), progress=stop)
    (tmp_path / "out" / "validation").mkdir()
    for folder in ("", "validation", FOLDER):
        (tmp_path / "out" / folder / ".samples.parquet.123.tmp").write_bytes(b"half")
    build(config(table, tmp_path / "out"))
    assert digest(tmp_path / "out") == digest(expected.out)


def test_finished_stages_are_not_done_again(table: Path, tmp_path: Path) -> None:
    expected = build(config(table, tmp_path / "whole"))

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "store":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(config(table, tmp_path / "out"), progress=stop)
    spilled = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / FOLDER).rglob("*.arrow")}
    assert spilled
    stages: list[str] = []

    def watch(stage: str, done: int, total: int | None) -> None:
        stages.append(stage)
        assert {p: p.stat().st_mtime_ns for p in spilled if p.exists()} == spilled

    report = build(config(table, tmp_path / "out"), progress=watch)
    assert report.resumed == ("duplicates", "classes", "tables")
    assert "tables" not in stages
    assert digest(tmp_path / "out") == digest(expected.out)


def test_a_damaged_spill_is_made_again(table: Path, tmp_path: Path) -> None:
    expected = build(config(table, tmp_path / "whole"))

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "classes":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(config(table, tmp_path / "out"), progress=stop)
    victim = next((tmp_path / "out" / FOLDER / "spill").rglob("*.arrow"))
    os.truncate(victim, victim.stat().st_size // 2)
    build(config(table, tmp_path / "out"))
    assert digest(tmp_path / "out") == digest(expected.out)


def test_other_options_start_over_and_say_so(table: Path, tmp_path: Path) -> None:
    expected = build(config(table, tmp_path / "whole", seed=7))

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "store":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(config(table, tmp_path / "out", seed=6), progress=stop)
    said: list[str] = []
    report = build(config(table, tmp_path / "out", seed=7), say=said.append)
    assert report.resumed == ()
    assert any("starting over" in text for text in said)
    assert digest(tmp_path / "out") == digest(expected.out)


def test_a_changed_table_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("label,time\na,1\nb,2\n")

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "store":
            raise KeyboardInterrupt

    options = BuildConfig((str(path),), tmp_path / "out", validation=0.0)
    with pytest.raises(KeyboardInterrupt):
        build(options, progress=stop)
    time.sleep(0.01)
    path.write_text("label,time\na,1\nb,2\nc,3\n")
    assert build(options).accounting.num_stream == 3


def test_two_builds_do_not_share_a_directory(tmp_path: Path) -> None:
    with (
        workshop(tmp_path / "out", "one", lambda text: None),
        pytest.raises(DriftlineError, match="another build"),
        workshop(tmp_path / "out", "one", lambda text: None),
    ):
        pass


FULL_DISK = textwrap.dedent(
    """
    mount -t tmpfs -o size="$SIZE" none "$DISK" || exit 77
    "$PYTHON" -c "$DRIVER" "$TABLE" "$DISK/out" -1
    echo "first $?"
    ls "$DISK/out"/stream.json 2>/dev/null && echo "too early"
    mount -o remount,size=200m "$DISK" || exit 77
    "$PYTHON" -c "$DRIVER" "$TABLE" "$DISK/out" -1
    echo "second $?"
    cp -r "$DISK/out" "$COPY"
    """
)


@pytest.mark.parametrize("size", ["300k", "2200k", "4200k"])
def test_a_full_disk_is_explained_and_the_build_goes_on_when_there_is_room(
    table: Path, tmp_path: Path, size: str
) -> None:
    expected = build(config(table, tmp_path / "whole"))
    (tmp_path / "disk").mkdir()
    environment = os.environ | {
        "SIZE": size,
        "DISK": str(tmp_path / "disk"),
        "COPY": str(tmp_path / "copy"),
        "PYTHON": sys.executable,
        "DRIVER": DRIVER,
        "TABLE": str(table),
    }
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare")
    command = [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", FULL_DISK]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if result.returncode in (1, 77) and "second" not in result.stdout:
        pytest.skip(f"cannot mount a small disk here: {result.stderr.strip()}")
    assert "first 2" in result.stdout, result.stdout + result.stderr
    assert "is full" in result.stdout
    assert "too early" not in result.stdout
    assert "second 0" in result.stdout, result.stdout + result.stderr
    assert digest(tmp_path / "copy") == digest(expected.out)
