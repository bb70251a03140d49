"""From rows and a source of images to the shards of a split.

`ingest` cuts the rows into shards of equal numbers of rows and makes each by a task of its own (`shard_task`), on a
pool of processes or on Ray. A shard that is there is not made again, so a build that was killed goes on, and the
bytes do not depend on who made which shard when. `finish_stream` then makes a stream of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from driftline.streams.durable import explaining_full_disk, remove_unfinished, replacing
from driftline.streams.images.archives import ParquetSource, TarSource
from driftline.streams.images.shard_task import ShardTask, make_shard
from driftline.streams.images.sources import FolderSource, ImageSource, Missing, RenderedSource
from driftline.streams.images.workers import default_workers, run_tasks
from driftline.streams.store.finish import WORK_FOLDER
from driftline.streams.store.rows import RowReader
from driftline.types import DriftlineError

__all__ = [
    "FolderSource",
    "ImageSource",
    "IngestProgress",
    "IngestResult",
    "Missing",
    "ParquetSource",
    "RenderedSource",
    "TarSource",
    "ingest",
]

ROWS_PER_SHARD = 16384
ENOUGH = 10
"""So many images, of which none can be used, are taken for a mistake."""
NEEDED = ["id", "image", "time", "user", "label", "lat", "lon"]


@dataclass(frozen=True)
class IngestProgress:
    """How far an ingest is: rows dealt with in this call and before, and the seconds of this call."""

    num_rows: int
    rows_done: int
    rows_done_before: int
    failed: int
    """Rows of this call without a usable image."""
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rate of this call."""
        return (self.rows_done - self.rows_done_before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time to go at this rate; None while nothing is known."""
        rate = self.rows_per_second
        return (self.num_rows - self.rows_done) / rate if rate > 0 else None


@dataclass(frozen=True)
class IngestResult:
    """What became of the rows. `row_files` are for `finish_stream`; reasons are counted without their particulars."""

    row_files: tuple[Path, ...]
    failed_files: tuple[Path, ...]
    num_rows: int
    num_kept: int
    num_failed: int
    num_passing: int
    """Failures that another attempt may mend (`retry=True`)."""
    reasons: dict[str, int]


def ingest(
    rows: Path,
    out: Path,
    source: ImageSource,
    *,
    image_size: int,
    kind: Literal["jpeg", "raw"] = "jpeg",
    rows_per_shard: int = ROWS_PER_SHARD,
    workers: int | None = None,
    engine: Literal["pool", "ray"] = "pool",
    address: str | None = None,
    retry: bool = False,
    journal: bool = False,
    progress: Callable[[IngestProgress], None] | None = None,
) -> IngestResult:
    """Make the shards of a split from a Parquet file of rows in their final order.

    The rows need the columns id, image, time, user, label, lat, lon; `image` is the name the source knows. `workers`
    is the number of processes (default: one a processor; 0: work in this process). `retry` makes those shards again
    that have failures which may pass, fetching only what is missing. `journal` keeps the images of unfinished shards
    too, at the cost of writing each twice: for sources that are slow.
    """
    num_rows = len(RowReader(rows, NEEDED))
    if not num_rows:
        raise DriftlineError(f"{rows} has no rows; nothing to build")
    work = out / WORK_FOLDER
    with explaining_full_disk(out):
        work.mkdir(parents=True, exist_ok=True)
        with _only_one(work):
            remove_unfinished(out)
            remove_unfinished(work)
            _same_plan(out, rows, source, image_size=image_size, kind=kind, rows_per_shard=rows_per_shard)
            starts = range(0, num_rows, rows_per_shard)
            tasks = [
                ShardTask(rows, out, k, start, stop, source, image_size, kind, retry, journal)
                for k, start in enumerate(starts)
                for stop in [min(start + rows_per_shard, num_rows)]
            ]
            try:
                _run([t for t in tasks if not t.is_done()], num_rows, workers, engine, address, progress)
            finally:
                remove_unfinished(out)
                remove_unfinished(work)
    return _result(tasks)


def _run(
    tasks: list[ShardTask],
    num_rows: int,
    workers: int | None,
    engine: str,
    address: str | None,
    progress: Callable[[IngestProgress], None] | None,
) -> None:
    before = done = num_rows - sum(task.num_rows for task in tasks)
    failed = 0
    started = time.monotonic()

    def advance(num_more: int, num_failed: int) -> None:
        nonlocal done, failed
        done += num_more
        failed += num_failed
        if progress:
            progress(IngestProgress(num_rows, done, before, failed, time.monotonic() - started))

    advance(0, 0)
    if engine == "ray":
        from driftline.streams.images.cluster import run_on_ray

        finished = run_on_ray(make_shard, tasks, address=address, on_advance=advance)
    else:
        count = default_workers() if workers is None else workers
        finished = run_tasks(
            make_shard, tasks, workers=count, on_advance=advance, name=lambda task: task.name
        )
    num_seen = num_kept = 0
    for num_rows_of_shard, num_kept_of_shard in finished:
        num_seen += num_rows_of_shard
        num_kept += num_kept_of_shard
        if num_kept == 0 and before == 0 and num_seen >= max(ENOUGH, min(ROWS_PER_SHARD, num_rows)):
            raise _nothing_usable(tasks, num_seen)


def _result(tasks: list[ShardTask]) -> IngestResult:
    reasons: Counter[str] = Counter()
    num_passing = 0
    for task in tasks:
        failures = RowReader(task.failed_file, ["reason", "passing"]).read_all()
        reasons.update(_kind_of(reason) for reason in failures.column("reason").to_pylist())
        num_passing += sum(failures.column("passing").to_pylist())
    num_rows = sum(task.num_rows for task in tasks)
    num_failed = reasons.total()
    return IngestResult(
        row_files=tuple(task.row_file for task in tasks),
        failed_files=tuple(task.failed_file for task in tasks),
        num_rows=num_rows,
        num_kept=num_rows - num_failed,
        num_failed=num_failed,
        num_passing=num_passing,
        reasons=dict(reasons.most_common()),
    )


def _kind_of(reason: str) -> str:
    """A reason without its particulars, so that like ones are counted together.

    >>> _kind_of("undecodable: broken data stream at 77"), _kind_of("HTTP status 404")
    ('undecodable', 'HTTP status 404')
    """
    return re.split(r"[:(;']", reason, maxsplit=1)[0].strip()


def _nothing_usable(tasks: list[ShardTask], num_seen: int) -> DriftlineError:
    reasons = _result([task for task in tasks if task.failed_file.exists()]).reasons
    common = max(reasons, key=lambda reason: reasons[reason], default="none")
    return DriftlineError(
        f"none of the first {num_seen} images could be used (mostly: {common}); "
        "check that the image column and the place of the images belong together"
    )


@contextmanager
def _only_one(work: Path) -> Iterator[None]:
    """Holds the directory against a second build; the lock of a dead process does not count."""
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DriftlineError(
                f"another build is working on {work.parent}; wait for it or choose another --out"
            ) from None
        yield


def _same_plan(out: Path, rows: Path, source: ImageSource, **settings: Any) -> None:
    """Refuse to go on with other rows or settings; a build that has kept nothing yet is started afresh."""
    plan = {"rows": _digest(rows), **settings, "source": source.describe()}
    path = out / WORK_FOLDER / "plan.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        differing = [key for key in plan if before.get(key) != plan[key]]
        finished = [len(RowReader(kept)) for kept in path.parent.glob("rows-*.parquet")]
        if not differing and (any(finished) or not finished):
            return
        if any(finished):
            key = differing[0]
            raise DriftlineError(
                f"{out} holds an unfinished build with {key} = {before.get(key)!r}, not {plan[key]!r}; "
                "use the same settings to go on, or delete the directory to start afresh"
            )
    _clear(out)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(plan), encoding="utf-8")


def _clear(out: Path) -> None:
    """Remove shards that belong to no plan."""
    for pattern in (
        "images-*.idx",
        "images-*.bin",
        f"{WORK_FOLDER}/partial-*.bin",
        f"{WORK_FOLDER}/rows-*.parquet",
        f"{WORK_FOLDER}/failed-*.parquet",
    ):
        for path in out.glob(pattern):
            path.unlink()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
