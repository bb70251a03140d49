"""What a recipe is applied to: a stream, a scale, a seed. It turns the few words of a recipe into whole run settings.

`quick` fits a short stream and two processor cores: a small network, intervals and buffers as shares of the stream. `full` is
the paper's: ResNet50, 224-pixel crops, intervals and buffers in samples of CLOC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from driftline.config import RunConfig
from driftline.types import Stream

ScaleName = Literal["quick", "full"]
StudyScoring = Literal["album", "sample", "window"]
"""album and sample as everywhere; window: the first samples after each test point, see `blocks`."""

SMALL_SHARE = 0.001
"""The paper's smallest buffer, 40 K of 39 M."""
BATCH_SIZES = (64, 128, 256)
BEST_BATCH = 64
POPULATION = 3
GD_STEPS = (1, 5)
EPOCHS = (1, 5)


@dataclass(frozen=True)
class Scale:
    """The settings that all runs of a scale share."""

    name: ScaleName
    online: Mapping[str, Any]
    offline: Mapping[str, Any]
    """Settings of supervised runs."""
    offline_batch_lr: float
    """Rate (at B = 256) of the supervised runs that compare batch sizes."""
    small_buffer: str | None
    """None: `SMALL_SHARE` of the stream, but at least a batch."""
    middle_buffer: str
    large_buffer: str
    scoring: StudyScoring
    """Scoring of figures whose runs all have one batch size."""
    batch_scoring: StudyScoring
    """Scoring of figures that compare batch sizes."""
    shift_epochs: int
    fewest_samples: int = 0
    """Streams with fewer are refused."""


_TINY = {"model": "resnet-tiny", "crop_scale": 0.5}

QUICK = Scale(
    name="quick",
    online=MappingProxyType(_TINY | {"batch_size": 64, "lr": 0.8}),
    offline=MappingProxyType(_TINY | {"learner": "supervised", "batch_size": 64, "lr": 0.8}),
    offline_batch_lr=0.8,
    small_buffer=None,
    middle_buffer="10%",
    large_buffer="100%",
    scoring="sample",
    batch_scoring="window",
    shift_epochs=5,
)
"""The rates were chosen on world:50000:1, another world than the study's: `driftline reproduce tuning --stream world:50000:1`."""

_PAPER = {
    "model": "resnet50",
    "norm": "batch",
    "image_size": 224,
    "crop_scale": 0.08,
    "batch_size": 256,
    "workers": 16,
}

FULL = Scale(
    name="full",
    online=MappingProxyType(_PAPER | {"lr": 0.05, "polrs_every": "2000000", "adrep_every": "40000"}),
    offline=MappingProxyType(_PAPER | {"learner": "supervised", "lr": 0.025}),
    offline_batch_lr=0.05,
    small_buffer="40000",
    middle_buffer="4000000",
    large_buffer="39000000",
    scoring="album",
    batch_scoring="album",
    shift_epochs=1,
    fewest_samples=2_000_000,
)

SCALES: Mapping[str, Scale] = MappingProxyType({"quick": QUICK, "full": FULL})


@dataclass(frozen=True)
class Setting:
    """A stream (opened, and the name by which a run opens it), a scale, a seed."""

    stream: Stream
    name: str
    scale: Scale = QUICK
    seed: int = 0
    limit: int | None = None

    @property
    def num_samples(self) -> int:
        """Samples that an online run goes through."""
        return min(len(self.stream.train), self.limit or len(self.stream.train))

    def online(self, **changes: Any) -> RunConfig:
        """An online run: experience replay from a FIFO buffer of the middle size, unless changed."""
        settings = {"buffer_size": self.scale.middle_buffer} | dict(self.scale.online) | changes
        return self._config(settings)

    def offline(self, **changes: Any) -> RunConfig:
        """A supervised run."""
        return self._config(dict(self.scale.offline) | changes)

    def _config(self, settings: dict[str, Any]) -> RunConfig:
        own = {"stream": self.name, "seed": self.seed, "limit": self.limit}
        return RunConfig(**(settings | own))

    @property
    def small_buffer(self) -> str:
        """The smallest buffer: 0.1 % of the stream, but never less than a batch of the online runs."""
        if self.scale.small_buffer is not None:
            return self.scale.small_buffer
        return str(max(round(SMALL_SHARE * self.num_samples), int(self.scale.online["batch_size"])))
