"""`driftline demo`, `run` and `resume`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from driftline.cli.flags import parse
from driftline.config import RunConfig, read_config


@dataclass(frozen=True)
class RunFlags:
    """Learn online from a stream: each batch is predicted first, then learned from.

    Sizes and intervals take a count (40000) or a share of the stream (0.1, 10%, 1/18).
    """

    out: Path
    """Directory to write the run to; it must not hold a run yet."""
    config: Path | None = None
    """TOML file with settings; flags given beside it win."""
    settings: RunConfig = field(default_factory=RunConfig)


@dataclass(frozen=True)
class ResumeFlags:
    """Go on with an interrupted run from its last checkpoint, to the same bytes as if nothing had happened."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's directory."""
    workers: int | None = None
    """Threads that read and decode ahead; default: as before."""
    parallel: Literal["auto", "data", "members"] | None = None
    """Under torchrun: how the work is divided; default: as before."""


@dataclass(frozen=True)
class DemoFlags:
    """Learn on the embedded world: experience replay, the supervised baseline beside it, and a report of both."""

    out: Path = Path("demo")
    """Directory for the runs and the report."""
    seed: int = 0
    """Seed of the learners."""


STOPPED = 143
"""Exit code of a process that stopped because another one of the run was asked to: that of SIGTERM."""


def run(args: list[str]) -> int:
    """`driftline run`."""
    flags = parse(RunFlags, "run", args, _default(args))
    from driftline.engine.run import Run

    return _execute(Run(flags.settings, flags.out, warn=_warn))


def _default(args: list[str]) -> RunFlags | None:
    """The settings of --config, if given, so that flags start from them."""
    for i, arg in enumerate(args):
        name, _, value = arg.partition("=")
        if name == "--config":
            file = value or (args[i + 1] if i + 1 < len(args) else "")
            return RunFlags(tyro.MISSING, Path(file), read_config(Path(file)))
    return None


def resume(args: list[str]) -> int:
    """`driftline resume`."""
    flags = parse(ResumeFlags, "resume", args)
    from driftline.engine.run import Run

    return _execute(Run.resume(flags.run, workers=flags.workers, parallel=flags.parallel, warn=_warn))


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _execute(run: Any) -> int:
    """Go through the run to its end, or say how to go on."""
    code = _executed(run)
    if run.team.size > 1:
        # All is written. Threads of torch that still hold objects of the interpreter can abort an ordinary exit.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _executed(run: Any) -> int:
    summary, code = _completed(run)
    if summary is None or not run.team.is_first:
        return code
    console = Console()
    console.print(result_table([(run.out.name, summary)]))
    console.print(
        f"written to {run.out}; `driftline report {run.out}` makes a page of it",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def _completed(run: Any) -> tuple[dict[str, Any] | None, int]:
    """The summary; or None and the exit code of the signal that stopped the run, after its step was done and saved."""
    from driftline.cli.progress import Progress
    from driftline.engine.signals import Signals, Stopped

    go_on = f"go on with: driftline resume {run.out}"
    with Signals() as signals:
        run.stop_when = lambda: bool(signals.code)
        try:
            with Progress(run.setup.num_samples, run.num_steps, run.out.name) as progress:
                for record in run.records():
                    if run.team.is_first:
                        progress.add(record)
            if run.stopped:
                if run.team.is_first:
                    print(f"stopped and saved after step {run.loop.step} of {run.num_steps}; {go_on}")
                return None, signals.code or STOPPED
            signals.at_once = True  # all steps are saved, and finishing can be repeated
            return run.finish(), 0
        except Stopped as stopped:
            print(f"stopped at once, what was saved stays; {go_on}")
            return None, stopped.code


def result_table(runs: list[tuple[str, dict[str, Any]]]) -> Table:
    """The figures of finished runs, a row each."""
    table = Table(
        title="Accuracy (album: the paper's scoring; sample: every sample counts alike)", title_justify="left"
    )
    for name in ("run", "album", "sample", "backward H", "median error", "samples/s"):
        table.add_column(name, justify="left" if name == "run" else "right")
    for name, summary in runs:
        table.add_row(name, *_figures(summary))
        if "blind" in summary:
            blind = summary["blind"]
            table.add_row(
                f"  blind (k={blind['k']})",
                _percent(blind["album"]),
                _percent(blind["sample"]),
                "",
                "",
                "",
                style="dim",
            )
    if runs:
        chance = runs[0][1]["chance"]
        table.add_row("  chance", _percent(chance), _percent(chance), "", "", "", style="dim")
    return table


def _figures(summary: dict[str, Any]) -> list[str]:
    error = summary.get("geolocation_error_km", {}).get("median")
    accuracy = summary.get("online_accuracy", {})
    backward = summary.get("backward", {}).get("H", {}).get("end")
    if "validation_accuracy" in summary:
        backward = summary["validation_accuracy"]
    return [
        _percent(accuracy.get("album")),
        _percent(accuracy.get("sample")),
        _percent(backward),
        "–" if error is None else f"{error:,.0f} km",
        f"{summary['samples_per_second']:,.0f}",
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


# -- demo

DEMO_STREAM = "world:50000"


def demo_runs(seed: int) -> dict[str, RunConfig]:
    """The demo's runs, with the settings of the study's quick scale."""
    from driftline.experiments.setting import QUICK

    return {
        "replay": RunConfig(stream=DEMO_STREAM, seed=seed, **QUICK.online),
        "supervised": RunConfig(stream=DEMO_STREAM, seed=seed, **QUICK.offline),
    }


def demo(args: list[str]) -> int:
    """`driftline demo`."""
    flags = parse(DemoFlags, "demo", args)
    from driftline.engine.run import Run
    from driftline.report.page import write_report
    from driftline.types import DriftlineError

    console = Console()
    console.print(
        "A learner meets 50,000 photos of the Earth, 2004 to 2014, in the order they were taken.",
        highlight=False,
    )
    console.print(
        "It predicts where each batch was taken, is told, and learns. Then the supervised baseline.\n",
        highlight=False,
    )
    finished = []
    runs = demo_runs(flags.seed)
    for name, config in runs.items():
        out = flags.out / name
        unfinished = (out / "config.toml").exists()
        if unfinished and read_config(out / "config.toml").digest() != config.digest():
            raise DriftlineError(f"{out} holds a run of other settings; choose another --out or remove it")
        summary = _finished(out)
        if summary is None:
            run = Run.resume(out, warn=_warn) if unfinished else Run(config, out, warn=_warn)
            summary, code = _completed(run)
            if summary is None:
                print("`driftline demo` goes on where it stopped, too")
                return code
        finished.append((name, summary))
    page = flags.out / "report.html"
    write_report([flags.out / name for name in runs], page)
    console.print(result_table(finished))
    console.print(f"report: {page.resolve()}", highlight=False, soft_wrap=True)
    return 0


def _finished(out: Path) -> dict[str, Any] | None:
    """The summary of a run that is already there."""
    import json

    if not (out / "summary.json").exists():
        return None
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return summary
