"""A stream directory or address: opening one, and reading every record of one to check it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from driftline.streams.store.manifest import Manifest, from_text
from driftline.streams.store.remote import RemoteRoot, is_remote
from driftline.streams.store.roots import LocalRoot, Root
from driftline.streams.store.shards import HEADER, RECORD, shard_name
from driftline.streams.store.split import StoredSplit
from driftline.types import BadSampleError, DriftlineError

MAX_PROBLEMS = 100
"""So many problems `verify` describes; the others it counts."""


class StoredStream:
    """A stream directory, opened for reading; its files must be there in full, their content is checked when read."""

    def __init__(self, path: Path | str) -> None:
        root = self.root = open_root(path)
        self.manifest = read_manifest(root)
        self.path = root.location
        self.name = self.manifest.name
        self.fingerprint = self.manifest.fingerprint()
        self.classes = self.manifest.classes
        self.image_size = self.manifest.image.size
        self.fixed_size = self.manifest.image.fixed
        self.has_images = self.manifest.image.kind != "none"
        self._train = self._split(root, "", "train")
        self._validation = self._split(root, "validation/", "validation")

    def _split(self, root: Root, prefix: str, name: str) -> StoredSplit:
        info = self.manifest.train if name == "train" else self.manifest.validation
        ordered = self.manifest.order == "time"
        return StoredSplit(
            root, prefix, info, self.manifest.image, num_classes=len(self.classes), ordered=ordered
        )

    @property
    def train(self) -> StoredSplit:
        """What the learner tests itself on and learns from."""
        return self._train

    @property
    def validation(self) -> StoredSplit:
        """Never trained on; uniform over the whole time range."""
        return self._validation


def open_root(path: Path | str) -> Root:
    """The place a stream lies at: a directory, or a URL (https://, s3://, gs://, ...)."""
    return RemoteRoot(str(path)) if is_remote(str(path)) else LocalRoot(Path(path))


def read_manifest(root: Root) -> Manifest:
    """What a stream says of itself, without opening its files."""
    source = f"{root.location}/stream.json"
    try:
        content = root.manifest().decode()
    except (FileNotFoundError, NotADirectoryError):
        raise DriftlineError(
            f"{root.location} is no stream: it has no stream.json; give a directory made by `driftline build`"
            " (or run the build again if it was interrupted)"
        ) from None
    except UnicodeDecodeError:
        raise DriftlineError(
            f"{source} is damaged; restore it from a copy, or build the stream again"
        ) from None
    manifest = from_text(content, source)
    for split in (manifest.train, manifest.validation):
        first, last = split.first_time_s, split.last_time_s
        if manifest.order == "time" and first is not None and last is not None and first > last:
            raise DriftlineError(f"{source}: time runs from {first} back to {last}; build the stream again")
    return manifest


@dataclass
class VerifyReport:
    """What `verify` found. `problems` describes the first hundred of `num_problems`."""

    num_samples: int = 0
    num_problems: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True when every record is as it should be."""
        return self.num_problems == 0

    def add(self, problem: str) -> None:
        """Note one problem."""
        self.num_problems += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


def verify(path: Path | str, *, decode: bool = True, batch: int = 1024) -> VerifyReport:
    """Read every record of a stream: CRC, decodable image, order of time, labels, counts, checksums.

    A stream that cannot be opened at all raises DriftlineError, as opening it would.
    """
    stream = StoredStream(path)
    report = VerifyReport()
    for name, split in [("train", stream.train), ("validation", stream.validation)]:
        labels_come_with_images = stream.has_images and decode
        _verify_rows(stream, name, split, report, batch=batch, check_labels=not labels_come_with_images)
        if stream.has_images:
            _verify_images(name, split, report, batch=batch, decode=decode)
            _verify_indexes(stream, "" if name == "train" else "validation/", split, report)
        report.num_samples += len(split)
    return report


def _verify_rows(
    stream: StoredStream,
    name: str,
    split: StoredSplit,
    report: VerifyReport,
    *,
    batch: int,
    check_labels: bool,
) -> None:
    last_time: int | None = None
    for start in range(0, len(split), batch):
        stop = min(start + batch, len(split))
        try:
            rows = split.samples(start, stop)
        except DriftlineError as error:
            report.add(str(error))
            continue
        if not np.array_equal(rows.position, np.arange(start, stop)):
            report.add(f"{name}: the positions of samples.parquet from {start} on are not 0, 1, 2, ...")
        if stream.manifest.order == "time" and last_time is not None and rows.time[0] < last_time:
            report.add(f"{name}: time runs backwards at position {start}")
        if not np.array_equal(rows.label, split.labels(np.arange(start, stop))):
            report.add(f"{name}: labels.npy and samples.parquet differ between positions {start} and {stop}")
        outside = (rows.label < 0) | (rows.label >= len(stream.classes))
        for i in np.flatnonzero(outside & check_labels):
            report.add(
                f"{name}: sample {start + i}: label {rows.label[i]} is none of the {len(stream.classes)} classes"
            )
        last_time = int(rows.time[-1])


def _verify_images(name: str, split: StoredSplit, report: VerifyReport, *, batch: int, decode: bool) -> None:
    read = split.images if decode else split.payloads
    for start in range(0, len(split), batch):
        positions = np.arange(start, min(start + batch, len(split)))
        for found in read(positions):
            if isinstance(found, BadSampleError):
                report.add(f"{name}: {found}")


def _verify_indexes(stream: StoredStream, prefix: str, split: StoredSplit, report: VerifyReport) -> None:
    for number, expected in enumerate(split.info.shards):
        name = f"{prefix}{shard_name(number)}.idx"
        size = HEADER.size + expected.num_samples * RECORD.size
        if zlib.crc32(stream.root.open(name, size).read(0, size)) != expected.index_crc32:
            report.add(f"{stream.path}/{name} is not the index the stream was finished with")
