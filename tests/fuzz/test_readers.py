"""Every reader, fed with damaged, random and hostile input: a clean result or a DriftlineError, nothing else."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import strategies as st
from PIL import Image

from driftline.config import RunConfig, from_toml
from driftline.engine import tensor_file
from driftline.engine.logs import START, RecordLog
from driftline.metrics.log import PredictionLog
from driftline.streams.building.metadata import Rules, clean
from driftline.streams.building.readers import ColumnChoice, cloc, open_table
from driftline.streams.store import ImageFormat, ShardWriter, StoredStream, finish_stream, verify
from driftline.streams.store.decode import UndecodableError, encode, pixels
from driftline.streams.store.manifest import from_text
from driftline.streams.store.shards import iter_shard
from driftline.types import PREDICTION, ClassTable

Fuzz = Callable[[st.SearchStrategy[Any], Callable[[Any], object]], None]

EDITS = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from(["overwrite", "insert", "delete", "cut", "repeat"]),
        st.binary(max_size=9),
    ),
    min_size=1,
    max_size=5,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def edited(data: bytes, edits: list[tuple[float, str, bytes]]) -> bytes:
    """A valid file, damaged."""
    for where, kind, new in edits:
        at = int(where * len(data))
        if kind == "overwrite":
            data = data[:at] + new + data[at + len(new) :]
        elif kind == "insert":
            data = data[:at] + new + data[at:]
        elif kind == "delete":
            data = data[:at] + data[at + len(new) + 1 :]
        elif kind == "cut":
            data = data[:at]
        else:
            data = data[:at] + data[at // 2 :]
    return data


def damaged(*valid: bytes) -> st.SearchStrategy[bytes]:
    """Damaged forms of these files, and some bytes of no form at all."""
    return st.builds(edited, st.sampled_from(valid), EDITS) | st.binary(max_size=200)


# -- settings

TOML = st.dictionaries(
    st.sampled_from([*RunConfig.__dataclass_fields__, "nonsense"]),
    st.integers()
    | st.floats()
    | st.booleans()
    | st.text(max_size=12)
    | st.sampled_from(["polrs", "1/0", "10%", "-1"]),
    max_size=4,
).map(lambda values: "\n".join(f"{k} = {json.dumps(v)}" for k, v in values.items()))


def test_config(fuzz: Fuzz) -> None:
    def check(text: str) -> None:
        config = from_toml(text)
        assert from_toml(config.to_toml()) == config

    fuzz(
        TOML
        | st.text(max_size=60)
        | damaged(RunConfig().to_toml().encode()).map(lambda b: b.decode("latin-1")),
        check,
    )


# -- checkpoints and logs


@pytest.fixture(scope="module")
def checkpoint_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("checkpoint") / "state"
    tensors = [torch.arange(7), torch.ones(2, 3, dtype=torch.bfloat16), torch.empty(0, 4), torch.tensor(True)]
    tensor_file.save({"step": 3, "nan": float("nan"), "list": tensors, "tuple": (1, {2: None})}, path)
    return path.read_bytes()


def test_checkpoint(fuzz: Fuzz, tmp_path: Path, checkpoint_bytes: bytes) -> None:
    def check(data: bytes) -> None:
        (tmp_path / "state").write_bytes(data)
        assert data == checkpoint_bytes or not tensor_file.load(tmp_path / "state")

    fuzz(damaged(checkpoint_bytes), check)


def signed(header: dict[str, Any], data: bytes) -> bytes:
    """A file with any header and the right checksum, as somebody who means harm would make it."""
    metadata = header.pop("__metadata__", {})
    rest = json.dumps(metadata)[1:-1]
    entries = "".join(f",{json.dumps(k)}:{json.dumps(v)}" for k, v in header.items())
    text = tensor_file.PREFIX + tensor_file.NO_DIGEST + b'"' + (f",{rest}" if rest else "").encode() + b"}"
    text += entries.encode() + b"}"
    whole = tensor_file.LENGTH.pack(len(text)) + text + data
    digest = hashlib.sha256(whole).hexdigest().encode()
    return whole[: tensor_file.DIGEST_AT] + digest + whole[tensor_file.DIGEST_AT + 64 :]


ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "I64", "BOOL", "F8", None]) | JSON,
        "shape": st.lists(st.integers(-2, 3) | st.integers(), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(0, 24), min_size=2, max_size=2) | JSON,
    }
)
TREE = JSON.map(json.dumps) | st.sampled_from(
    ['{"#tensor": "a"}', '{"#tuple": 3}', '{"#dict": [[[], 1]]}', "["]
)


def test_checkpoint_with_a_right_checksum(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(value: tuple[dict[str, Any], Any, bytes]) -> None:
        entries, metadata, data = value
        (tmp_path / "state").write_bytes(signed({**entries, "__metadata__": metadata}, data))
        tensor_file.load(tmp_path / "state")

    metadata = st.fixed_dictionaries({"version": st.just("1") | JSON, "state": TREE | JSON})
    fuzz(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), ENTRY, max_size=3), metadata, st.binary(max_size=24)
        ),
        check,
    )


def test_logs(fuzz: Fuzz, tmp_path: Path) -> None:
    rows = np.zeros(5, PREDICTION)
    rows["position"] = rows["time"] = rows["step"] = np.arange(5)

    def check(data: bytes) -> None:
        path = tmp_path / "predictions.bin"
        path.write_bytes(data)
        log = RecordLog(path, PREDICTION)
        assert len(log.read(0, 100)) == len(data) // PREDICTION.itemsize
        log.holds({"size": 3 * PREDICTION.itemsize, "crc32": 7})
        log.close()
        PredictionLog.read(tmp_path)
        again = RecordLog(path, PREDICTION)
        again.cut(START)
        assert not len(again)
        again.close()

    fuzz(damaged(rows.tobytes()), check)


# -- streams


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams") / "stream"
    (path / "validation").mkdir(parents=True)
    tables = {}
    for name, num in [("", 12), ("validation", 3)]:
        with ShardWriter(path / name, 0) as writer:
            for i in range(num):
                writer.append(encode(np.full((8, 8, 3), i * 9, np.uint8)))
            writer.commit()
        columns = {
            "id": [str(i) for i in range(num)],
            "time": np.arange(num) + 10**9,
            "user": np.arange(num) // 2,
            "label": (np.arange(num) % 2).astype(np.int32),
            "lat": np.linspace(-80, 80, num),
            "lon": np.linspace(-80, 80, num),
        }
        tables[name] = path.parent / f"rows{name}.parquet"
        pl.DataFrame(columns).write_parquet(tables[name])
    finish_stream(
        path,
        name="fuzzed",
        classes=ClassTable(("a", "b")),
        how={},
        train_rows=[tables[""]],
        validation_rows=tables["validation"],
        image=ImageFormat("jpeg", 8, fixed=True),
    )
    return path


def replaced(value: Any, path: list[int], new: Any) -> Any:
    """A JSON value with one node replaced."""
    if not path or not isinstance(value, dict | list) or not value:
        return new
    if isinstance(value, list):
        at = path[0] % len(value)
        return [replaced(v, path[1:], new) if i == at else v for i, v in enumerate(value)]
    chosen = list(value)[path[0] % len(value)]
    return {k: replaced(v, path[1:], new) if k == chosen else v for k, v in value.items()}


def test_stream_json(fuzz: Fuzz, stream: Path) -> None:
    text = (stream / "stream.json").read_text()
    nodes = st.builds(
        lambda path, new: json.dumps(replaced(json.loads(text), path, new)),
        st.lists(st.integers(0, 9), min_size=1, max_size=5),
        JSON,
    )
    hostile = st.sampled_from(["[" * 100_000, '{"format":' * 5000, "\ud800", "NaN", "1e999"])
    fuzz(
        nodes | damaged(text.encode()).map(lambda b: b.decode("latin-1")) | hostile,
        lambda value: from_text(value, "stream.json"),
    )


@pytest.mark.parametrize(
    "name", ["stream.json", "images-00000.idx", "images-00000.bin", "labels.npy", "samples.parquet"]
)
def test_damaged_file_of_a_stream(fuzz: Fuzz, stream: Path, name: str) -> None:
    original = (stream / name).read_bytes()

    def check(data: bytes) -> None:
        (stream / name).write_bytes(data)
        try:
            verify(stream)
            split = StoredStream(stream).train
            split.samples(0, len(split))
            split.images(np.arange(len(split)))
            list(iter_shard(stream, 0))
        finally:
            (stream / name).write_bytes(original)

    fuzz(damaged(original), check)


# -- metadata

ROW = "123,2010-05-01 10:00:00,77@N00,48.85,2.35,a/b.jpg,paris"
CSV = f"id,time,user,lat,lon,image,label\n{ROW}\n124,1272708000,8,-12.5,130.8,c.jpg,darwin\n"
YFCC_FIELDS = [
    "6185218911",
    "4e2f7a26a1dfbf165a7e30bdabf7e72a",
    "10299779@N03",
    "nick",
    "2012-02-16 09:56:37.0",
    "1331840483",
    "Canon",
    "title",
    "desc",
    "tags",
    "",
    "-81.804885",
    "24.550558",
    "12",
    "http://a/b",
    "http://a/c.jpg",
    "license",
    "http://l",
    "7205",
    "8",
    "secret",
    "secret2",
    "jpg",
    "0",
]
YFCC = "\n".join(["\t".join([YFCC_FIELDS[0], *YFCC_FIELDS[2:]])] * 3) + "\n"


def read_table(path: Path) -> None:
    table = open_table((str(path),), ColumnChoice())
    for part in table.parts:
        for frame in part.frames():
            clean(frame, Rules(has_image="image" in frame.columns))


@pytest.mark.parametrize("text", [CSV, YFCC], ids=["csv", "yfcc"])
def test_text_tables(fuzz: Fuzz, tmp_path: Path, text: str) -> None:
    raw = text.encode()

    def check(data: bytes) -> None:
        (tmp_path / "table.csv").write_bytes(data)
        read_table(tmp_path / "table.csv")

    packed = damaged(bz2.compress(raw), gzip.compress(raw))
    fuzz(damaged(raw) | packed | damaged(raw).map(bz2.compress), check)


def test_sqlite_tables(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "good.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table photos (id, time, user, lat, lon, image, label)")
        connection.execute("insert into photos values (?,?,?,?,?,?,?)", ROW.split(","))
    connection.close()

    def check(data: bytes) -> None:
        (tmp_path / "table.db").write_bytes(data)
        read_table(tmp_path / "table.db")

    fuzz(damaged(path.read_bytes()), check)


def test_parquet_tables(fuzz: Fuzz, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pl.read_csv(io.StringIO(CSV)).write_parquet(buffer)

    def check(data: bytes) -> None:
        (tmp_path / "table.parquet").write_bytes(data)
        read_table(tmp_path / "table.parquet")

    fuzz(damaged(buffer.getvalue()), check)


def test_release_files(fuzz: Fuzz, tmp_path: Path) -> None:
    valid = []
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        for value in (torch.arange(4), ["a/b.jpg", "c.jpg"], np.arange(3).tolist()):
            buffer = io.BytesIO()
            torch.save(value, buffer, **options)  # type: ignore[arg-type]
            valid.append(buffer.getvalue())

    def check(data: bytes) -> None:
        (tmp_path / "x.torchSave").write_bytes(data)
        cloc._series(tmp_path / "x.torchSave")

    fuzz(damaged(*valid), check)


def test_cells_of_a_release(fuzz: Fuzz, tmp_path: Path) -> None:
    valid = []
    for array in (np.array([0x89C25A3100000001], np.uint64), np.array(["89c25a31", "4cc8b3a1"])):
        buffer = io.BytesIO()
        np.save(buffer, array)
        valid.append(buffer.getvalue())

    def check(data: bytes) -> None:
        (tmp_path / "cells.npy").write_bytes(data)
        cloc._read_cells(tmp_path / "cells.npy")

    fuzz(damaged(*valid), check)


def test_images(fuzz: Fuzz) -> None:
    valid = []
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (9, 7, 3), dtype=np.uint8))
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"):
        buffer = io.BytesIO()
        picture.save(buffer, kind)
        valid.append(buffer.getvalue())

    def check(data: bytes) -> None:
        try:
            image = pixels(data)
        except UndecodableError:
            return
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3

    fuzz(damaged(*valid), check)
