"""Streams on object stores and web servers, read through fsspec with a bounded cache on the local disk.

Flow: a name and a range of bytes -> blocks from the cache or, by ranged requests with retries, from the other side.
Files that are needed whole (samples.parquet, labels.npy) are copied into the cache once.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from driftline.streams.durable import explaining_full_disk, replacing
from driftline.types import DriftlineError

BLOCK_BYTES = 2**16
"""Unit of the cache: about two photographs of 256 pixels."""
CACHE_BYTES = 10 * 2**30
"""Blocks kept on the local disk, shared by the ranks of a machine."""
ATTEMPTS = 5
FIRST_WAIT_S = 0.2

T = TypeVar("T")


def is_remote(location: str) -> bool:
    """True for what fsspec should open.

    >>> is_remote("s3://bucket/cloc"), is_remote("streams/cloc")
    (True, False)
    """
    return "://" in location


class RemoteRoot:
    """A directory behind a URL (https, s3, gs, memory, ...)."""

    is_local = False

    def __init__(self, url: str, *, cache: Path | None = None, cache_bytes: int | None = None) -> None:
        self.location = url.rstrip("/")
        self._fs, self._path = _file_system(self.location)
        self._cache = cache or _default_cache()
        limit = CACHE_BYTES if cache_bytes is None else cache_bytes
        self._cache_bytes = limit // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._lock = threading.Lock()

    @cached_property
    def _manifest(self) -> bytes:
        return self._insisting("stream.json", lambda: bytes(self._fs.cat_file(f"{self._path}/stream.json")))

    @cached_property
    def _folder(self) -> Path:
        """Named after the content of stream.json, so that blocks of an older stream at the same place are never taken."""
        return self._cache / hashlib.sha256(self.location.encode() + b"\0" + self._manifest).hexdigest()[:16]

    @cached_property
    def blocks(self) -> BlockCache:
        """Pieces of shards on the local disk."""
        return BlockCache(self._folder / "blocks", self._cache_bytes)

    def manifest(self) -> bytes:
        """The content of stream.json, as it was when it was first asked for."""
        return self._manifest

    def open(self, name: str, size: int) -> RemoteFile:
        """A file of known size to read pieces of; it is asked for when the first piece is."""
        return RemoteFile(self, name, size)

    def local(self, name: str) -> Path:
        """A copy of a whole file in the cache, made when it is first asked for."""
        path = self._folder / "files" / name
        with self._lock:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                with explaining_full_disk(path.parent), replacing(path) as temporary:
                    self._insisting(name, lambda: self._fs.get_file(f"{self._path}/{name}", str(temporary)))
        return path

    def range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes start..stop-1 of a file, from the other side; fewer at its end."""

        def ask() -> bytes:
            data = bytes(self._fs.cat_file(f"{self._path}/{name}", start=start, end=stop))
            if len(data) > stop - start:
                raise DriftlineError(
                    f"{self.location} ignores ranges: it sent {len(data)} bytes of {name} instead of {stop - start}; "
                    "use a server that supports range requests, or copy the stream here"
                )
            return data

        return self._insisting(name, ask)

    def _insisting(self, name: str, ask: Callable[[], T]) -> T:
        """Ask again, with growing pauses, while the other side fails in ways that may pass."""
        for attempt in range(ATTEMPTS):
            try:
                return ask()
            except FileNotFoundError:
                if name == "stream.json":
                    raise
                raise DriftlineError(
                    f"{self.location}/{name} is missing; restore it from a copy, or build the stream again"
                ) from None
            except _failures() as error:
                if attempt + 1 == ATTEMPTS or isinstance(error, PermissionError):
                    raise DriftlineError(
                        f"cannot read {self.location}/{name} ({type(error).__name__}: {error}); check the network and "
                        "your credentials, then resume"
                    ) from None
                time.sleep(random.uniform(0.5, 1.0) * FIRST_WAIT_S * 2**attempt)
        raise AssertionError("unreachable")


class RemoteFile:
    """A remote file read by offset, block by block through the cache."""

    def __init__(self, root: RemoteRoot, name: str, size: int) -> None:
        self._root = root
        self._name = name
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes from an offset on. Missing blocks that lie side by side come in one request."""
        stop = min(offset + length, self.size)
        first, last = offset // BLOCK_BYTES, -(-stop // BLOCK_BYTES)
        found = {i: self._root.blocks.get(self._key(i)) for i in range(first, last)}
        missing = [i for i, block in found.items() if block is None]
        for begin, end in _runs(missing):
            data = self._root.range(self._name, begin * BLOCK_BYTES, min(end * BLOCK_BYTES, self.size))
            for i in range(begin, end):
                block = data[(i - begin) * BLOCK_BYTES : (i - begin + 1) * BLOCK_BYTES]
                found[i] = block
                if len(block) == min(BLOCK_BYTES, self.size - i * BLOCK_BYTES):
                    self._root.blocks.put(self._key(i), block)
        joined = b"".join(block or b"" for block in found.values())
        return joined[offset - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]

    def reread(self, offset: int, length: int) -> bytes:
        """The same bytes from the other side, whatever the cache holds."""
        for i in range(offset // BLOCK_BYTES, -(-(offset + length) // BLOCK_BYTES)):
            self._root.blocks.drop(self._key(i))
        return self.read(offset, length)

    def _key(self, block: int) -> str:
        return f"{self._name}/{block}"


class BlockCache:
    """Blocks in files of their own, the least recently used deleted when there are too many bytes.

    Several processes may share the folder: a block that another one deleted is a miss, nothing more.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[Path, int] = OrderedDict()
        folder.mkdir(parents=True, exist_ok=True)
        known = sorted(
            (status.st_mtime, path, status.st_size) for path in folder.glob("*/*") for status in [path.stat()]
        )
        self._sizes.update((path, size) for _, path, size in known)
        self.num_bytes = sum(self._sizes.values())

    def get(self, key: str) -> bytes | None:
        """A block, or None when it is not there or damaged."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        block, checksum = content[:-4], content[-4:]
        if zlib.crc32(block).to_bytes(4, "little") != checksum:
            return None
        with self._lock:
            if path in self._sizes:
                self._sizes.move_to_end(path)
        return block

    def put(self, key: str, block: bytes) -> None:
        """Keep a block; older ones make room."""
        if len(block) + 4 > self._max_bytes:
            return
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        with explaining_full_disk(self._folder):
            temporary.write_bytes(block + zlib.crc32(block).to_bytes(4, "little"))
            temporary.replace(path)
        with self._lock:
            self.num_bytes += len(block) + 4 - self._sizes.pop(path, 0)
            self._sizes[path] = len(block) + 4
            while self.num_bytes > self._max_bytes:
                oldest, size = self._sizes.popitem(last=False)
                oldest.unlink(missing_ok=True)
                self.num_bytes -= size

    def drop(self, key: str) -> None:
        """Forget a block."""
        path = self._path(key)
        with self._lock:
            self.num_bytes -= self._sizes.pop(path, 0)
        path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        return self._folder / name[:2] / name[2:]


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as (first, last + 1).

    >>> _runs([3, 4, 5, 9])
    [(3, 6), (9, 10)]
    """
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


def _default_cache() -> Path:
    chosen = os.environ.get("DRIFTLINE_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) / "driftline" if chosen else Path.home() / ".cache" / "driftline"


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise DriftlineError(
            f"reading {url} needs fsspec; install driftline[remote], or copy the stream here"
        ) from None
    try:
        fs, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise DriftlineError(f"cannot open {url}: {error}") from None
    return fs, str(path)


def _failures() -> tuple[type[Exception], ...]:
    """What the file systems raise when the network or the server fails."""
    try:
        from aiohttp import ClientError
    except ImportError:
        return (OSError, TimeoutError)
    return (OSError, TimeoutError, ClientError)
