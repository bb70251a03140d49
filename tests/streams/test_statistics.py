"""Statistics of a stream against counting by hand."""

from itertools import groupby
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftline.streams import statistics
from driftline.streams.building.build import build
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.statistics import Statistics, stream_statistics
from driftline.streams.statistics_charts import save_figures
from driftline.types import DriftlineError

CITIES = {"Paris": (48.86, 2.35, "FR"), "Sydney": (-33.87, 151.21, "AU"), "Nairobi": (-1.29, 36.82, "KE")}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stream")
    rng = np.random.default_rng(4)
    num = 3000
    city = rng.choice(list(CITIES), num, p=[0.5, 0.3, 0.2])
    frame = pl.DataFrame(
        {
            "id": np.arange(num),
            "user": np.repeat(rng.integers(0, 40, num), rng.geometric(0.4, num))[:num],
            "time": np.sort(rng.integers(1_262_304_000, 1_356_998_400, num)),
            "lat": [CITIES[c][0] for c in city] + rng.normal(0, 0.05, num),
            "lon": [CITIES[c][1] for c in city] + rng.normal(0, 0.05, num),
        }
    )
    frame.write_csv(folder / "t.csv")
    build(BuildConfig((str(folder / "t.csv"),), folder / "out", min_per_class=5, max_per_class=40))
    return folder / "out"


@pytest.mark.parametrize("block", [97, 1 << 18])
def test_figures_are_those_counted_by_hand(stream: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "ROWS_PER_BLOCK", block)
    found = stream_statistics(stream)
    rows = pl.read_parquet(stream / "samples.parquet")
    users = rows["user"].to_list()
    sizes = [len(list(group)) for _, group in groupby(users)]
    assert found.num_albums == len(sizes)
    assert found.album_sizes == {size: sizes.count(size) for size in sorted(set(sizes))}
    assert found.mean_album_size == pytest.approx(np.mean(sizes))
    years = pl.from_epoch(rows["time"]).dt.year().to_list()
    assert found.years == {year: years.count(year) for year in sorted(set(years))}
    assert found.class_counts.tolist() == [
        rows["label"].to_list().count(k) for k in range(len(found.classes))
    ]
    near = {
        code: sum(abs(lat - row["lat"]) < 5 for row in rows.iter_rows(named=True))
        for lat, _, code in CITIES.values()
    }
    assert found.countries == dict(sorted(near.items(), key=lambda item: -item[1]))


def haversine_km(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    a, b, c, d = np.radians([lat1, lon1, lat2, lon2])
    h = np.sin((c - a) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((d - b) / 2) ** 2
    return float(2 * 6371.0088 * np.arcsin(np.sqrt(h)))


def test_distances_to_the_class_centre(stream: Path) -> None:
    found = stream_statistics(stream)
    assert found.classes.lat is not None
    assert found.classes.lon is not None
    rows = pl.read_parquet(stream / "samples.parquet")
    distances = np.array(
        [
            haversine_km(
                row["lat"], row["lon"], found.classes.lat[row["label"]], found.classes.lon[row["label"]]
            )
            for row in rows.iter_rows(named=True)
        ]
    )
    for km, share in found.within_km.items():
        assert share == pytest.approx((distances < km).mean(), abs=2 / len(distances))
    at, shares = found.distance_cdf()
    assert np.all(np.diff(shares) >= 0)
    assert shares[-1] == pytest.approx(1.0)
    middle = int(np.searchsorted(at, np.median(distances)))
    assert 0.4 < shares[middle] < 0.6


def test_the_paper_stands_beside_every_figure_it_gives(stream: Path) -> None:
    overview = stream_statistics(stream).tables()[0]
    paper = list(overview.columns[2].cells)
    assert {"712", "1.157", "5%", "30%", "80%", "39,000,000", "392,000", "2,000,000"} <= set(paper)


def test_figures_are_drawn(stream: Path, tmp_path: Path) -> None:
    files = save_figures(stream_statistics(stream), tmp_path / "figures")
    assert {path.name for path in files} == {
        f"{name}.{kind}"
        for name in ("cells", "countries", "years", "distance", "albums")
        for kind in ("png", "svg")
    }
    assert all(path.stat().st_size > 2000 for path in files)


def test_a_stream_of_labels_has_no_distances(tmp_path: Path) -> None:
    pl.DataFrame({"label": ["a", "b"] * 20, "time": range(40)}).write_csv(tmp_path / "t.csv")
    build(BuildConfig((str(tmp_path / "t.csv"),), tmp_path / "out"))
    found: Statistics = stream_statistics(tmp_path / "out")
    assert found.within_km == {}
    assert found.countries == {}
    assert not found.has_places
    assert {path.stem for path in save_figures(found, tmp_path / "figures")} == {"years", "albums"}
    assert "Images per country" not in [table.title for table in found.tables()]


def test_no_stream_there(tmp_path: Path) -> None:
    with pytest.raises(DriftlineError):
        stream_statistics(tmp_path)
