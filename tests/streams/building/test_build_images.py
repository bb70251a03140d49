"""Tables with images: from a folder, from tar files, from Parquet; bad images are left out and counted."""

import io
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from driftline.streams.building.build import build
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.store import StoredStream, verify
from driftline.types import BadSampleError, DriftlineError

NUM = 60


def jpeg(number: int) -> bytes:
    """A picture in one colour that tells its number."""
    file = io.BytesIO()
    Image.new("RGB", (48, 40), (number * 4, 100, 200)).save(file, "PNG")
    return file.getvalue()


def write_table(path: Path, names: list[str]) -> Path:
    frame = pl.DataFrame(
        {
            "id": range(NUM),
            "path": names,
            "label": [f"c{k % 3}" for k in range(NUM)],
            "time": [1000 - k for k in range(NUM)],
        }
    )
    frame.write_csv(path)
    return path


def numbers(stream: StoredStream) -> list[int]:
    """Which pictures the stream holds, in its order."""
    found = stream.train.images(np.arange(len(stream.train)))
    assert not any(isinstance(image, BadSampleError) for image in found)
    return [round(int(np.asarray(image)[20, 20, 0]) / 4) for image in found]


def options(tmp_path: Path, table: Path, images: object, **more: object) -> BuildConfig:
    return BuildConfig(
        (str(table),), tmp_path / "out", images=str(images), validation=0.0, image_size=32, workers=1, **more  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["jpeg", "raw"])
def test_a_folder_with_missing_and_damaged_images(tmp_path: Path, kind: str) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    names = [f"a/{k}.png" for k in range(NUM)]
    for k, name in enumerate(names):
        (tmp_path / "images" / name).write_bytes(jpeg(k))
    (tmp_path / "images" / names[5]).unlink()
    (tmp_path / "images" / names[6]).write_bytes(b"no image at all")
    names[7], names[8] = "../t.csv", ""
    table = write_table(tmp_path / "t.csv", names)
    report = build(options(tmp_path, table, tmp_path / "images", image_kind=kind))
    assert report.accounting.refused == {"no_image": 1, "unsafe_path": 1}
    assert sum(report.accounting.images_missing.values()) == 2
    assert report.num_stored == NUM - 4
    assert numbers(StoredStream(tmp_path / "out")) == [
        k for k in reversed(range(NUM)) if k not in (5, 6, 7, 8)
    ]
    assert not verify(tmp_path / "out").problems
    assert not (tmp_path / "out" / ".build").exists()


def test_tar_files_by_key(tmp_path: Path) -> None:
    for shard in range(2):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as tar:
            for k in range(shard, NUM, 2):
                member = tarfile.TarInfo(f"{k:06d}.png")
                member.size = len(jpeg(k))
                tar.addfile(member, io.BytesIO(jpeg(k)))
    table = write_table(tmp_path / "t.csv", [f"{k:06d}" for k in range(NUM)])
    build(options(tmp_path, table, tmp_path / "*.tar"))
    assert numbers(StoredStream(tmp_path / "out")) == list(reversed(range(NUM)))


def test_bytes_in_the_table_itself(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"id": [str(k) for k in range(NUM)], "label": ["a", "b"] * (NUM // 2), "time": range(NUM)}
    )
    frame = frame.with_columns(pl.Series("image", [jpeg(k) for k in range(NUM)]))
    frame.write_parquet(tmp_path / "t.parquet")
    build(options(tmp_path, tmp_path / "t.parquet", tmp_path / "t.parquet"))
    assert numbers(StoredStream(tmp_path / "out")) == list(range(NUM))


def test_images_that_fit_no_row_are_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    table = write_table(tmp_path / "t.csv", [f"{k}.png" for k in range(NUM)])
    with pytest.raises(DriftlineError, match="image column"):
        build(options(tmp_path, table, tmp_path / "images"))
    assert not (tmp_path / "out" / "stream.json").exists()
