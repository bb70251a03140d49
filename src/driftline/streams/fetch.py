"""From positions to tensors: reads and decodes the images of a planned step, ahead of need, in threads.

In: the positions that a step tests, trains on and replays. Out: uint8 batches with their labels. Each image is decoded once a
step, whoever uses it. A sample that cannot be decoded is left out of every batch and reported; the rest goes on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import islice
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from driftline.streams.views import Crops, centre_box, crop_one, random_crops
from driftline.types import (
    BadSampleError,
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


Views = tuple[Tensor, tuple["TrainView", ...]]
"""What a step is tested on, and what each of its gradient steps sees."""
Job = tuple["FetchRequest", "Future[Fetched]"]


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
        """One step's data; the same whichever thread runs it."""
        return self.fetch_all([request])[0]

    def fetch_all(self, requests: Sequence[FetchRequest]) -> list[Fetched]:
        """The data of several steps, the same as step by step; small images cost less to look up together."""
        shares = [self._share(request) for request in requests]
        positions = np.concatenate([part for mine in shares for part in (mine.stream, mine.replay)])
        unique, back = np.unique(positions, return_inverse=True)
        found = self.split.images(unique)
        labels = self.split.labels(unique)
        images, bad = self._sort_out(unique, found, labels)
        if isinstance(images, np.ndarray):
            views = self._equal_views(shares, positions, images, back)
        else:
            views = self._unequal_views(shares, positions, [images[i] for i in back])
        labels_of_rows = torch.from_numpy(labels[back].astype(np.int64))
        samples = self._samples(requests)
        fetched, stop = [], 0
        for request, mine, whole, (test, train) in zip(requests, shares, samples, views, strict=True):
            start, stop = stop, stop + len(mine.stream) + len(mine.replay)
            here = whole
            if whole is not None and self.parts > 1:
                here = whole.take(share(len(request.stream), self.part, self.parts))
            one = Fetched(
                request,
                here,
                len(mine.stream),
                labels_of_rows[start:stop],
                test if request.test else None,
                train,
            )
            if self.parts > 1:
                one = replace(one, whole=whole)
            if bad:
                one = _without(
                    one, {i: bad[i] for i in back[start:stop].tolist() if i in bad}, back[start:stop]
                )
            fetched.append(one)
        return fetched

    def _share(self, request: FetchRequest) -> FetchRequest:
        """What this process fetches of a request."""
        if self.parts == 1:
            return request
        stream = request.stream[share(len(request.stream), self.part, self.parts)]
        replay = request.replay[share(len(request.replay), self.part, self.parts)]
        return replace(request, stream=stream, replay=replay)

    def _samples(self, requests: Sequence[FetchRequest]) -> Iterator[Samples | None]:
        """Columns of each step's stream samples, where they are tested; their positions are consecutive."""
        tested = [request.stream for request in requests if request.test and len(request.stream)]
        first, stop = (int(tested[0][0]), int(tested[-1][-1]) + 1) if tested else (0, 0)
        follow_on = sum(map(len, tested)) == stop - first
        together = self.split.samples(first, stop) if follow_on else None
        for request in requests:
            if not request.test:
                yield None
                continue
            start = int(request.stream[0]) if len(request.stream) else first
            if together is not None:
                yield together.take(slice(start - first, start - first + len(request.stream)))
            else:
                yield self.split.samples(start, start + len(request.stream))

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
        self, requests: Sequence[FetchRequest], positions: IntArray, images: ImageArray, back: IntArray
    ) -> Iterator[Views]:
        """Small images of one size are cut by the learner, all at once, on its device."""
        planes = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))[back])
        num_rows = [len(request.stream) + len(request.replay) for request in requests]
        steps = np.repeat([request.step for request in requests], num_rows)
        num_views = max((request.gd_steps for request in requests), default=0)
        crops = [self._crops(steps, g, positions, np.ones(len(positions))) for g in range(num_views)]
        stop = 0
        for request, num in zip(requests, num_rows, strict=True):
            rows = slice(stop, stop := stop + num)
            views = tuple(TrainView(planes[rows], crops[g][rows]) for g in range(request.gd_steps))
            yield planes[rows][: len(request.stream)], views

    def _unequal_views(
        self, requests: Sequence[FetchRequest], positions: IntArray, images: list[ImageArray]
    ) -> Iterator[Views]:
        """Large images are cut here, in the thread that decoded them."""
        stop = 0
        for request in requests:
            start, stop = stop, stop + len(request.stream) + len(request.replay)
            of_step = images[start:stop]
            test = np.empty((len(request.stream) if request.test else 0, self.size, self.size, 3), np.uint8)
            for i in range(len(test)):
                box = centre_box(of_step[i].shape[0], of_step[i].shape[1], CENTRE_SHARE)
                test[i] = crop_one(of_step[i], box, False, self.size)
            aspect = np.array([image.shape[1] / image.shape[0] for image in of_step])
            views = []
            for g in range(request.gd_steps):
                crops = self._crops(request.step, g, positions[start:stop], aspect)
                cut = np.empty((len(of_step), self.size, self.size, 3), np.uint8)
                for i, image in enumerate(of_step):
                    cut[i] = crop_one(image, crops.boxes[i], bool(crops.flips[i]), self.size)
                views.append(TrainView(torch.from_numpy(cut).permute(0, 3, 1, 2), None))
            yield torch.from_numpy(test).permute(0, 3, 1, 2), tuple(views)

    def _crops(self, steps: int | IntArray, gd_step: int, positions: IntArray, aspect: np.ndarray) -> Crops:
        return random_crops(self.seed, steps, gd_step, positions, aspect, self.crop_scale)


def _without(fetched: Fetched, bad: dict[int, BadSampleError], indices: IntArray) -> Fetched:
    """A step without its bad samples, which are given by the index of their image; `indices` has that of each row."""
    is_good = ~np.isin(indices, list(bad))
    rows = torch.from_numpy(np.flatnonzero(is_good))
    of_stream = is_good[: fetched.num_stream]
    views = tuple(
        TrainView(view.images[rows], None if view.crops is None else view.crops[rows.numpy()])
        for view in fetched.train
    )
    return replace(
        fetched,
        samples=None if fetched.samples is None else fetched.samples.take(of_stream),
        num_stream=int(of_stream.sum()),
        labels=fetched.labels[rows],
        test_images=None if fetched.test_images is None else fetched.test_images[torch.from_numpy(of_stream)],
        train=views,
        bad=tuple(bad.values()),
    )


def _nothing_more(requests: Sequence[FetchRequest]) -> list[Fetched]:
    raise AssertionError(f"step {requests[0].step} is asked for after the last one")


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
        steps_at_once: int = 1,
        hang_seconds: float | None = None,
    ) -> None:
        self._fetch = fetcher.fetch_all
        self._plan = plan
        self._workers = workers
        self._hang_seconds = HANG_SECONDS if hang_seconds is None else hang_seconds
        self._steps_at_once = steps_at_once
        self._jobs: SimpleQueue[list[Job]] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._pending: deque[Job] = deque()
        self._hangs = False
        self._is_full = False

    def next(self) -> Fetched | None:
        """The next step's data, or None at the end."""
        if not self._is_full or not self._pending:
            self.top_up()
        self._is_full = False
        fetched = self.peek()
        if fetched is not None:
            self._pending.popleft()
        return fetched

    def peek(self) -> Fetched | None:
        """The next step's data if the step is planned already; it stays the next one."""
        if not self._pending:
            return None
        request, future = self._pending[0]
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
        left = max(1, self._workers // 2) * self._steps_at_once
        if len(self._pending) > left:
            return  # All workers at once: one alone would hold up one core, and with it all that share the arithmetic.
        while len(self._pending) <= left + (self._workers - 1) * self._steps_at_once:
            planned = islice(iter(self._plan, None), self._steps_at_once)
            jobs = [(request, Future[Fetched]()) for request in planned]
            if not jobs:
                break
            self._pending.extend(jobs)
            self._jobs.put(jobs)
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
        while jobs := self._jobs.get():
            wanted = [job for job in jobs if job[1].set_running_or_notify_cancel()]
            try:
                found = self._fetch([request for request, _ in wanted]) if wanted else []
            except BaseException:
                found = []  # each step by itself, to tell which one cannot be had
            for i, (request, future) in enumerate(wanted):
                try:
                    future.set_result(found[i] if found else self._fetch([request])[0])
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
            self._jobs.put([])
        until = time.monotonic() + (0 if self._hangs else CLOSE_SECONDS)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._threads = []

    def forget(self) -> None:
        """After the last batch: let go of the fetcher and the images it keeps."""
        self.close()
        self._fetch = _nothing_more
