"""Streams on disk, from outside: open one, check one, write one.

`StoredStream(path)` opens what `driftline build` wrote and implements `types.Stream`; `verify` reads every record of it.
`ShardWriter` writes payloads, `finish_stream` all the rest.
"""

from driftline.streams.store.finish import finish_stream
from driftline.streams.store.manifest import ImageFormat
from driftline.streams.store.shards import ShardWriter
from driftline.streams.store.split import StoredSplit
from driftline.streams.store.stored import StoredStream, VerifyReport, verify

__all__ = [
    "ImageFormat",
    "ShardWriter",
    "StoredSplit",
    "StoredStream",
    "VerifyReport",
    "finish_stream",
    "verify",
]
