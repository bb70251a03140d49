"""The image store against bare reading: the same bytes, in the same order, with nothing around it.

`python benchmarks/store.py --quick` takes seconds. A step reads 64 samples in stream order and 64 at random, as a run
with replay does. The bare reference knows every offset, reads with pread, and decodes; it checks nothing. Times are
processor time of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import simplejpeg

from _measure import texture
from driftline.streams.store import ImageFormat, ShardWriter, StoredSplit, StoredStream, finish_stream
from driftline.streams.store.decode import encode
from driftline.streams.store.shards import HEADER, RECORD, shard_name
from driftline.types import ClassTable

LIMIT = 0.9
"""The store must reach this share of the bare reading rate for JPEG."""
BATCH = 64
PER_SHARD = 1024


def make_stream(path: Path, payloads: list[bytes], num: int, image: ImageFormat) -> StoredStream:
    (path / "validation").mkdir(parents=True)
    for number, start in enumerate(range(0, num, PER_SHARD)):
        with ShardWriter(path, number) as writer:
            for i in range(start, min(start + PER_SHARD, num)):
                writer.append(payloads[i % len(payloads)])
            writer.commit()
    rows = pl.DataFrame(
        {"id": [str(i) for i in range(num)], "time": range(num), "user": [0] * num, "label": [0] * num}
        | {"lat": [0.0] * num, "lon": [0.0] * num}
    )
    rows.write_parquet(path / "rows.parquet")
    finish_stream(
        path,
        name="bench",
        classes=ClassTable(("one",)),
        how={},
        train_rows=path / "rows.parquet",
        validation_rows=[],
        image=image,
    )
    return StoredStream(path)


def plan(num: int, steps: int) -> list[np.ndarray]:
    """Positions step by step: the next of the stream, and as many of what was before, at random."""
    rng = np.random.default_rng(0)
    return [
        np.concatenate([np.arange(s * BATCH, (s + 1) * BATCH) % num, rng.integers(0, num, BATCH)])
        for s in range(steps)
    ]


class Bare:
    """Reads with known offsets; no order, no check, no error handling."""

    def __init__(self, path: Path, num: int) -> None:
        self.places: list[tuple[int, int, int]] = []
        for number in range(-(-num // PER_SHARD)):
            file = os.open(path / f"{shard_name(number)}.bin", os.O_RDONLY)
            index = (path / f"{shard_name(number)}.idx").read_bytes()[HEADER.size :]
            self.places += [(file, offset, length) for offset, length, _ in RECORD.iter_unpack(index)]

    def jpegs(self, positions: np.ndarray) -> list[np.ndarray]:
        images = []
        for position in positions.tolist():
            file, offset, length = self.places[position]
            images.append(simplejpeg.decode_jpeg(os.pread(file, length, offset)))
        return images

    def raw(self, positions: np.ndarray, size: int) -> np.ndarray:
        pieces = [
            os.pread(f, length, offset) for f, offset, length in (self.places[p] for p in positions.tolist())
        ]
        return np.frombuffer(b"".join(pieces), np.uint8).reshape(-1, size, size, 3)


def rates(
    split: StoredSplit, bare: Bare, steps: list[np.ndarray], size: int | None, rounds: int
) -> dict[str, float]:
    """Images a second by both ways, alternating; the best round of each counts."""
    best = {"store": 0.0, "bare": 0.0}
    for _ in range(rounds):
        for name in best:
            start = time.process_time()
            for positions in steps:
                if name == "store":
                    split.images(positions)
                elif size is None:
                    bare.jpegs(positions)
                else:
                    bare.raw(positions, size)
            best[name] = max(best[name], sum(map(len, steps)) / (time.process_time() - start))
    return best


def bench(num: int, num_steps: int, rounds: int) -> dict[str, float | int | bool]:
    with tempfile.TemporaryDirectory() as folder:
        jpegs = [encode(texture(256, 341, seed)) for seed in range(32)]
        stream = make_stream(Path(folder) / "jpeg", jpegs, num, ImageFormat("jpeg", 256))
        jpeg = rates(stream.train, Bare(Path(folder) / "jpeg", num), plan(num, num_steps), None, rounds)
        raws = [texture(32, 32, seed).tobytes() for seed in range(32)]
        stream = make_stream(Path(folder) / "raw", raws, 4 * num, ImageFormat("raw", 32, fixed=True))
        raw = rates(
            stream.train, Bare(Path(folder) / "raw", 4 * num), plan(4 * num, 8 * num_steps), 32, rounds
        )
    ratio = jpeg["store"] / jpeg["bare"]
    return {
        "samples": num,
        "payload_bytes": round(np.mean([len(p) for p in jpegs])),
        "jpeg_images_per_s": jpeg["store"],
        "jpeg_bare_images_per_s": jpeg["bare"],
        "jpeg_store_over_bare": ratio,
        "limit": LIMIT,
        "within_limit": bool(ratio >= LIMIT),
        "raw_images_per_s": raw["store"],
        "raw_store_over_bare": raw["store"] / raw["bare"],
    }


def main() -> dict[str, float | int | bool]:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="4 K samples (the default)")
    size.add_argument("--full", action="store_true", help="40 K samples")
    args = parser.parse_args()
    results = bench(40_000, 60, 5) if args.full else bench(4_000, 10, 3)
    print(json.dumps(results, indent=2))
    return results


if __name__ == "__main__":
    main()
