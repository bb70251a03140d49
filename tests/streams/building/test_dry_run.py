"""What a dry run says comes near what a build makes."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftline.streams.building.build import build
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.building.dry_run import dry_run
from driftline.types import DriftlineError


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.csv.bz2"])
def test_estimates_come_near_what_is_built(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(2)
    num = 30_000
    frame = pl.DataFrame(
        {
            "id": np.arange(num),
            "time": rng.integers(10**9, 11 * 10**8, num),
            "lat": rng.normal(45, 10, num).round(4),
            "lon": np.where(rng.random(num) < 0.2, np.nan, rng.normal(5, 20, num).round(4)),
        }
    ).with_columns(pl.col("lon").fill_nan(None))
    if name == "t.parquet":
        frame.write_parquet(tmp_path / name)
    else:
        import bz2

        text = frame.write_csv().encode()
        (tmp_path / name).write_bytes(bz2.compress(text) if name.endswith("bz2") else text)
    config = BuildConfig((str(tmp_path / name),), tmp_path / "out", min_per_class=5, max_per_class=60)
    estimate = dry_run(config)
    assert not (tmp_path / "out").exists()
    report = build(config)
    rows = report.accounting
    assert estimate.rows_are_exact == (name == "t.parquet")
    assert estimate.num_rows == pytest.approx(rows.num_read, rel=0.1)
    assert estimate.num_stream == pytest.approx(rows.num_stream, rel=0.15)
    assert estimate.num_validation == pytest.approx(rows.num_validation, rel=0.3)
    assert estimate.num_preprocessing == pytest.approx(rows.num_preprocessing, rel=0.15)
    assert estimate.num_classes == pytest.approx(report.num_classes, rel=0.35)
    assert estimate.refused["no_place"] == pytest.approx(rows.refused["no_place"] / rows.num_read, abs=0.02)
    size = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert size / 4 < estimate.disk_bytes < size * 8
    assert estimate.table().row_count > 8


def test_a_dry_run_refuses_what_a_build_refuses(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("label,time\na,never\n")
    with pytest.raises(DriftlineError, match="no usable row"):
        dry_run(BuildConfig((str(tmp_path / "t.csv"),), tmp_path / "out"))
    (tmp_path / "u.csv").write_text("label,time,path\na,1,x.jpg\n")
    with pytest.raises(DriftlineError, match="none of 1 images"):
        dry_run(BuildConfig((str(tmp_path / "u.csv"),), tmp_path / "out", images=str(tmp_path)))
