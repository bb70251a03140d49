"""The directory of a run: one process holds it at a time, and it says what it already contains.

In: a path. Out: a lock that lasts as long as the process (a killed one leaves none behind), or the reason why not.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import TextIO

from driftline.config import RunConfig
from driftline.streams.durable import remove_unfinished, replacing
from driftline.types import DriftlineError
from driftline.version import FORMAT

LOGS = ("predictions.bin", "curves.bin", "quarantine.jsonl")
CANNOT_LOCK = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


def claim(out: Path, config: RunConfig, *, resume: bool) -> TextIO:
    """Take possession of a directory: a new one, or that of the run to resume. The file that comes back is the lock."""
    for folder in (out, *out.parents):
        if folder.exists() and not folder.is_dir():
            raise DriftlineError(
                f"{folder} is a file; a run needs a directory of its own, choose another --out"
            )
    _refuse_finished(out, resume)
    if not resume:
        out.mkdir(parents=True, exist_ok=True)
    lock = _locked(out)
    try:
        _refuse_finished(out, resume)  # now nobody else can be finishing it
        remove_unfinished(out)
        if not resume:
            _refuse_used(out)
            with replacing(out / "config.toml") as temporary:
                temporary.write_text(f"# driftline run, format {FORMAT}\n{config.to_toml()}")
        (out / "checkpoints").mkdir(exist_ok=True)
        remove_unfinished(out / "checkpoints")
    except BaseException:
        lock.close()
        raise
    return lock


def _locked(out: Path) -> TextIO:
    lock = (out / ".lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read(20).strip() or "unknown"
        lock.close()
        raise DriftlineError(
            f"{out} is in use by another run (process {holder}); choose another --out or wait for it"
        ) from None
    except OSError as error:
        if error.errno not in CANNOT_LOCK:  # some network disks have no locks: go on without
            raise
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _refuse_finished(out: Path, resume: bool) -> None:
    if not (out / "summary.json").exists():
        return
    remove_logs(out)  # a run that was killed right after its summary left them behind
    advice = f"`driftline report {out}` shows it" if resume else "choose another --out"
    raise DriftlineError(f"{out} holds a finished run; {advice}")


def _refuse_used(out: Path) -> None:
    if (out / "config.toml").exists():
        raise DriftlineError(
            f"{out} holds an unfinished run: `driftline resume {out}` goes on with it, or choose another --out"
        )
    for name in LOGS:
        if (out / name).exists():
            raise DriftlineError(
                f"{out} holds {name} of a run whose config.toml is gone; put it back, or choose another --out"
            )


def remove_logs(out: Path) -> None:
    """Delete the logs of a finished run: the Parquet files have taken their place."""
    for name in (*LOGS, ".lock"):
        (out / name).unlink(missing_ok=True)
