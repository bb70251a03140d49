"""From positions to tensors: reads and decodes the images of a planned step, ahead of need, in threads.

In: the positions that a step tests, trains on and replays. Out: uint8 batches with their labels. Each image is decoded once a
step, whoever uses it. A sample that cannot be decoded is left out of every batch and reported; the rest goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from driftline.streams.views import Crops, centre_box, crop_one, random_crops
from driftline.types import (
    BadSampleError,
    BoolArray,
    DriftlineError,
    ImageArray,
    Images,
    IntArray,
    LabelArray,
    Samples,
    Split,
)

CENTRE_SHARE = 7 / 8
"""Part of the short side that the test view of a large image shows (224 of 256)."""
HANG_SECONDS = 600.0
"""A fetch that takes longer than this hangs: the storage does not answer."""
CLOSE_SECONDS = 5.0
"""So long a closing pipeline waits for the reads under way."""


def share(num: int, part: int, parts: int) -> slice:
    """The consecutive share of so many items that belongs to one of `parts` parts; sizes differ by one at most.

    >>> [share(7, part, 3) for part in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    return slice(num * part // parts, num * (part + 1) // parts)


@dataclass(frozen=True)
class FetchRequest:
    """Positions of one step. Stream samples are tested and trained on, replay samples only trained on."""

    step: int
    stream: IntArray
    replay: IntArray
    gd_steps: int
    test: bool = True
    buffer_size: int = 0
    """Size of the replay buffer when the step was planned."""


@dataclass(frozen=True)
class TrainView:
    """What one gradient step sees: images, and the crops still to be made of them on the device (or None)."""

    images: Tensor
    crops: Crops | None


@dataclass(frozen=True)
class Fetched:
    """One step's data: stream samples first, then replayed ones, bad ones left out."""

    request: FetchRequest
    samples: Samples | None
    """Columns of the stream samples, where they are tested."""
    num_stream: int
    labels: Tensor
    test_images: Tensor | None
    train: tuple[TrainView, ...]
    bad: tuple[BadSampleError, ...] = field(default=())
    whole: Samples | None = None
    """Where only a part was fetched: columns of all stream samples of the request, usable or not."""


@dataclass(frozen=True)
class Fetcher:
    """How the images of one split become views of `size` x `size` pixels."""

    split: Split
    fixed_size: bool
    size: int
    seed: int
    crop_scale: float
    num_classes: int
    part: int = 0
    parts: int = 1
    """Fetch one share of each request; other processes fetch the others."""

    def fetch(self, request: FetchRequest) -> Fetched:
        """The step's data; the same whichever thread runs it."""
        if self.parts > 1:
            return self._fetch_part(request)
        return self._fetch(request)

    def _fetch_part(self, request: FetchRequest) -> Fetched:
        mine = replace(
            request,
            stream=request.stream[share(len(request.stream), self.part, self.parts)],
            replay=request.replay[share(len(request.replay), self.part, self.parts)],
        )
        whole = self._samples(request, np.ones(len(request.stream), bool)) if request.test else None
        return replace(self._fetch(mine), request=request, whole=whole)

    def _fetch(self, request: FetchRequest) -> Fetched:
        positions = np.concatenate([request.stream, request.replay])
        unique, back = np.unique(positions, return_inverse=True)
        found = self.split.images(unique)
        labels = self.split.labels(unique)
        images, bad = self._sort_out(unique, found, labels)
        usable = (
            np.array([i not in bad for i in range(len(unique))])[back] if bad else np.ones(len(back), bool)
        )
        positions, back = positions[usable], back[usable]
        num_stream = int(usable[: len(request.stream)].sum())
        if self.fixed_size:
            test, train = self._equal_views(request, positions, images[back], num_stream)
        else:
            test, train = self._unequal_views(request, positions, [images[i] for i in back], num_stream)
        return Fetched(
            request,
            self._samples(request, usable) if request.test else None,
            num_stream,
            torch.from_numpy(labels[back].astype(np.int64)),
            test if request.test else None,
            train,
            tuple(bad.values()),
        )

    def _samples(self, request: FetchRequest, usable: BoolArray) -> Samples:
        """Columns of the usable stream samples (stream positions of a tested step are consecutive)."""
        if not len(request.stream):
            return self.split.samples(0, 0)
        columns = self.split.samples(int(request.stream[0]), int(request.stream[-1]) + 1)
        return columns.take(usable[: len(request.stream)]) if not usable.all() else columns

    def _sort_out(
        self, positions: IntArray, found: Images, labels: LabelArray
    ) -> tuple[ImageArray | list[ImageArray], dict[int, BadSampleError]]:
        """The images, and the bad samples among them by index."""
        bad: dict[int, BadSampleError] = {}
        for i in np.flatnonzero((labels < 0) | (labels >= self.num_classes)).tolist():
            reason = f"label {labels[i]} is not one of the {self.num_classes} classes"
            bad[i] = BadSampleError(int(positions[i]), reason)
        if isinstance(found, np.ndarray):
            return found, bad
        for i, image in enumerate(found):
            if isinstance(image, BadSampleError):
                bad[i] = image
            elif self.fixed_size and image.shape != (self.size, self.size, 3):
                shape = " x ".join(map(str, image.shape))
                bad[i] = BadSampleError(
                    int(positions[i]), f"image of {shape}, not {self.size} x {self.size} x 3"
                )
        blank = np.zeros((self.size, self.size, 3), np.uint8)
        images = [
            blank if isinstance(image, BadSampleError) or i in bad else image for i, image in enumerate(found)
        ]
        return np.stack(images) if self.fixed_size else images, bad

    def _equal_views(
        self, request: FetchRequest, positions: IntArray, images: ImageArray, num_stream: int
    ) -> tuple[Tensor, tuple[TrainView, ...]]:
        """Small images of one size are cut by the learner, all at once, on its device."""
        tensor = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
        aspect = np.ones(len(positions))
        views = tuple(
            TrainView(tensor, self._crops(request, g, positions, aspect)) for g in range(request.gd_steps)
        )
        return tensor[:num_stream], views

    def _unequal_views(
        self, request: FetchRequest, positions: IntArray, images: list[ImageArray], num_stream: int
    ) -> tuple[Tensor, tuple[TrainView, ...]]:
        """Large images are cut here, in the thread that decoded them."""
        test = np.empty((num_stream if request.test else 0, self.size, self.size, 3), np.uint8)
        for i in range(len(test)):
            box = centre_box(images[i].shape[0], images[i].shape[1], CENTRE_SHARE)
            test[i] = crop_one(images[i], box, False, self.size)
        aspect = np.array([image.shape[1] / image.shape[0] for image in images])
        views = []
        for g in range(request.gd_steps):
            crops = self._crops(request, g, positions, aspect)
            cut = np.empty((len(images), self.size, self.size, 3), np.uint8)
            for i, image in enumerate(images):
                cut[i] = crop_one(image, crops.boxes[i], bool(crops.flips[i]), self.size)
            views.append(TrainView(torch.from_numpy(cut).permute(0, 3, 1, 2), None))
        return torch.from_numpy(test).permute(0, 3, 1, 2), tuple(views)

    def _crops(self, request: FetchRequest, gd_step: int, positions: IntArray, aspect: np.ndarray) -> Crops:
        return random_crops(self.seed, request.step, gd_step, positions, aspect, self.crop_scale)


def _nothing_more(request: FetchRequest) -> Fetched:
    raise AssertionError(f"step {request.step} is asked for after the last one")


class Pipeline:
    """Keeps threads busy with the next steps; results come out in order.

    `plan` gives the next request, or None when it cannot say yet (a decision is pending) or the stream has ended.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        plan: Callable[[], FetchRequest | None],
        workers: int,
        *,
        hang_seconds: float | None = None,
    ) -> None:
        self._fetch = fetcher.fetch
        self._plan = plan
        self._workers = workers
        self._hang_seconds = HANG_SECONDS if hang_seconds is None else hang_seconds
        self._jobs: SimpleQueue[tuple[FetchRequest, Future[Fetched]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._pending: list[tuple[FetchRequest, Future[Fetched]]] = []
        self._hangs = False
        self._is_full = False

    def next(self) -> Fetched | None:
        """The next step's data, or None at the end."""
        if not self._is_full or not self._pending:
            self.top_up()
        self._is_full = False
        if not self._pending:
            return None
        request, future = self._pending.pop(0)
        try:
            return future.result(timeout=self._hang_seconds)
        except TimeoutError:
            self._hangs = True
            raise DriftlineError(
                f"step {request.step}: reading the images took more than {self._hang_seconds:g} s, the stream's storage does "
                "not answer; nothing is lost, resume the run when it does"
            ) from None
        except (OSError, MemoryError) as error:
            raise DriftlineError(
                f"step {request.step}: the images could not be read ({type(error).__name__}: {error}); nothing is lost, resume "
                "the run when that is mended"
            ) from error

    def top_up(self) -> None:
        """Plan as far ahead as is useful. `next` does it, unless it was done since: while a model learns is a better time."""
        self._is_full = True
        while len(self._pending) < self._workers + 2 and (request := self._plan()) is not None:
            job = (request, Future[Fetched]())
            self._pending.append(job)
            self._jobs.put(job)
        if self._pending and not self._threads:
            self._start()

    def _start(self) -> None:
        # Daemons: a thread that hangs in a read must not keep the process from ending.
        self._threads = [
            threading.Thread(target=self._work, name=f"fetch-{i}", daemon=True) for i in range(self._workers)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            request, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._fetch(request))
            except BaseException as error:  # handed to the thread that waits for it
                future.set_exception(error)

    def pending(self) -> list[FetchRequest]:
        """What has been planned and not yet handed out; a resumed run starts with these."""
        return [request for request, _ in self._pending]

    def close(self) -> None:
        """Stop the threads; what they were doing is of no more use."""
        for _, future in self._pending:
            future.cancel()
        for _ in self._threads:
            self._jobs.put(None)
        until = time.monotonic() + (0 if self._hangs else CLOSE_SECONDS)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._threads = []

    def forget(self) -> None:
        """After the last batch: let go of the fetcher and the images it keeps."""
        self.close()
        self._fetch = _nothing_more
