"""The figures of a run are what its files say, worked out again here the slow and obvious way."""

from __future__ import annotations

import json
import math
from collections import Counter

import polars as pl
import pytest
import torch

from driftline.config import RunConfig
from driftline.engine.run import Run, kept_steps

from .small_streams import memory_stream, small_learner


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, its summary, and the stream it went through."""
    out = tmp_path_factory.mktemp("finish") / "run"
    stream = memory_stream(1500, num_validation=200)
    config = RunConfig(stream="memory", batch_size=50, test_every=120, lr=0.1)
    Run(config, out, stream=stream, learner=small_learner).execute()
    return out, json.loads((out / "summary.json").read_text()), stream


def rows_of(out, name):
    return list(pl.read_parquet(out / name).iter_rows(named=True))


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def scores(rows, predictions):
    """Online accuracy of some predictions in the three scorings, from their definitions."""
    right = [p == row["label"] for p, row in zip(predictions, rows, strict=True)]

    def over_steps(chosen):
        by_step: dict[int, list[bool]] = {}
        for i in chosen:
            by_step.setdefault(rows[i]["step"], []).append(right[i])
        return mean(mean(values) for values in by_step.values())

    everything = range(len(rows))
    return {
        "album": over_steps([i for i in everything if rows[i]["scored"]]),
        "batch": over_steps(everything),
        "sample": mean(right),
    }


def blind(labels, k):
    guesses = []
    for i in range(len(labels)):
        history = labels[max(0, i - k) : i]
        counts = Counter(history)
        best = [label for label in counts if counts[label] == max(counts.values())]
        # Ties go to the most recent.
        guesses.append(max(best, key=lambda c: len(history) - 1 - history[::-1].index(c)) if best else -1)
    return guesses


def test_online_accuracy_and_its_companions(run):
    out, summary, stream = run
    rows = rows_of(out, "predictions.parquet")
    labels = [row["label"] for row in rows]
    assert summary["online_accuracy"] == pytest.approx(scores(rows, [row["pred"] for row in rows]))
    k = summary["blind"].pop("k")
    assert summary["blind"] == pytest.approx(scores(rows, blind(labels, k)))
    for other in (1, 5, 10, 50):
        assert scores(rows, blind(labels, other))["album"] <= summary["blind"]["album"] + 1e-12
    assert summary["chance"] == pytest.approx(1 / len(stream.classes))
    summary["blind"]["k"] = k


def test_weights_are_kept_at_a_third_two_thirds_and_the_end(run):
    out, summary, _ = run
    curves = rows_of(out, "curves.parquet")
    for name, share in (("H/3", 1 / 3), ("2H/3", 2 / 3), ("H", 1)):
        last = curves[round(len(curves) * share) - 1]
        assert summary["checkpoints"][name] == {key: last[key] for key in ("step", "position", "time")}


def test_transfer_is_what_the_kept_weights_predict(run, tmp_path):
    """The validation set predicted once more, by runs that stop where the weights were kept."""
    out, summary, stream = run
    transfer = pl.read_parquet(out / "transfer.parquet")
    assert transfer["checkpoint"].unique(maintain_order=True).to_list() == ["H/3", "2H/3", "H"]
    config = RunConfig(stream="memory", batch_size=50, test_every=120, lr=0.1)
    again = Run(config, tmp_path / "again", stream=stream, learner=small_learner)
    images = torch.from_numpy(stream.validation.images(stream.validation.columns.position)).permute(
        0, 3, 1, 2
    )
    expected = {}
    for record in again.records():
        for name, at in summary["checkpoints"].items():
            if record.step == at["step"]:
                expected[name] = again.learner.predict(images).topk(5).indices.tolist()
    for name, top in expected.items():
        rows = transfer.filter(pl.col("checkpoint") == name)
        assert rows["position"].to_list() == list(range(200))
        assert rows["time"].to_list() == stream.validation.columns.time.tolist()
        assert rows["label"].to_list() == stream.validation.columns.label.tolist()
        assert rows["top5"].to_list() == top
        assert rows["pred"].to_list() == [row[0] for row in top]
    assert set(expected) == {"H/3", "2H/3", "H"}


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("name", ["H/3", "2H/3", "H"])
def test_transfer_figures_follow_their_definition(run, direction, name):
    out, summary, _ = run
    rows = [row for row in rows_of(out, "transfer.parquet") if row["checkpoint"] == name]
    now = summary["checkpoints"][name]["time"]
    if (
        direction == "backward"
    ):  # (T - t, T]: a sample at time x is inside for t > T - x, that is from T - x + 1 on
        reach = {now - row["time"] + 1: None for row in rows if row["time"] <= now}
        inside = lambda row, span: now - span < row["time"] <= now  # noqa: E731
    else:  # (T, T + t]
        reach = {row["time"] - now: None for row in rows if row["time"] > now}
        inside = lambda row, span: now < row["time"] <= now + span  # noqa: E731
    spans = sorted(reach)
    curve = [mean(row["label"] == row["pred"] for row in rows if inside(row, span)) for span in spans]
    figures = summary[direction][name]
    if not spans:
        assert figures == {"area": None, "start": None, "end": None}
        return
    assert figures["start"] == pytest.approx(curve[0])
    assert figures["end"] == pytest.approx(curve[-1])
    area = sum(a * (t - s) for a, s, t in zip(curve, spans, spans[1:], strict=False))
    assert figures["area"] == pytest.approx(area / (spans[-1] - spans[0]))


def test_geolocation_error_is_the_great_circle_to_the_predicted_centre(run):
    out, summary, stream = run
    rows = rows_of(out, "predictions.parquet")
    classes = rows_of(out, "classes.parquet")
    errors = []
    for row in rows:
        at, centre = row["position"], classes[row["pred"]]
        a, b = math.radians(stream.train.columns.lat[at]), math.radians(centre["lat"])
        turn = math.radians(stream.train.columns.lon[at] - centre["lon"])
        haversine = math.sin((a - b) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(turn / 2) ** 2
        errors.append(2 * 6371.0088 * math.asin(min(1.0, math.sqrt(haversine))))
    errors.sort()
    figures = summary["geolocation_error_km"]
    assert figures["median"] == pytest.approx((errors[749] + errors[750]) / 2, rel=1e-3)
    for scale, share in figures["share_under"].items():
        assert share == pytest.approx(mean(error < float(scale) for error in errors), abs=2e-3)


def test_conditions_are_recorded(run):
    _, summary, _ = run
    assert (summary["samples"], summary["steps"], summary["seed"], summary["resumed"]) == (1500, 30, 0, 0)
    assert summary["gradient_steps"] == 30
    assert summary["precision"] in ("float32", "bfloat16")
    assert summary["samples_per_second"] == pytest.approx(1500 / summary["seconds"], rel=0.05)
    assert summary["peak_rss_mb"] > 10
    assert {"driftline", "torch", "numpy", "python"} <= set(summary["versions"])
    assert summary["protocol"]


def test_the_pictures_are_samples_over_the_whole_stream_with_what_was_predicted(run):
    out, _, _ = run
    pictures = pl.read_parquet(out / "samples.parquet")
    log = pl.read_parquet(out / "predictions.parquet")
    assert 12 <= len(pictures) <= 100
    assert pictures["position"][0] < 100
    assert pictures["position"][-1] > 1400
    joined = pictures.join(log, on="position")
    assert joined["pred"].to_list() == joined["pred_right"].to_list()
    assert joined["label"].to_list() == joined["label_right"].to_list()
    assert all(image.startswith(b"\x89PNG") for image in pictures["image"])


@pytest.mark.parametrize("learner", ["er", "supervised"])
def test_a_stream_without_a_validation_set_can_be_finished(tmp_path, learner):
    stream = memory_stream(200, num_validation=0)
    config = RunConfig(stream="memory", batch_size=32, learner=learner)
    summary = Run(config, tmp_path / "run", stream=stream, learner=small_learner).execute()
    assert len(pl.read_parquet(tmp_path / "run" / "transfer.parquet")) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    if learner == "er":
        assert summary["online_accuracy"]["sample"] > 0
    else:
        assert summary["validation_accuracy"] is None


def test_a_stream_without_places_has_no_geolocation_error(tmp_path):
    stream = memory_stream(200, places=False)
    config = RunConfig(stream="memory", batch_size=32)
    summary = Run(config, tmp_path / "run", stream=stream, learner=small_learner).execute()
    assert "geolocation_error_km" not in summary
    assert pl.read_parquet(tmp_path / "run" / "classes.parquet")["lat"].to_list() == [None] * 6


def test_two_classes_are_enough(tmp_path):
    stream = memory_stream(200, num_classes=2)
    summary = Run(
        RunConfig(stream="memory", batch_size=32), tmp_path / "run", stream=stream, learner=small_learner
    ).execute()
    assert summary["chance"] == 0.5


@pytest.mark.parametrize("num_steps", range(1, 12))
def test_the_last_weights_are_always_kept_and_never_twice(num_steps):
    kept = kept_steps(num_steps, supervised=False)
    assert kept[num_steps] == "H"
    assert all(1 <= step <= num_steps for step in kept)
    assert kept_steps(num_steps, supervised=True) == {num_steps: "H"}
