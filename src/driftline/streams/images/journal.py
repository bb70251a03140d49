"""What an unfinished shard has got so far, kept in a file so that a killed download loses only what was under way.

Flow: outcomes for the rows of a shard, in order -> one record each, appended as they come -> the same outcomes again
after a restart. A record that was not written to its end is recognised by its checksum, and the file is cut back there.
"""

from __future__ import annotations

import fcntl
import struct
import zlib
from collections.abc import Callable, Iterator
from io import SEEK_END, BufferedRandom
from pathlib import Path

from driftline.streams.images.sources import Missing

_HEADER = struct.Struct("<IIB")
"""CRC32 of the rest, length of the content, what it is."""
_PAYLOAD, _FINAL, _PASSING = 0, 1, 2

Outcome = bytes | Missing


def journalled(path: Path, rest: Callable[[int], Iterator[Outcome]]) -> Iterator[Outcome]:
    """The outcomes in a journal, then those of `rest(number in the journal)`, which are added to it as they come."""
    with path.open("a+b") as file:
        # A worker that outlives its parent for a moment may still be writing; two must never write at once.
        fcntl.flock(file, fcntl.LOCK_EX)
        end = number = 0
        for outcome, place in _recorded(file):
            end, number = place, number + 1
            yield outcome
        file.truncate(end)
        for outcome in rest(number):
            file.write(_record(outcome))
            file.flush()
            yield outcome


def _record(outcome: Outcome) -> bytes:
    if isinstance(outcome, Missing):
        kind, content = (_PASSING if outcome.passing else _FINAL), outcome.reason.encode()
    else:
        kind, content = _PAYLOAD, outcome
    checksum = zlib.crc32(content, len(content) * 4 + kind)
    return _HEADER.pack(checksum, len(content), kind) + content


def _recorded(file: BufferedRandom) -> Iterator[tuple[Outcome, int]]:
    """The whole records of a journal, each with the place where it ends."""
    size = file.seek(0, SEEK_END)
    file.seek(0)
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        checksum, length, kind = _HEADER.unpack(header)
        if length > size - file.tell() or kind > _PASSING:
            return
        content = file.read(length)
        if zlib.crc32(content, length * 4 + kind) != checksum:
            return
        outcome = content if kind == _PAYLOAD else Missing(content.decode(), kind == _PASSING)
        yield outcome, file.tell()
