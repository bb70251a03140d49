"""Shards: the payloads of many samples in one file, found by fixed 16-byte index records.

`ShardWriter` takes payloads in order and commits them: data, fsync, then the index. `ShardReader` gives the
payloads at arbitrary positions over all shards of a split, each checked against its CRC. A shard is two files,
`images-00000.bin` and `images-00000.idx`, both little-endian with a 16-byte header.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from driftline.streams.durable import TEMPORARY, put_in_place, replacing
from driftline.streams.store.roots import ByteFile, LocalRoot, Root, max_open_files
from driftline.types import BadSampleError, DriftlineError, IntArray

FORMAT_VERSION = 1
HEADER = struct.Struct("<8sII")
"""Magic, format version; then the number of samples (index) or the number of the shard (data)."""
RECORD = struct.Struct("<QII")
"""Offset of the payload in the data file, its length in bytes, its CRC32."""
DATA_MAGIC = b"driftbin"
INDEX_MAGIC = b"driftidx"
MAX_READ_BYTES = 2**25
"""Neighbouring payloads are read together up to this many bytes."""
MAX_KEPT_RECORDS = 2**22
"""The indexes of a split of at most so many samples are kept in memory (64 MB); of a longer one each record is read on its own."""
MAX_PAYLOAD_BYTES = 2**32 - 1

Payload = bytes | BadSampleError


def shard_name(number: int) -> str:
    """Name of a shard without its ending.

    >>> shard_name(3)
    'images-00003'
    """
    return f"images-{number:05d}"


@dataclass(frozen=True)
class ShardInfo:
    """What `stream.json` knows of a shard: enough to see that its files are the ones it was finished with."""

    num_samples: int
    data_bytes: int
    index_crc32: int


class ShardWriter:
    """Writes one shard; no file bears its name until `commit`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with ShardWriter(folder, 0) as writer:
    ...     writer.append(b"payload")
    ...     writer.commit()
    1
    >>> sorted(p.name for p in folder.iterdir())
    ['images-00000.bin', 'images-00000.idx']
    """

    def __init__(self, directory: Path, number: int) -> None:
        self._data_path = directory / f"{shard_name(number)}.bin"
        self._index_path = directory / f"{shard_name(number)}.idx"
        self._temporary = directory / f".{self._data_path.name}.{os.getpid()}{TEMPORARY}"
        self._file = self._temporary.open("wb", buffering=2**20)
        self._file.write(HEADER.pack(DATA_MAGIC, FORMAT_VERSION, number))
        self._end = HEADER.size
        self._records: list[bytes] = []

    def append(self, payload: bytes) -> None:
        """Add the payload of the next sample."""
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise DriftlineError(f"a payload of {len(payload)} bytes is too large; the limit is 4 GiB")
        self._file.write(payload)
        self._records.append(RECORD.pack(self._end, len(payload), zlib.crc32(payload)))
        self._end += len(payload)

    def commit(self) -> int:
        """Put data, then index, on the disk under their names; gives the number of samples.

        An index that is there already goes first: it promises bytes that are about to be replaced.
        """
        self._file.close()
        self._index_path.unlink(missing_ok=True)
        put_in_place(self._temporary, self._data_path)
        with replacing(self._index_path) as temporary:
            header = HEADER.pack(INDEX_MAGIC, FORMAT_VERSION, len(self._records))
            temporary.write_bytes(header + b"".join(self._records))
        return len(self._records)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        finally:
            self._temporary.unlink(missing_ok=True)


def shard_info(directory: Path, number: int) -> ShardInfo:
    """What a finished shard holds, read from its files.

    The end of the last payload must be the end of the data file: a shortened file is noticed here.
    """
    path = directory / f"{shard_name(number)}.idx"
    try:
        content = path.read_bytes()
        data_bytes = path.with_suffix(".bin").stat().st_size
    except FileNotFoundError as error:
        raise _broken(error.filename, "is missing") from None
    count = _checked_count(content[: HEADER.size], str(path))
    if len(content) != HEADER.size + count * RECORD.size:
        raise _broken(str(path), f"has {len(content)} bytes, not those of {count} records")
    offset, length, _ = RECORD.unpack(content[-RECORD.size :]) if count else (HEADER.size, 0, 0)
    if offset + length != data_bytes:
        raise _broken(str(path.with_suffix(".bin")), f"has {data_bytes} bytes, not {offset + length}")
    return ShardInfo(count, data_bytes, zlib.crc32(content))


def _checked_count(header: bytes, path: str) -> int:
    if len(header) != HEADER.size:
        raise _broken(path, "is shortened")
    magic, version, count = HEADER.unpack(header)
    if magic != INDEX_MAGIC:
        raise _broken(path, "is no shard index")
    if version != FORMAT_VERSION:
        raise DriftlineError(
            f"{path} has format version {version}; this driftline reads version {FORMAT_VERSION}: build the stream again"
        )
    return int(count)


def _broken(path: str, what: str) -> DriftlineError:
    return DriftlineError(f"shard file {path} {what}; restore it from a copy, or build the stream again")


def iter_shard(directory: Path, number: int) -> Iterator[Payload]:
    """The payloads of one finished shard, in order, a few at a time."""
    info = shard_info(directory, number)
    shard = _OpenShard(LocalRoot(directory), shard_name(number), info)
    for first in range(0, info.num_samples, 64):
        yield from shard.payloads(first, min(64, info.num_samples - first), first)


class ShardReader:
    """Payloads at arbitrary positions of a split, for any number of threads at once.

    Holds a bounded number of shards open. Positions that follow each other are read together.
    """

    def __init__(self, root: Root, prefix: str, shards: Sequence[ShardInfo]) -> None:
        self._root = root
        self._prefix = prefix
        self._shards = shards
        self._starts = np.cumsum([0, *(shard.num_samples for shard in shards)])
        self._open: OrderedDict[int, _OpenShard] = OrderedDict()
        self._max_open = max(2, max_open_files() // 2)
        self._keeps_indexes = len(self) <= MAX_KEPT_RECORDS and len(shards) <= self._max_open
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, positions: IntArray) -> list[Payload]:
        """Payloads in the order asked for; one that does not match its CRC comes back as its error."""
        is_sorted = bool((np.diff(positions) > 0).all())
        wanted, where = (positions, None) if is_sorted else np.unique(positions, return_inverse=True)
        if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < len(self):
            raise IndexError(f"positions {wanted[0]}..{wanted[-1]} of a split of {len(self)} samples")
        shard_of = np.searchsorted(self._starts, wanted, side="right") - 1
        breaks = np.flatnonzero((np.diff(wanted) != 1) | (np.diff(shard_of) != 0)) + 1
        found: list[Payload] = []
        for first, last in zip([0, *breaks], [*breaks, len(wanted)], strict=True):
            if first < last:
                found += self._run(int(shard_of[first]), int(wanted[first]), int(last - first))
        return found if where is None else [found[i] for i in where]

    def check(self, number: int) -> None:
        """Raise DriftlineError unless the files of a shard are there in full length."""
        self._shard(number)

    def _run(self, number: int, first: int, count: int) -> list[Payload]:
        """Payloads of consecutive positions within one shard."""
        return self._shard(number).payloads(first - int(self._starts[number]), count, first)

    def _shard(self, number: int) -> _OpenShard:
        with self._lock:
            shard = self._open.get(number)
            if shard is not None:
                self._open.move_to_end(number)
                return shard
        name = f"{self._prefix}{shard_name(number)}"
        shard = _OpenShard(self._root, name, self._shards[number], keeps_index=self._keeps_indexes)
        with self._lock:
            self._open[number] = shard
            while len(self._open) > self._max_open:
                self._open.popitem(last=False)
        return shard


class _OpenShard:
    """The two files of a shard, opened and found to have the length they should."""

    def __init__(self, root: Root, name: str, info: ShardInfo, *, keeps_index: bool = False) -> None:
        self._name = f"{root.location}/{name}"
        self._data = self._opened(root, f"{name}.bin", info.data_bytes)
        self._index = self._opened(root, f"{name}.idx", HEADER.size + info.num_samples * RECORD.size)
        if _checked_count(self._index.read(0, HEADER.size), f"{self._name}.idx") != info.num_samples:
            raise _broken(
                f"{self._name}.idx", f"does not count the {info.num_samples} samples of stream.json"
            )
        self._num_samples = info.num_samples
        self._keeps_index = keeps_index
        self._kept: bytes | None = None

    def _opened(self, root: Root, name: str, size: int) -> ByteFile:
        try:
            file = root.open(name, size)
        except FileNotFoundError:
            raise _broken(f"{root.location}/{name}", "is missing") from None
        if file.size != size:
            what = "is shortened: it has" if file.size < size else "has"
            raise _broken(f"{root.location}/{name}", f"{what} {file.size} bytes, not {size}")
        return file

    def payloads(self, first: int, count: int, position: int) -> list[Payload]:
        """Payloads of `count` samples from the shard's sample `first` on, which is at `position` of the split."""
        records = self._records(first, count)
        if count == 1:
            return self._group(records, position)
        found: list[Payload] = []
        while len(found) < count:
            group = self._neighbours(records, len(found))
            found += self._group(records[len(found) : group], position + len(found))
        return found

    def _records(self, first: int, count: int) -> list[tuple[int, int, int]]:
        """Index records: from the file, or from the whole index, which is read once."""
        if not self._keeps_index:
            return list(RECORD.iter_unpack(self._read_index(first, count)))
        if self._kept is None:
            self._kept = self._read_index(0, self._num_samples)
        start = first * RECORD.size
        if count == 1:
            return [RECORD.unpack_from(self._kept, start)]
        return list(RECORD.iter_unpack(memoryview(self._kept)[start : start + count * RECORD.size]))

    def _read_index(self, first: int, count: int) -> bytes:
        raw = self._index.read(HEADER.size + first * RECORD.size, count * RECORD.size)
        if len(raw) != count * RECORD.size:
            raise _broken(f"{self._name}.idx", "was shortened while it was read")
        return raw

    def _neighbours(self, records: list[tuple[int, int, int]], start: int) -> int:
        """End of the group of records from `start` on whose payloads lie side by side, up to a size."""
        end, size = start + 1, records[start][1]
        while (
            end < len(records)
            and records[end][0] == records[end - 1][0] + records[end - 1][1]
            and size + records[end][1] <= MAX_READ_BYTES
        ):
            size += records[end][1]
            end += 1
        return end

    def _group(self, records: list[tuple[int, int, int]], position: int) -> list[Payload]:
        begin, end = records[0][0], records[-1][0] + records[-1][1]
        if begin < HEADER.size or end > self._data.size:
            return [
                self._alone(record, position + i) if len(records) > 1 else _damaged(position, "index")
                for i, record in enumerate(records)
            ]
        block = self._data.read(begin, end - begin)
        if len(block) != end - begin:
            raise _broken(f"{self._name}.bin", "was shortened while it was read")
        found: list[Payload] = []
        for i, (offset, length, crc32) in enumerate(records):
            payload = block if len(records) == 1 else block[offset - begin : offset - begin + length]
            if zlib.crc32(payload) == crc32:
                found.append(payload)
                continue
            payload = self._data.reread(offset, length)
            found.append(payload if zlib.crc32(payload) == crc32 else _damaged(position + i, "payload"))
        return found

    def _alone(self, record: tuple[int, int, int], position: int) -> Payload:
        return self._group([record], position)[0]


def _damaged(position: int, what: str) -> BadSampleError:
    return BadSampleError(position, f"its {what} is damaged in the store (CRC or range does not match)")
