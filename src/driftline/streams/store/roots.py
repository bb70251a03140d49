"""Where a stream's files lie, and how pieces of them are read.

A root gives files by name: `open` for reading pieces by offset, `local` for files that are needed whole.
`LocalRoot` is a directory; `driftline.streams.store.remote` has the one for object stores and web servers.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Protocol

from driftline.types import DriftlineError


class ByteFile(Protocol):
    """A file read by offset, from any thread."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes from an offset on; fewer only at the end of the file."""
        ...

    def reread(self, offset: int, length: int) -> bytes:
        """The same, past any cache: for bytes that came out damaged."""
        ...


class Root(Protocol):
    """A place that holds files by name."""

    location: str
    is_local: bool

    def manifest(self) -> bytes:
        """The content of stream.json; FileNotFoundError when it is not there."""
        ...

    def open(self, name: str, size: int) -> ByteFile:
        """A file, which should have this size, to read pieces of; FileNotFoundError when it is not there."""
        ...

    def local(self, name: str) -> Path:
        """A path on this machine with the whole content of a file."""
        ...


class LocalFile:
    """A file read with pread. It is closed when the last thread has let go of it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes from an offset on; fewer only at the end of the file."""
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length and (
            more := os.pread(self._descriptor, length - len(data), offset + len(data))
        ):
            data += more
        return data

    def reread(self, offset: int, length: int) -> bytes:
        """The same as `read`: there is no cache to go past."""
        return self.read(offset, length)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class LocalRoot:
    """A directory on this machine."""

    is_local = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.location = str(directory)

    def manifest(self) -> bytes:
        """The content of stream.json."""
        return (self.directory / "stream.json").read_bytes()

    def open(self, name: str, size: int) -> LocalFile:
        """A file of the directory to read pieces of; its real size is the one it has."""
        return LocalFile(self.directory / name)

    def local(self, name: str) -> Path:
        """The file itself."""
        path = self.directory / name
        if not path.is_file():
            raise DriftlineError(f"{path} is missing; restore it from a copy, or build the stream again")
        return path


def max_open_files() -> int:
    """How many files a reader may hold open: a quarter of what the system allows this process.

    >>> max_open_files() >= 16
    True
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1024 if allowed == resource.RLIM_INFINITY else max(16, min(1024, allowed // 4))
