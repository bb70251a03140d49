from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftline.config import RunConfig
from driftline.report.digest import FEWEST_PHOTOS, MAX_POINTS, MIN_PHOTOS, SECONDS_A_YEAR, RunDigest, digests

from .make_runs import make_run

POPULATION = RunConfig(stream="world:9000", schedule="polrs", adaptive_buffer=True, batch_size=8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDigest:
    return digests([make_run(tmp_path_factory.mktemp("runs") / "r", POPULATION, num=9000, num_classes=30)])[0]


@pytest.fixture(scope="module")
def log(run: RunDigest) -> pl.DataFrame:
    return pl.read_parquet(run.run.path / "predictions.parquet")


def test_no_line_has_more_points_than_a_screen_shows(run: RunDigest) -> None:
    assert len(run.curves) > 2 * MAX_POINTS
    lines = [
        *run.online().partition_by("kind"),
        *run.members().partition_by("kind"),
        *run.training().partition_by("kind"),
    ]
    lines += [run.line("loss"), run.line("buffer_size", changes=True), run.errors, run.by_month()]
    lines += [part for d in ("backward", "forward") for part in run.transfer_curves(d).partition_by("kind")]
    assert all(1 < len(line) <= MAX_POINTS + 1 for line in lines)


def test_a_step_line_keeps_every_change(run: RunDigest) -> None:
    shown = dict(run.line("buffer_size", changes=True).iter_rows())
    value, sizes = None, run.curves.select("time", "buffer_size").rows()
    changes = []
    for time_s, size in sizes:
        if size != value:
            changes.append((time_s, size))
            value = size
    if len(changes) <= MAX_POINTS:
        assert all(shown[time_s] == size for time_s, size in changes)
    assert shown[sizes[-1][0]] == sizes[-1][1]


def test_the_mean_of_a_noisy_line_is_kept(run: RunDigest) -> None:
    assert run.line("loss")["value"].mean() == pytest.approx(run.curves["loss"].mean(), rel=0.01)


def test_accuracy_by_month_is_counted_as_by_hand(run: RunDigest, log: pl.DataFrame) -> None:
    by_hand: dict[tuple[int, int], list[bool]] = {}
    for time_s, label, pred in log.select("time", "label", "pred").iter_rows():
        date = dt.datetime.fromtimestamp(time_s, dt.UTC)
        by_hand.setdefault((date.year, date.month), []).append(label == pred)
    found = {}
    for x, value, num in run.by_month().select("x", "value", "count").iter_rows():
        date = dt.datetime.fromtimestamp(x, dt.UTC)
        found[date.year, date.month] = (value, num)
    assert found == {m: (pytest.approx(np.mean(v)), len(v)) for m, v in by_hand.items()}


def test_transfer_runs_outwards_from_the_checkpoint(run: RunDigest) -> None:
    table = pl.read_parquet(run.run.path / "transfer.parquet").filter(pl.col("checkpoint") == "2H/3")
    at = run.checkpoint_time("2H/3")
    past = [
        (at - t + 1, ok)
        for t, ok in zip(table["time"], table["label"] == table["pred"], strict=True)
        if t <= at
    ]
    curve = run.transfer_curves("backward").filter(pl.col("kind") == "2H/3")
    for years, value in curve.select("x", "value").rows()[:: len(curve) // 7]:
        within = [ok for span, ok in past if span <= years * SECONDS_A_YEAR + 0.5]
        assert len(within) >= FEWEST_PHOTOS
        assert value == pytest.approx(np.mean(within))
    forward = run.transfer_curves("forward")
    assert set(forward["kind"]) == {"H/3", "2H/3"}  # nothing lies after H


def test_the_year_matrix_has_a_row_a_checkpoint_and_one_for_the_online_predictions(
    run: RunDigest, log: pl.DataFrame
) -> None:
    cells = {
        (row, year): value
        for row, year, value in run.year_matrix().select("row", "column", "value").iter_rows()
    }
    table = pl.read_parquet(run.run.path / "transfer.parquet")
    rows = list(dict.fromkeys(row for row, _ in cells))
    assert [r.split(" ")[1] for r in rows[:3]] == ["(H/3)", "(2H/3)", "(H)"]
    year = pl.from_epoch("time").dt.year()
    for name, row in zip(("H/3", "2H/3", "H"), rows[:3], strict=True):
        hits = table.filter((pl.col("checkpoint") == name) & (year == 2010)).select(
            pl.col("label") == pl.col("pred")
        )
        assert cells[row, "2010"] == pytest.approx(hits.to_series().mean())
    online = log.filter(year == 2010).select(pl.col("label") == pl.col("pred")).to_series().mean()
    assert cells[rows[3], "2010"] == pytest.approx(online)


def test_classes_gained_and_lost_are_sorted_and_well_founded(run: RunDigest, log: pl.DataFrame) -> None:
    changed = run.most_changed(num=3)
    assert changed["change"].to_list() == sorted(changed["change"], reverse=True)
    assert len(changed) == 6
    names = {name: label for label, name in run.classes.select("label", "name").iter_rows()}
    name, late = changed.row(0, named=True)["name"], changed.row(0, named=True)["late"]
    hits = log.filter(pl.col("label") == names[name]).select(ok=pl.col("label") == pl.col("pred"))["ok"]
    assert len(hits) >= 2 * MIN_PHOTOS
    # The late third begins at a month's border: near the last third of the class's photos, not exactly there.
    assert late == pytest.approx(hits[-len(hits) // 3 :].mean(), abs=0.15)


def test_two_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / parent / "run", num=300, num_classes=10) for parent in ("a", "b")]
    assert [d.name for d in digests([*paths, paths[0]])] == ["a/run", "b/run", "a/run (3)"]


def test_a_run_in_progress_has_everything_but_the_end(tmp_path: Path) -> None:
    run = digests([make_run(tmp_path / "r", POPULATION, num=800, num_classes=10, finished=False)])[0]
    assert run.fold.num_rows == 800
    assert len(run.online()) > 0
    assert len(run.members()["kind"].unique()) == 3
    assert run.transfer_curves("backward").is_empty()
    assert run.year_matrix().is_empty()
    assert run.errors.is_empty()
