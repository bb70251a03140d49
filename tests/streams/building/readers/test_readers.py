"""Tables in the forms that users have, clean and damaged."""

import bz2
import gzip
import lzma
import random
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.streams.building.metadata import Table
from driftline.streams.building.readers import ColumnChoice, open_table
from driftline.streams.building.readers.yfcc import COLUMNS
from driftline.types import DriftlineError


def read(table: Table) -> pl.DataFrame:
    return pl.concat([frame for part in table.parts for frame in part.frames()], how="diagonal_relaxed")


def yfcc_row(**changes: str) -> list[str]:
    row = dict.fromkeys(COLUMNS, "x") | {
        "photoid": "77",
        "uid": "123%40N01",
        "datetaken": "2010-05-01+12%3A00%3A00.0",
        "longitude": "2.3",
        "latitude": "48.8",
        "downloadurl": "http://a.invalid/1%20x.jpg",
        "marker": "0",
    }
    return [*(row | changes).values()]


def line(fields: list[str]) -> bytes:
    return "\t".join(fields).encode() + b"\n"


NARROW = line(yfcc_row())
WIDE = b"1\t0a1b\t" + line(yfcc_row(photoid="78", marker="1"))
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "t.bz2": bz2.compress,
    "t.gz": gzip.compress,
    "t.xz": lzma.compress,
    "t": bytes,
}


@pytest.mark.parametrize("name", COMPRESS)
def test_yfcc_text_in_both_widths_whatever_the_compression(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(COMPRESS[name](NARROW + WIDE))
    table = open_table((str(tmp_path / name),), ColumnChoice())
    rows = read(table)
    assert table.format == "yfcc"
    assert rows["id"].to_list() == ["77", "78"]
    assert rows["user"].to_list() == ["123@N01"] * 2
    assert rows["time"].to_list() == ["2010-05-01 12:00:00.0"] * 2
    assert rows["lat"].to_list() == ["48.8"] * 2
    assert rows["image"].to_list() == ["http://a.invalid/1%20x.jpg"] * 2
    assert rows["video"].to_list() == [False, True]


def test_bz2_of_several_streams_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "t.bz2").write_bytes(bz2.compress(NARROW) + bz2.compress(NARROW * 2))
    assert read(open_table((str(tmp_path / "t.bz2"),), ColumnChoice())).height == 3


def test_broken_lines_stray_bytes_and_missing_last_line_end(tmp_path: Path) -> None:
    stray = NARROW.replace(b"\tx\t", b"\tcaf\xe9\t", 1)
    in_id = NARROW.replace(b"77", b"7\xff", 1)
    (tmp_path / "t").write_bytes(NARROW + b"half\ta line\n" + b"\n" + stray + in_id + NARROW.rstrip(b"\n"))
    rows = read(open_table((str(tmp_path / "t"),), ColumnChoice()))
    assert rows["broken"].to_list() == [False, True, False, False, False]
    assert rows["id"].to_list() == ["77", None, "77", "7\ufffd", "77"]


def test_several_files_and_patterns_each_once(tmp_path: Path) -> None:
    for number in (2, 1):
        (tmp_path / f"part-{number}").write_bytes(line(yfcc_row(photoid=str(number))))
    patterns = (str(tmp_path / "part-2"), str(tmp_path / "part-*"))
    table = open_table(patterns, ColumnChoice())
    assert [part.name for part in table.parts] == ["part-2", "part-1"]
    assert read(table)["id"].to_list() == ["2", "1"]


def test_yfcc_as_sqlite_and_parquet_reads_like_text(tmp_path: Path) -> None:
    rows = [yfcc_row(photoid=str(k), marker=str(k % 2), title="caf") for k in range(5)]
    (tmp_path / "t").write_bytes(b"".join(map(line, rows)))
    frame = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    frame.with_columns(pl.col("marker").cast(pl.Int64), pl.col("latitude").cast(pl.Float64)).write_parquet(
        tmp_path / "t.parquet"
    )
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE other (a)")
        connection.execute(f"CREATE TABLE yfcc100m_dataset ({', '.join(COLUMNS)})")
        connection.executemany(f"INSERT INTO yfcc100m_dataset VALUES ({','.join('?' * 23)})", rows)
        connection.execute("UPDATE yfcc100m_dataset SET title = CAST(x'63ff' AS TEXT), latitude = 48.8")
    connection.close()
    expected = read(open_table((str(tmp_path / "t"),), ColumnChoice()))
    for name in ("t.parquet", "t.sqlite"):
        table = open_table((str(tmp_path / name),), ColumnChoice())
        assert table.format == "yfcc"
        found = read(table).select(expected.columns).with_columns(pl.col("lat").cast(pl.String))
        assert found.equals(expected), name


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_delimiters_are_found(tmp_path: Path, delimiter: str) -> None:
    lines = ["Path,label,when,user", 'a.jpg,"big ""red"" dog",2010-01-01,u1', "b.jpg,cat,2010-01-02,u2"]
    text = "\r\n".join(lines).replace(",", delimiter)
    (tmp_path / "t.csv").write_text("\ufeff" + text, encoding="utf-8", newline="")
    table = open_table((str(tmp_path / "t.csv"),), ColumnChoice(time="when"))
    assert table.columns == {"time": "when", "user": "user", "label": "label", "image": "Path"}
    rows = read(table)
    assert rows["label"].to_list() == ['big "red" dog', "cat"]
    assert rows["image"].to_list() == ["a.jpg", "b.jpg"]


def test_a_delimiter_nobody_uses_needs_a_flag(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("label^time\na^2010-01-01\n")
    with pytest.raises(DriftlineError, match=r"one column.*--delimiter"):
        open_table((str(tmp_path / "t.csv"),), ColumnChoice())
    table = open_table((str(tmp_path / "t.csv"),), ColumnChoice(), delimiter="^")
    assert read(table)["label"].to_list() == ["a"]


def test_lines_with_other_numbers_of_columns_are_counted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('label,time\na,1\nb\nc,3,4\n"d\nd",4\ne,5\n')
    rows = read(open_table((str(tmp_path / "t.csv"),), ColumnChoice()))
    assert rows["broken"].sum() == 2
    assert rows["quoted"].sum() == 1
    assert rows.filter(pl.col("label").is_not_null())["label"].to_list() == ["a", "d\nd", "e"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a,1", '"', '"x', "", "\r", "b,2,3", "é,4"]), max_size=12), st.booleans())
def test_every_line_that_is_not_empty_is_a_row_somewhere(lines: list[str], ended: bool) -> None:
    """Also when a quote is never closed and swallows what follows."""
    text = "\n".join(["label,time", *lines]) + ("\n" if ended else "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(text.encode())
        rows = read(open_table((str(path),), ColumnChoice(), format="table"))
    assert rows.height == sum(line.strip("\r") != "" for line in lines)


def test_stray_bytes_in_a_csv_stay_in_their_cell(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"label,time,note\ncaf\xe9,1,n\nb,2,\xff\n")
    rows = read(open_table((str(tmp_path / "t.csv"),), ColumnChoice()))
    assert rows["label"].to_list() == ["caf\ufffd", "b"]


def test_a_missing_column_names_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("label,time\na,1\n")
    pl.DataFrame({"label": ["a"], "time": [1]}).write_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(
            DriftlineError, match=r"no column 'species' \(--label-column\); the columns are: label, time"
        ):
            open_table((str(tmp_path / name),), ColumnChoice(label="species"))


def test_columns_of_bytes_are_not_taken_for_paths(tmp_path: Path) -> None:
    pl.DataFrame({"label": ["a"], "time": [1], "image": [b"\xff\xd8"]}).write_parquet(tmp_path / "t.parquet")
    assert "image" not in open_table((str(tmp_path / "t.parquet"),), ColumnChoice()).columns


def test_a_pattern_makes_image_names_from_columns(tmp_path: Path) -> None:
    (tmp_path / "y").write_bytes(NARROW + line(yfcc_row(ext="")))
    table = open_table((str(tmp_path / "y"),), ColumnChoice(image="i/{photoid}.{ext}"))
    assert read(table)["image"].to_list() == ["i/77.x", None]
    assert table.columns["image"] == "i/{photoid}.{ext}"
    pl.DataFrame({"label": ["a"], "time": [1], "n": [5]}).write_parquet(tmp_path / "t.parquet")
    parquet = open_table((str(tmp_path / "t.parquet"),), ColumnChoice(image="{label}/{n}.png"))
    assert read(parquet)["image"].to_list() == ["a/5.png"]
    for pattern, message in [("{nope}.jpg", "no column 'nope'"), ("{label.jpg", "write columns as")]:
        with pytest.raises(DriftlineError, match=message):
            open_table((str(tmp_path / "t.parquet"),), ColumnChoice(image=pattern))


def test_naming_places_leaves_a_label_column_alone() -> None:
    from driftline.streams.building.readers.columns import choose

    names = ["id", "time", "label", "lat", "lon"]
    assert "label" in choose(names, ColumnChoice(), "t")
    assert "label" not in choose(names, ColumnChoice(lat="lat", lon="lon"), "t")


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "format", "message"),
    [
        ("empty.csv", b"", "auto", "is empty"),
        ("t.csv", b"\xff\xfea\x00", "auto", "UTF-16"),
        ("t.zip", b"PK\x03\x04rest", "auto", "unpack it"),
        ("cut.bz2", bz2.compress(NARROW * 1000)[:-10], "yfcc", "cut short"),
        ("t.csv", b"label,time\na,1\n", "yfcc", "--format table"),
        ("t.parquet", b"PAR1 but nothing else", "auto", "no readable Parquet"),
        ("t.sqlite", b"SQLite format 3\0" + b"\1" * 200, "auto", "no readable SQLite"),
    ],
)
def test_files_that_cannot_be_read_say_why(
    tmp_path: Path, name: str, content: bytes, format: str, message: str
) -> None:
    with pytest.raises(DriftlineError, match=message):
        read(open_table((str(write(tmp_path / name, content)),), ColumnChoice(), format=format))


@pytest.mark.parametrize("compress", [bz2.compress, gzip.compress, lzma.compress])
@pytest.mark.parametrize("content", [NARROW * 5000, b"label,time\n" + b"a,2010-01-01\n" * 50_000])
def test_damage_within_a_compressed_file_is_a_message(
    tmp_path: Path, compress: Callable[[bytes], bytes], content: bytes
) -> None:
    data = bytearray(compress(content + random.Random(0).randbytes(200_000)))
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    path = write(tmp_path / "t", bytes(data))
    with pytest.raises(DriftlineError, match="damaged"):
        read(open_table((str(path),), ColumnChoice()))


def test_no_such_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(DriftlineError, match="no file"):
        open_table((str(tmp_path / "none-*.bz2"),), ColumnChoice())
    with pytest.raises(DriftlineError, match="directory"):
        open_table((str(tmp_path),), ColumnChoice())


def test_sqlite_with_several_tables_wants_a_name(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE photos (label, time)")
        connection.execute('CREATE TABLE "odd ""name" (label, time)')
        connection.execute('INSERT INTO "odd ""name" VALUES (3, 1.5)')
    connection.close()
    path = (str(tmp_path / "t.db"),)
    with pytest.raises(DriftlineError, match=r"photos.*--sql-table"):
        open_table(path, ColumnChoice())
    with pytest.raises(DriftlineError, match="no table 'x'"):
        open_table(path, ColumnChoice(), sql_table="x")
    rows = read(open_table(path, ColumnChoice(), sql_table='odd "name'))
    assert rows["label"].to_list() == ["3"]
