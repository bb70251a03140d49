"""The loop: predict before learning, replay from before, adapt the size that is sampled from, stop when training diverges."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import polars as pl
import pytest
import torch

from driftline.config import RunConfig
from driftline.engine.records import prediction_rows
from driftline.engine.run import Run
from driftline.types import DriftlineError, Samples

from .small_streams import Spy, memory_stream, small_learner


def spied_run(tmp_path, *, num=300, script=None, loss=lambda step: 1.0, bad=(), **settings):
    stream = memory_stream(num, bad=bad)
    spy = Spy(len(stream.classes), script, loss)
    config = RunConfig(stream="memory", **({"batch_size": 32} | settings))
    run = Run(config, tmp_path / "run", stream=stream, learner=lambda setup, num_steps: spy)
    return run, spy


@pytest.mark.parametrize("replay", ["fifo", "reservoir", "ring", "none"])
@pytest.mark.parametrize("gd_steps", [1, 3])
def test_every_sample_is_predicted_before_it_is_trained_on(tmp_path, replay, gd_steps):
    run, spy = spied_run(tmp_path, replay=replay, gd_steps=gd_steps, buffer_size="60")
    records = list(run.records())
    # 300 samples are nine whole batches of 32 and one of 12.
    assert len(records) == 10
    assert [len(r.predictions) for r in records] == [32] * 9 + [12]
    assert spy.calls == ["predict", "learn"] * 10
    seen: set[int] = set()
    for predicted, trained, replayed in zip(spy.predicted, spy.trained, spy.replayed, strict=True):
        assert not seen & set(predicted), "predicted after it was trained on"
        assert trained == predicted
        assert set(replayed) <= seen, "replayed before it entered the buffer"
        seen |= set(predicted)
    assert seen == set(range(300))
    assert any(spy.replayed) == (replay != "none")


class Announced(Spy):
    """Notes what it is told to expect."""

    def expect(self, view):
        self.calls.append("expect")
        self.expected = view

    def learn(self, batch, step):
        assert batch.views[0] is self.expected
        return super().learn(batch, step)


def test_a_learner_that_looks_ahead_is_shown_the_images_and_not_the_labels(tmp_path):
    stream = memory_stream(300)
    spies = {}
    for learner in ("er", "none"):
        spy = spies[learner] = Announced(len(stream.classes))
        config = RunConfig(stream="memory", batch_size=32, learner=learner)
        run = Run(config, tmp_path / learner, stream=stream, learner=lambda setup, num_steps, spy=spy: spy)
        list(run.records())
    assert spies["er"].calls == ["expect", "predict", "learn"] * 10
    assert spies["none"].calls == ["predict"] * 10
    assert {field.name for field in fields(spies["er"].expected)} == {"images", "crops"}


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 16), (1.0, 32), (2.0, 64)])
def test_so_many_replayed_for_each_stream_sample(tmp_path, ratio, expected):
    run, spy = spied_run(tmp_path, replay_ratio=ratio, buffer_size="100%")
    list(run.records())
    assert [len(replayed) for replayed in spy.replayed[3:-1]] == [expected] * 6


def test_a_learner_that_only_tests_is_never_trained(tmp_path):
    run, spy = spied_run(tmp_path, learner="none")
    records = list(run.records())
    assert spy.calls == ["predict"] * 10
    assert all(math.isnan(record.curve["loss"][0]) for record in records)


def test_adrep_changes_what_a_whole_run_samples(tmp_path):
    """Replay better than stream for ten steps, then worse: the window doubles, then halves, and positions show it."""
    run, spy = spied_run(
        tmp_path,
        num=3200,
        batch_size=32,
        buffer_size="320",
        adaptive_buffer=True,
        adrep_every="640",
        script=lambda step: (0.2, 0.6) if step < 60 else (0.6, 0.2),
    )
    records = list(run.records())
    sizes = np.array([int(r.curve["buffer_size"][0]) for r in records])
    # Decisions after steps 20, 40, 60, 80: up, up, up (bounded by what was seen: 1920), down.
    assert sizes.tolist() == [320] * 20 + [640] * 20 + [1280] * 20 + [1920] * 20 + [960] * 20
    for first, size in [(0, 320), (20, 640), (40, 1280), (60, 1920), (80, 960)]:
        ages = [step * 32 - position for step in range(first, first + 20) for position in spy.replayed[step]]
        assert max(ages) <= size
        # With 640 draws of a window the oldest tenth is met, all but surely.
        assert max(ages) > 0.9 * min(size, (first + 10) * 32)


def test_adrep_ignores_the_difference_within_epsilon(tmp_path):
    run, _ = spied_run(
        tmp_path,
        buffer_size="64",
        adaptive_buffer=True,
        adrep_every="64",
        adrep_epsilon=0.1,
        script=lambda step: (0.5, 0.45),
    )
    assert {int(r.curve["buffer_size"][0]) for r in run.records()} == {64}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run_and_says_where(tmp_path, value):
    run, spy = spied_run(tmp_path, loss=lambda step: value if step == 3 else 1.0)
    with pytest.raises(DriftlineError, match=r"step 3, position 96: .*lower --lr"):
        list(run.records())
    assert spy.calls == ["predict", "learn"] * 4


def test_weights_that_diverged_stop_the_run_and_say_so(tmp_path):
    stream = memory_stream(300)

    def diverging(setup, num_steps):
        return small_learner(setup, num_steps, rate=lambda step: 1e37)

    run = Run(RunConfig(stream="memory", batch_size=32), tmp_path / "run", stream=stream, learner=diverging)
    with pytest.raises(DriftlineError, match=r"step \d+, position \d+: .*diverged.*lower --lr"):
        list(run.records())


def test_bad_samples_are_left_out_everywhere_and_the_rest_goes_on(tmp_path):
    bad = {3, 40, 41, *range(64, 96)}
    run, spy = spied_run(tmp_path, bad=bad, max_bad_share=0.5)
    records = list(run.records())
    assert len(records) == 10
    predicted = [p for positions in spy.predicted for p in positions]
    assert predicted == [p for p in range(300) if p not in bad]
    assert not bad & {p for positions in spy.trained + spy.replayed for p in positions}
    assert sorted(error.position for record in records for error in record.bad) == sorted(bad)
    assert len(records[2].predictions) == 0  # a whole batch was bad: nothing to test, nothing to learn


def test_too_many_bad_samples_stop_the_run(tmp_path):
    run, _ = spied_run(tmp_path, num=3000, bad=range(500, 600))
    with pytest.raises(DriftlineError, match=r"could not be used, more than 1\.0%.*max.bad.share"):
        list(run.records())


@pytest.mark.parametrize("num_classes", [2, 3, 5, 40])
def test_rows_of_the_log_are_what_the_logits_say(num_classes):
    rng = np.random.default_rng(num_classes)
    logits = rng.normal(size=(50, num_classes)).astype(np.float32) * 3
    label = rng.integers(num_classes, size=50).astype(np.int32)
    ids = np.arange(50)
    samples = Samples(ids + 100, ids + 10**9, ids // 3, label, ids * 1.0, ids * 1.0)
    rows = prediction_rows(torch.from_numpy(logits), samples, 2, 7, ids < 5)
    for i, row in enumerate(rows):
        order = sorted(range(num_classes), key=lambda c: -logits[i, c])
        total = sum(math.exp(x) for x in logits[i].tolist())
        assert row["top5"].tolist() == (order + [-1] * 5)[:5]
        assert row["pred"] == order[0]
        assert row["prob"] == pytest.approx(math.exp(logits[i, order[0]]) / total, rel=1e-5)
        assert row["loglik"] == pytest.approx(math.log(math.exp(logits[i, label[i]]) / total), abs=1e-5)
        assert (row["position"], row["time"], row["user"]) == (100 + i, 10**9 + i, i // 3)
        assert (row["label"], row["member"], row["step"], row["scored"]) == (label[i], 2, 7, i < 5)


def test_curves_of_a_population_tell_algorithm_1(tmp_path):
    """From the curves alone: who predicts follows from the metrics known before, and rates change as the search says."""
    stream = memory_stream(2000)
    config = RunConfig(stream="memory", batch_size=32, schedule="polrs", polrs_every="320", lr=0.05)
    run = Run(config, tmp_path / "run", stream=stream, learner=small_learner)
    run.execute()
    curves = pl.read_parquet(tmp_path / "run" / "curves.parquet")
    log = pl.read_parquet(tmp_path / "run" / "predictions.parquet")
    rates = [0.05 * 32 / 256 * f for f in (2, 1, 0.5)]
    for row in curves.iter_rows(named=True):
        metrics = [row[f"metric_{j}"] for j in range(3)]
        best = 1 if metrics[1] == max(metrics) else metrics.index(max(metrics))
        assert row["member"] == best
        if row["step"] % 10 == 0:
            assert metrics == [0, 0, 0]
            if row["step"]:
                before = curves.row(row["step"] - 1, named=True)
                centre = row["lr_1"]
                assert any(centre == pytest.approx(before[f"lr_{j}"]) for j in range(3))
                rates = [2 * centre, centre, centre / 2]
        assert [row[f"lr_{j}"] for j in range(3)] == pytest.approx(rates)
        assert row["lr"] == row[f"lr_{best}"]
        predictions = log.filter(pl.col("step") == row["step"])
        assert predictions["member"].unique().to_list() == [best]
    # The metric of the member that predicted all along is the mean of its accuracies in the log.
    for start in range(0, 60, 10):
        part = curves.slice(start, 10)
        members = part["member"].to_list()
        leading = log.filter(pl.col("step").is_between(start, start + 8))
        if len(set(members)) == 1:
            accuracies = leading.group_by("step").agg((pl.col("label") == pl.col("pred")).mean().alias("a"))[
                "a"
            ]
            assert part[f"metric_{members[0]}"][9] == pytest.approx(accuracies.mean(), rel=1e-5)
