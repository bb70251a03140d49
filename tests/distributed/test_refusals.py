"""What cannot work is refused on all ranks, and one of them says what to do."""

from __future__ import annotations

import socket

from .conftest import COMMON


def run(out, *flags):
    return ["run", *COMMON, "--limit", "64", "--out", out, *flags]


def refused(job, rank=0):
    """What one rank says; all end with the code of a mistake, and nobody shows a traceback."""
    assert set(job.wait()) == {2}
    said = [job.said(number) for number in range(len(job.pids))]
    assert not any("Traceback" in text for text in said), said
    return said[rank]


def test_ranks_with_different_settings(launch, tmp_path):
    said = refused(launch(2, run(tmp_path / "run"), of_rank={1: ["--seed", "5"]}))
    assert "rank 1 of 2" in said
    assert "another set of settings" in said
    assert not (tmp_path / "run").exists()


def test_a_node_without_the_stream(launch, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    job = launch(2, ["run", "--stream", "streams/mine", "--out", tmp_path / "run"], folders=[here, there])
    said = refused(job)
    assert socket.gethostname() in said
    assert "streams/mine" in said


def test_more_ranks_than_samples_of_a_batch(launch, tmp_path):
    said = refused(launch(3, run(tmp_path / "run", "--batch-size", "2")))
    assert "batch_size = 2 cannot be divided over 3 processes" in said


def test_members_that_do_not_fit_the_ranks(launch, tmp_path):
    said = refused(launch(2, run(tmp_path / "run", "--schedule", "polrs", "--parallel", "members")))
    assert "3 members cannot be spread evenly over 2 processes" in said


def test_a_directory_that_holds_a_run_is_told_by_one_rank(launch, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    job = launch(2, run(tmp_path / "run"))
    assert "holds an unfinished run" in refused(job)
    assert job.said(1) == ""


def test_a_port_in_use(launch, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        job = launch(2, run(tmp_path / "run"), port=other.getsockname()[1])
        job.codes.append(job.launcher.ask({"wait": job.pids[0]}))
        assert job.codes == [2]
        assert "is the port in use?" in job.said(0)
        job.kill()
