"""Kills runs with SIGKILL at random instants, resumes them, and compares every byte with runs that were left alone.

`make torture` prints `100 kills, 100 identical` at the end. Five configurations cover every schedule, every buffer, ADRep, several
gradient steps, batch normalisation and the supervised baseline. A third of the killed runs is killed again after it was resumed. Some kills
come at any instant, some while a checkpoint is being written, some while the run is finishing. Each part of a run has its own number of
workers. A process is a fork of this one, which has imported everything, or (each tenth) a fresh `python -m driftline`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"

import driftline.cli.progress  # noqa: E402  (the number of threads comes first)
import driftline.cli.run  # noqa: E402
import driftline.engine.run  # noqa: E402
from driftline.streams.open import open_stream  # noqa: E402

WORLD = "world:4000"
CONFIGURATIONS = {
    "constant, fifo, ADRep, batch norm": [
        *["--schedule", "constant", "--replay", "fifo", "--norm", "batch"],
        *["--adaptive-buffer", "--adrep-every", "1/9", "--buffer-size", "60"],
    ],
    "cosine, reservoir, 2 gradient steps": [
        *["--schedule", "cosine", "--replay", "reservoir", "--buffer-size", "10%", "--gd-steps", "2"],
    ],
    "PoLRS, ring, batch norm": [
        *["--schedule", "polrs", "--polrs-every", "1/6", "--replay", "ring", "--buffer-size", "20%"],
        *["--norm", "batch"],
    ],
    "PoLRS, no replay, 2 gradient steps": [
        *["--schedule", "polrs", "--polrs-every", "1/7", "--replay", "none", "--gd-steps", "2"],
    ],
    "supervised, 2 epochs": ["--learner", "supervised", "--epochs-baseline", "2"],
}
COST = [1, 2, 3, 5, 2]
"""Work a sample, roughly; each configuration gets so many samples that all take about as long."""
VOLATILE = ("seconds", "samples_per_second", "peak_rss_mb", "resumed")
"""What a summary says of how a run was carried out."""
AIMS = ("any", "any", "checkpoint", "finish")
MAX_TRIES = 20
KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Victim:
    """One run to be killed so many times."""

    configuration: int
    seed: int
    num_kills: int
    num_samples: int
    reference: Path
    seconds: float
    """How long the run takes when it is left alone."""
    scratch: Path


def command(configuration: int, num_samples: int, out: Path) -> list[str]:
    """The arguments of `driftline` that start a run."""
    flags = list(CONFIGURATIONS.values())[configuration]
    limit = max(200, num_samples // COST[configuration])
    fixed = ["--limit", str(limit), "--batch-size", "20", "--device", "cpu", "--checkpoint-every", "80"]
    return ["run", "--stream", WORLD, "--out", str(out), *fixed, *flags]


def start(arguments: list[str], log: Path, *, fresh: bool) -> int:
    """The process id of a new `driftline`."""
    if fresh:
        with log.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "driftline", *arguments], stdout=file, stderr=file
            )
        process.returncode = 0  # it is waited for below, by its id
        return process.pid
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        driftline.cli.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def wait(pid: int) -> int:
    """The exit code; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_when(pid: int, is_time: Callable[[], bool]) -> int:
    """Kill once it is time; the exit code, which is the process's own if it ended before."""
    while not is_time():
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    return wait(pid)


def trigger(aim: str, out: Path, rng: random.Random, seconds: float) -> Callable[[], bool]:
    """When to kill: after a while, while a checkpoint is being written, or while the run is finishing."""
    began = time.monotonic()
    delay = rng.uniform(0, seconds)
    if aim == "any":
        return lambda: time.monotonic() - began > delay
    if aim == "checkpoint":
        folder = out / "checkpoints"
        return lambda: time.monotonic() - began > delay and any(folder.glob(".*.tmp"))
    reached: list[float] = []
    rest = rng.uniform(0, 0.3)

    def finishing() -> bool:
        if not reached and (out / "curves.parquet").exists():
            reached.append(time.monotonic())
        return bool(reached) and time.monotonic() - reached[0] > rest

    return finishing


def go_on(out: Path, victim: Victim, rng: random.Random) -> list[str]:
    """The arguments that continue a killed run: it is begun again when not even its settings were written."""
    if not (out / "config.toml").exists():
        return command(victim.configuration, victim.num_samples, out)
    return ["resume", str(out), "--workers", str(rng.randint(1, 4))]


def torture(victim: Victim) -> tuple[int, str]:
    """Kill, resume, compare. The number of kills, and what differs (nothing, if all is well)."""
    for attempt in range(MAX_TRIES):
        rng = random.Random(f"{victim.seed}-{attempt}")
        out = victim.scratch / f"{victim.seed}-{attempt}"
        if attack(victim, out, rng):
            problem = complete(victim, out, rng)
            shutil.rmtree(out, ignore_errors=True)
            return victim.num_kills, problem
        shutil.rmtree(out, ignore_errors=True)
    return 0, f"the run ended before it could be killed, {MAX_TRIES} times"


def attack(victim: Victim, out: Path, rng: random.Random) -> bool:
    """Start and kill the run as often as asked; False if it ended before."""
    log = out.with_suffix(".log")
    for number in range(victim.num_kills):
        arguments = (
            go_on(out, victim, rng) if number else command(victim.configuration, victim.num_samples, out)
        )
        fresh = victim.seed % 10 == 0
        aim = rng.choice(AIMS)
        pid = start(arguments, log, fresh=fresh)
        if kill_when(pid, trigger(aim, out, rng, victim.seconds + 3 * fresh)) != KILLED:
            return False
    return True


def complete(victim: Victim, out: Path, rng: random.Random) -> str:
    """Let the killed run come to its end; what differs from the reference."""
    log = out.with_suffix(".log")
    if not (out / "summary.json").exists():
        code = wait(start(go_on(out, victim, rng), log, fresh=False))
        if code:
            return f"resume ended with code {code}: {log.read_text()[-2000:]}"
    found, expected = dict(contents(out)), dict(contents(victim.reference))
    differing = sorted(
        name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)
    )
    if differing:
        shutil.copytree(out, victim.scratch / "kept" / out.name)
        return f"{', '.join(differing)} differ; see {victim.scratch / 'kept' / out.name} and {log}"
    log.unlink()
    return ""


def contents(out: Path) -> Iterator[tuple[str, bytes | str]]:
    """Every file of a finished run that must be the same, however often it was interrupted."""
    for path in [*out.glob("*.parquet"), *out.glob("checkpoints/weights-*")]:
        yield path.name, path.read_bytes()
    summary = json.loads((out / "summary.json").read_text())
    yield "summary.json", json.dumps({k: v for k, v in summary.items() if k not in VOLATILE})
    yield "leftovers", str(sorted(p.name for p in out.iterdir() if p.suffix in (".bin", ".jsonl", ".tmp")))


def make_references(scratch: Path, num_samples: int) -> list[tuple[Path, float]]:
    """The runs that are left alone, and how long each took."""
    references = []
    for number, title in enumerate(CONFIGURATIONS):
        out, began = scratch / f"reference-{number}", time.monotonic()
        log = scratch / f"reference-{number}.log"
        code = wait(start(command(number, num_samples, out), log, fresh=False))
        if code:
            sys.exit(f"{title}: ended with code {code}: {log.read_text()}")
        references.append((out, time.monotonic() - began))
        print(f"reference {number}: {title}, {references[-1][1]:.1f} s", flush=True)
    return references


def victims(
    arguments: argparse.Namespace, references: list[tuple[Path, float]], scratch: Path
) -> Iterator[Victim]:
    """So many that their kills add up to the number asked for."""
    rng = random.Random(arguments.seed)
    left, number = arguments.kills, 0
    while left:
        kills = min(left, rng.choice([1, 1, 1, 1, 2, 3]))
        configuration = number % len(references)
        reference, seconds = references[configuration]
        seed = arguments.seed * 100_000 + number
        yield Victim(configuration, seed, kills, arguments.samples, reference, seconds, scratch)
        left, number = left - kills, number + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=int, default=1000, help="samples of the cheapest configuration")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="torture-"))
    open_stream(WORLD).train.samples(0, 1)  # read the places once, for all forks
    references = make_references(scratch, arguments.samples)
    kills = identical = 0
    with get_context("fork").Pool(arguments.jobs) as pool:
        for num_kills, problem in pool.imap_unordered(torture, victims(arguments, references, scratch)):
            kills, identical = kills + num_kills, identical + (0 if problem else num_kills)
            print(problem or f"{kills} of {arguments.kills}", flush=True)
    print(f"{kills} kills, {identical} identical")
    if kills == identical == arguments.kills:
        shutil.rmtree(scratch)
    else:
        sys.exit(1)


if __name__ == "__main__":
    main()
