from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftline.config import RunConfig
from driftline.report import load_run, write_report
from driftline.report.run_files import LOG_COLUMNS
from driftline.types import PREDICTION, DriftlineError

from .make_runs import Skill, make_run, predictions


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "whole", num=2000, num_classes=20)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return make_run(tmp_path / "broken", num=1000, num_classes=20)


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DriftlineError, match="not a directory"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(DriftlineError, match=r"not a run: it has no config\.toml"):
        load_run(tmp_path)


@pytest.mark.parametrize("name", ["predictions.parquet", "curves.parquet"])
def test_a_missing_file_is_named(broken: Path, name: str) -> None:
    (broken / name).unlink()
    with pytest.raises(DriftlineError, match=f"{name} is missing"):
        load_run(broken)


@pytest.mark.parametrize(
    "name",
    [
        "predictions.parquet",
        "curves.parquet",
        "transfer.parquet",
        "classes.parquet",
        "samples.parquet",
        "geolocation.parquet",
    ],
)
def test_a_cut_off_table_is_named_and_nothing_is_written(broken: Path, tmp_path: Path, name: str) -> None:
    whole = (broken / name).read_bytes()
    (broken / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DriftlineError, match=f"{name} is damaged"):
        write_report([broken], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_flipped_bytes_inside_the_log_are_noticed(broken: Path, tmp_path: Path) -> None:
    data = bytearray((broken / "predictions.parquet").read_bytes())
    data[8:400] = bytes(b ^ 0x5A for b in data[8:400])
    (broken / "predictions.parquet").write_bytes(data)
    with pytest.raises(DriftlineError, match=r"predictions\.parquet"):
        write_report([broken], tmp_path / "page.html")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\x00"])
def test_a_damaged_summary_is_refused(broken: Path, text: str) -> None:
    (broken / "summary.json").write_text(text)
    with pytest.raises(DriftlineError, match=r"summary\.json is damaged"):
        load_run(broken)


def test_another_format_is_refused(broken: Path) -> None:
    figures = json.loads((broken / "summary.json").read_text())
    (broken / "summary.json").write_text(json.dumps(figures | {"format": 99}))
    with pytest.raises(DriftlineError, match="format 99"):
        load_run(broken)


def test_a_table_without_a_needed_column_is_refused(broken: Path) -> None:
    pl.read_parquet(broken / "predictions.parquet").drop("scored").write_parquet(
        broken / "predictions.parquet"
    )
    with pytest.raises(DriftlineError, match="no column 'scored'"):
        load_run(broken)


def test_a_run_of_zero_steps_is_refused_but_can_be_watched(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(RunConfig().to_toml())
    with pytest.raises(DriftlineError, match="no steps"):
        load_run(tmp_path)
    (tmp_path / "predictions.bin").write_bytes(b"\0" * (PREDICTION.itemsize - 1))
    with pytest.raises(DriftlineError, match="no steps"):
        load_run(tmp_path)
    assert load_run(tmp_path, allow_empty=True).num_predictions() == 0


def test_blocks_of_a_finished_log_hold_every_row(finished: Path) -> None:
    blocks = list(load_run(finished).log_blocks())
    whole = pl.read_parquet(finished / "predictions.parquet")
    for name in LOG_COLUMNS:
        assert np.concatenate([b[name] for b in blocks]).tolist() == whole[name].to_list()


@pytest.mark.parametrize("start", [0, 1, 699, 700])
def test_a_growing_log_is_read_from_any_row_and_its_torn_end_left_out(tmp_path: Path, start: int) -> None:
    run = load_run(make_run(tmp_path / "r", num=700, num_classes=20, finished=False))
    assert (run.path / "predictions.bin").stat().st_size % PREDICTION.itemsize
    found = [b["label"] for b in run.log_blocks(start)]
    expected = predictions(700, 20, run.config.batch_size, Skill())["label"][start:]
    assert np.concatenate([*found, np.zeros(0, np.int32)]).tolist() == expected.tolist()
    assert len(run.curves()) == -(-700 // run.config.batch_size)


def test_the_start_row_also_holds_for_a_finished_log(finished: Path) -> None:
    rows = np.concatenate([b["position"] for b in load_run(finished).log_blocks(1234)])
    assert rows.tolist() == list(range(1234, 2000))
