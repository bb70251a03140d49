"""One split of a stored stream: columns, labels and images by position.

Flow: positions -> `Samples`, labels, decoded images. Implements `types.Split`. Memory does not grow with the
length: columns come row group by row group, labels are mapped, payloads are read as asked for.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.streams.store.decode import decode
from driftline.streams.store.manifest import ImageFormat, SplitInfo
from driftline.streams.store.roots import Root
from driftline.streams.store.rows import RowReader
from driftline.streams.store.shards import Payload, ShardReader
from driftline.streams.store.untrusted import load_array
from driftline.types import BadSampleError, DriftlineError, ImageArray, Images, IntArray, LabelArray, Samples

T = TypeVar("T", bound=np.generic)

COLUMNS = ["position", "time", "user", "label", "lat", "lon"]


class StoredSplit:
    """The training or validation part of a stream on disk."""

    def __init__(
        self, root: Root, prefix: str, info: SplitInfo, image: ImageFormat, *, num_classes: int, ordered: bool
    ) -> None:
        self.info = info
        self._image = image
        self._num_classes = num_classes
        self._ordered = ordered
        self._location = f"{root.location}/{prefix}"
        self._rows = RowReader(root.local(f"{prefix}samples.parquet"), COLUMNS)
        self._labels = _mapped_labels(root, f"{prefix}labels.npy")
        self.shards = ShardReader(root, prefix, info.shards)
        self._check_counts(root)

    def _check_counts(self, root: Root) -> None:
        found = {"samples.parquet": len(self._rows), "labels.npy": len(self._labels)}
        if self._image.kind != "none":
            found["the shards listed in stream.json"] = len(self.shards)
        for what, count in found.items():
            if count != self.info.num_samples:
                raise DriftlineError(
                    f"{self._location}: stream.json counts {self.info.num_samples} samples, but there are {count} in "
                    f"{what}; restore the directory from a copy, or build the stream again"
                )
        if root.is_local:
            for number in range(len(self.info.shards)):
                self.shards.check(number)

    def __len__(self) -> int:
        return self.info.num_samples

    def samples(self, start: int, stop: int) -> Samples:
        """Columns of the samples at positions start..stop-1."""
        table = self._rows.read(start, stop)
        time = _column(table, "time", np.int64)
        if self._ordered and len(time) > 1 and (np.diff(time) < 0).any():
            where = start + int(np.flatnonzero(np.diff(time) < 0)[0]) + 1
            raise DriftlineError(
                f"{self._location}: time runs backwards at position {where}; a stream must be in order of time: "
                "build it again (or with --order given)"
            )
        return Samples(
            position=_column(table, "position", np.int64),
            time=time,
            user=_column(table, "user", np.int64),
            label=_column(table, "label", np.int32),
            lat=_column(table, "lat", np.float64),
            lon=_column(table, "lon", np.float64),
        )

    def labels(self, positions: IntArray) -> LabelArray:
        """Labels at arbitrary positions."""
        return np.asarray(self._labels[positions])

    def payloads(self, positions: IntArray) -> list[Payload]:
        """Stored bytes at arbitrary positions; a damaged one comes back as its error."""
        if self._image.kind == "none":
            raise DriftlineError(
                f"{self._location} holds no images yet: run `driftline fetch` on the stream, or build it with --images"
            )
        return self.shards.read(positions)

    def images(self, positions: IntArray) -> Images:
        """Decoded images at arbitrary positions; a bad sample (image or label) is returned as its error."""
        labels = self.labels(positions)
        payloads = self.payloads(positions)
        if self._image.kind == "raw" and ((labels >= 0) & (labels < self._num_classes)).all():
            whole = self._together(payloads)
            if whole is not None:
                return whole
        return [
            self._checked(payload, position, label)
            for payload, position, label in zip(payloads, positions.tolist(), labels.tolist(), strict=True)
        ]

    def _together(self, payloads: list[Payload]) -> ImageArray | None:
        """Raw images as one array; None when one of them is bad."""
        size = self._image.size
        good = [payload for payload in payloads if isinstance(payload, bytes)]
        if len(good) < len(payloads) or any(len(payload) != size * size * 3 for payload in good):
            return None
        return np.frombuffer(bytearray().join(good), np.uint8).reshape(-1, size, size, 3)

    def _checked(self, payload: Payload, position: int, label: int) -> ImageArray | BadSampleError:
        if isinstance(payload, BadSampleError):
            return payload
        if not 0 <= label < self._num_classes:
            return BadSampleError(position, f"label {label} is none of the {self._num_classes} classes")
        size = self._image.size
        if self._image.kind == "raw":
            if len(payload) != size * size * 3:
                return BadSampleError(position, f"{len(payload)} bytes are not {size} x {size} x 3 pixels")
            return np.frombuffer(bytearray(payload), np.uint8).reshape(size, size, 3)
        try:
            image = decode(payload, position=position)
        except BadSampleError as error:
            return error
        if self._image.fixed and image.shape[:2] != (size, size):
            return BadSampleError(
                position, f"is {image.shape[1]} x {image.shape[0]} pixels, not {size} x {size}"
            )
        return image


def _mapped_labels(root: Root, name: str) -> LabelArray:
    path = root.local(name)
    try:
        labels = load_array(path)
    except DriftlineError as error:
        raise DriftlineError(f"{error}: it is damaged; restore it from a copy, or build again") from None
    if labels.dtype != np.int32 or labels.ndim != 1:
        raise DriftlineError(
            f"{path} holds {labels.dtype} of shape {labels.shape}, not a list of int32 labels"
        )
    return labels


def _column(table: pa.Table, name: str, dtype: type[T]) -> NDArray[T]:
    return np.asarray(table.column(name).to_numpy(), dtype=dtype)
