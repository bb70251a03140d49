"""`driftline run` and its neighbours on the command line: results, and one clear line for every mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest

from driftline.cli.main import COMMANDS, main
from driftline.cli.run import demo_runs
from driftline.version import VERSION


def call(capsys, *args):
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as end:
        main([str(arg) for arg in args])
    captured = capsys.readouterr()
    return end.value.code, captured.out, captured.err


def run_small(capsys, out, *more):
    return call(
        capsys, "run", "--stream", "world:2000", "--limit", 256, "--device", "cpu", "--out", out, *more
    )


def test_a_run_writes_its_files_and_shows_its_figures(capsys, tmp_path):
    code, shown, error = run_small(capsys, tmp_path / "r1")
    assert (code, error) == (0, "")
    summary = json.loads((tmp_path / "r1" / "summary.json").read_text())
    assert len(pl.read_parquet(tmp_path / "r1" / "predictions.parquet")) == 256
    for text in ("blind", "chance", "album", f"{summary['online_accuracy']['album']:.1%}"):
        assert text in shown


def test_the_same_command_twice_gives_the_same_predictions(capsys, tmp_path):
    for name, workers in (("a", 1), ("b", 4)):
        assert run_small(capsys, tmp_path / name, "--workers", workers)[0] == 0
    a, b = ((tmp_path / name / "predictions.parquet").read_bytes() for name in ("a", "b"))
    assert a == b


def test_flags_win_over_the_file(capsys, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('stream = "world:2000"\nlimit = 128\nseed = 5\nbatch_size = 32\n')
    out = tmp_path / "run"
    assert call(capsys, "run", "--config", file, "--out", out, "--seed", 6)[0] == 0
    assert json.loads((out / "summary.json").read_text())["seed"] == 6
    assert len(pl.read_parquet(out / "curves.parquet")) == 4


BAD = [
    (["--stream", "nowhere"], r"nowhere"),
    (["--stream", "world:abc"], r"world:LENGTH"),
    (["--stream", "world:10"], r"10 photos"),
    (["--stream", "world:2000:99999999999999999999"], r"99999999999999999999"),
    (["--batch-size", "100000"], r"batch_size = 100000 is larger than the stream"),
    (["--batch-size", "0"], r"batch_size = 0"),
    (["--replay", "ring", "--buffer-size", "2"], r"buffer_size = 2 with replay = ring"),
    (["--replay", "none", "--replay-ratio", "2"], r"replay_ratio = 2.0 with replay = none"),
    (["--adaptive-buffer", "--replay", "reservoir"], r"adaptive_buffer with replay = reservoir"),
    (["--adaptive-buffer", "--learner", "supervised"], r"adaptive_buffer with learner = supervised"),
    (["--schedule", "polrs", "--polrs-every", "100000"], r"polrs_every = 100000 is longer than the stream"),
    (["--adaptive-buffer", "--adrep-every", "100000"], r"adrep_every = 100000 is longer than the stream"),
    (["--schedule", "polrs", "--learner", "supervised"], r"schedule = polrs with learner = supervised"),
    (["--train-years", "2010"], r"train_years with learner = er"),
    (["--learner", "supervised", "--train-years", "1990"], r"train_years = 1990"),
    (["--buffer-size", "150%"], r"buffer_size = '150%'"),
    (["--model", "vgg"], r"model = 'vgg': choose one of resnet-tiny"),
    (["--model", "timm:nothing-like-it"], r"timm"),
    (["--device", "gpu"], r"device = 'gpu': choose auto, cpu, cuda"),
    (["--device", "mps"], r"device = 'mps': choose auto, cpu, cuda"),
    (["--lr", "nan"], r"lr = nan"),
    (["--lr", "-0.1"], r"lr = -0.1"),
    (["--seed", "-1"], r"seed = -1"),
    (["--seed", "99999999999999999999"], r"seed = 99999999999999999999"),
    (["--replay-ratio", "inf"], r"replay_ratio = inf"),
    (["--image-size", "64"], r"image_size = 64: the stream holds images of 32 pixels"),
    (["--config", "missing.toml"], r"cannot read the config missing.toml"),
]


@pytest.mark.parametrize(
    ("flags", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_what_cannot_work_is_refused_before_it_starts(capsys, tmp_path, flags, message):
    out = tmp_path / "run"
    stream = [] if "--stream" in flags else ["--stream", "world:2000"]
    code, shown, error = call(capsys, "run", "--out", out, *stream, *flags)
    assert code == 2
    assert error.count("\n") == 1
    assert error.startswith("error: ")
    assert message in error
    assert "Traceback" not in shown + error
    assert not out.exists()


@pytest.mark.parametrize(
    "flags",
    [["--learning-rate", "1"], ["--batch-size", "many"], ["--schedule", "linear"], ["--replay"], ["stray"]],
    ids=" ".join,
)
def test_flags_that_do_not_exist_or_make_no_sense_are_refused(capsys, tmp_path, flags):
    out = tmp_path / "run"
    code, shown, error = call(capsys, "run", "--stream", "world:2000", "--out", out, *flags)
    assert code == 2
    assert flags[0] in shown + error
    assert "Traceback" not in shown + error
    assert not out.exists()


def test_a_misspelt_flag_is_told_the_right_one(capsys, tmp_path):
    _, shown, error = call(capsys, "run", "--out", tmp_path / "run", "--batchsize", 3)
    assert "--batch-size" in shown + error


def test_a_directory_that_is_no_stream_is_left_alone(capsys, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").write_text("precious")
    code, _, error = call(capsys, "run", "--stream", tmp_path / "photos", "--out", tmp_path / "run")
    assert code == 2
    assert str(tmp_path / "photos") in error
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.txt"]
    assert not (tmp_path / "run").exists()


def test_an_out_that_holds_something_else_is_left_alone(capsys, tmp_path):
    (tmp_path / "file").write_text("precious")
    code, _, error = run_small(capsys, tmp_path / "file")
    assert (code, error.count("\n")) == (2, 1)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_finished_run_is_not_written_over(capsys, tmp_path):
    assert run_small(capsys, tmp_path / "run")[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    code, _, error = run_small(capsys, tmp_path / "run")
    assert code == 2
    assert "choose another --out" in error
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    code, _, error = call(capsys, "resume", tmp_path / "run")
    assert code == 2
    assert "finished" in error


def test_training_that_diverges_ends_with_one_line(capsys, tmp_path):
    code, shown, error = run_small(capsys, tmp_path / "run", "--lr", "1e30")
    assert code == 2
    assert "lower --lr" in error
    assert "Traceback" not in shown + error


def test_resuming_nothing_is_refused(capsys, tmp_path):
    code, _, error = call(capsys, "resume", tmp_path)
    assert code == 2
    assert "holds no run" in error


def test_the_demo_does_not_go_on_with_a_run_of_other_settings(capsys, tmp_path):
    """Neither with a finished nor with an unfinished one, such as that of another seed."""
    (tmp_path / "replay").mkdir()
    settings = tmp_path / "replay" / "config.toml"
    settings.write_text(replace(demo_runs(0)["replay"], seed=5).to_toml())
    before = settings.read_bytes()
    code, _, error = call(capsys, "demo", "--out", tmp_path)
    assert code == 2
    assert "replay holds a run of other settings; choose another --out or remove it" in error
    assert [path.name for path in (tmp_path / "replay").iterdir()] == ["config.toml"]
    assert settings.read_bytes() == before


# -- the program as a whole


def test_help_and_version_answer_without_loading_anything_heavy():
    probe = (
        "import sys; from driftline.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    for args, text in ((["--help"], "driftline demo"), (["--version"], f"driftline {VERSION}")):
        done = subprocess.run(
            [sys.executable, "-c", probe, *args], capture_output=True, text=True, check=True
        )
        assert text in done.stdout
        assert done.stdout.endswith("0 False\n")


def test_an_unknown_command_is_told_the_nearest(capsys):
    code, _, error = call(capsys, "rnu")
    assert code == 2
    assert "did you mean `driftline run`?" in error


def test_run_help_names_every_setting_with_its_meaning(capsys):
    code, shown, _ = call(capsys, "run", "--help")
    assert code == 0
    for flag in (
        "--stream",
        "--schedule",
        "--buffer-size",
        "--adaptive-buffer",
        "--polrs-every",
        "--gd-steps",
        "--out",
    ):
        assert flag in shown
    assert "Replay samples" in shown


def test_no_command_shows_the_usage_and_fails(capsys):
    code, shown, _ = call(capsys)
    assert code == 2
    assert all(f"  {name}" in shown for name in COMMANDS)


def test_a_run_goes_on_when_nobody_reads_its_output_any_more(tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "driftline", "run", "--stream", "world:2000", "--limit", "256", "--out"]
    with subprocess.Popen([*command, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        problems = process.stderr.read() if process.stderr else b""
        assert process.wait() == 0, problems.decode()
    assert (out / "summary.json").exists()
    assert problems == b""
