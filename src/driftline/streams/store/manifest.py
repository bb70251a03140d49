"""`stream.json`: what a stream directory says of itself, as a value that can be written and read back.

Flow: text of stream.json <-> Manifest. Anything missing, of the wrong type or of another version is refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from driftline.streams.store.shards import FORMAT_VERSION, ShardInfo
from driftline.types import ClassTable, DriftlineError

FORMAT = "driftline-stream"
Kind = Literal["jpeg", "raw", "none"]
Order = Literal["time", "given"]


@dataclass(frozen=True)
class ImageFormat:
    """How images are stored: JPEG, raw pixels (size x size x 3 bytes), or not yet at all."""

    kind: Kind
    size: int
    """Length of the short side, in pixels."""
    fixed: bool = False
    """True when every image is exactly size x size."""


@dataclass(frozen=True)
class SplitInfo:
    """Counts and checksums of one split."""

    num_samples: int
    first_time_s: int | None
    last_time_s: int | None
    digest: str
    """Hash of times, users, labels and places in order."""
    shards: tuple[ShardInfo, ...]


@dataclass(frozen=True)
class Manifest:
    """The content of stream.json."""

    name: str
    order: Order
    image: ImageFormat
    classes: ClassTable
    train: SplitInfo
    validation: SplitInfo
    how: dict[str, Any]
    """How the stream was built: free form, for people and for `inspect`."""

    def fingerprint(self) -> str:
        """Hash of all that can change a result; not of the name, nor of how it came about."""
        values = {k: v for k, v in to_dict(self).items() if k not in ("name", "how")}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def to_dict(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain JSON values."""
    classes = manifest.classes
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "name": manifest.name,
        "order": manifest.order,
        "image": asdict(manifest.image),
        "splits": {
            name: {
                "samples": split.num_samples,
                "first_time": split.first_time_s,
                "last_time": split.last_time_s,
                "digest": split.digest,
                "shards": [[s.num_samples, s.data_bytes, s.index_crc32] for s in split.shards],
            }
            for name, split in [("train", manifest.train), ("validation", manifest.validation)]
        },
        "how": manifest.how,
        "classes": {
            "names": list(classes.names),
            "lat": None if classes.lat is None else [float(x) for x in classes.lat],
            "lon": None if classes.lon is None else [float(x) for x in classes.lon],
            "cells": None if classes.cells is None else [f"{int(x):016x}" for x in classes.cells],
        },
    }


def from_text(text: str, source: str) -> Manifest:
    """The manifest in the text of a stream.json.

    >>> from_text("{", "x/stream.json")
    Traceback (most recent call last):
    driftline.types.DriftlineError: x/stream.json is damaged or cut short (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); restore it from a copy, or build the stream again
    """
    try:
        values = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _damaged(source, str(error)) from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise DriftlineError(
            f"{source} does not describe a stream; give a directory made by `driftline build`"
        )
    if values.get("version") != FORMAT_VERSION:
        raise DriftlineError(
            f"{source} has format version {values.get('version')!r}; this driftline reads version "
            f"{FORMAT_VERSION}: build the stream again, or use the driftline that made it"
        )
    try:
        manifest = _from_dict(values)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _damaged(source, f"{type(error).__name__}: {error}") from None
    if not len(manifest.classes):
        raise DriftlineError(
            f"{source} names no class; a stream needs labels: build it again with a label column"
        )
    return manifest


def _damaged(source: str, what: str) -> DriftlineError:
    return DriftlineError(
        f"{source} is damaged or cut short ({what}); restore it from a copy, or build the stream again"
    )


def _from_dict(values: dict[str, Any]) -> Manifest:
    image = values["image"]
    _need(image["kind"] in get_args(Kind), f"image kind {image['kind']!r}")
    _need(values["order"] in get_args(Order), f"order {values['order']!r}")
    return Manifest(
        name=str(values["name"]),
        order=values["order"],
        image=ImageFormat(image["kind"], _count(image["size"]), bool(image["fixed"])),
        classes=_classes(values["classes"]),
        train=_split(values["splits"]["train"]),
        validation=_split(values["splits"]["validation"]),
        how=dict(values["how"]),
    )


def _classes(values: dict[str, Any]) -> ClassTable:
    names = tuple(str(name) for name in values["names"])
    lat = None if values["lat"] is None else np.array(values["lat"], np.float64)
    lon = None if values["lon"] is None else np.array(values["lon"], np.float64)
    cells = None if values["cells"] is None else np.array([int(x, 16) for x in values["cells"]], np.uint64)
    for column in (lat, lon, cells):
        _need(column is None or column.shape == (len(names),), "columns of the classes differ in length")
    return ClassTable(names, lat, lon, cells)


def _split(values: dict[str, Any]) -> SplitInfo:
    shards = tuple(ShardInfo(_count(n), _count(size), _count(crc)) for n, size, crc in values["shards"])
    times = [values["first_time"], values["last_time"]]
    _need(all(t is None or isinstance(t, int) for t in times), f"times {times}")
    return SplitInfo(_count(values["samples"]), times[0], times[1], str(values["digest"]), shards)


def _count(value: object) -> int:
    _need(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63, f"count {value!r}")
    assert isinstance(value, int)
    return value


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
