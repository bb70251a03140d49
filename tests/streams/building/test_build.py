"""From a dirty table to a stream, against a slow obvious reference; the same bytes whatever the form of the table."""

import hashlib
import importlib.util
import json
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote_plus

import numpy as np
import polars as pl
import pytest

from driftline.geo import s2
from driftline.streams.building.build import build
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.building.build_report import BuildReport
from driftline.streams.building.metadata import Part, Table
from driftline.streams.building.readers.yfcc import COLUMNS
from driftline.streams.building.splits import is_validation
from driftline.streams.store import StoredStream
from driftline.types import DriftlineError


def metadata_tables() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "metadata_tables.py"
    spec = importlib.util.spec_from_file_location("metadata_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["metadata_tables"] = module
    spec.loader.exec_module(module)
    return module


TABLES = metadata_tables()
SMALL_CLASSES = {"min_per_class": 5, "max_per_class": 40}


def digest(folder: Path) -> dict[str, str]:
    """Hash of every file of a stream."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def one_row(line: bytes) -> tuple[str | None, tuple[int, int, str, float, float] | None]:
    """Reason and row of a YFCC100M line, decided by plain Python."""
    fields = line.rstrip(b"\r\n").split(b"\t")
    fields = fields[2:] if len(fields) == 25 else fields
    if len(fields) != 23 or fields[22] not in (b"0", b"1"):
        return "broken_line", None
    values = dict(zip(COLUMNS, fields, strict=True))
    photo, user, date = (unquote_plus(values[name].decode()) for name in ("photoid", "uid", "datetaken"))
    if values["marker"] == b"1":
        return "video", None
    if not user:
        return "no_user", None
    if not date:
        return "no_date", None
    try:
        moment = datetime.strptime(date.removesuffix(".0"), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return "bad_date", None
    if not 2004 <= moment.year <= 2014:
        return "outside_years", None
    if not values["latitude"] or not values["longitude"]:
        return "no_place", None
    lat, lon = float(values["latitude"]), float(values["longitude"])
    if 90 < abs(lat) <= 180 and abs(lon) <= 90:
        return "swapped_place", None
    if abs(lat) > 90 or abs(lon) > 180:
        return "bad_place", None
    if lat == 0 and lon == 0:
        return "zero_place", None
    number, suffix = user.split("@N")
    return None, (int(moment.timestamp()), int(number) * 100 + int(suffix), photo, lat, lon)


def cells_by_recursion(leaves: list[int], least: int, most: int) -> list[int]:
    def split(cell: int) -> list[int]:
        low, high = (int(x) for x in s2.range_of(np.uint64(cell)))
        num = sum(low <= leaf <= high for leaf in leaves)
        if num > most:
            return [found for child in s2.children(cell) for found in split(int(child))]
        return [cell] if num >= least else []

    return sorted(found for face in s2.faces() for found in split(int(face)))


def reference(lines: Iterator[bytes]) -> tuple[Counter[str], dict[str, list[tuple[int, ...]]]]:
    """Counts by reason, and (time, user, id, label) of both sets, in order."""
    refused: Counter[str] = Counter()
    rows = []
    for line in lines:
        reason, row = one_row(line)
        if row is None:
            refused[str(reason)] += 1
        else:
            rows.append(row)
    rows.sort()
    unique, seen = [], set()
    for row in rows:
        if row[2] in seen:
            refused["duplicate"] += 1
        else:
            seen.add(row[2])
            unique.append(row)
    num_first = round(0.05 * len(unique))
    leaves = s2.cell_ids([r[3] for r in unique], [r[4] for r in unique]).tolist()
    cells = cells_by_recursion(leaves[:num_first], 5, 40)
    sets: dict[str, list[tuple[int, ...]]] = {"train": [], "validation": []}
    held_out = is_validation(0, np.arange(len(unique)), 0.01)
    ranges = [[int(x) for x in s2.range_of(np.uint64(cell))] for cell in cells]
    for k in range(num_first, len(unique)):
        label = next((i for i, (low, high) in enumerate(ranges) if low <= leaves[k] <= high), None)
        if label is None:
            refused["no_class"] += 1
        else:
            time, user, photo, *_ = unique[k]
            sets["validation" if held_out[k] else "train"].append((time, user, photo, label))
    return refused, sets


@pytest.fixture(scope="module")
def yfcc_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("yfcc") / "yfcc.bz2"
    TABLES.write_yfcc_text(path, 20_000, seed=3)
    return path


@pytest.fixture(scope="module")
def yfcc_stream(yfcc_table: Path, tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    return build(BuildConfig((str(yfcc_table),), tmp_path_factory.mktemp("out") / "stream", **SMALL_CLASSES))


def rows_of(out: Path, split: str) -> list[tuple[int, ...]]:
    folder = out if split == "train" else out / "validation"
    return pl.read_parquet(folder / "samples.parquet").select("time", "user", "id", "label").rows()


def test_a_dirty_table_gives_the_stream_of_the_reference(yfcc_stream: BuildReport) -> None:
    refused, sets = reference(TABLES.yfcc_lines(20_000, seed=3))
    assert yfcc_stream.accounting.refused == {k: n for k, n in refused.items() if n}
    for split in ("train", "validation"):
        assert rows_of(yfcc_stream.out, split) == sets[split]
    users = [user for _, user, *_ in sets["train"]]
    assert yfcc_stream.num_albums == 1 + sum(a != b for a, b in pairwise(users))


def test_every_row_is_accounted_for(yfcc_stream: BuildReport) -> None:
    rows = yfcc_stream.accounting
    assert rows.num_read == 20_000
    assert rows.num_read == rows.num_kept + sum(rows.refused.values())
    written = json.loads((yfcc_stream.out / "stream.json").read_text())["how"]["rows"]
    assert written == rows.to_json()
    assert rows.table().row_count >= len(rows.refused) + 4


def test_the_stream_opens(yfcc_stream: BuildReport) -> None:
    stream = StoredStream(yfcc_stream.out)
    assert len(stream.train) == yfcc_stream.accounting.num_stream
    assert len(stream.validation) == yfcc_stream.accounting.num_validation
    assert len(stream.classes) == yfcc_stream.num_classes
    samples = stream.train.samples(0, len(stream.train))
    assert np.all(np.diff(samples.time) >= 0)
    assert stream.classes.cells is not None
    low, high = s2.range_of(stream.classes.cells[samples.label])
    leaves = s2.cell_ids(samples.lat, samples.lon)
    assert np.all((low <= leaves) & (leaves <= high))


def test_building_twice_gives_the_same_bytes(
    yfcc_table: Path, yfcc_stream: BuildReport, tmp_path: Path
) -> None:
    config = BuildConfig((str(yfcc_table),), tmp_path / "again", workers=1, **SMALL_CLASSES)
    again = build(config)
    assert digest(again.out) == digest(yfcc_stream.out)
    there = build(config)
    assert there.was_there
    assert there.accounting == again.accounting


def test_several_files_sqlite_and_parquet_give_the_same_rows(
    yfcc_table: Path, yfcc_stream: BuildReport, tmp_path: Path
) -> None:
    lines = list(TABLES.yfcc_lines(20_000, seed=3))
    (tmp_path / "part-0").write_bytes(b"".join(lines[15_000:]))
    (tmp_path / "part-1").write_bytes(b"".join(lines[:15_000]))
    fields = [line.rstrip(b"\r\n").decode("utf-8", "replace").split("\t") for line in lines]
    whole = [f[-23:] for f in fields if len(f) in (23, 25)]
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute(f"CREATE TABLE yfcc100m_dataset ({', '.join(COLUMNS)})")
        connection.executemany(f"INSERT INTO yfcc100m_dataset VALUES ({','.join('?' * 23)})", whole)
    connection.close()
    pl.DataFrame(whole, schema=COLUMNS, orient="row").write_parquet(tmp_path / "t.parquet")
    expected = {split: rows_of(yfcc_stream.out, split) for split in ("train", "validation")}
    for table in ("part-*", "t.sqlite", "t.parquet"):
        out = tmp_path / f"out-{table[:3]}"
        build(BuildConfig((str(tmp_path / table),), out, **SMALL_CLASSES))
        for split, rows in expected.items():
            assert rows_of(out, split) == rows, (table, split)


def test_duplicates_are_found_across_months_and_the_earliest_stays(tmp_path: Path) -> None:
    times = ["2010-03-01", "2010-01-01", "2010-02-01", "2010-01-15", "2010-03-02", "2010-01-01"]
    ids = ["a", "a", "a", "12", "012", "b"]
    pl.DataFrame({"id": ids, "time": times, "label": list("xyxyxy")}).write_csv(tmp_path / "t.csv")
    report = build(BuildConfig((str(tmp_path / "t.csv"),), tmp_path / "out", validation=0.0))
    assert report.accounting.refused == {"duplicate": 2}
    found = [row[2] for row in rows_of(tmp_path / "out", "train")]
    assert set(found[:2]) == {"a", "b"}  # of one second; their users, which are row numbers, decide
    assert found[2:] == ["12", "012"]


def labelled_csv(path: Path, num: int = 300) -> Path:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "path": [f"img/{k}.jpg" for k in range(num)],
            "label": rng.choice(["10", "9", "2"], num),
            "when": rng.integers(10**9, 10**9 + 10**7, num),
            "who": rng.choice(["anna", "bert"], num),
        }
    )
    frame.write_csv(path)
    return path


def test_labels_make_classes_in_their_natural_order_and_nothing_is_set_apart(tmp_path: Path) -> None:
    table = labelled_csv(tmp_path / "t.csv")
    report = build(
        BuildConfig((str(table),), tmp_path / "out", time_column="when", user_column="who", validation=0.1)
    )
    stream = StoredStream(tmp_path / "out")
    assert stream.classes.names == ("2", "9", "10")
    assert report.accounting.num_preprocessing == 0
    assert report.accounting.num_stream + report.accounting.num_validation == 300
    frame = pl.read_csv(table).sort("when")
    held_out = is_validation(0, np.arange(300), 0.1)
    expected = [stream.classes.names.index(str(x)) for x in frame.filter(pl.Series(~held_out))["label"]]
    assert stream.train.labels(np.arange(len(stream.train))).tolist() == expected


def test_rare_labels_leave_when_asked(tmp_path: Path) -> None:
    labels = ["a"] * 5 + ["b"] * 2 + ["c"] * 4
    pl.DataFrame({"label": labels, "time": range(11)}).write_csv(tmp_path / "t.csv")
    report = build(BuildConfig((str(tmp_path / "t.csv"),), tmp_path / "out", min_per_class=3, validation=0.0))
    assert StoredStream(tmp_path / "out").classes.names == ("a", "c")
    assert report.accounting.refused == {"no_class": 2}


def test_given_order_is_kept_over_several_files_without_times(tmp_path: Path) -> None:
    for number in range(2):
        pl.DataFrame({"label": ["b", "a", "c"], "id": [f"{number}{k}" for k in (2, 0, 1)]}).write_csv(
            tmp_path / f"{number}.csv"
        )
    report = build(BuildConfig((str(tmp_path / "*.csv"),), tmp_path / "out", order="given", validation=0.0))
    rows = rows_of(tmp_path / "out", "train")
    assert [row[2] for row in rows] == ["02", "00", "01", "12", "10", "11"]
    assert [row[0] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert report.num_albums == 6


def test_given_order_keeps_times_that_run_backwards(tmp_path: Path) -> None:
    pl.DataFrame({"label": ["b", "a"], "time": [5, 3]}).write_csv(tmp_path / "t.csv")
    build(BuildConfig((str(tmp_path / "t.csv"),), tmp_path / "out", order="given", validation=0.0))
    assert [row[0] for row in rows_of(tmp_path / "out", "train")] == [5, 3]


def test_any_iterator_of_canonical_frames_can_be_built(tmp_path: Path) -> None:
    def frames() -> Iterator[pl.DataFrame]:
        for start in (1000, 0):
            times = np.arange(start, start + 1000)
            yield pl.DataFrame(
                {
                    "id": times.astype(str),
                    "user": times // 7,
                    "time": times,
                    "lat": times * 13 % 178 - 89.0,
                    "lon": times * 37 % 360 - 180.0,
                }
            )

    columns = {name: name for name in ("id", "user", "time", "lat", "lon")}
    table = Table([Part("made", "v1", frames, 2000)], columns, "world")
    config = BuildConfig(("made",), tmp_path / "out", preprocess=0.5, min_per_class=2, max_per_class=200)
    report = build(config, table=table)
    assert report.accounting.num_preprocessing == 1000
    assert rows_of(tmp_path / "out", "train")[0][0] >= 1000


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("label,time\n", {}, "no usable row among 0"),
        ("label,time\na,0000-00-00\nb,never\n", {}, r"no usable row among 2: 2 a date that does not exist"),
        ("label,time\na,1\na,2\n", {}, r"1 class \(a\).*two at least"),
        ("label,size\na,1\n", {}, r"no column for the time.*the columns are: label, size"),
        ("time,size\n1,1\n", {}, r"no column for the classes.*the columns are: time, size"),
        ("label,time\na,1\nb,2\n", {"images": "."}, "no column for the images"),
        ("lat,lon,time\n1,1,1\n2,2,2\n", {}, r"0 classes from the first 0 rows.*--min-per-class"),
        ("label,time\na,1\nb,2\n", {"preprocess": 0.99}, "no row is left for the stream"),
    ],
)
def test_tables_that_make_no_stream(
    tmp_path: Path, content: str, options: dict[str, object], message: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DriftlineError, match=message):
        build(BuildConfig((str(tmp_path / "t.csv"),), tmp_path / "out", **options))  # type: ignore[arg-type]
    assert not (tmp_path / "out" / "stream.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 1.0}, "validation = 1.0"),
        ({"preprocess": -0.1}, "preprocess = -0.1"),
        ({"min_per_class": 0}, "min_per_class = 0"),
        ({"max_per_class": 10}, "max_per_class = 10 is less than min_per_class = 50"),
        ({"lat_column": "lat"}, "belong together"),
        ({"label_column": "l", "max_level": 3}, "labels are no cells"),
        ({"max_level": 31}, "levels from 0 to 30"),
        ({"delimiter": "ab"}, "one character"),
        ({"format": "cloc", "years": "2010"}, "format = cloc"),
        ({"workers": 0}, "workers = 0"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(DriftlineError, match=message):
        BuildConfig(("t.csv",), Path("out"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("years", ["2014:2004", "20x4", ":", "0:2000"])
def test_years_that_cannot_be(years: str) -> None:
    with pytest.raises(DriftlineError, match="years"):
        BuildConfig(("t.csv",), Path("out"), years=years).year_range("table")


def test_a_missing_image_folder_is_refused_before_the_work(tmp_path: Path) -> None:
    table = labelled_csv(tmp_path / "t.csv")
    config = BuildConfig(
        (str(table),), tmp_path / "out", time_column="when", images=str(tmp_path / "nowhere")
    )
    with pytest.raises(DriftlineError, match="nowhere"):
        build(config)
    assert not (tmp_path / "out").exists()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    table = labelled_csv(tmp_path / "t.csv")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(DriftlineError, match="not empty"):
        build(BuildConfig((str(table),), tmp_path / "out", time_column="when"))
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work"


def test_a_finished_stream_is_never_overwritten(tmp_path: Path) -> None:
    table = labelled_csv(tmp_path / "t.csv")
    build(BuildConfig((str(table),), tmp_path / "out", time_column="when"))
    before = digest(tmp_path / "out")
    with pytest.raises(DriftlineError, match="finished stream"):
        build(BuildConfig((str(table),), tmp_path / "out", time_column="when", seed=1))
    assert digest(tmp_path / "out") == before


@pytest.mark.slow
def test_a_million_dirty_rows(tmp_path: Path) -> None:
    TABLES.write_yfcc_text(tmp_path / "yfcc.bz2", 1_000_000, seed=5)
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        started = time.monotonic()
        report = build(BuildConfig((str(tmp_path / "yfcc.bz2"),), out, min_per_class=20, max_per_class=400))
        seconds = time.monotonic() - started
        assert report.accounting.num_read == 1_000_000
    assert digest(outs[0]) == digest(outs[1])
    delays = [share * seconds for share in (0.7, 0.3, 0.1)]
    assert _built_with_kills(tmp_path / "yfcc.bz2", tmp_path / "killed", delays) > 1
    assert digest(outs[0]) == digest(tmp_path / "killed")
    refused: Counter[str] = Counter()
    for line in TABLES.yfcc_lines(1_000_000, seed=5):
        reason, _ = one_row(line)
        refused[str(reason)] += 1
    found = dict(report.accounting.refused)
    num_later = found.pop("duplicate") + found.pop("no_class") + report.accounting.num_kept
    assert found == {reason: num for reason, num in refused.items() if reason != "None"}
    assert num_later == refused["None"]


def _built_with_kills(table: Path, out: Path, delays: list[float]) -> int:
    """The same build by its command, killed after each of these times and started again; how often it was killed."""
    command = [sys.executable, "-m", "driftline", "build", str(table), "--out", str(out)]
    command += ["--min-per-class", "20", "--max-per-class", "400"]
    num_killed = 0
    for delay in delays:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                process.wait(timeout=delay)
            except subprocess.TimeoutExpired:
                process.kill()
                num_killed += 1
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return num_killed
