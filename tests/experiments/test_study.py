"""`driftline reproduce` from end to end on a small world: reuse, interruption, failure, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from driftline.config import RunConfig
from driftline.experiments.catalogue import chosen
from driftline.experiments.document import finding_json
from driftline.experiments.pool import Job, Pool
from driftline.experiments.study import Study
from driftline.experiments.verdicts import Finding, Measure, greater
from driftline.types import DriftlineError

FIGURE = "fifo-vs-reservoir"
SMALL = ["--stream", "world:4000", "--limit", "640"]


def reproduce(out: Path, *more: str, figure: str = FIGURE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "driftline", "reproduce", figure, *SMALL, "--out", str(out), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    out = tmp_path_factory.mktemp("study")
    return out, reproduce(out, "--write-docs", str(out / "docs" / "study.md"))


def stamps(out: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in out.glob("runs/*/summary.json")}


def test_end_to_end(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, done = finished
    assert done.returncode == 0, done.stderr
    document = json.loads((out / "findings.json").read_text())
    figure = document["figures"][FIGURE]
    assert len(figure["findings"]) == 2
    for finding in figure["findings"]:
        assert finding["verdict"] in ("held", "did not hold", "undecided")
        assert finding["claim"] in done.stdout
        for check in finding["checks"]:
            assert check["seeds"] == 1
            assert check["standard_error_over_seeds"] is None
    assert "one seed: no spread" in done.stdout
    assert (out / "figures" / f"{FIGURE}.png").stat().st_size > 10_000
    page = (out / "study.html").read_text()
    assert "data:image/svg+xml;base64," in page
    assert "http" not in page.replace("http-equiv", "").replace("https://", "https://")[:300]
    assert "fifo-vs-reservoir.png" in (out / "docs" / "study.md").read_text()
    assert (out / "docs" / "images" / f"study-{FIGURE}.png").exists()


def test_finished_runs_are_reused_and_a_new_seed_adds_only_its_own(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, _ = finished
    before = stamps(out)
    assert len(before) == 4
    assert reproduce(out).returncode == 0
    assert stamps(out) == before
    study = Study.open(chosen([FIGURE]), "world:4000:0", "quick", 2, out, 640)
    missing = [job for job in study.jobs() if not job.is_finished]
    assert {job.config.seed for job in missing} == {1}
    assert len(missing) == 4


def test_runs_of_a_changed_stream_are_not_taken_for_those_of_the_new_one(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, _ = finished
    path = next(iter(out.glob("runs/*/summary.json")))
    text = path.read_text()
    try:
        path.write_text(text.replace("world:4000:0:", "world:4000:0:older-"))
        with pytest.raises(DriftlineError, match="before the stream"):
            Study.open(chosen([FIGURE]), "world:4000", "quick", 1, out, 640).jobs()
    finally:
        path.write_text(text)


def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    job = Study.open(chosen([FIGURE]), "world:4000", "quick", 1, tmp_path).jobs()[0]

    def stop_at_the_first_step(pool: Pool) -> None:
        if job.progress():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pool([job], 1, 1).run(stop_at_the_first_step)
    assert 0 < job.progress() < 1
    assert not job.is_finished
    assert "stopped and saved" in job.log.read_text()
    pool = Pool([job], 1, 1)
    pool.run(lambda _: None)
    assert not pool.failed
    assert json.loads((job.out / "summary.json").read_text())["resumed"] == 1


def test_a_signal_stops_the_study_with_word_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from driftline.cli.study import reproduce as command

    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(Study, "execute", interrupted)
    assert command([FIGURE, *SMALL, "--out", str(tmp_path)]) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_a_run_that_fails_is_reported_and_the_others_are_made(tmp_path: Path) -> None:
    study = Study.open(chosen([FIGURE]), "world:4000", "quick", 1, tmp_path, 640)
    broken, *rest = study.jobs()
    broken.out.mkdir(parents=True)
    (broken.out / "config.toml").write_text("lr = 'fast'\n")
    for job in rest:
        job.out.mkdir(parents=True)
        (job.out / "summary.json").write_text("{}")
    pool = Pool([broken, *rest], 2, 1)
    pool.run(lambda _: None)
    assert list(pool.failed) == [broken.out.name]
    assert "lr = 'fast' is not of type float" in pool.failed[broken.out.name]
    document = study.conclude(pool.failed, {})
    figure = document["figures"][FIGURE]
    assert figure["findings"] == []
    assert len(figure["failed"]) == 1


def test_progress_is_read_from_the_log(tmp_path: Path) -> None:
    from driftline.types import curve_dtype

    job = Job("a", RunConfig(schedule="polrs"), tmp_path, 8, 1.0)
    (tmp_path / "curves.bin").write_bytes(bytes(3 * curve_dtype(3).itemsize))
    assert job.progress() == 3 / 8


def test_two_studies_do_not_share_a_directory_at_a_time(tmp_path: Path) -> None:
    from driftline.experiments.study import claimed

    with claimed(tmp_path), pytest.raises(DriftlineError, match="in use by another"), claimed(tmp_path):
        pass


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "which figure"),
        (["shfit"], "did you mean shift"),
        (["all", "--seeds", "0"], "seeds = 0"),
        (["all", "--jobs", "0"], "jobs = 0"),
        (["all", "--processes", "0"], "processes = 0"),
        (["all", "--limit", "0"], "limit = 0"),
        (["all", "--scale", "full"], "driftline build"),
        (["all", "--scale", "full", "--stream", "nowhere"], "there is no stream in nowhere"),
        (["all", "--stream", "world:50"], "length must lie between"),
        (["batch-size", "--stream", "world:4000", "--limit", "200"], "batch_size = 256"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    from driftline.cli.main import main

    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *flags, "--out", str(out)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(out.glob("runs/*"))


def test_a_stored_stream_too_short_for_the_papers_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftline.experiments import study
    from driftline.streams.worlds.world import World

    (tmp_path / "stream.json").write_text("{}")
    monkeypatch.setattr(study, "open_stream", lambda _: World(2000))
    with pytest.raises(DriftlineError, match="use --scale quick"):
        Study.open(chosen(["shift"]), str(tmp_path), "full", 1, tmp_path)


def test_findings_are_json_without_nan() -> None:
    check = greater("a", [Measure(float("nan"))], [Measure(0.1)])
    text = json.dumps(finding_json(Finding("k", "c", "p", (check,))), allow_nan=False)
    assert json.loads(text)["checks"][0]["effect"] is None


def test_listing(capsys: pytest.CaptureFixture[str]) -> None:
    from driftline.cli.study import reproduce as command

    assert command(["--list"]) == 0
    shown = capsys.readouterr().out
    assert "transfer-of-buffers" in shown
    assert "cloc-lr-polrs" in shown


def test_bench_hands_over_to_the_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from driftline.cli import study

    (tmp_path / "run.py").write_text(
        "import sys, pathlib\n"
        "pathlib.Path(__file__).with_suffix('.args').write_text(' '.join(sys.argv[1:]))\n"
        "sys.exit(3)\n"
    )
    (tmp_path / "geo.py").write_text("")
    monkeypatch.setattr(study, "benchmark_folder", lambda: tmp_path)
    assert study.bench(["geo", "--full", "--out", "here.json"]) == 3
    assert (tmp_path / "run.args").read_text() == "geo --full --out here.json"
    with pytest.raises(DriftlineError, match="no benchmark 'goe'; choose from geo"):
        study.bench(["goe"])


def test_the_repository_has_benchmarks() -> None:
    from driftline.cli.study import benchmark_folder

    assert (benchmark_folder() / "metrics.py").exists()
