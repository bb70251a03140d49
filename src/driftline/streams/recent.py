"""Small images are kept for a while after they were read: replay asks for most of them again soon.

In: a split whose images all have one size. Out: the same images; those read last come from memory, up to a fixed amount of it,
without being read, checked, decoded or rendered anew.
"""

from __future__ import annotations

import threading

import numpy as np

from driftline.types import BadSampleError, ImageArray, Images, IntArray, LabelArray, Samples, Split

MAX_BYTES = 2**26
"""Memory for images: some 20,000 of 32 x 32 pixels."""


class RecentImages:
    """A split that remembers the images it has given; implements `types.Split`.

    A position has one place where its image may be kept, and takes it from the position that was there. For a buffer of the last
    samples that is all of them, if there is room for so many.

    >>> from driftline.streams.worlds.world import World
    >>> recent = RecentImages(World(2_000).train, size=32)
    >>> bool((recent.images(np.array([7, 3])) == recent.images(np.array([7, 3]))).all()), recent.num_read
    (True, 2)
    """

    def __init__(self, split: Split, size: int, max_bytes: int = MAX_BYTES) -> None:
        self._split = split
        self._shape = (size, size, 3)
        num_places = max(1, min(len(split), max_bytes // (size * size * 3)))
        self._planes = np.empty((num_places, 3, size, size), np.uint8)  # untouched pages take no memory
        """Colour by colour, as models want them; given out as all images are seen."""
        self._position = np.full(num_places, -1, np.int64)
        self._lock = threading.Lock()
        self.num_read = 0
        """Images that were not in memory."""

    def __len__(self) -> int:
        return len(self._split)

    def samples(self, start: int, stop: int) -> Samples:
        """Columns of the samples at positions start..stop-1."""
        return self._split.samples(start, stop)

    def labels(self, positions: IntArray) -> LabelArray:
        """Labels at arbitrary positions."""
        return self._split.labels(positions)

    def images(self, positions: IntArray) -> Images:
        """Images at arbitrary positions; a bad one comes as its error, each time anew."""
        places = positions % len(self._position)
        with self._lock:
            is_missing = self._position[places] != positions
            found = self._planes[places]
        missing = positions[is_missing]
        if not len(missing):
            return found.transpose(0, 2, 3, 1)
        read = self._split.images(missing)
        self.num_read += len(missing)
        if isinstance(read, np.ndarray):
            found[is_missing] = self._keep(missing, read)
            return found.transpose(0, 2, 3, 1)
        whole: list[ImageArray | BadSampleError] = list(found.transpose(0, 2, 3, 1))
        for i, image in zip(np.flatnonzero(is_missing).tolist(), read, strict=True):
            whole[i] = image
            if not isinstance(image, BadSampleError) and image.shape == self._shape:
                self._keep(positions[i : i + 1], image[None])
        return whole

    def _keep(self, positions: IntArray, images: ImageArray) -> ImageArray:
        """Remember images; gives them colour by colour."""
        planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        places = positions % len(self._position)
        with self._lock:
            self._planes[places] = planes
            self._position[places] = positions
        return planes
