"""Resizing and encoding images for the store against the bare decode, resize and encode of the same bytes, on one core.

`python benchmarks/images.py --quick` takes seconds. The bare reference makes the same pixels with three calls: reduced
JPEG decoding, Pillow's resize, JPEG encoding. `ingest` is the whole way from files to a committed shard. Times are
processor time of one core, so that neighbours on the machine and waiting for the disk do not count.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import simplejpeg
from PIL import Image

from _measure import texture
from driftline.streams.images.ingest import FolderSource, ingest
from driftline.streams.store.decode import encode, pixels, prepare

LIMIT = 1.2
"""prepare and ingest may take this many times as long as the bare calls."""
SHORT_SIDE = 256


def bare(data: bytes) -> bytes:
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    factor = next((f for f in (8, 4, 2) if min(height, width) >= f * SHORT_SIDE), 1)
    image = simplejpeg.decode_jpeg(data, min_height=-(-height // factor), min_width=-(-width // factor))
    scale = SHORT_SIDE / min(image.shape[:2])
    size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
    small = Image.fromarray(image).resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    return simplejpeg.encode_jpeg(np.asarray(small), quality=90, colorsubsampling="420")


def pillow(data: bytes) -> bytes:
    """What one would write without thinking: decode all of it, best filter."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    scale = SHORT_SIDE / min(image.size)
    small = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def seconds(job: Callable[[], object]) -> float:
    start = time.process_time()
    job()
    return time.process_time() - start


def decibels(a: np.ndarray, b: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.mean((a.astype(float) - b.astype(float)) ** 2)))


def bench_size(height: int, width: int, num: int, rounds: int) -> dict[str, float]:
    photos = [encode(texture(height, width, seed)) for seed in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        names = [f"{i}.jpg" for i in range(num)]
        for i, name in enumerate(names):
            (root / name).write_bytes(photos[i % len(photos)])
        columns: dict[str, object] = {"id": names, "image": names, "time": range(num), "user": [0] * num}
        columns |= {"label": [0] * num, "lat": [0.0] * num, "lon": [0.0] * num}
        pl.DataFrame(columns).write_parquet(root / "rows.parquet")
        times: dict[str, list[float]] = {"bare": [], "prepare": [], "ingest": [], "pillow": []}
        for turn in range(rounds):
            times["bare"].append(seconds(lambda: [bare(photos[i % 8]) for i in range(num)]))
            times["prepare"].append(
                seconds(lambda: [prepare(photos[i % 8], short_side=SHORT_SIDE) for i in range(num)])
            )
            out = root / f"out{turn}"
            times["ingest"].append(
                seconds(
                    lambda out=out: ingest(
                        root / "rows.parquet", out, FolderSource(root), image_size=SHORT_SIDE, workers=0
                    )
                )
            )
            times["pillow"].append(
                seconds(lambda: [pillow(photos[i % 8]) for i in range(max(1, num // 4))]) * 4
            )
    best = {name: min(values) for name, values in times.items()}
    return {
        "images_per_s": num / best["ingest"],
        "prepare_over_bare": best["prepare"] / best["bare"],
        "ingest_over_bare": best["ingest"] / best["bare"],
        "pillow_over_ingest": best["pillow"] / best["ingest"],
        "likeness_to_pillow_db": decibels(
            pixels(prepare(photos[0], short_side=SHORT_SIDE)), pixels(pillow(photos[0]))
        ),
    }


def main() -> dict[str, object]:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="256 images of each size (the default)")
    size.add_argument("--full", action="store_true", help="1024 images of each size")
    args = parser.parse_args()
    num, rounds = (1024, 3) if args.full else (256, 3)
    results: dict[str, object] = {
        f"{w}x{h}": bench_size(h, w, num, rounds) for h, w in [(375, 500), (768, 1024), (1536, 2048)]
    }
    worst = max(r["ingest_over_bare"] for r in results.values() if isinstance(r, dict))
    results |= {"worst_ingest_over_bare": worst, "limit": LIMIT, "within_limit": worst <= LIMIT}
    print(json.dumps(results, indent=2))
    return results


if __name__ == "__main__":
    main()
