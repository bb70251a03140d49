"""The files of a table: found by name or pattern, told apart by their first bytes, decompressed while read.

Paths and patterns flow in; bytes and lines that are valid UTF-8 flow out. Bytes that are not UTF-8 become U+FFFD, so that a
row is judged by what it needs and not by a stray byte in its title.
"""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal, cast

from driftline.types import DriftlineError

BLOCK_BYTES = 1 << 24
"""Text is read in pieces of this size."""
MAX_LINE_BYTES = 1 << 26
"""A line longer than this is no line of a table."""

Kind = Literal["parquet", "sqlite", "text"]

_OPENERS: dict[bytes, Callable[[BinaryIO, str], object]] = {
    b"BZh": bz2.open,
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
}
_DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True)
class TableFile:
    """One file of a table."""

    path: Path
    kind: Kind
    size_bytes: int
    modified_ns: int

    @cached_property
    def identity(self) -> str:
        """Changes when the content may have changed."""
        return f"{self.path.resolve()}:{self.size_bytes}:{self.modified_ns}"

    def first_line(self) -> str:
        """The first line, without its end; an empty file has none and is refused."""
        for block in line_blocks(self.path, block_bytes=1 << 16):
            return block.split("\n", 1)[0].rstrip("\r").removeprefix("\ufeff")
        raise DriftlineError(f"{self.path} is empty; give a table with at least one row")


def find_files(patterns: tuple[str, ...]) -> list[TableFile]:
    """The files that paths and patterns (`part-*.bz2`) name, each once, patterns in alphabetical order."""
    paths: dict[Path, None] = {}
    for pattern in patterns:
        found = [Path(pattern)] if Path(pattern).exists() else sorted(map(Path, glob.glob(pattern)))  # noqa: PTH207
        if not found:
            raise DriftlineError(
                f"no file {pattern}; give the path of a table, or a pattern in quotes ('part-*.bz2')"
            )
        paths.update(dict.fromkeys(found))
    return [_table_file(path) for path in paths]


def _table_file(path: Path) -> TableFile:
    if path.is_dir():
        raise DriftlineError(
            f"{path} is a directory; name its files ('{path}/*.bz2'), or use --format cloc for the authors' CLOC release"
        )
    with path.open("rb") as file:
        start = file.read(16)
    kind: Kind = "text"
    if start.startswith(b"PAR1"):
        kind = "parquet"
    elif start.startswith(b"SQLite format 3"):
        kind = "sqlite"
    elif start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DriftlineError(f"{path} is UTF-16 text; save it as UTF-8")
    elif start.startswith((b"PK\x03\x04", b"7z\xbc\xaf", b"(\xb5/\xfd")):
        raise DriftlineError(
            f"{path} is an archive that cannot be read row by row; unpack it, or use bz2, gzip or xz"
        )
    state = path.stat()
    return TableFile(path, kind, state.st_size, state.st_mtime_ns)


def open_bytes(file: BinaryIO) -> BinaryIO:
    """A file's content, decompressed while it is read."""
    start = file.read(8)
    file.seek(0)
    for magic, opener in _OPENERS.items():
        if start.startswith(magic):
            return cast(BinaryIO, opener(file, "rb"))
    return file


def estimate_lines(path: Path) -> int:
    """About how many lines a text file has, judged by its first megabytes."""
    num_lines, num_bytes = 0, 0
    with Utf8Stream(path, 1 << 20) as stream:
        while num_bytes < 4 << 20 and (block := stream.read(1 << 20)):
            num_lines, num_bytes = num_lines + block.count(b"\n"), num_bytes + len(block)
        share_read = stream.num_bytes_taken / max(path.stat().st_size, 1)
    return round(num_lines / max(share_read, 1e-9))


class Utf8Stream(io.RawIOBase):
    """A file's decompressed content with everything that is not UTF-8 replaced; read it like a file."""

    def __init__(self, path: Path, block_bytes: int = BLOCK_BYTES) -> None:
        self._path = path
        self._block_bytes = block_bytes
        self._raw = path.open("rb")
        self._file = open_bytes(self._raw)
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._left = memoryview(b"")
        self._ended = False

    @property
    def num_bytes_taken(self) -> int:
        """Bytes of the file, compressed as they are there, that have been used up so far."""
        return self._raw.tell()

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer; 0 at the end of the file."""
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._left and not self._ended:
            self._left = memoryview(self._next().encode())
        num = min(len(target), len(self._left))
        target[:num] = self._left[:num]
        self._left = self._left[num:]
        return num

    def _next(self) -> str:
        try:
            data = self._file.read(self._block_bytes)
        except _DAMAGED as error:
            raise DriftlineError(
                f"{self._path} cannot be read to its end ({error}); it is damaged or was cut short, fetch it again"
            ) from None
        self._ended = not data
        return self._decode.decode(data, final=self._ended)

    def close(self) -> None:
        """Close the file beneath."""
        self._file.close()
        self._raw.close()
        super().close()


def line_blocks(path: Path, *, block_bytes: int = BLOCK_BYTES) -> Iterator[str]:
    """Whole lines of a text file, many at a time; the last line may lack its end."""
    with Utf8Stream(path, block_bytes) as stream:
        rest = b""
        while block := stream.read(block_bytes):
            rest += block
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end].decode()
                rest = rest[end:]
            elif len(rest) > MAX_LINE_BYTES:
                raise DriftlineError(
                    f"{path}: no end of line in {len(rest):,} bytes; this is not a text table"
                )
        if rest:
            yield rest.decode()
