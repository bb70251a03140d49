"""Streams by name: the embedded world, or a directory that `driftline build` made."""

from __future__ import annotations

from pathlib import Path

from driftline.streams.store import StoredStream
from driftline.streams.worlds.world import parse_world
from driftline.types import Stream


def open_stream(name: str | Path) -> Stream:
    """The stream called world[:LENGTH[:SEED]], or the one stored in a directory or at a URL (s3://, gs://, https://).

    >>> open_stream("world:2000").name
    'world:2000:0'
    """
    text = str(name)
    if text == "world" or text.startswith("world:"):
        return parse_world(text)
    return StoredStream(name)
