"""Images from the web: `UrlSource` for a build, `fetch_images` for a stream whose images are still missing.

Flow: URLs in order -> bytes in the same order, many requests at once. What fails is recorded with its reason, and
fetching again asks only for what may have passed.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from driftline.streams.durable import explaining_full_disk, replacing
from driftline.streams.images.ingest import IngestProgress, IngestResult, ingest
from driftline.streams.images.sources import Found, ImageSource, Missing
from driftline.streams.images.web import Browser, Limits, WebError
from driftline.streams.store.finish import WORK_FOLDER, finish_stream
from driftline.streams.store.manifest import ImageFormat, Manifest
from driftline.streams.store.rows import RowReader
from driftline.streams.store.stored import open_root, read_manifest
from driftline.types import DriftlineError

MAX_WAIT_S = 30.0
MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")


@dataclass(frozen=True)
class UrlSource:
    """Images by URL. `concurrency` requests at once in each worker process."""

    concurrency: int = 16
    attempts: int = 4
    first_wait_s: float = 0.5
    """Before the second attempt; doubles from attempt to attempt."""
    limits: Limits = field(default_factory=Limits)

    def describe(self) -> dict[str, Any]:
        """Nothing but the kind: how fast and how often is asked may change between two parts of a build."""
        return {"urls": True}

    def read(self, names: Sequence[str]) -> Iterator[Found]:
        """The images at the URLs, in order; a few more than `concurrency` are held in memory."""
        local = threading.local()

        def start_thread() -> None:
            local.browser = Browser(self.limits)

        def fetch(url: str) -> Found:
            return self._patiently(local.browser, url)

        pool = ThreadPoolExecutor(self.concurrency, "fetch", initializer=start_thread)
        try:
            urls = iter(names)
            window = deque(pool.submit(fetch, url) for url in islice(urls, 2 * self.concurrency))
            while window:
                first: Future[Found] = window.popleft()
                yield first.result()
                window.extend(pool.submit(fetch, url) for url in islice(urls, 1))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _patiently(self, browser: Browser, url: str) -> Found:
        """The image at a URL, asked for again with growing pauses while that may help."""
        deadline = time.monotonic() + self.limits.total_s
        for attempt in range(1, self.attempts + 1):
            try:
                return _checked(browser.get(url, deadline=deadline))
            except WebError as error:
                pause = max(error.wait_s, random.uniform(0.5, 1.0) * self.first_wait_s * 2 ** (attempt - 1))
                out_of_time = time.monotonic() + pause > deadline or pause > MAX_WAIT_S
                if not error.passing or attempt == self.attempts or out_of_time:
                    return Missing(error.reason, error.passing)
                time.sleep(pause)
        raise AssertionError("unreachable")


def _checked(data: bytes) -> Found:
    if data.startswith(MAGIC) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        return data
    return Missing(f"not an image (starts with {data[:8].hex()})" if data else "empty answer")


@dataclass(frozen=True)
class FetchResult:
    """What `fetch_images` did for both splits."""

    manifest: Manifest
    train: IngestResult
    validation: IngestResult | None

    @property
    def num_kept(self) -> int:
        """Samples that have an image now."""
        return self.train.num_kept + (self.validation.num_kept if self.validation else 0)

    @property
    def num_passing(self) -> int:
        """Samples that fetching again may still get."""
        return self.train.num_passing + (self.validation.num_passing if self.validation else 0)


def fetch_images(
    directory: Path,
    *,
    source: ImageSource | None = None,
    image_size: int | None = None,
    kind: Literal["jpeg", "raw"] = "jpeg",
    rows_per_shard: int = 16384,
    workers: int | None = None,
    engine: Literal["pool", "ray"] = "pool",
    address: str | None = None,
    progress: Callable[[str, IngestProgress], None] | None = None,
) -> FetchResult:
    """Get the images of a stream that was built without; run again, it goes on, and retries what may have passed.

    Samples whose image cannot be had leave the stream and are listed in failed.parquet. `progress` is told the split
    and how far it is.
    """
    manifest = read_manifest(open_root(directory))
    size = image_size or manifest.image.size
    results: dict[str, IngestResult] = {}
    todo = _todo(directory, manifest)
    for name in ("train", "validation"):
        rows = todo[name]
        if len(RowReader(rows)):
            results[name] = ingest(
                rows,
                rows.parent.parent,
                source or UrlSource(),
                image_size=size,
                kind=kind,
                rows_per_shard=rows_per_shard,
                workers=workers,
                engine=engine,
                address=address,
                retry=True,
                journal=True,
                progress=None if progress is None else _named(progress, name),
            )
    return _finish(directory, manifest, results, ImageFormat(kind, size, fixed=kind == "raw"))


def _named(progress: Callable[[str, IngestProgress], None], name: str) -> Callable[[IngestProgress], None]:
    return lambda state: progress(name, state)


def _todo(directory: Path, manifest: Manifest) -> dict[str, Path]:
    """The rows to fetch, by split, kept in the work folders until all is fetched. Those of train, made last, mark both."""
    todo = {
        name: directory / folder / WORK_FOLDER / "todo.parquet"
        for name, folder in [("validation", "validation"), ("train", "")]
    }
    if todo["train"].exists():
        return todo
    if manifest.image.kind != "none":
        raise DriftlineError(f"{directory} has its images already; nothing to fetch")
    with explaining_full_disk(directory):
        for path in todo.values():
            samples = path.parent.parent / "samples.parquet"
            RowReader(samples, ["image"])
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as temporary:
                shutil.copyfile(samples, temporary)
    return todo


def _finish(
    directory: Path, manifest: Manifest, results: dict[str, IngestResult], image: ImageFormat
) -> FetchResult:
    counts = {
        name: {"rows": r.num_rows, "kept": r.num_kept, "failed": r.num_failed, "reasons": r.reasons}
        for name, r in results.items()
    }
    validation = results.get("validation")
    finished = finish_stream(
        directory,
        name=manifest.name,
        classes=manifest.classes,
        how={**manifest.how, "fetch": counts},
        train_rows=results["train"].row_files,
        validation_rows=validation.row_files if validation else [],
        image=image,
        order=manifest.order,
        keep_work=any(r.num_passing for r in results.values()),
    )
    return FetchResult(finished, results["train"], validation)
