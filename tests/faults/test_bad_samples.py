"""Bad samples in a stored stream are set aside with position and reason; everything else stays as it was, to the byte."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from driftline.config import RunConfig
from driftline.engine.run import Run
from driftline.streams.store import ImageFormat, ShardWriter, finish_stream
from driftline.streams.store.decode import encode
from driftline.types import ClassTable, DriftlineError

SIDE = 16
NUM_TRAIN, NUM_VALIDATION = 400, 20
Fingerprints = Callable[[Path], dict[str, str]]


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def bomb() -> bytes:
    """A PNG of a few bytes that claims 60,000 x 60,000 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")

    size = (60_000).to_bytes(4, "big")
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size + size + b"\x08\x02\0\0\0")
        + chunk(b"IDAT", zlib.compress(bytes(10_000)))
        + chunk(b"IEND", b"")
    )


def grey(mode: str) -> Image.Image:
    return Image.fromarray(np.arange(SIDE * SIDE, dtype=np.uint8).reshape(SIDE, SIDE)).convert(mode)


def good(position: int) -> bytes:
    rng = np.random.default_rng(position)
    return encode((rng.integers(0, 60, (SIDE, SIDE, 3)) + position % 4 * 50).astype(np.uint8))


BAD = {
    7: (b"", "empty"),
    31: (b"<html>not found</html>", "not an image"),
    58: (good(58)[:150], ""),
    90: (bomb(), "pixels"),
    121: (encode(np.zeros((SIDE, SIDE + 3, 3), np.uint8)), f"{SIDE + 3}"),
    152: (encode(np.zeros((3, 3, 3), np.uint8)), "3"),
}
UNUSUAL = {
    200: saved(grey("L"), "JPEG"),
    210: saved(grey("CMYK"), "JPEG"),
    220: saved(Image.fromarray(np.full((SIDE, SIDE), 60_000, np.uint16)), "PNG"),
    230: saved(grey("L"), "GIF", save_all=True, append_images=[grey("L").rotate(90)]),
    240: saved(grey("RGBA"), "PNG"),
}
WRONG_LABELS = {300: -1, 301: 4, 302: 10**6}


def make_stream(path: Path, *, with_bad: bool, validation_bad: int = 0) -> Path:
    """Photos of four classes, all of one size; some payloads and labels are spoiled if asked for."""
    payloads = {p: good(p) for p in range(NUM_TRAIN)} | UNUSUAL
    if with_bad:
        payloads |= {p: payload for p, (payload, _) in BAD.items()}
    (path / "validation").mkdir(parents=True)
    write_shard(path, [payloads[p] for p in range(NUM_TRAIN)])
    held_out = [b"no image"] * validation_bad + [good(p) for p in range(NUM_VALIDATION - validation_bad)]
    write_shard(path / "validation", held_out)
    tables = {}
    for name, num in [("train", NUM_TRAIN), ("validation", NUM_VALIDATION)]:
        tables[name] = path.parent / f"{path.name}-{name}.parquet"
        rows(num).write_parquet(tables[name])
    finish_stream(
        path,
        name="spoiled",
        classes=ClassTable(tuple("abcd")),
        how={},
        train_rows=[tables["train"]],
        validation_rows=tables["validation"],
        image=ImageFormat("jpeg", SIDE, fixed=True),
    )
    if with_bad:  # no build makes such labels: the file was damaged later
        labels = np.load(path / "labels.npy")
        for p, label in WRONG_LABELS.items():
            labels[p] = label
        np.save(path / "labels.npy", labels)
    return path


def write_shard(folder: Path, payloads: list[bytes]) -> None:
    with ShardWriter(folder, 0) as writer:
        for payload in payloads:
            writer.append(payload)
        writer.commit()


def rows(num: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": [str(i) for i in range(num)],
            "time": np.arange(num) * 100 + 10**9,
            "user": np.arange(num) // 5,
            "label": (np.arange(num) % 4).astype(np.int32),
            "lat": np.full(num, np.nan),
            "lon": np.full(num, np.nan),
        }
    )


def config(stream: Path, **settings: object) -> RunConfig:
    given = {"batch_size": 10, "device": "cpu", "checkpoint_every": "50", "max_bad_share": 0.05, **settings}
    return RunConfig(stream=str(stream), **given)  # type: ignore[arg-type]


def test_each_kind_of_bad_sample_is_set_aside_with_its_reason(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", with_bad=True, validation_bad=3)
    warnings: list[str] = []
    summary = Run(config(stream), tmp_path / "run", warn=warnings.append).execute()
    found = pl.read_parquet(tmp_path / "run" / "quarantine.parquet")
    train = found.filter(split="train")
    assert train["position"].to_list() == sorted([*BAD, *WRONG_LABELS])
    assert (train["step"] == train["position"] // 10).all()
    reasons = dict(zip(train["position"], train["reason"], strict=True))
    for position, (_, expected) in BAD.items():
        assert expected in reasons[position]
    for position, label in WRONG_LABELS.items():
        assert f"label {label} " in reasons[position]
    assert found.filter(split="validation")["position"].to_list() == [0, 1, 2]
    assert summary["bad_samples"] == len(BAD) + len(WRONG_LABELS)
    assert summary["bad_validation_samples"] == 3
    assert any("3 of 20 validation samples" in warning for warning in warnings)
    predicted = pl.read_parquet(tmp_path / "run" / "predictions.parquet")["position"]
    assert predicted.to_list() == [
        p for p in range(NUM_TRAIN) if p not in reasons
    ]  # the unusual ones are among them


@pytest.mark.parametrize("replay", ["reservoir", "ring"])
def test_bad_samples_leave_the_plan_and_the_bytes_deterministic(
    tmp_path: Path, fingerprints_of: Fingerprints, replay: str
) -> None:
    stream = make_stream(tmp_path / "stream", with_bad=True)
    settings = config(stream, replay=replay, buffer_size="40")
    Run(settings, tmp_path / "whole").execute()
    run = Run(settings, tmp_path / "parts")
    for record in run.records():
        if record.step == 17:
            break
    run.close()
    Run.resume(tmp_path / "parts", workers=4).execute()
    assert fingerprints_of(tmp_path / "parts") == fingerprints_of(tmp_path / "whole")


def test_the_rest_of_the_stream_is_the_same_with_and_without_bad_samples(tmp_path: Path) -> None:
    """Before the first bad sample not a bit differs; after it each step still tests the positions it would have tested."""
    tables = []
    for name, with_bad in [("spoiled", True), ("sound", False)]:
        stream = make_stream(tmp_path / name, with_bad=with_bad)
        Run(config(stream), tmp_path / f"run-{name}").execute()
        tables.append(pl.read_parquet(tmp_path / f"run-{name}" / "predictions.parquet"))
    spoiled, sound = tables
    assert spoiled[: min(BAD)].equals(sound[: min(BAD)])
    columns = ["position", "step", "user", "time"]
    usable = ~pl.col("position").is_in([*BAD, *WRONG_LABELS])
    assert spoiled.select(columns).equals(sound.filter(usable).select(columns))


def test_too_many_bad_samples_stop_the_run_with_advice(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", with_bad=True)
    out = tmp_path / "run"
    advice = (
        r"step \d+: 4 samples could not be used, more than 0.3% .*inspect .*raise max_bad_share in .*resume"
    )
    with pytest.raises(DriftlineError, match=advice):
        Run(config(stream, max_bad_share=0.003), out).execute()
    # The advice works: the share is no part of what the checkpoint was made with.
    text = (out / "config.toml").read_text()
    (out / "config.toml").write_text(text.replace("max_bad_share = 0.003", "max_bad_share = 0.5"))
    assert Run.resume(out).execute()["bad_samples"] == len(BAD) + len(WRONG_LABELS)


@pytest.mark.parametrize("damage", ["flipped bit", "shortened", "missing"])
def test_a_shard_damaged_between_two_parts_of_a_run(tmp_path: Path, damage: str) -> None:
    stream = make_stream(tmp_path / "stream", with_bad=False)
    out = tmp_path / "run"
    run = Run(config(stream), out)
    for record in run.records():
        if record.step == 20:
            break
    run.close()
    shard = stream / "images-00000.bin"
    data = bytearray(shard.read_bytes())
    if damage == "flipped bit":
        data[len(data) * 9 // 10] ^= 16
        shard.write_bytes(data)
        assert Run.resume(out).execute()["bad_samples"] == 1
        (reason,) = pl.read_parquet(out / "quarantine.parquet")["reason"]
        assert "damaged in the store" in reason
        return
    shard.unlink() if damage == "missing" else shard.write_bytes(data[:-100])
    with pytest.raises(DriftlineError, match=damage):
        Run.resume(out).execute()
    shard.write_bytes(data)  # restored from a copy
    assert Run.resume(out).execute()["bad_samples"] == 0
