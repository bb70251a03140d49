"""Files that are either wholly there or not there at all, also after a crash or on a full disk.

A file is written beside its place under a temporary name, forced to the disk, and then renamed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftline.types import DriftlineError

TEMPORARY = ".tmp"
"""How the names of unfinished files end; what a killed process leaves behind is recognised by it."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` when the block ends well.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('whole', 1)
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        yield temporary
        put_in_place(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def put_in_place(temporary: Path, path: Path) -> None:
    """Force a finished file to the disk and give it its name, which is then on the disk too."""
    force_to_disk(temporary)
    temporary.replace(path)
    force_to_disk(path.parent)


def force_to_disk(path: Path) -> None:
    """fsync of a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


GO_ON = "run the same command again, it goes on where it stopped"


@contextmanager
def explaining_full_disk(folder: Path, go_on: str = GO_ON) -> Iterator[None]:
    """Turns "no space left", "read-only" and failing disks into a message that says what to do.

    >>> with explaining_full_disk(Path("out")):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    driftline.types.DriftlineError: the disk of out is full (No space left on device); make room and run the same command again, it goes on where it stopped
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            message = f"the disk of {folder} is full ({error.strerror}); make room and {go_on}"
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            message = f"cannot write to {folder} ({error.strerror}); choose a folder that you may write to"
        elif error.errno in (errno.EIO, errno.ESTALE, errno.ENODEV):
            message = f"the disk of {folder} fails ({error.strerror}); check it and {go_on}"
        else:
            raise
        raise DriftlineError(message) from None


def remove_unfinished(folder: Path) -> None:
    """Delete what killed processes left half-written in a folder."""
    for leftover in folder.glob(f".*{TEMPORARY}"):
        leftover.unlink(missing_ok=True)
