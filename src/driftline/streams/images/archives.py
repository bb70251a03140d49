"""Images inside other files: tar shards in the WebDataset convention, and Parquet columns of bytes.

Flow: archives -> one sorted index on disk (hash of the name, file, offset, size) -> bytes by name with pread.
The index (24 bytes an entry) is made once, in the build's work folder, and mapped by every worker.
"""

from __future__ import annotations

import hashlib
import struct
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.streams.durable import explaining_full_disk, replacing
from driftline.streams.images.sources import MAX_IMAGE_BYTES, Found, Missing
from driftline.streams.store.roots import LocalFile
from driftline.types import DriftlineError

IMAGE_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
ENTRY = np.dtype([("key", "<u8"), ("file", "<u4"), ("size", "<u4"), ("offset", "<u8")])
AMBIGUOUS = 2**32 - 1
"""File number of a key that several members bear."""


@dataclass(frozen=True)
class TarSource:
    """Members of uncompressed tar files, by WebDataset key (`000123`), member name, or `shard.tar/key`."""

    index: Path
    files: tuple[Path, ...]

    @classmethod
    def scan(cls, files: Sequence[Path], work: Path) -> TarSource:
        """Index the members of the tar files; the index is kept in the work folder and used again."""
        return cls(_index_once(files, work, "tar", _tar_entries), tuple(files))

    def describe(self) -> dict[str, Any]:
        """Names and sizes of the tar files."""
        return {"tar": _identity(self.files)}

    def read(self, names: Sequence[str]) -> Iterator[Found]:
        """The bytes of the members, in order."""
        return _read_blobs(self.index, self.files, names)


@dataclass(frozen=True)
class ParquetSource:
    """Images in a column of bytes (or of structs with a field `bytes`), found by a key column.

    Parquet cannot be read row by row, so the bytes are copied once into plain files in the work folder.
    """

    index: Path
    files: tuple[Path, ...]
    copies: tuple[Path, ...]
    column: str
    key: str

    @classmethod
    def unpack(
        cls, files: Sequence[Path], work: Path, *, column: str = "image", key: str = "id"
    ) -> ParquetSource:
        """Copy the images out of the Parquet files and index them; what is copied already is not copied again."""
        work.mkdir(parents=True, exist_ok=True)
        with explaining_full_disk(work):
            copies = tuple(_unpack_one(path, work, number, column, key) for number, path in enumerate(files))
            index = _index_once(copies, work, "parquet", _copied_entries)
        return cls(index, tuple(files), copies, column, key)

    def describe(self) -> dict[str, Any]:
        """Names and sizes of the Parquet files, and the columns."""
        return {"parquet": _identity(self.files), "column": self.column, "key": self.key}

    def read(self, names: Sequence[str]) -> Iterator[Found]:
        """The bytes of the images, in order."""
        return _read_blobs(self.index, self.copies, names)


def _identity(files: Sequence[Path]) -> list[list[Any]]:
    return [[path.name, path.stat().st_size] for path in files]


def _hash(name: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest(), "little"
    )


def stem(member: str) -> str:
    """The WebDataset key of a member: its name up to the first dot of its last part.

    >>> stem("a.b/000123.cam.jpg"), stem("./x.png")
    ('a.b/000123', 'x')
    """
    path = PurePosixPath(member)
    return str(path.with_name(path.name.split(".")[0] or path.name))


def _tar_entries(path: Path, number: int) -> Iterator[tuple[int, int, int, int]]:
    """Index entries of one tar file: each image under its key, and under file name and key."""
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if member.isreg() and PurePosixPath(member.name).suffix.lower() in IMAGE_ENDINGS:
                    place = (number, min(member.size, MAX_IMAGE_BYTES + 1), member.offset_data)
                    yield (_hash(stem(member.name)), *place)
                    yield (_hash(f"{path.name}/{stem(member.name)}"), *place)
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise DriftlineError(
            f"{path} is no whole, uncompressed tar file ({error}); fetch it again if it was cut short, unpack it if it is compressed"
        ) from None


def _index_once(files: Sequence[Path], work: Path, name: str, entries: Any) -> Path:
    if not files:
        raise DriftlineError(f"no {name} file given")
    label = hashlib.sha256(repr([name, _identity(files)]).encode()).hexdigest()[:12]
    target = work / f"{name}-{label}.npy"
    if not target.exists():
        work.mkdir(parents=True, exist_ok=True)
        pieces = [np.fromiter(entries(path, number), ENTRY) for number, path in enumerate(files)]
        with explaining_full_disk(work), replacing(target) as temporary, temporary.open("wb") as file:
            np.save(file, _sorted_without_twins(np.concatenate(pieces)), allow_pickle=False)
    return target


def _sorted_without_twins(entries: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Entries in order of key; a key that occurs twice stays once, marked ambiguous."""
    entries = entries[np.argsort(entries["key"], kind="stable")]
    first = np.ones(len(entries), bool)
    first[1:] = entries["key"][1:] != entries["key"][:-1]
    twin = np.zeros(len(entries), bool)
    twin[:-1] = ~first[1:]
    entries["file"][twin] = AMBIGUOUS
    return entries[first]


def _read_blobs(index: Path, files: Sequence[Path], names: Sequence[str]) -> Iterator[Found]:
    """Bytes by name; files are opened as they are met and stay open for the run of names."""
    entries = np.load(index, mmap_mode="r", allow_pickle=False)
    opened: dict[int, LocalFile] = {}
    for name in names:
        entry = _find(entries, name)
        if entry is None:
            yield Missing("not in the archives")
        elif entry[0] == AMBIGUOUS:
            yield Missing("several members have this name; write it as FILE.tar/NAME")
        elif entry[1] > MAX_IMAGE_BYTES:
            yield Missing(f"is larger than {MAX_IMAGE_BYTES} bytes")
        else:
            yield _read_one(opened, files, *entry)


def _find(entries: np.ndarray[Any, Any], name: str) -> tuple[int, int, int] | None:
    """File, size and offset for a name as it stands or, failing that, without its ending."""
    for candidate in dict.fromkeys([name, stem(name)] if name else []):
        key = np.uint64(_hash(candidate))
        where = int(np.searchsorted(entries["key"], key))
        if where < len(entries) and entries["key"][where] == key:
            return int(entries["file"][where]), int(entries["size"][where]), int(entries["offset"][where])
    return None


def _read_one(
    opened: dict[int, LocalFile], files: Sequence[Path], file: int, size: int, offset: int
) -> Found:
    if file not in opened:
        if len(opened) >= 64:
            opened.pop(next(iter(opened)))
        opened[file] = _opened(files[file])
    data = opened[file].read(offset, size)
    return data if len(data) == size else Missing(f"{files[file].name} is cut short")


def _opened(path: Path) -> LocalFile:
    try:
        return LocalFile(path)
    except OSError as error:
        raise DriftlineError(
            f"cannot read {path} ({error.strerror}); put it back and run the same command again"
        ) from None


_COPY_HEADER = struct.Struct("<QI")
"""Before each copied image: hash of its key, length."""


def _unpack_one(path: Path, work: Path, number: int, column: str, key: str) -> Path:
    """Copy the images of one Parquet file into a plain file of (key hash, length, bytes)."""
    label = hashlib.sha256(repr([_identity([path]), column, key]).encode()).hexdigest()[:12]
    target = work / f"parquet-{number:05d}-{label}.bin"
    if target.exists():
        return target
    try:
        source = pq.ParquetFile(path)
        absent = [name for name in (column, key) if name not in source.schema_arrow.names]
        if absent:
            columns = ", ".join(source.schema_arrow.names)
            raise DriftlineError(f"{path} has no column {absent[0]!r}; it has {columns}")
        with replacing(target) as temporary, temporary.open("wb") as file:
            for batch in source.iter_batches(batch_size=256, columns=[column, key], use_threads=False):
                for name, image in zip(batch.column(key), batch.column(column), strict=True):
                    data = _bytes_of(image.as_py(), path, column)
                    file.write(_COPY_HEADER.pack(_hash(str(name.as_py())), len(data)) + data)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DriftlineError(f"{path} is no readable Parquet file ({error})") from None
    return target


def _bytes_of(value: object, path: Path, column: str) -> bytes:
    if isinstance(value, dict):
        value = value.get("bytes")
    if value is None:
        return b""
    if not isinstance(value, bytes):
        raise DriftlineError(
            f"{path}: the column {column!r} holds {type(value).__name__}, not bytes of images"
        )
    return value


def _copied_entries(path: Path, number: int) -> Iterator[tuple[int, int, int, int]]:
    offset, total = 0, path.stat().st_size
    file = LocalFile(path)
    while offset < total:
        key, size = _COPY_HEADER.unpack(file.read(offset, _COPY_HEADER.size))
        offset += _COPY_HEADER.size
        yield key, number, min(size, MAX_IMAGE_BYTES + 1), offset
        offset += size
