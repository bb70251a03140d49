"""Reading prediction logs: finished, in progress, incomplete and damaged ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftline.metrics import log as log_module
from driftline.metrics.log import CORE, EXTRA, PredictionLog
from driftline.types import PREDICTION, DriftlineError


def records(num: int) -> np.ndarray:
    """A log with different values in every column."""
    rng = np.random.default_rng(num)
    rows = np.zeros(num, PREDICTION)
    for name in PREDICTION.names or ():
        rows[name] = rng.integers(0, 100, rows[name].shape)
    rows["position"] = np.arange(num)
    rows["step"] = np.arange(num) // 8
    rows["user"] += 2**40
    return rows


def write_parquet(rows: np.ndarray, file: Path) -> pl.DataFrame:
    frame = pl.DataFrame({name: rows[name] for name in CORE + EXTRA if name != "top5"})
    frame = frame.with_columns(pl.Series("top5", rows["top5"].tolist(), pl.List(pl.Int32)))
    frame.write_parquet(file, row_group_size=50)
    return frame


@pytest.mark.parametrize("form", ["parquet", "bin"])
def test_every_column_comes_back(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_RECORDS_A_READ", 64)
    rows = records(200)
    file = tmp_path / f"predictions.{form}"
    if form == "parquet":
        write_parquet(rows, file)
    else:
        rows.tofile(file)
    for path in (tmp_path, file):
        found = PredictionLog.read(path, columns=EXTRA)
        for name in CORE + EXTRA:
            column = getattr(found, name)
            assert np.array_equal(column, rows[name]), name
            assert column.dtype == PREDICTION[name].base, name
    slim = PredictionLog.read(tmp_path)
    assert len(slim) == 200
    assert slim.top5 is None
    assert slim.prob is None


def test_the_finished_log_of_a_run_is_preferred(tmp_path: Path) -> None:
    records(8).tofile(tmp_path / "predictions.bin")
    write_parquet(records(16), tmp_path / "predictions.parquet")
    assert len(PredictionLog.read(tmp_path)) == 16


@pytest.mark.parametrize("num_lost", [1, PREDICTION.itemsize - 1, PREDICTION.itemsize])
def test_a_torn_tail_costs_one_record(num_lost: int, tmp_path: Path) -> None:
    rows = records(20)
    (tmp_path / "predictions.bin").write_bytes(rows.tobytes()[:-num_lost])
    found = PredictionLog.read(tmp_path)
    assert np.array_equal(found.position, np.arange(19))


def test_an_empty_log_is_a_log(tmp_path: Path) -> None:
    (tmp_path / "predictions.bin").write_bytes(b"")
    assert len(PredictionLog.read(tmp_path)) == 0


def test_other_integer_types_are_brought_to_ours(tmp_path: Path) -> None:
    file = tmp_path / "theirs.parquet"
    frame = write_parquet(records(30), file)
    frame.with_columns(pl.col("label").cast(pl.UInt16), pl.col("step").cast(pl.Int32)).write_parquet(file)
    found = PredictionLog.read(file)
    assert found.label.dtype == np.int32
    assert found.step.dtype == np.int64


def test_no_log_there(tmp_path: Path) -> None:
    with pytest.raises(DriftlineError, match=r"no predictions\.parquet"):
        PredictionLog.read(tmp_path)
    with pytest.raises(DriftlineError, match=r"nothing\.parquet does not exist"):
        PredictionLog.read(tmp_path / "nothing.parquet")


def test_missing_column_is_named(tmp_path: Path) -> None:
    file = tmp_path / "predictions.parquet"
    write_parquet(records(10), file).drop("user", "prob").write_parquet(file)
    with pytest.raises(DriftlineError, match=r"predictions\.parquet has no column 'user'"):
        PredictionLog.read(file)
    with pytest.raises(DriftlineError, match="no column 'colour'"):
        PredictionLog.read(file, columns=["colour"])


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "flip"])
def test_damaged_parquet_is_refused_by_name(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "predictions.parquet"
    write_parquet(records(500), file)
    content = bytearray(file.read_bytes())
    if damage == "flip":  # a page header in the middle of the data
        content[4:40] = b"\xff" * 36
    else:
        content = {
            "cut": content[: len(content) // 2],
            "garbage": bytearray(b"x" * 999),
            "empty": bytearray(),
        }[damage]
    file.write_bytes(content)
    with pytest.raises(DriftlineError, match=r"predictions\.parquet"):
        PredictionLog.read(file)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("label", [1, None]),
        ("label", ["a", "b"]),
        ("label", [1.5, 2.0]),
        ("step", [1, 2**63]),
        ("top5", [[1], [2]]),
    ],
)
def test_values_that_are_no_log_are_refused(column: str, values: list, tmp_path: Path) -> None:
    file = tmp_path / "predictions.parquet"
    write_parquet(records(2), file).with_columns(pl.Series(column, values)).write_parquet(file)
    with pytest.raises(DriftlineError, match=rf"predictions\.parquet.*{column}"):
        PredictionLog.read(file, columns=["top5"])


def test_steps_out_of_order_are_refused_with_the_row(tmp_path: Path) -> None:
    rows = records(40)
    rows["step"][25] = 0
    rows.tofile(tmp_path / "predictions.bin")
    with pytest.raises(
        DriftlineError, match=r"predictions\.bin is damaged: step falls from 3 to 0 at row 25: sort"
    ):
        PredictionLog.read(tmp_path)


def test_columns_of_different_length_are_refused() -> None:
    row = np.arange(3)
    log = PredictionLog(row, row, row, row, row, row, row > 1)
    with pytest.raises(DriftlineError, match="pred has 2 entries and label has 3"):
        dataclasses.replace(log, pred=row[:2])
