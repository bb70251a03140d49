"""Checkpoints: the whole state of a run in one file that is either whole or recognised as damaged.

In: nested dicts of tensors, numbers and strings. Out: `checkpoints/state-STEP.pt`, of which the last two are kept. The file is
a fixed header (magic, version, length and SHA-256 of the rest) and a torch archive that is read with `weights_only=True`.
"""

from __future__ import annotations

import hashlib
import io
import struct
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from driftline.streams.durable import replacing
from driftline.types import DriftlineError
from driftline.version import FORMAT

MAGIC = b"DRIFTCKP"
HEADER = struct.Struct("<8sIQ32s")
KEEP = 2


class DamagedCheckpointError(DriftlineError):
    """The file is not what was written."""


def save(state: dict[str, Any], path: Path) -> None:
    """Write a state, all or nothing.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "state.pt"
    >>> save({"step": 3, "weights": torch.ones(2)}, path)
    >>> load(path)["step"]
    3
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    header = HEADER.pack(MAGIC, FORMAT, len(payload), hashlib.sha256(payload).digest())
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(header)
        file.write(payload)


def load(path: Path) -> dict[str, Any]:
    """Read a state back; raises DamagedCheckpointError if a bit is wrong. Nothing in the file can run code."""
    with path.open("rb") as file:
        header = file.read(HEADER.size)
        if len(header) < HEADER.size:
            raise DamagedCheckpointError(f"{path} is cut short: {len(header)} bytes")
        magic, version, length, digest = HEADER.unpack(header)
        if magic != MAGIC:
            raise DamagedCheckpointError(f"{path} is not a driftline checkpoint")
        if version != FORMAT:
            raise DriftlineError(
                f"{path} has format {version}, this driftline reads {FORMAT}: use the driftline that wrote it"
            )
        if length != path.stat().st_size - HEADER.size:
            raise DamagedCheckpointError(f"{path} should hold {length} bytes after its header and does not")
        payload = file.read()
    if hashlib.sha256(payload).digest() != digest:
        raise DamagedCheckpointError(f"{path}: the checksum does not match, the file is damaged")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")
    except (RuntimeError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedCheckpointError(f"{path} cannot be read: {error}") from None
    return state


class Checkpoints:
    """The states of one run. Writing happens in a thread of its own; `finish` waits for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def paths(self) -> list[Path]:
        """The states on disk, newest first."""
        found = self.folder.glob("state-*.pt")
        return sorted(found, key=lambda path: path.name, reverse=True)

    def write(self, step: int, state: dict[str, Any], before: Callable[[], None]) -> None:
        """Write in the background, after `before` (which forces the logs to the disk); `state` must not change any more."""
        self.finish()
        self._thread = threading.Thread(target=self._write, args=(step, state, before), name="checkpoint")
        self._thread.start()

    def _write(self, step: int, state: dict[str, Any], before: Callable[[], None]) -> None:
        try:
            before()
            save(state, self.folder / f"state-{step:012d}.pt")
            for old in self.paths()[KEEP:]:
                old.unlink()
        except OSError as error:  # handed to the thread that waits
            self._error = error

    def finish(self) -> None:
        """Wait until the state is on the disk; an error while writing surfaces here."""
        if self._thread:
            self._thread.join()
            self._thread = None
        if self._error:
            error, self._error = self._error, None
            raise error

    def newest(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest state that is whole; `warn` is told of each one that is not."""
        for path in self.paths():
            try:
                return load(path)
            except DamagedCheckpointError as error:
                warn(f"{error}; going back to the checkpoint before it")
        return None
