"""Where images come from when a stream is built.

A source takes the names of a column `image` and gives, in the same order, the bytes or pixels of each, or the reason
why there are none. Here: a folder, and a function that renders. Archives are in `archives`, web addresses in `download`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from driftline.types import DriftlineError, ImageArray

MAX_IMAGE_BYTES = 2**27
"""Image files larger than this (128 MiB) are refused before they are read."""


@dataclass(frozen=True)
class Missing:
    """Why there is no image for a row; `passing` says that trying again later may help."""

    reason: str
    passing: bool = False


Found = bytes | ImageArray | Missing


class ImageSource(Protocol):
    """Gives images by name. It is sent to worker processes, so it must be small and made of plain values."""

    def describe(self) -> dict[str, Any]:
        """What decides which images come out; a build is only continued with the same."""
        ...

    def read(self, names: Sequence[str]) -> Iterator[Found]:
        """One result for each name, in order."""
        ...


@dataclass(frozen=True)
class FolderSource:
    """Files below a folder, named by their path relative to it; no name leads out of the folder."""

    root: Path

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise DriftlineError(
                f"the image folder {self.root} does not exist; give the folder the table's paths start at"
            )
        object.__setattr__(self, "root", self.root.resolve())

    def describe(self) -> dict[str, Any]:
        """The folder's path."""
        return {"folder": str(self.root)}

    def read(self, names: Sequence[str]) -> Iterator[Found]:
        """The bytes of the files, in order."""
        return (self._one(name) for name in names)

    def _one(self, name: str) -> bytes | Missing:
        try:
            path = inside(self.root, name)
            return _read_bounded(path)
        except DriftlineError as error:
            return Missing(str(error))
        except (FileNotFoundError, NotADirectoryError):
            return Missing("file not found")
        except OSError as error:
            return Missing(f"cannot be read: {error.strerror}")


def inside(root: Path, name: str) -> Path:
    """The file a relative name means, refused when it would lie outside the root (absolute, `..`, symbolic link).

    >>> inside(Path("/data"), "../etc/passwd")
    Traceback (most recent call last):
    driftline.types.DriftlineError: the path '../etc/passwd' leaves the image folder
    """
    if not name or "\0" in name:
        raise DriftlineError(f"{name!r} is no path")
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise DriftlineError(f"the path {name!r} leaves the image folder")
    resolved = Path(os.path.realpath(root / path))
    if not resolved.is_relative_to(root):
        raise DriftlineError(f"the path {name!r} leaves the image folder by a symbolic link")
    return resolved


def _read_bounded(path: Path) -> bytes:
    """A regular file's bytes; the size is looked at before memory is taken."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise DriftlineError("is no regular file")
    if status.st_size > MAX_IMAGE_BYTES:
        raise DriftlineError(f"has {status.st_size} bytes; the limit is {MAX_IMAGE_BYTES}")
    with path.open("rb") as file:
        return file.read(MAX_IMAGE_BYTES)


@dataclass(frozen=True)
class RenderedSource:
    """Images made by a function of their names, a few hundred at a time.

    The function must be importable by worker processes: defined at the top of a module, or a `functools.partial` of such.
    """

    render: Callable[[Sequence[str]], Sequence[Found]]
    name: str
    """Changes when the function's images change."""
    names_per_call: int = 256

    def describe(self) -> dict[str, Any]:
        """The name of the rendering."""
        return {"rendered": self.name}

    def read(self, names: Sequence[str]) -> Iterator[Found]:
        """The rendered images, in order."""
        for start in range(0, len(names), self.names_per_call):
            yield from self.render(names[start : start + self.names_per_call])
