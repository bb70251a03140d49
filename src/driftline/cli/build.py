"""`driftline build`, `fetch` and `inspect`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from driftline.cli.flags import parse
from driftline.types import DriftlineError

if TYPE_CHECKING:
    from driftline.streams.building.build_config import BuildConfig
    from driftline.streams.building.metadata import Table as MetadataTable
    from driftline.streams.images.ingest import IngestProgress
    from driftline.streams.images.sources import RenderedSource

MOST_REASONS = 12


@dataclass(frozen=True)
class FetchFlags:
    """Download the images of a stream that was built without them. Run it again to go on, and to retry what failed for a while."""

    stream: Annotated[Path, tyro.conf.Positional]
    """Directory of the stream."""
    image_size: int | None = None
    """Short side of the stored images, in pixels; default: as the stream was built."""
    image_kind: Literal["jpeg", "raw"] = "jpeg"
    """jpeg, or raw: square pixels without compression, for small images."""
    workers: int = 2
    """Processes that download and convert; each has --concurrency downloads under way."""
    concurrency: int = 16
    """Downloads at a time in each process."""
    attempts: int = 4
    """Tries for each image, with growing pauses."""
    timeout: float = 20.0
    """Seconds to wait for a connection or for the next bytes."""
    max_megabytes: float = 32.0
    """Larger answers are given up."""
    allow_private: bool = False
    """Also download from addresses of private networks and of this machine."""
    engine: Literal["pool", "ray"] = "pool"
    """Where to work: processes of this machine, or a Ray cluster (needs the ray extra)."""
    address: str | None = None
    """Address of the Ray cluster; default: one that is started on this machine."""


@dataclass(frozen=True)
class InspectFlags:
    """Say what a stream holds: samples, classes, years, albums."""

    stream: Annotated[str, tyro.conf.Positional]
    """Directory of a stream, or world[:LENGTH[:SEED]]."""
    verify: bool = False
    """Read every record and check it: checksums, images, order, labels."""
    stats: bool = False
    """All statistics beside the paper's figures, with charts in --figures."""
    figures: Path | None = None
    """Directory for the charts of --stats; default: figures/ in the stream's directory, or ./figures for a world."""


def build(args: list[str]) -> int:
    """`driftline build`."""
    from driftline.streams.building.build import build as make
    from driftline.streams.building.build_config import BuildConfig
    from driftline.streams.building.dry_run import dry_run

    config = parse(BuildConfig, "build", args)
    console = Console()
    config, table, source = _world(config)
    if config.dry_run:
        console.print(dry_run(config, table=table).table())
        return 0
    with _bars(console) as progress:
        report = make(config, table=table, source=source, say=console.print, progress=progress)
    console.print(report.accounting.table())
    console.print(escape(report.summary()), highlight=False, soft_wrap=True)
    if report.has_images:
        line = f"next: driftline run --stream {report.out} --out runs/{report.out.name}"
        console.print(escape(line), highlight=False, soft_wrap=True)
    return 0


def _world(config: BuildConfig) -> tuple[BuildConfig, MetadataTable | None, RenderedSource | None]:
    """The embedded world goes through the same build; other tables are opened by their files."""
    if not (config.table[0] == "world" or config.table[0].startswith("world:")):
        return config, None, None
    from driftline.streams.worlds.world import parse_world
    from driftline.streams.worlds.world_table import world_build, world_source, world_table

    world = parse_world(config.table[0])
    return world_build(config, world), world_table(world), world_source(world)


@contextmanager
def _bars(console: Console) -> Iterator[_Stages]:
    """A bar for each stage of the work; on a terminal only."""
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield _Stages(progress, console)


class _Stages:
    """Shows how far each named stage is; without a terminal a line marks its beginning."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress = progress
        self._console = console
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int | None, remark: str = "") -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total)
            if self._progress.disable:
                self._console.print(f"{stage} …", highlight=False)
        self._progress.update(
            self._tasks[stage], completed=done, total=total, description=f"{stage} {remark}"
        )


def fetch(args: list[str]) -> int:
    """`driftline fetch`."""
    from driftline.streams.images.download import UrlSource, fetch_images
    from driftline.streams.images.web import Limits

    flags = parse(FetchFlags, "fetch", args)
    console = Console()
    limits = Limits(
        connect_s=flags.timeout,
        read_s=flags.timeout,
        max_bytes=round(flags.max_megabytes * 1e6),
        allow_private=flags.allow_private,
    )
    source = UrlSource(concurrency=flags.concurrency, attempts=flags.attempts, limits=limits)
    with _bars(console) as stages:

        def show(split: str, now: IngestProgress) -> None:
            stages(split, now.rows_done, now.num_rows, f"{now.failed:,} failed")

        result = fetch_images(
            flags.stream,
            source=source,
            image_size=flags.image_size,
            kind=flags.image_kind,
            workers=flags.workers,
            engine=flags.engine,
            address=flags.address,
            progress=show,
        )
    console.print(f"{result.num_kept:,} samples have an image now.", highlight=False)
    reasons = Counter(result.train.reasons) + Counter(result.validation.reasons if result.validation else {})
    if reasons:
        console.print(_reasons(reasons))
    if result.num_passing:
        console.print(
            f"{result.num_passing:,} failures may pass: run the same command again to retry them.",
            highlight=False,
        )
    return 0


def _reasons(reasons: Counter[str]) -> Table:
    table = Table(title="Without an image (failed.parquet lists each)", title_justify="left")
    table.add_column("reason")
    table.add_column("samples", justify="right")
    for reason, num in reasons.most_common(MOST_REASONS):
        table.add_row(escape(reason), f"{num:,}")
    return table


def inspect(args: list[str]) -> int:
    """`driftline inspect`."""
    flags = parse(InspectFlags, "inspect", args)
    console = Console()
    if flags.verify:
        return _verify(flags.stream, console)
    from driftline.streams.statistics import stream_statistics

    statistics = stream_statistics(flags.stream, countries=flags.stats)
    tables = statistics.tables() if flags.stats else [statistics.overview(), *statistics.what_it_holds()]
    for table in tables:
        console.print(table)
    if flags.stats:
        from driftline.streams.statistics_charts import save_figures

        is_world = flags.stream == "world" or flags.stream.startswith("world:")
        folder = flags.figures or (Path("figures") if is_world else Path(flags.stream) / "figures")
        files = save_figures(statistics, folder)
        console.print(f"charts: {len(files)} files in {folder}", highlight=False, soft_wrap=True)
    return 0


def _verify(stream: str, console: Console) -> int:
    if stream == "world" or stream.startswith("world:"):
        raise DriftlineError(
            "a world is rendered, there is nothing stored to verify; give the directory of a stream"
        )
    from driftline.streams.store import verify

    report = verify(stream)
    for problem in report.problems:
        print(f"problem: {problem}", file=sys.stderr)
    if report.ok:
        console.print(f"{report.num_samples:,} samples read, every one as it should be.", highlight=False)
        return 0
    console.print(f"{report.num_problems:,} problems among {report.num_samples:,} samples.", highlight=False)
    return 1
