"""The values that pass between the parts: errors, samples, and the row formats of the logs.

Nothing here computes; every other module may import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
"""Positions, times (unix seconds) and users."""
LabelArray = NDArray[np.int32]
"""Class numbers; -1 means "no class" or "no prediction"."""
FloatArray = NDArray[np.float64]
ImageArray = NDArray[np.uint8]
"""One image, height x width x 3, or a batch of equal ones, n x height x width x 3."""
BoolArray = NDArray[np.bool_]

TOP = 5
"""How many classes of each prediction are logged."""


class DriftlineError(ValueError):
    """Something a user can put right; the message names the value and the fix.

    The command line prints it as one line and exits with code 2, without a traceback.
    """


class BadSampleError(DriftlineError):
    """One sample cannot be used; it is set aside with this reason and the run goes on.

    >>> BadSampleError(7, "undecodable").position
    7
    """

    def __init__(self, position: int, reason: str) -> None:
        self.position = position
        self.reason = reason
        super().__init__(f"sample {position}: {reason}")


class ToldElsewhereError(DriftlineError):
    """Another process of the same run says what is wrong; this one only ends."""


Images = ImageArray | list[ImageArray | BadSampleError]
"""A batch of equal images in one array, or a list in which a bad sample is represented by its error."""


@dataclass(frozen=True)
class Samples:
    """Columns of some samples, one entry a sample. Places are NaN where unknown."""

    position: IntArray
    time: IntArray
    user: IntArray
    label: LabelArray
    lat: FloatArray
    lon: FloatArray

    def __len__(self) -> int:
        return len(self.position)

    def take(self, rows: BoolArray | slice) -> Samples:
        """The samples of a range, or where a mask is True."""
        return Samples(*(column[rows] for column in vars(self).values()))


@dataclass(frozen=True)
class ClassTable:
    """What the class numbers mean: a name each and, where classes are places, cell and centre."""

    names: tuple[str, ...]
    lat: FloatArray | None = None
    lon: FloatArray | None = None
    cells: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.names)


class Split(Protocol):
    """One time-ordered sequence of samples, addressed by position."""

    def __len__(self) -> int: ...

    def samples(self, start: int, stop: int) -> Samples:
        """Columns of the samples at positions start..stop-1."""
        ...

    def labels(self, positions: IntArray) -> LabelArray:
        """Labels at arbitrary positions."""
        ...

    def images(self, positions: IntArray) -> Images:
        """Decoded images at arbitrary positions."""
        ...


class Stream(Protocol):
    """A stream to learn from, with the validation set that belongs to it."""

    @property
    def name(self) -> str:
        """How people call it."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when anything changes that can change a result."""
        ...

    @property
    def classes(self) -> ClassTable:
        """What the labels mean."""
        ...

    @property
    def image_size(self) -> int:
        """Length of the short side of the images, in pixels."""
        ...

    @property
    def fixed_size(self) -> bool:
        """True when every image is exactly image_size x image_size."""
        ...

    @property
    def train(self) -> Split:
        """What the learner tests itself on and learns from."""
        ...

    @property
    def validation(self) -> Split:
        """Never trained on; uniform over the whole time range."""
        ...


PREDICTION = np.dtype(
    [
        ("position", "<i8"),
        ("time", "<i8"),
        ("user", "<i8"),
        ("label", "<i4"),
        ("pred", "<i4"),
        ("top5", "<i4", (TOP,)),
        ("prob", "<f4"),
        ("loglik", "<f4"),
        ("member", "<i1"),
        ("step", "<i8"),
        ("scored", "?"),
    ]
)
"""One row of the prediction log, as it is appended while a run goes on."""


def curve_dtype(num_members: int) -> np.dtype[np.void]:
    """Row format of the curves of a run with so many members.

    >>> curve_dtype(3).names[-2:]
    ('metric_1', 'metric_2')
    """
    columns = [
        ("step", "<i8"),
        ("position", "<i8"),
        ("time", "<i8"),
        ("loss", "<f4"),
        ("lr", "<f8"),
        ("buffer_size", "<i8"),
        ("acc_stream", "<f4"),
        ("acc_replay", "<f4"),
        ("member", "<i1"),
    ]
    columns += [(f"lr_{j}", "<f8") for j in range(num_members)]
    columns += [(f"metric_{j}", "<f4") for j in range(num_members)]
    return np.dtype(columns)
