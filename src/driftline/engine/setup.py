"""From settings to parts: what a run consists of, and the rules that can only be checked once the stream is open.

In: a RunConfig and the stream. Out: a plan, a learner, a fetcher. A run that cannot work is refused here, before it starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import torch

from driftline.config import RunConfig, amount
from driftline.engine.plan import OnlinePlan, Plan, ShuffledPlan
from driftline.learners.base import Learner
from driftline.learners.lanes import Lanes
from driftline.learners.replay import Arithmetic, ReplayLearner
from driftline.learners.schedules import SCHEDULES, RateSearch
from driftline.learners.team import Team
from driftline.models.build import build_model
from driftline.models.resnet import MODELS
from driftline.replay.adaptive import AdaptiveSize
from driftline.replay.buffers import BUFFERS
from driftline.streams.fetch import CENTRE_SHARE, Fetcher
from driftline.streams.recent import RecentImages
from driftline.types import DriftlineError, Split, Stream

CHUNK = 1 << 16
FETCH_BYTES, MAX_FETCH_STEPS = 1 << 22, 10
"""Small images are fetched in portions of about this size, of so many steps at most."""


@dataclass(frozen=True)
class Setup:
    """A run's settings applied to its stream: every share has become a number of samples or steps."""

    config: RunConfig
    stream: Stream
    team: Team = field(default_factory=Team.alone)

    def __post_init__(self) -> None:
        self._check()

    @property
    def num_samples(self) -> int:
        """Stream samples that the run goes through."""
        return min(len(self.stream.train), self.config.limit or len(self.stream.train))

    @property
    def image_size(self) -> int:
        """Side of the square the model sees."""
        if self.stream.fixed_size:
            return self.stream.image_size
        return self.config.image_size or round(self.stream.image_size * CENTRE_SHARE)

    def steps(self, text: str, name: str) -> int:
        """An interval given in samples, as a number of steps."""
        return max(1, round(amount(text, self.num_samples, name=name) / self.config.batch_size))

    def _check(self) -> None:
        config, num_classes = self.config, len(self.stream.classes)
        if num_classes < 2:
            raise DriftlineError(
                f"the stream {self.stream.name} has {num_classes} classes: a learner needs at least 2"
            )
        if config.batch_size > self.num_samples:
            raise DriftlineError(
                f"batch_size = {config.batch_size} is larger than the stream of {self.num_samples} samples: lower --batch-size"
            )
        if self.team.ranks.parts > config.batch_size:
            raise self.team.error(
                f"batch_size = {config.batch_size} cannot be divided over {self.team.ranks.parts} processes: start fewer, or raise "
                "--batch-size"
            )
        if config.schedule == "polrs" and amount(config.polrs_every, self.num_samples) > self.num_samples:
            raise DriftlineError(
                f"polrs_every = {config.polrs_every} is longer than the stream of {self.num_samples} samples: "
                "the search would never take effect; lower --polrs-every or give a share such as 1/18"
            )
        if config.adaptive_buffer and amount(config.adrep_every, self.num_samples) > self.num_samples:
            raise DriftlineError(
                f"adrep_every = {config.adrep_every} is longer than the stream of {self.num_samples} samples: "
                "the buffer would never adapt; lower --adrep-every or give a share such as 1/90"
            )
        if self.stream.fixed_size and config.image_size not in (None, self.stream.image_size):
            raise DriftlineError(
                f"image_size = {config.image_size}: the stream holds images of {self.stream.image_size} pixels, drop --image-size"
            )

    # -- parts

    def train_fetcher(self) -> Fetcher:
        """What turns positions of the stream into this process's part of each batch."""
        split: Split = self.stream.train
        if self.stream.fixed_size:
            split = RecentImages(split, self.image_size)
        whole = self.fetcher(split)
        return replace(whole, part=self.team.ranks.part, parts=self.team.ranks.parts)

    @property
    def steps_at_once(self) -> int:
        """Steps that are fetched together: several where a step's images are small."""
        if not self.stream.fixed_size:
            return 1
        num_images = round(self.config.batch_size * (1 + self.config.replay_ratio))
        return min(max(1, FETCH_BYTES // (num_images * 3 * self.image_size**2)), MAX_FETCH_STEPS)

    def fetcher(self, split: Split) -> Fetcher:
        """What turns positions of a split into batches."""
        config = self.config
        return Fetcher(
            split,
            self.stream.fixed_size,
            self.image_size,
            config.seed,
            config.crop_scale,
            len(self.stream.classes),
        )

    def adaptive(self) -> AdaptiveSize | None:
        """The rule that adapts the buffer's size, if asked for."""
        config = self.config
        if not config.adaptive_buffer:
            return None
        return AdaptiveSize(
            size=amount(config.buffer_size, self.num_samples),
            smallest=config.batch_size,
            every_steps=self.steps(config.adrep_every, "adrep_every"),
            epsilon=config.adrep_epsilon,
        )

    def plan(self) -> Plan:
        """Which positions each step uses."""
        if self.config.learner == "supervised":
            return self._shuffled_plan()
        config, train = self.config, self.stream.train
        capacity = amount(config.buffer_size, self.num_samples, name="buffer_size")
        buffer = BUFFERS[config.replay](capacity, len(self.stream.classes), config.seed)
        adaptive = self.adaptive()
        learns = config.learner != "none"  # who does not learn needs nothing to learn from
        return OnlinePlan(
            self.num_samples,
            batch_size=config.batch_size,
            gd_steps=config.gd_steps if learns else 0,
            replay_ratio=config.replay_ratio if learns else 0.0,
            seed=config.seed,
            buffer=buffer,
            labels=train.labels if config.replay == "ring" else None,
            decide_every=adaptive.every_steps if adaptive else None,
        )

    def _shuffled_plan(self) -> ShuffledPlan:
        config = self.config
        first, last = (0, self.num_samples)
        sample_of = None
        if config.train_years is not None:
            first, last = self._positions_of_years(config.train_years)
        num = last - first
        if config.train_samples is not None:
            sample_of, num = num, min(config.train_samples, num)
        if num < config.batch_size:
            raise DriftlineError(
                f"train_years = {config.train_years}, train_samples = {config.train_samples}: {num} samples to learn from, "
                f"fewer than a batch of {config.batch_size}"
            )
        return ShuffledPlan(
            first,
            num,
            sample_of=sample_of,
            batch_size=config.batch_size,
            gd_steps=config.gd_steps,
            epochs=config.epochs_baseline,
            seed=config.seed,
        )

    def _positions_of_years(self, years: str) -> tuple[int, int]:
        """The consecutive positions that were taken in these years."""
        parts = years.split(":")
        if not (1 <= len(parts) <= 2 and all(len(p) == 4 and p.isdigit() for p in parts)):
            raise DriftlineError(
                f"train_years = {years!r}: give a year (2010) or a first and a last one (2009:2011)"
            )
        start_s = int(np.datetime64(parts[0]).astype("datetime64[s]").astype(np.int64))
        stop_s = int((np.datetime64(parts[-1]) + 1).astype("datetime64[s]").astype(np.int64))
        return self._first_at(start_s), self._first_at(stop_s)

    def _first_at(self, time_s: int) -> int:
        """Bisection: the first position at or after a time."""
        low, high = 0, self.num_samples
        while low < high:
            middle = (low + high) // 2
            if int(self.stream.train.samples(middle, middle + 1).time[0]) < time_s:
                low = middle + 1
            else:
                high = middle
        return low

    def learner(self, num_steps: int) -> Learner:
        """The models and how they learn."""
        config = self.config
        rate = (
            RateSearch(
                config.scaled_lr,
                config.polrs_members,
                config.polrs_factor,
                self.steps(config.polrs_every, "polrs_every"),
            )
            if config.schedule == "polrs"
            else partial(_rate, config.schedule, config.scaled_lr, num_steps)
        )
        return ReplayLearner(
            partial(build_model, config.model, len(self.stream.classes), config.norm, config.seed),
            arithmetic=Arithmetic.choose(
                config.device if self.team.size == 1 else str(self.team.device), config.precision
            ),
            size=self.image_size,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            rate=rate,
            team=self.team if self.team.size > 1 else None,
            lanes=self.lanes,
        )

    @cached_property
    def lanes(self) -> Lanes:
        """Two for a population on a processor, if its models compute each image by itself and draw nothing."""
        config, num_threads = self.config, torch.get_num_threads()
        is_population = config.num_members > 1 and self.team.size == 1
        by_image = config.model in MODELS and config.norm == "group"
        device = Arithmetic.choose(config.device, config.precision).device.type
        pays = is_population and by_image and device == "cpu" and num_threads % 2 == 0
        return Lanes(num_threads if pays else None)


def _rate(schedule: str, lr: float, num_steps: int, step: int) -> float:
    return SCHEDULES[schedule](lr, step, num_steps)
