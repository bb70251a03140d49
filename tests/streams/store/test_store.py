"""A stored stream gives back what was put in, by position, and notices every kind of damage."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftline.streams.store import ImageFormat, ShardWriter, StoredStream, finish_stream, verify
from driftline.streams.store import shards as shards_module
from driftline.streams.store.decode import encode
from driftline.types import BadSampleError, ClassTable, DriftlineError

SHARD_SIZES = [5, 0, 7, 1, 9]
NUM_TRAIN = sum(SHARD_SIZES)


def rows(count: int, *, num_classes: int = 3, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(count)],
            "time": np.sort(rng.integers(10**9, 10**9 + 10**6, count)),
            "user": rng.integers(0, 4, count),
            "label": rng.integers(0, num_classes, count).astype(np.int32),
            "lat": rng.uniform(-90, 90, count),
            "lon": [None if i % 5 == 0 else float(i) for i in range(count)],
        },
        schema_overrides={"lon": pl.Float64},
    )


@dataclass(repr=False)
class Made:
    path: Path
    train: pl.DataFrame
    payloads: list[bytes]


def make_stream(
    path: Path, *, image: ImageFormat | None = None, payloads: list[bytes] | None = None, order: str = "time"
) -> Made:
    rng = np.random.default_rng(1)
    if payloads is None:
        payloads = [encode(rng.integers(0, 255, (8, 6 + i, 3), dtype=np.uint8)) for i in range(NUM_TRAIN)]
    (path / "validation").mkdir(parents=True)
    at = 0
    for number, size in enumerate(SHARD_SIZES):
        with ShardWriter(path, number) as writer:
            for payload in payloads[at : at + size]:
                writer.append(payload)
            assert writer.commit() == size
        at += size
    with ShardWriter(path / "validation", 0) as writer:
        for payload in payloads[:3]:
            writer.append(payload)
        writer.commit()
    train = rows(NUM_TRAIN)
    tables = path.parent / f"{path.name}-tables"
    tables.mkdir()
    train[:10].write_parquet(tables / "a.parquet")
    train[10:].write_parquet(tables / "b.parquet")
    rows(3, seed=2).write_parquet(tables / "v.parquet")
    finish_stream(
        path,
        name="little",
        classes=ClassTable(("a", "b", "c")),
        how={"by": "test"},
        train_rows=[tables / "a.parquet", tables / "b.parquet"],
        validation_rows=tables / "v.parquet",
        image=image or ImageFormat("jpeg", 6),
        order=order,  # type: ignore[arg-type]
    )
    return Made(path, train, payloads)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_stream(tmp_path / "stream")


def test_rows_and_labels_come_back_by_position(made: Made) -> None:
    stream = StoredStream(made.path)
    assert (stream.name, len(stream.train), len(stream.validation)) == ("little", NUM_TRAIN, 3)
    for start, stop in [(0, NUM_TRAIN), (3, 11), (21, 22), (4, 4)]:
        got = stream.train.samples(start, stop)
        assert got.position.tolist() == list(range(start, stop))
        for name in ["time", "user", "label", "lat"]:
            assert getattr(got, name).tolist() == made.train[name][start:stop].to_list()
        assert np.isnan(got.lon).tolist() == [i % 5 == 0 for i in range(start, stop)]
    where = np.array([20, 0, 20, 7])
    assert stream.train.labels(where).tolist() == made.train["label"].gather(where).to_list()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(positions=st.lists(st.integers(0, NUM_TRAIN - 1), max_size=60))
def test_payloads_come_back_in_the_order_asked_for(made: Made, positions: list[int]) -> None:
    split = StoredStream(made.path).train
    assert split.payloads(np.array(positions, np.int64)) == [made.payloads[p] for p in positions]


def test_positions_outside_the_split_are_refused(made: Made) -> None:
    split = StoredStream(made.path).train
    for wrong in (-1, NUM_TRAIN):
        with pytest.raises(IndexError):
            split.payloads(np.array([0, wrong]))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_few_descriptors_and_many_threads_read_the_same(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "max_open_files", lambda: 2)
    split = StoredStream(made.path).train
    before = open_files()
    wrong: list[int] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(150):
            positions = rng.integers(0, NUM_TRAIN, 8)
            if split.payloads(positions) != [made.payloads[p] for p in positions]:
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert open_files() <= before + 4


def test_every_flipped_bit_of_a_payload_or_index_record_is_one_bad_sample(made: Made) -> None:
    data = made.path / "images-00002.bin"
    split_positions = range(5, 12)
    for path, offset in [
        (data, 16),
        (data, data.stat().st_size - 1),
        *((data.with_suffix(".idx"), 32 + i) for i in range(16)),
    ]:
        content = bytearray(path.read_bytes())
        content[offset] ^= 0x10
        path.write_bytes(content)
        found = StoredStream(made.path).train.images(np.arange(NUM_TRAIN))
        bad = [i for i, image in enumerate(found) if isinstance(image, BadSampleError)]
        assert len(bad) == 1
        assert bad[0] in split_positions
        assert isinstance(error := found[bad[0]], BadSampleError)
        assert error.position == bad[0]
        report = verify(made.path)
        assert report.num_problems >= 1
        content[offset] ^= 0x10
        path.write_bytes(content)
    assert verify(made.path).ok


@pytest.mark.parametrize(
    "name",
    ["images-00002.bin", "images-00002.idx", "validation/images-00000.bin", "labels.npy", "samples.parquet"],
)
@pytest.mark.parametrize("harm", ["missing", "shortened", "empty"])
def test_a_missing_or_shortened_file_is_named_with_a_fix(made: Made, name: str, harm: str) -> None:
    path = made.path / name
    content = path.read_bytes()
    path.unlink()
    if harm != "missing":
        path.write_bytes(content[:-4] if harm == "shortened" else b"")
    with pytest.raises(DriftlineError, match=path.name) as caught:
        StoredStream(made.path)
    assert "restore" in str(caught.value) or "Parquet" in str(caught.value)


def test_a_shard_that_shrinks_while_it_is_read_is_named(made: Made) -> None:
    split = StoredStream(made.path).train
    os.truncate(made.path / "images-00002.bin", 40)
    with pytest.raises(DriftlineError, match="images-00002"):
        split.images(np.arange(NUM_TRAIN))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=99), "version 99"),
        (lambda d: d.update(format="zip"), "does not describe a stream"),
        (lambda d: d["classes"].update(names=[]), "names no class"),
        (lambda d: d["splits"]["train"].update(samples=7), "counts 7 samples"),
        (lambda d: d["splits"]["train"].update(samples=-1), "damaged"),
        (lambda d: d["splits"]["train"].update(first_time=9, last_time=3), "back to 3"),
        (lambda d: d["splits"].pop("validation"), "damaged"),
        (lambda d: d["image"].update(kind="bmp"), "kind 'bmp'"),
        (lambda d: d["splits"]["train"]["shards"].pop(), "in the shards"),
    ],
)
def test_a_wrong_stream_json_is_refused(made: Made, change: object, message: str) -> None:
    path = made.path / "stream.json"
    values = json.loads(path.read_text())
    change(values)  # type: ignore[operator]
    path.write_text(json.dumps(values))
    with pytest.raises(DriftlineError, match=message):
        StoredStream(made.path)


def test_a_directory_that_is_no_stream_is_refused(tmp_path: Path, made: Made) -> None:
    with pytest.raises(DriftlineError, match="is no stream"):
        StoredStream(tmp_path)
    with pytest.raises(DriftlineError, match="is no stream"):
        StoredStream(made.path / "stream.json")
    with pytest.raises(DriftlineError, match="is no stream"):
        StoredStream(tmp_path / "nowhere")


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_stream_json_is_refused_or_harmless(made: Made, data: st.DataObject) -> None:
    path = made.path / "stream.json"
    good = path.read_bytes()
    cut = data.draw(st.integers(0, len(good)))
    garbage = data.draw(st.binary(max_size=4))
    path.write_bytes(good[:cut] + garbage + good[cut + data.draw(st.integers(0, 4)) :])
    try:
        StoredStream(made.path)
    except DriftlineError:
        pass
    finally:
        path.write_bytes(good)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_an_arbitrary_index_gives_an_error_or_bad_samples(made: Made, content: bytes) -> None:
    path = made.path / "images-00002.idx"
    good = path.read_bytes()
    path.write_bytes((good[:16] + content + good)[: len(good)])
    try:
        found = StoredStream(made.path).train.payloads(np.arange(NUM_TRAIN))
        for payload in found:
            assert isinstance(payload, BadSampleError) or payload in [b"", *made.payloads]
    finally:
        path.write_bytes(good)


def test_time_that_runs_backwards_is_refused_when_written_and_when_read(made: Made, tmp_path: Path) -> None:
    shuffled = made.train.reverse()
    shuffled.write_parquet(tmp_path / "r.parquet")
    arguments = {
        "name": "x",
        "classes": ClassTable(("a", "b", "c")),
        "how": {},
        "train_rows": tmp_path / "r.parquet",
        "validation_rows": tmp_path / "r.parquet",
        "image": ImageFormat("none", 6),
    }
    with pytest.raises(DriftlineError, match="backwards at row 1"):
        finish_stream(tmp_path / "new", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "new" / "stream.json").exists()
    finish_stream(tmp_path / "new", **arguments, order="given")  # type: ignore[arg-type]
    assert StoredStream(tmp_path / "new").train.samples(0, 5).time.tolist() == shuffled["time"][:5].to_list()

    table = pl.read_parquet(made.path / "samples.parquet")
    swapped = table.with_columns(table["time"].reverse())
    swapped.write_parquet(made.path / "samples.parquet")
    with pytest.raises(DriftlineError, match="backwards at position"):
        StoredStream(made.path).train.samples(0, NUM_TRAIN)
    assert not verify(made.path).ok


def test_labels_outside_the_classes_are_refused_when_written_and_set_aside_when_read(
    made: Made, tmp_path: Path
) -> None:
    labels = np.load(made.path / "labels.npy")
    labels[4] = 3
    np.save(made.path / "labels.npy", labels)
    found = StoredStream(made.path).train.images(np.array([3, 4]))
    assert isinstance(found[0], np.ndarray)
    assert isinstance(found[1], BadSampleError)
    assert "label 3" in found[1].reason
    assert not verify(made.path).ok
    made.train.with_columns(label=pl.lit(-1, pl.Int32)).write_parquet(tmp_path / "r.parquet")
    with pytest.raises(DriftlineError, match="label -1 at row 0"):
        finish_stream(
            tmp_path / "new",
            name="x",
            classes=ClassTable(("a",)),
            how={},
            train_rows=tmp_path / "r.parquet",
            validation_rows=tmp_path / "r.parquet",
            image=ImageFormat("none", 6),
        )


def test_raw_pixels_come_back_exactly(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (NUM_TRAIN, 4, 4, 3), dtype=np.uint8)
    payloads = [image.tobytes() for image in pixels]
    payloads[6] = payloads[6][:-1]
    made = make_stream(tmp_path / "raw", image=ImageFormat("raw", 4, fixed=True), payloads=payloads)
    stream = StoredStream(made.path)
    found = stream.train.images(np.arange(NUM_TRAIN))
    assert isinstance(found[6], BadSampleError)
    assert all(np.array_equal(image, pixels[i]) for i, image in enumerate(found) if i != 6)
    assert (stream.image_size, stream.fixed_size) == (4, True)


def test_wrong_size_and_undecodable_images_are_set_aside(tmp_path: Path) -> None:
    good = encode(np.zeros((8, 8, 3), np.uint8))
    payloads = [good] * NUM_TRAIN
    payloads[2], payloads[3], payloads[4] = b"", b"<html></html>", encode(np.zeros((8, 9, 3), np.uint8))
    made = make_stream(tmp_path / "s", image=ImageFormat("jpeg", 8, fixed=True), payloads=payloads)
    found = StoredStream(made.path).train.images(np.arange(6))
    reasons = [image.reason if isinstance(image, BadSampleError) else "" for image in found]
    assert [bool(reason) for reason in reasons] == [False, False, True, True, True, False]
    assert "9 x 8" in reasons[4]


def test_a_stream_without_images_opens_and_says_how_to_get_them(made: Made, tmp_path: Path) -> None:
    made.train.with_columns(image=pl.col("id") + ".jpg").write_parquet(tmp_path / "r.parquet")
    finish_stream(
        tmp_path / "none",
        name="x",
        classes=ClassTable(("a", "b", "c")),
        how={},
        train_rows=tmp_path / "r.parquet",
        validation_rows=[],
        image=ImageFormat("none", 6),
    )
    stream = StoredStream(tmp_path / "none")
    assert (len(stream.train), len(stream.validation)) == (NUM_TRAIN, 0)
    assert len(stream.validation.samples(0, 0)) == 0
    with pytest.raises(DriftlineError, match="driftline fetch"):
        stream.train.images(np.array([0]))
    assert pl.read_parquet(tmp_path / "none" / "samples.parquet")["image"][3] == "p3.jpg"
    assert verify(tmp_path / "none").ok


def test_building_twice_gives_the_same_bytes_and_fingerprint(tmp_path: Path) -> None:
    one, two = make_stream(tmp_path / "one"), make_stream(tmp_path / "two")
    names = sorted(str(p.relative_to(one.path)) for p in one.path.rglob("*") if p.is_file())
    assert "validation/labels.npy" in names
    for name in names:
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes(), name
    assert StoredStream(one.path).fingerprint == StoredStream(two.path).fingerprint


def test_the_fingerprint_follows_pixels_and_labels_but_not_the_name(made: Made, tmp_path: Path) -> None:
    before = StoredStream(made.path).fingerprint
    other = make_stream(tmp_path / "other", payloads=[*made.payloads[:-1], made.payloads[0]])
    assert StoredStream(other.path).fingerprint != before
    values = json.loads((made.path / "stream.json").read_text())
    values["name"], values["how"] = "renamed", {}
    (made.path / "stream.json").write_text(json.dumps(values))
    assert StoredStream(made.path).fingerprint == before


def test_classes_with_places_come_back(tmp_path: Path, made: Made) -> None:
    cells = np.array([2**64 - 1, 1, 0x89C2580000000000], np.uint64)
    table = ClassTable(("x", "y", "z"), np.array([1.5, 2, 3]), np.array([-1.25, 0, 179]), cells)
    made.train.write_parquet(tmp_path / "r.parquet")
    finish_stream(
        tmp_path / "s", name="x", classes=table, how={}, train_rows=tmp_path / "r.parquet",
        validation_rows=[], image=ImageFormat("none", 6),
    )  # fmt: skip
    got = StoredStream(tmp_path / "s").classes
    assert got.names == table.names
    assert got.lat is not None
    assert got.lon is not None
    assert got.cells is not None
    assert (got.lat.tolist(), got.lon.tolist()) == ([1.5, 2, 3], [-1.25, 0, 179])
    assert got.cells.tolist() == cells.tolist()


def test_an_unfinished_shard_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), ShardWriter(tmp_path, 0) as writer:  # noqa: PT012
        writer.append(b"x" * 10)
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_rows_and_images_must_agree_in_number(made: Made, tmp_path: Path) -> None:
    made.train[:-1].write_parquet(tmp_path / "r.parquet")
    with pytest.raises(DriftlineError, match="22 images but 21 rows"):
        finish_stream(
            made.path, name="x", classes=ClassTable(("a", "b", "c")), how={}, train_rows=tmp_path / "r.parquet",
            validation_rows=[], image=ImageFormat("jpeg", 6),
        )  # fmt: skip
