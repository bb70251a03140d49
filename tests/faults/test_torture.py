"""The short form of `make torture`: real processes, killed with SIGKILL, resumed, compared byte by byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TORTURE = Path(__file__).parent.parent / "torture.py"
NUM_KILLS = 6


def test_killed_runs_end_with_the_same_bytes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, TORTURE, "--kills", str(NUM_KILLS), "--samples", "400"],
        capture_output=True,
        text=True,
        env={"TMPDIR": str(tmp_path), "PATH": ""},
    )
    assert done.stdout.splitlines()[-1] == f"{NUM_KILLS} kills, {NUM_KILLS} identical", (
        done.stdout + done.stderr
    )
