"""A rank that dies, ranks that are asked to stop, and going on with another number of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from .conftest import COMMON, Outcome, check_decisions_and_order, difference, free_port

FLAGS = [
    *["--limit", "480", "--checkpoint-every", "40", "--schedule", "polrs", "--polrs-every", "1/6"],
    *["--adaptive-buffer", "--adrep-every", "1/9", "--lr", "0.5"],
]
CLOSE = 1e-9


def wait_for_checkpoint(out, job, number=1):
    while len(list(out.glob("checkpoints/state-*.safetensors"))) < number:
        time.sleep(0.01)
        if (out / "curves.parquet").exists():
            pytest.fail(f"the run ended too early: {job.said(0)}")


@pytest.fixture(scope="module")
def alone(launch, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "run"
    launch(1, ["run", *COMMON, *FLAGS, "--out", out], double=True).succeed()
    return Outcome(out)


@pytest.mark.parametrize(("before", "after"), [(2, [1, 3])])
def test_kill_9_of_one_rank_and_resume_with_other_numbers(launch, tmp_path, alone, before, after):
    out = tmp_path / "run"
    job = launch(before, ["run", *COMMON, *FLAGS, "--out", out], double=True)
    for size in after:
        wait_for_checkpoint(out, job, number=2)
        os.kill(job.pids[-1], signal.SIGKILL)
        codes = job.wait()
        assert codes[-1] == -signal.SIGKILL
        assert codes[:-1] == [2] * (len(codes) - 1)
        if len(codes) > 1:
            assert f"rank 0 of {before}" in job.said(0)
            assert f"driftline resume {out}" in job.said(0)
        job = launch(size, ["resume", out], double=True)
    job.succeed()
    check_decisions_and_order(alone, Outcome(out))
    assert difference(alone, Outcome(out)) < CLOSE


def test_a_signal_to_one_rank_stops_and_saves_all(launch, tmp_path, alone):
    out = tmp_path / "run"
    job = launch(3, ["run", *COMMON, *FLAGS, "--out", out], double=True)
    wait_for_checkpoint(out, job)
    os.kill(job.pids[1], signal.SIGTERM)
    assert job.wait() == [143, 143, 143]
    assert "stopped and saved after step" in job.said(0)
    launch(2, ["resume", out], double=True).succeed()
    check_decisions_and_order(alone, Outcome(out))
    assert difference(alone, Outcome(out)) < CLOSE


def test_torchrun_starts_a_run_again_from_its_checkpoint(tmp_path):
    out = tmp_path / "run"
    flags = ["--limit", "480", "--checkpoint-every", "40"]
    command = [
        *[sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"],
        *["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--local-addr", "127.0.0.1"],
        *["-m", "driftline", "run", *COMMON, *flags, "--out", str(out)],
    ]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        while not list(out.glob("checkpoints/state-*.safetensors")):
            assert job.poll() is None, job.communicate()[0]
            time.sleep(0.01)
        os.kill(int((out / ".lock").read_text()), signal.SIGKILL)
        said = job.communicate(timeout=300)[0]
    finally:
        job.kill()
    assert job.returncode == 0, said
    assert Outcome(out).predictions["position"].to_list() == list(range(480))
    assert '"resumed": 1' in (out / "summary.json").read_text()
