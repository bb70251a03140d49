"""The folder in which a build is carried out: locked, tied to one table and one set of options, resumable stage by stage.

It lies inside the output directory and disappears when the stream is finished. A stage's result is a small JSON file that is
written last; whoever finds it need not do the stage again.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from driftline.streams.durable import remove_unfinished, replacing
from driftline.types import DriftlineError

FOLDER = ".build"
LEFT_BY_BUILDS = (
    "images-*",
    ".images-*",
    ".ingest",
    "samples.parquet",
    "labels.npy",
    ".*.tmp",
    "validation",
    FOLDER,
)


class Workshop:
    """Stages of one build. `resumed` names those that an earlier run had finished."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.resumed: list[str] = []

    def stage(self, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a stage: what an earlier run left, or what `work` returns now."""
        marker = self.folder / f"{name}.json"
        try:
            result: dict[str, Any] = json.loads(marker.read_text(encoding="utf-8"))
            self.resumed.append(name)
            return result
        except FileNotFoundError:
            result = work()
        with replacing(marker) as temporary:
            temporary.write_text(json.dumps(result), encoding="utf-8")
        return result


@contextmanager
def workshop(out: Path, fingerprint: str, say: Callable[[str], None]) -> Iterator[Workshop]:
    """The workshop of an output directory, made or found again; what another set of options left there is cleared away."""
    check_directory(out)
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with (out / f"{FOLDER}-lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DriftlineError(
                f"{out}: another build is at work there; wait for it, or choose another --out"
            ) from None
        plan = folder / "plan.json"
        found = _read(plan)
        if found is not None and found != fingerprint:
            say("The table or the options are not those of the unfinished build found here: starting over.")
            clear(out)
            folder.mkdir(parents=True, exist_ok=True)
        for place in (folder, out, out / "validation"):
            remove_unfinished(place)
        if found != fingerprint:
            with replacing(plan) as temporary:
                temporary.write_text(json.dumps(fingerprint), encoding="utf-8")
        yield Workshop(folder)
        shutil.rmtree(folder)
    (out / f"{FOLDER}-lock").unlink(missing_ok=True)


def _read(plan: Path) -> str | None:
    try:
        return str(json.loads(plan.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def check_directory(out: Path) -> None:
    """Refuse a directory with files that no build left there."""
    if not out.exists():
        return
    if not out.is_dir():
        raise DriftlineError(f"{out} is a file; give a directory for the stream")
    if not (out / FOLDER).exists() and any(not entry.name.startswith(FOLDER) for entry in out.iterdir()):
        raise DriftlineError(f"{out} is not empty; give a new directory, so that nothing is overwritten")


def clear(out: Path) -> None:
    """Remove what an unfinished build left in its output directory."""
    for pattern in LEFT_BY_BUILDS:
        for path in out.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
