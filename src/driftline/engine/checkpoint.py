"""The checkpoints of a run: its whole state in one file, of which the last two are kept, written in the background.

In: a state, which must not change any more. Out: `checkpoints/state-STEP.safetensors`; and back, the newest one that is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from driftline.engine.tensor_file import DamagedFileError, State, load, save
from driftline.types import DriftlineError

KEEP = 2
ENDING = ".safetensors"
SET_ASIDE = ".damaged"


def weights_path(out: Path, name: str) -> Path:
    """Where the weights kept for the transfer figures lie in a run's directory.

    >>> weights_path(Path("run"), "H/3").name
    'weights-H-3.safetensors'
    """
    return out / "checkpoints" / f"weights-{name.replace('/', '-')}{ENDING}"


class Checkpoints:
    """The states of one run. Writing happens in a thread of its own; `finish` waits for it.

    >>> import tempfile
    >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()))
    >>> checkpoints.write(7, {"step": 7}, before=lambda: None)
    >>> checkpoints.finish()
    >>> checkpoints.newest(fits=lambda state: None, warn=print)
    {'step': 7}
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def paths(self) -> list[Path]:
        """The states on disk, newest first."""
        found = self.folder.glob(f"state-*{ENDING}")
        return sorted(found, key=lambda path: path.name, reverse=True)

    def has(self, step: int) -> bool:
        """Whether the state after so many steps is on disk."""
        return self._path(step).exists()

    def _path(self, step: int) -> Path:
        return self.folder / f"state-{step:012d}{ENDING}"

    def write(self, step: int, state: State, before: Callable[[], None]) -> None:
        """Write in the background, after `before` (which forces the logs to the disk); waits for the write before."""
        self.finish()
        self._writing = self._pool.submit(self._write, step, state, before)

    def _write(self, step: int, state: State, before: Callable[[], None]) -> None:
        before()
        save(state, self._path(step))
        for old in self.paths()[KEEP:]:
            old.unlink()

    def check(self) -> None:
        """Raise what went wrong in the background, if anything; does not wait."""
        if self._writing is not None and self._writing.done():
            self.finish()

    def finish(self) -> None:
        """Wait until the state is on the disk; an error while writing surfaces here."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def newest(self, fits: Callable[[State], None], warn: Callable[[str], None]) -> State | None:
        """The newest state that is whole and fits; None when there is none yet.

        `fits` raises DamagedFileError when the rest of the run's files do not belong to a state. Each state that is
        passed over is told to `warn` and renamed, so that it neither counts as one of the two kept ones nor returns.
        """
        rejected: list[tuple[Path, DamagedFileError]] = []
        for path in self.paths():
            try:
                state = load(path)
                fits(state)
            except DamagedFileError as error:
                rejected.append((path, error))
                continue
            for damaged, why in rejected:
                warn(f"{why}; going back to the checkpoint before it")
                damaged.rename(damaged.with_suffix(SET_ASIDE))
            return state
        if rejected:
            raise DriftlineError(
                f"no checkpoint in {self.folder} can be used ({'; '.join(str(why) for _, why in rejected)}); restore one from a "
                f"copy, or remove {self.folder}/state-* to start from the beginning"
            )
        return None
