"""Fetching over bare reading and decoding: the store in the order of a plan, cold and warm, raw and JPEG.

    python benchmarks/fetch.py --quick      4 K samples
    python benchmarks/fetch.py --full       40 K samples

A step reads 64 samples in stream order and 64 at random. Bare is `pread` at known offsets and one decode an image, in one thread,
nothing checked. Times are processor time, so that neither neighbours nor the disk's latency count; the rate of the whole pipeline
with two threads is wall-clock time. Cold means that the files' pages were given back to the kernel first.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from _measure import alternate, jpeg_stream, line, median_ratio, raw_stream, show, sizes
from driftline.config import RunConfig
from driftline.engine.setup import Setup
from driftline.streams.fetch import FetchRequest, Pipeline
from driftline.streams.store import StoredStream
from driftline.streams.store.shards import HEADER, RECORD

BATCH = 64
LIMIT = 0.9


def plan(num: int, steps: int) -> list[FetchRequest]:
    """Positions step by step: the next of the stream, and as many of what was before, at random."""
    rng = np.random.default_rng(0)
    requests = []
    for step in range(steps):
        start = step * BATCH % (num - BATCH)
        replay = np.sort(rng.choice(num, BATCH, replace=False))
        requests.append(FetchRequest(step, np.arange(start, start + BATCH), replay, 1))
    return requests


class Bare:
    """Reads at known offsets and decodes; no order, no check, no error handling."""

    def __init__(self, path: Path, raw_size: int | None) -> None:
        self.raw_size = raw_size
        self.files = [os.open(p, os.O_RDONLY) for p in sorted(path.glob("images-*.bin"))]
        self.places: list[tuple[int, int, int]] = []
        for file, index in zip(self.files, sorted(path.glob("images-*.idx")), strict=True):
            records = RECORD.iter_unpack(index.read_bytes()[HEADER.size :])
            self.places += [(file, offset, length) for offset, length, _ in records]

    def images(self, positions: np.ndarray) -> object:
        payloads = [os.pread(f, n, at) for f, at, n in (self.places[p] for p in positions.tolist())]
        if self.raw_size is None:
            return [simplejpeg.decode_jpeg(payload) for payload in payloads]
        return np.frombuffer(b"".join(payloads), np.uint8).reshape(-1, self.raw_size, self.raw_size, 3)

    def forget(self) -> None:
        """Give the files' pages back, so that the next read goes to the disk."""
        for file in self.files:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def compare(
    stream: StoredStream, path: Path, raw_size: int | None, steps: int, rounds: int
) -> tuple[dict[str, float], float]:
    """Share of the bare rate that the store reaches cold and warm, and that fetching with all views reaches."""
    bare, requests = Bare(path, raw_size), plan(len(stream.train), steps)
    positions = [np.unique(np.concatenate([r.stream, r.replay])) for r in requests]
    fetcher = Setup(RunConfig(image_size=None if raw_size else 64), stream).fetcher(stream.train)

    def through(read: Any, cold: bool) -> None:
        if cold:
            bare.forget()
        for at in positions:
            read(at)

    jobs = {
        "bare cold": lambda: through(bare.images, True),
        "store cold": lambda: through(stream.train.images, True),
        "bare warm": lambda: through(bare.images, False),
        "store warm": lambda: through(stream.train.images, False),
        "all views": lambda: [fetcher.fetch(request) for request in requests],
    }
    seconds = alternate(jobs, rounds, time.process_time)
    started = time.perf_counter()
    waiting = iter(requests)
    pipeline = Pipeline(fetcher, lambda: next(waiting, None), workers=2)
    while pipeline.next() is not None:
        pass
    pipeline.close()
    images_per_s = 2 * BATCH * steps / (time.perf_counter() - started)
    return {
        "cold": median_ratio(seconds["bare cold"], seconds["store cold"]),
        "warm": median_ratio(seconds["bare warm"], seconds["store warm"]),
        "with all views": median_ratio(seconds["bare warm"], seconds["all views"]),
    }, images_per_s


def main() -> dict[str, Any]:
    args = sizes(__doc__, quick="seconds", full="about two minutes")
    num, steps, rounds = (40_000, 100, 9) if args.full else (4_000, 12, 5)
    lines, details = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, make, raw_size in (("jpeg", jpeg_stream, None), ("raw", raw_stream, 32)):
            path = Path(folder) / kind
            shares, images_per_s = compare(make(path, num), path, raw_size, steps, rounds)
            details[kind] = shares | {"pipeline_images_per_s": round(images_per_s)}
            for temperature in ("cold", "warm"):
                limit = LIMIT if kind == "jpeg" else None
                what = f"fetch / bare read and decode, {kind}, {temperature}"
                lines.append(line(what, shares[temperature], at_least=limit))
    return show(lines, shares=details)


if __name__ == "__main__":
    main()
