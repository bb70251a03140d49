"""`driftline reproduce` and `bench`."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape

from driftline.cli.flags import parse
from driftline.types import DriftlineError

if TYPE_CHECKING:
    from driftline.experiments.pool import Pool
    from driftline.experiments.study import Study

MOST_JOBS = 8
"""Runs at a time by default, at most."""
STYLES = {"held": "green", "did not hold": "red", "undecided": "yellow"}


@dataclass(frozen=True)
class ReproduceFlags:
    """Run the experiments behind the paper's figures, draw them, and say which findings held.

    Finished runs are reused, interrupted ones resumed: the same command goes on where it stopped.
    """

    figures: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """all, or some of the figures that --list shows."""
    stream: str = "world"
    """Directory of a built stream, or world[:LENGTH[:SEED]]."""
    seeds: int = 1
    """Seeds of the learners: 0 to N-1."""
    scale: Literal["quick", "full"] = "quick"
    """quick: a small network, sizes as shares of the stream; full: the paper's settings, for CLOC."""
    jobs: int | None = None
    """Runs at a time; default: one a processor core, up to 8 (full: one)."""
    processes: int = 1
    """Processes of each run, started by torchrun: one a GPU."""
    out: Path = Path("results")
    """Directory for runs, figures, findings.json and study.html."""
    limit: int | None = None
    """Use only so many samples of the stream (for a try)."""
    write_docs: Path | None = None
    """Also write the results as a Markdown page, keeping the commentary that stands in it."""
    list: bool = False
    """Show the figures, what each needs, and the presets; run nothing."""


def reproduce(args: list[str]) -> int:
    """`driftline reproduce`."""
    flags = parse(ReproduceFlags, "reproduce", args)
    from driftline.experiments.catalogue import chosen
    from driftline.experiments.study import Study, num_cores

    if flags.list:
        return _list()
    jobs = (
        flags.jobs if flags.jobs is not None else 1 if flags.scale == "full" else min(num_cores(), MOST_JOBS)
    )
    for name, value in (("jobs", jobs), ("processes", flags.processes), ("limit", flags.limit)):
        if value is not None and value < 1:
            raise DriftlineError(f"{name} = {value}: must be at least 1")
    study = Study.open(chosen(flags.figures), flags.stream, flags.scale, flags.seeds, flags.out, flags.limit)
    return _carry_out(study, jobs, flags, ["driftline", "reproduce", *args])


def _carry_out(study: Study, jobs: int, flags: ReproduceFlags, command: list[str]) -> int:
    from driftline.cli.study_progress import StudyProgress
    from driftline.report.study_docs import write_study_docs
    from driftline.report.study_page import write_study_page

    console = Console()
    try:
        with _terminable(), StudyProgress(console) as progress:
            pool = study.execute(jobs, progress, flags.processes)
    except KeyboardInterrupt:
        print("stopped and saved; the same command goes on where it stopped", file=sys.stderr)
        return 130
    document = study.conclude(pool.failed, _conditions(pool, command))
    page = write_study_page(document, study.out)
    if flags.write_docs:
        write_study_docs(document, study.out, flags.write_docs)
    _show(console, document)
    console.print(f"page: {page.resolve()}", highlight=False, soft_wrap=True)
    for name, why in pool.failed.items():
        print(f"error: run {name} failed: {why}", file=sys.stderr)
    return 1 if pool.failed else 0


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM stops a study as Ctrl-C does: its runs are stopped and saved first."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _conditions(pool: Pool, command: list[str]) -> dict[str, Any]:
    """How the figures came about. Threads change a result only through the rounding of sums."""
    import platform

    import torch

    return {
        "command": shlex.join(command),
        "jobs": pool.num_parallel,
        "processes": pool.num_processes,
        "threads": pool.threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": platform.machine(),
    }


def _show(console: Console, document: dict[str, Any]) -> None:
    """Every claim with its verdict, and under it the comparisons that decided."""
    from driftline.experiments.document import effect_text, spread_text

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    say(f"\nFindings on {document['stream']['name']}; effects with 90 % intervals")
    for name, figure in document["figures"].items():
        say(f"\n[bold]{name}[/]")
        for finding in figure["findings"]:
            verdict = finding["verdict"]
            say(f"  [{STYLES[verdict]}]{verdict:<12}[/]  {finding['claim']}")
            for check in finding["checks"]:
                sure = "" if check["verdict"] == verdict else f"  {check['verdict']}"
                say(f"[dim]{'':16}{check['what']}: {effect_text(check)}; {spread_text(check)}{sure}[/]")
        for run, why in figure["failed"].items():
            say(f"  [red]not drawn[/]     {run} failed: {escape(why)}")


def _list() -> int:
    from driftline.experiments.catalogue import ALL, RECIPES
    from driftline.experiments.presets import FOLDER, names

    console = Console()
    for name, recipe in RECIPES.items():
        extra = "" if name in ALL else "  (not part of all)"
        console.print(f"{name:<22} {recipe.title}{extra}", highlight=False)
    console.print(f"\npresets for `driftline run --config`, in {FOLDER}:", highlight=False, soft_wrap=True)
    console.print("  " + ", ".join(names()), highlight=False)
    return 0


# -- bench


@dataclass(frozen=True)
class BenchFlags:
    """Run the benchmarks of the repository: ratios against limits and plain references, taken in one go."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Some of the benchmarks; default: all."""
    full: bool = False
    """The sizes of the paper instead of small ones."""
    out: Path = Path("bench.json")
    """File for the results."""


def bench(args: list[str]) -> int:
    """`driftline bench`: hands over to the repository's `benchmarks/run.py`."""
    flags = parse(BenchFlags, "bench", args)
    folder = benchmark_folder()
    unknown = [name for name in flags.names if not (folder / f"{name}.py").is_file()]
    if unknown:
        present = sorted(
            p.stem for p in folder.glob("*.py") if p.stem != "run" and not p.stem.startswith("_")
        )
        raise DriftlineError(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(present)}")
    size = "--full" if flags.full else "--quick"
    command = [sys.executable, str(folder / "run.py"), *flags.names, size, "--out", str(flags.out)]
    return subprocess.run(command, check=False).returncode


def benchmark_folder() -> Path:
    """The repository's `benchmarks/`."""
    folder = Path(__file__).resolve().parents[3] / "benchmarks"
    if not (folder / "run.py").is_file():
        raise DriftlineError(
            f"there are no benchmarks in {folder}: they come with the repository, not with the package; "
            "clone it and install it with `pip install -e .`"
        )
    return folder
