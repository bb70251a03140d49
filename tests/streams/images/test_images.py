"""Builds from images: order, resumption, dead workers, full disks, archives, and paths that try to get out."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from driftline.streams.images import archives
from driftline.streams.images.ingest import (
    FolderSource,
    IngestProgress,
    IngestResult,
    Missing,
    ParquetSource,
    RenderedSource,
    TarSource,
    ingest,
)
from driftline.streams.images.sources import Found
from driftline.streams.store import ImageFormat, StoredStream, finish_stream, verify
from driftline.streams.store.decode import encode, pixels
from driftline.types import BadSampleError, ClassTable, DriftlineError, ImageArray

NUM_ROWS = 50


def picture(number: int, side: int = 24) -> ImageArray:
    """A flat picture whose colour tells its number, also after JPEG."""
    return np.full((side, side + 8, 3), (5 * number) % 256, np.uint8)


def rows_of(names: Sequence[str | None]) -> pl.DataFrame:
    count = len(names)
    return pl.DataFrame(
        {
            "id": [f"id{i}" for i in range(count)],
            "image": names,
            "time": np.arange(count) + 10**9,
            "user": np.arange(count) // 3,
            "label": (np.arange(count) % 4).astype(np.int32),
            "lat": np.linspace(-80, 80, count),
            "lon": np.linspace(-170, 170, count),
        },
        schema_overrides={"image": pl.String},
    )


@dataclass
class Job:
    rows: Path
    images: Path
    names: list[str]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Fifty image files below a folder, two of which are missing and one of which is broken."""
    images = tmp_path / "images"
    names = [f"y{i % 3}/p{i}.jpg" for i in range(NUM_ROWS)]
    for i, name in enumerate(names):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        (images / name).write_bytes(encode(picture(i)))
    (images / names[7]).unlink()
    (images / names[31]).unlink()
    (images / names[20]).write_bytes(b"not an image")
    rows_of(names).write_parquet(tmp_path / "rows.parquet")
    return Job(tmp_path / "rows.parquet", images, names)


def run(job: Job, out: Path, **options: Any) -> IngestResult:
    settings: dict[str, Any] = {"image_size": 16, "rows_per_shard": 8, "workers": 0} | options
    source = settings.pop("source", None) or FolderSource(job.images)
    return ingest(job.rows, out, source, **settings)


def finish(out: Path, result: IngestResult, **options: Any) -> StoredStream:
    settings: dict[str, Any] = {"image": ImageFormat("jpeg", 16)} | options
    classes = ClassTable(("a", "b", "c", "d"))
    finish_stream(
        out, name="x", classes=classes, how={}, train_rows=result.row_files, validation_rows=[], **settings
    )
    return StoredStream(out)


def content(out: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(out)): p.read_bytes()
        for p in sorted(out.rglob("*"))
        if p.is_file() and p.name != "lock"
    }


def colours(stream: StoredStream) -> list[int]:
    images = stream.train.images(np.arange(len(stream.train)))
    assert not any(isinstance(image, BadSampleError) for image in images)
    return [round(float(image.mean())) for image in images if not isinstance(image, BadSampleError)]


def test_images_follow_their_rows_and_failures_are_listed(job: Job, tmp_path: Path) -> None:
    result = run(job, tmp_path / "out")
    assert (result.num_rows, result.num_kept, result.num_failed) == (50, 47, 3)
    assert result.reasons == {"file not found": 2, "not an image": 1}
    stream = finish(tmp_path / "out", result)
    left = [i for i in range(NUM_ROWS) if i not in (7, 20, 31)]
    assert colours(stream) == pytest.approx([(5 * i) % 256 for i in left], abs=2)
    assert stream.train.samples(0, 47).time.tolist() == [i + 10**9 for i in left]
    failed = pl.read_parquet(tmp_path / "out" / "failed.parquet")
    assert failed.select("row", "id").rows() == [(7, "id7"), (20, "id20"), (31, "id31")]
    assert not (tmp_path / "out" / ".ingest").exists()
    assert verify(tmp_path / "out").ok
    assert all(
        min(pixels(p).shape[:2]) == 16 for p in stream.train.payloads(np.arange(5)) if isinstance(p, bytes)
    )


def test_any_number_of_workers_gives_the_same_bytes(job: Job, tmp_path: Path) -> None:
    for workers in (0, 1, 3):
        run(job, tmp_path / f"out{workers}", workers=workers)
    alone = content(tmp_path / "out0")
    assert alone == content(tmp_path / "out1") == content(tmp_path / "out3")
    assert "images-00006.idx" in alone


def test_a_finished_shard_is_not_made_again(job: Job, tmp_path: Path) -> None:
    run(job, tmp_path / "out")
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("images-*")}
    (tmp_path / "out" / "images-00003.idx").unlink()
    seen: list[IngestProgress] = []
    run(job, tmp_path / "out", progress=seen.append)
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("images-*")}
    assert {name for name in after if after[name] != before.get(name)} == {
        "images-00003.bin",
        "images-00003.idx",
    }
    assert (seen[0].rows_done, seen[-1].rows_done, seen[-1].rows_done_before) == (42, 50, 42)


BUILD = """
import sys
from pathlib import Path
from driftline.streams.images.ingest import FolderSource, ingest

if __name__ == "__main__":
    rows, images, out, workers = sys.argv[1:]
    ingest(Path(rows), Path(out), FolderSource(Path(images)), image_size=16, rows_per_shard=2, workers=int(workers))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_build_killed_at_any_time_goes_on_to_the_same_bytes(job: Job, tmp_path: Path, workers: int) -> None:
    run(job, tmp_path / "whole", rows_per_shard=2)
    script = tmp_path / "build.py"
    script.write_text(BUILD)
    out = tmp_path / "killed"
    command = [sys.executable, str(script), str(job.rows), str(job.images), str(out), str(workers)]
    for wanted in (1, 5, 12):
        process = subprocess.Popen(command)
        while process.poll() is None and len(list(out.glob("images-*.idx"))) < wanted:
            time.sleep(0.001)
        process.kill()
        process.wait()
    run(job, out, rows_per_shard=2)
    assert content(out) == content(tmp_path / "whole")


@dataclass(frozen=True)
class DeadlySource:
    """Kills the worker that reads the image named; as often as there are lives left in the folder."""

    inner: FolderSource
    victim: str
    lives: Path

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()

    def read(self, names: Sequence[str]) -> Iterator[Found]:
        for name, found in zip(names, self.inner.read(names), strict=True):
            if name == self.victim:
                for life in self.lives.iterdir():
                    life.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
            yield found


@pytest.fixture
def lives(tmp_path: Path) -> Path:
    folder = tmp_path / "lives"
    folder.mkdir()
    return folder


def test_a_killed_worker_loses_nothing(job: Job, tmp_path: Path, lives: Path) -> None:
    run(job, tmp_path / "whole")
    for i in range(2):
        (lives / str(i)).touch()
    source = DeadlySource(FolderSource(job.images), job.names[18], lives)
    seen: list[IngestProgress] = []
    run(job, tmp_path / "out", source=source, workers=2, progress=seen.append)
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert seen[-1].rows_done == NUM_ROWS


def test_a_shard_that_keeps_killing_its_worker_is_named_and_can_be_resumed(
    job: Job, tmp_path: Path, lives: Path
) -> None:
    for i in range(10):
        (lives / str(i)).touch()
    source = DeadlySource(FolderSource(job.images), job.names[18], lives)
    with pytest.raises(DriftlineError, match=r"images-00002: its worker died 3 times \(by SIGKILL"):
        run(job, tmp_path / "out", source=source, workers=2)
    run(job, tmp_path / "whole")
    run(job, tmp_path / "out", workers=2)
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_mistake_in_a_source_shows_its_traceback(job: Job, tmp_path: Path) -> None:
    source = RenderedSource(wrong, "wrong")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(job, tmp_path / "out", source=source, workers=1)


def wrong(names: Sequence[str]) -> Sequence[Found]:
    raise ZeroDivisionError


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_full_disk_stops_the_build_and_room_lets_it_go_on(job: Job, tmp_path: Path, workers: int) -> None:
    out = tmp_path / "out"
    out.mkdir()
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    for name in job.names:
        (job.images / name).write_bytes(encode(noise))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(out)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        with pytest.raises(DriftlineError, match=r"disk of .* is full .* run the same command again"):
            run(job, out, workers=workers, image_size=64)
        assert list(out.glob("images-*.idx"))
        assert not list(out.glob(".*.tmp"))
        subprocess.run(["mount", "-o", "remount,size=4m", str(out)], check=True)
        run(job, out, workers=workers, image_size=64)
        run(job, tmp_path / "whole", image_size=64)
        assert content(out) == content(tmp_path / "whole")
    finally:
        subprocess.run(["umount", str(out)], check=True)


def test_other_settings_do_not_mix_with_an_unfinished_build(job: Job, tmp_path: Path) -> None:
    run(job, tmp_path / "out")
    with pytest.raises(DriftlineError, match="image_size = 16, not 32"):
        run(job, tmp_path / "out", image_size=32)
    other = rows_of(job.names[::-1])
    other.write_parquet(job.rows)
    with pytest.raises(DriftlineError, match="unfinished build with rows"):
        run(job, tmp_path / "out")


def test_a_wrong_image_folder_is_noticed_and_can_be_put_right(job: Job, tmp_path: Path) -> None:
    with pytest.raises(DriftlineError, match="does not exist"):
        FolderSource(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        DriftlineError, match=r"none of the first 50 images could be used .mostly: file not found"
    ):
        run(job, tmp_path / "out", source=FolderSource(tmp_path / "empty"))
    assert run(job, tmp_path / "out").num_kept == 47


def test_two_builds_of_one_directory_do_not_meet(job: Job, tmp_path: Path) -> None:
    def second(progress: IngestProgress) -> None:
        with pytest.raises(DriftlineError, match="another build"):
            run(job, tmp_path / "out")

    run(job, tmp_path / "out", progress=second)


def test_no_path_of_a_table_leaves_the_image_folder(job: Job, tmp_path: Path) -> None:
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(encode(picture(1)))
    (job.images / "link.jpg").symlink_to(secret)
    (job.images / "up").symlink_to(tmp_path)
    (job.images / "inner.jpg").symlink_to(job.images / job.names[0])
    os.mkfifo(job.images / "pipe.jpg")
    names = [
        "../secret.jpg",
        str(secret),
        "link.jpg",
        "up/secret.jpg",
        "y0/../../secret.jpg",
        "",
        "a\0b",
        "pipe.jpg",
        "y0",
    ]
    found = list(FolderSource(job.images).read([*names, "inner.jpg", "./" + job.names[0]]))
    assert all(isinstance(one, Missing) for one in found[: len(names)])
    assert found[-2:] == [encode(picture(0))] * 2


def test_rendered_images_are_kept_as_raw_pixels(job: Job, tmp_path: Path) -> None:
    rows_of([str(i) for i in range(NUM_ROWS)]).write_parquet(job.rows)
    result = run(job, tmp_path / "out", source=RenderedSource(rendered, "squares"), kind="raw", workers=1)
    stream = finish(tmp_path / "out", result, image=ImageFormat("raw", 16, fixed=True))
    images = stream.train.images(np.arange(NUM_ROWS))
    expected = rendered([str(i) for i in range(NUM_ROWS)])
    assert all(np.array_equal(a, b) for a, b in zip(images, expected, strict=True))  # type: ignore[arg-type]


def rendered(names: Sequence[str]) -> list[ImageArray]:
    return [np.random.default_rng(int(name)).integers(0, 255, (16, 16, 3), dtype=np.uint8) for name in names]


def write_tar(path: Path, members: dict[str, bytes], kind: str = "w") -> None:
    with tarfile.open(path, kind) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def test_tar_shards_in_the_webdataset_convention(job: Job, tmp_path: Path) -> None:
    images = [encode(picture(i)) for i in range(6)]
    write_tar(
        tmp_path / "a.tar",
        {"k0.jpg": images[0], "k0.json": b"{}", "k1.seg.png": images[1], "same.jpg": images[2]},
    )
    write_tar(
        tmp_path / "b.tar", {"same.jpg": images[3], "d/k4.JPEG": images[4], "../../escape.jpg": images[5]}
    )
    source = TarSource.scan([tmp_path / "a.tar", tmp_path / "b.tar"], tmp_path / "work")
    names = ["k0", "k0.jpg", "k1", "d/k4", "a.tar/same", "b.tar/same.jpg", "same", "k0.json.x", "nothing", ""]
    found = list(source.read(names))
    assert found[:6] == [images[0], images[0], images[1], images[4], images[2], images[3]]
    assert isinstance(found[6], Missing)
    assert "several members" in found[6].reason
    assert found[7] == images[0]
    assert isinstance(found[8], Missing)
    assert isinstance(found[9], Missing)
    # A name like ../../escape only ever means bytes of the archive; nothing is written anywhere.
    assert list(source.read(["../../escape"])) == [images[5]]
    assert sorted(p.name for p in (tmp_path / "work").iterdir()) == [source.index.name]
    assert TarSource.scan([tmp_path / "a.tar", tmp_path / "b.tar"], tmp_path / "work") == source


def test_tar_files_that_are_none_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no.tar").write_bytes(b"hello" * 300)
    with pytest.raises(DriftlineError, match=r"no\.tar is no whole"):
        TarSource.scan([tmp_path / "no.tar"], tmp_path / "work")
    write_tar(tmp_path / "z.tar", {"k.jpg": bytes(10**6)}, "w:gz")
    with pytest.raises(DriftlineError, match="uncompressed"):
        TarSource.scan([tmp_path / "z.tar"], tmp_path / "work")
    write_tar(tmp_path / "cut.tar", {"a.jpg": bytes(4000), "b.jpg": bytes(40000)})
    os.truncate(tmp_path / "cut.tar", 20000)
    with pytest.raises(DriftlineError, match="cut short"):
        TarSource.scan([tmp_path / "cut.tar"], tmp_path / "work")
    monkeypatch.setattr(archives, "MAX_IMAGE_BYTES", 100)
    write_tar(tmp_path / "huge.tar", {"k.jpg": bytes(101)})
    found = next(TarSource.scan([tmp_path / "huge.tar"], tmp_path / "work").read(["k"]))
    assert isinstance(found, Missing)
    assert "larger than 100" in found.reason


@pytest.mark.parametrize("nested", [False, True])
def test_images_in_parquet_columns(job: Job, tmp_path: Path, nested: bool) -> None:
    images = [encode(picture(i)) for i in range(9)]
    cells = [{"bytes": data, "path": None} for data in images] if nested else images
    for part in range(3):
        where = slice(3 * part, 3 * part + 3)
        pl.DataFrame({"photo": list(range(9))[where], "jpg": cells[where]}).write_parquet(
            tmp_path / f"{part}.parquet"
        )
    files = [tmp_path / f"{part}.parquet" for part in range(3)]
    source = ParquetSource.unpack(files, tmp_path / "work", column="jpg", key="photo")
    assert list(source.read(["8", "0", "4"])) == [images[8], images[0], images[4]]
    assert isinstance(next(source.read(["9"])), Missing)
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "work").iterdir()}
    ParquetSource.unpack(files, tmp_path / "work", column="jpg", key="photo")
    assert before == {p.name: p.stat().st_mtime_ns for p in (tmp_path / "work").iterdir()}
    with pytest.raises(DriftlineError, match="no column 'nope'; it has photo, jpg"):
        ParquetSource.unpack(files, tmp_path / "work", column="nope", key="photo")


@dataclass(frozen=True)
class Flaky:
    """Fails for a while on some names; counts what it is asked for."""

    inner: FolderSource
    log: Path
    failing: bool

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()

    def read(self, names: Sequence[str]) -> Iterator[Found]:
        for name, found in zip(names, self.inner.read(names), strict=True):
            with self.log.open("a") as log:
                log.write(name + "\n")
            yield Missing("timed out", passing=True) if self.failing and name.startswith("y1/") else found


def test_retrying_asks_only_for_what_may_have_passed(job: Job, tmp_path: Path) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    first = run(job, out, source=Flaky(FolderSource(job.images), log, True))
    may_pass = [name for name in job.names if name.startswith("y1/")]
    assert first.num_passing == len(may_pass)
    finish(out, first, keep_work=True)
    log.unlink()
    second = run(job, out, source=Flaky(FolderSource(job.images), log, False), retry=True)
    assert log.read_text().split() == may_pass
    assert second.num_passing == 0
    run(job, tmp_path / "whole")
    for name, data in content(tmp_path / "whole").items():
        assert (out / name).read_bytes() == data, name
    assert len(finish(out, second).train) == 47


def test_a_table_without_the_needed_columns_is_named(job: Job, tmp_path: Path) -> None:
    pl.read_parquet(job.rows).drop("user").write_parquet(job.rows)
    with pytest.raises(DriftlineError, match="no column 'user'; it has id, image"):
        run(job, tmp_path / "out")
    rows_of([]).write_parquet(job.rows)
    with pytest.raises(DriftlineError, match="no rows"):
        run(job, tmp_path / "out")
