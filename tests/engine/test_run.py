"""A run from end to end: exactly H steps, the same bytes for the same seed, the files as documented, every setting felt."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.config import RunConfig, read_config
from driftline.engine.run import Run
from driftline.metrics.albums import rescore
from driftline.metrics.log import PredictionLog
from driftline.types import DriftlineError

from .small_streams import Spy, memory_stream, small_learner


def finished(out, *, stream=None, **settings):
    """A finished run's directory: a linear model on a stream in memory."""
    stream = stream or memory_stream(1000)
    config = RunConfig(stream="memory", **({"batch_size": 32, "lr": 0.1} | settings))
    Run(config, out, stream=stream, learner=small_learner).execute()
    return out


def log_of(run):
    return pl.read_parquet(run / "predictions.parquet")


@pytest.mark.parametrize(("num", "batch", "steps"), [(1000, 32, 32), (960, 32, 30), (33, 32, 2), (32, 32, 1)])
def test_exactly_h_steps_with_the_last_partial_batch(tmp_path, num, batch, steps):
    run = finished(tmp_path / "run", stream=memory_stream(num), batch_size=batch)
    log = log_of(run)
    assert log["position"].to_list() == list(range(num))
    assert log["step"].to_list() == [p // batch for p in range(num)]
    curves = pl.read_parquet(run / "curves.parquet")
    assert curves["step"].to_list() == list(range(steps))
    assert curves["position"].to_list() == [min((s + 1) * batch, num) - 1 for s in range(steps)]
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["steps"], summary["samples"]) == (steps, num)


def test_limit_stops_early_and_scales_the_shares(tmp_path):
    run = finished(tmp_path / "run", limit=100, buffer_size="50%")
    assert log_of(run)["position"].to_list() == list(range(100))
    assert pl.read_parquet(run / "curves.parquet")["buffer_size"].unique().to_list() == [50]
    beyond = finished(tmp_path / "beyond", limit=5000)
    assert len(log_of(beyond)) == 1000


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"replay": "reservoir"},
        {"replay": "ring"},
        {"schedule": "polrs", "polrs_every": "320"},
        {"adaptive_buffer": True, "adrep_every": "96", "buffer_size": "64"},
        {"schedule": "cosine", "gd_steps": 2},
        {"learner": "supervised", "epochs_baseline": 2},
    ],
    ids=str,
)
def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(tmp_path, settings):
    runs = [finished(tmp_path / name, workers=w, **settings) for name, w in (("a", 1), ("b", 1), ("c", 4))]
    files = ["curves.parquet", "transfer.parquet"]
    if settings.get("learner") != "supervised":
        files.append("predictions.parquet")
    for name in files:
        first = (runs[0] / name).read_bytes()
        assert all((run / name).read_bytes() == first for run in runs[1:]), name


def test_another_seed_gives_another_run(tmp_path):
    a, b = (log_of(finished(tmp_path / str(seed), seed=seed)) for seed in (0, 1))
    assert a["pred"].to_list() != b["pred"].to_list()


def test_the_embedded_world_with_the_real_model_repeats_to_the_byte(tmp_path):
    for name, workers in (("a", 1), ("b", 4)):
        config = RunConfig(stream="world:2000", limit=300, workers=workers)
        Run(config, tmp_path / name).execute()
    a, b = ((tmp_path / name / "predictions.parquet").read_bytes() for name in ("a", "b"))
    assert a == b


@pytest.mark.parametrize(("batch", "test_every"), [(32, 256), (64, 64), (50, 256), (256, 100)])
def test_what_is_scored_is_what_rescoring_the_log_says(tmp_path, batch, test_every):
    run = finished(
        tmp_path / "run",
        stream=memory_stream(1500, bad={7, 255, 256, 257, 800}),
        batch_size=batch,
        test_every=test_every,
    )
    log = PredictionLog.read(run)
    assert log.scored.any()
    assert rescore(log, batch, test_every).scored.tolist() == log.scored.tolist()


def test_runs_of_different_batch_sizes_are_scored_at_the_same_points(tmp_path):
    points = []
    for batch in (64, 128, 256):
        log = log_of(finished(tmp_path / str(batch), batch_size=batch, stream=memory_stream(1024)))
        scored = log.filter("scored")
        points.append({int(p) // 256 for p in scored["position"]})
    assert points[0] == points[1] == points[2] == {0, 1, 2, 3}


@pytest.fixture
def nothing_kept(monkeypatch):
    """Every image is read whenever a step needs it, so that reads tell what steps need."""
    monkeypatch.setattr("driftline.engine.setup.RecentImages", lambda split, size: split)


@pytest.mark.usefixtures("nothing_kept")
def test_all_members_of_a_population_share_one_fetch(tmp_path):
    reads = []
    for settings in ({}, {"schedule": "polrs", "polrs_every": "320"}):
        stream = memory_stream(1000)
        run = Run(
            RunConfig(stream="memory", batch_size=32, **settings),
            tmp_path / str(len(reads)),
            stream=stream,
            learner=small_learner,
        )
        list(run.records())
        reads.append(sorted(r.tolist() for r in stream.train.reads))
    assert reads[0] == reads[1]
    # Each image is read once a step, whoever uses it.
    assert all(len(set(positions)) == len(positions) for positions in reads[0])


@pytest.mark.usefixtures("nothing_kept")
def test_who_does_not_learn_reads_the_stream_alone(tmp_path):
    stream = memory_stream(1000)
    config = RunConfig(stream="memory", batch_size=32, learner="none")
    list(Run(config, tmp_path / "run", stream=stream, learner=small_learner).records())
    assert sorted(np.concatenate(stream.train.reads).tolist()) == list(range(1000))


def test_an_untrained_model_is_what_learner_none_tests(tmp_path):
    run, untrained = (finished(tmp_path / name, learner=name, seed=4) for name in ("er", "none"))
    a, b = log_of(run), log_of(untrained)
    assert a["pred"][:32].to_list() == b["pred"][:32].to_list()
    assert a["pred"].to_list() != b["pred"].to_list()
    assert json.loads((untrained / "summary.json").read_text())["gradient_steps"] == 0


# -- supervised


def trained_positions(tmp_path, **settings):
    stream = memory_stream(1000)
    config = RunConfig(stream="memory", **({"batch_size": 32, "learner": "supervised"} | settings))
    spy = Spy(len(stream.classes))
    run = Run(config, tmp_path / "run", stream=stream, learner=lambda setup, num_steps: spy)
    list(run.records())
    return stream, np.concatenate(spy.trained)


def test_the_supervised_baseline_visits_every_sample_once_an_epoch(tmp_path):
    _, positions = trained_positions(tmp_path, epochs_baseline=3)
    assert np.bincount(positions, minlength=1000).tolist() == [3] * 1000


@pytest.mark.parametrize(("years", "first", "last"), [("2009", 2009, 2009), ("2006:2008", 2006, 2008)])
def test_the_baseline_learns_from_the_years_asked_for_alone(tmp_path, years, first, last):
    stream, positions = trained_positions(tmp_path, train_years=years)
    year = np.array([datetime.fromtimestamp(t, UTC).year for t in stream.train.columns.time.tolist()])
    expected = np.flatnonzero((first <= year) & (year <= last))
    assert sorted(positions.tolist()) == expected.tolist()


def test_the_baseline_learns_from_a_sample_of_the_size_asked_for(tmp_path):
    _, positions = trained_positions(tmp_path, train_samples=200)
    assert len(positions) == len(set(positions.tolist())) == 200
    assert positions.max() > 700
    assert positions.min() < 300


def test_the_baseline_writes_no_online_log_and_counts_its_samples(tmp_path):
    stream = memory_stream(1000)
    config = RunConfig(stream="memory", batch_size=32, learner="supervised", epochs_baseline=2)
    summary = Run(config, tmp_path / "s", stream=stream, learner=small_learner).execute()
    assert summary["samples"] == 2000
    assert not (tmp_path / "s" / "predictions.parquet").exists()
    transfer = pl.read_parquet(tmp_path / "s" / "transfer.parquet")
    right = sum(a == b for a, b in zip(transfer["label"], transfer["pred"], strict=True))
    assert summary["validation_accuracy"] == pytest.approx(right / len(transfer))
    assert transfer["checkpoint"].unique().to_list() == ["H"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train_years": "1990"}, r"train_years = 1990.*0 samples"),
        ({"train_years": "2010-2011"}, r"train_years = '2010-2011': give a year"),
        ({"train_years": "2011:2009"}, r"train_years = "),
        ({"train_samples": 5}, r"5 samples to learn from, fewer than a batch of 32"),
    ],
)
def test_a_training_set_that_cannot_be_is_refused(tmp_path, settings, message):
    config = RunConfig(stream="memory", batch_size=32, learner="supervised", **settings)
    with pytest.raises(DriftlineError, match=message):
        Run(config, tmp_path / "run", stream=memory_stream(1000))
    assert not (tmp_path / "run").exists()


# -- files


LIST = pa.list_(pa.int32())
COLUMNS = {
    "predictions.parquet": {
        "position": pa.int64(), "time": pa.int64(), "user": pa.int64(), "label": pa.int32(), "pred": pa.int32(),
        "top5": LIST, "prob": pa.float32(), "loglik": pa.float32(), "member": pa.int8(), "step": pa.int64(), "scored": pa.bool_(),
    },
    "curves.parquet": {
        "step": pa.int64(), "position": pa.int64(), "time": pa.int64(), "loss": pa.float32(), "lr": pa.float64(),
        "buffer_size": pa.int64(), "acc_stream": pa.float32(), "acc_replay": pa.float32(), "member": pa.int8(),
        "lr_0": pa.float64(), "lr_1": pa.float64(), "lr_2": pa.float64(),
        "metric_0": pa.float32(), "metric_1": pa.float32(), "metric_2": pa.float32(),
    },
    "transfer.parquet": {
        "checkpoint": pa.string(), "position": pa.int64(), "time": pa.int64(), "label": pa.int32(), "pred": pa.int32(), "top5": LIST,
    },
    "classes.parquet": {
        "label": pa.int32(), "name": pa.string(), "cell": pa.string(), "lat": pa.float64(), "lon": pa.float64(),
    },
}  # fmt: skip


def test_the_files_have_the_columns_and_types_that_others_build_on(tmp_path):
    run = finished(tmp_path / "run", stream=memory_stream(1000, bad={5}), schedule="polrs", polrs_every="320")
    for name, columns in COLUMNS.items():
        schema = pq.read_schema(run / name)
        found = {field.name: field.type for field in schema}
        assert list(found) == list(columns), name
        for column, kind in columns.items():
            # A list's element may be called item or element; its type is what counts.
            same = found[column].value_type == kind.value_type if kind == LIST else found[column] == kind
            assert same, f"{name}: {column} is {found[column]}"
        assert schema.metadata[b"driftline.format"]
    quarantined = pl.read_parquet(run / "quarantine.parquet").select("position", "step", "reason")
    assert quarantined.rows() == [(5, 0, "undecodable")]


def test_a_finished_directory_holds_the_documented_files_and_nothing_half_done(tmp_path):
    run = finished(tmp_path / "run")
    present = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    expected = {
        "config.toml", "summary.json", "predictions.parquet", "curves.parquet", "transfer.parquet", "classes.parquet",
        "samples.parquet", "quarantine.parquet", "geolocation.parquet", "checkpoints",
    }  # fmt: skip
    assert present == expected
    kept = {path.stem for path in (run / "checkpoints").iterdir()}
    assert {"weights-H-3", "weights-2H-3", "weights-H"} <= kept


def test_the_config_of_a_run_can_be_run_again(tmp_path):
    run = finished(tmp_path / "run", gd_steps=2, buffer_size="20%")
    config = read_config(run / "config.toml")
    assert (config.gd_steps, config.buffer_size, config.batch_size) == (2, "20%", 32)
    again = tmp_path / "again"
    Run(config, again, stream=memory_stream(1000), learner=small_learner).execute()
    assert (again / "predictions.parquet").read_bytes() == (run / "predictions.parquet").read_bytes()


# -- directories


def test_a_finished_run_is_never_written_over(tmp_path):
    run = finished(tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(DriftlineError, match=r"holds a finished run; choose another --out"):
        Run(RunConfig(stream="memory", batch_size=32), run, stream=memory_stream(1000))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_an_unfinished_run_is_never_written_over(tmp_path):
    run = Run(
        RunConfig(stream="memory", batch_size=32),
        tmp_path / "run",
        stream=memory_stream(1000),
        learner=small_learner,
    )
    records = run.records()
    next(records)
    with pytest.raises(DriftlineError, match=r"unfinished run: `driftline resume|in use by another run"):
        Run(RunConfig(stream="memory", batch_size=32), tmp_path / "run", stream=memory_stream(1000))
    records.close()


def test_an_out_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("precious")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DriftlineError, match=r"file.*choose another --out"):
            Run(RunConfig(stream="memory", batch_size=32), out, stream=memory_stream(1000))
    assert (tmp_path / "file").read_text() == "precious"
