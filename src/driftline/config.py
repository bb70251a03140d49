"""A run as a value: every setting of `driftline run`, checked when it is made.

The field names are the flags and the keys of the TOML file. Flow: flags or file -> RunConfig -> the engine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import tomllib
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from driftline.types import DriftlineError

Scoring = Literal["album", "batch", "sample"]

SCHEDULES = ("constant", "cosine", "polrs")
REPLAYS = ("fifo", "reservoir", "ring", "none")
LEARNERS = ("er", "none", "supervised")
NORMS = ("group", "batch")
PRECISIONS = ("auto", "float32", "bfloat16")
LOGS = ("tensorboard",)
PARALLEL = ("auto", "data", "members")

BATCH_OF_RATE = 256
"""`lr` is the rate at this batch size; the linear rule scales it to the batch size in use."""

LR_ONLINE, LR_SUPERVISED = 0.05, 0.025
"""The paper's rates."""

NOT_IN_HASH = frozenset(
    {"parallel", "workers", "checkpoint_every", "checkpoint_seconds", "log", "max_bad_share"}
)
"""Settings that change how a run is carried out but never its result."""


def amount(text: str, total: int, *, name: str = "amount") -> int:
    """Number of samples meant by a count ("40000") or a share of the stream ("0.1", "10%", "1/18").

    >>> amount("40000", 39_000_000), amount("10%", 500), amount("0.1", 500), amount("1/18", 36)
    (40000, 50, 50, 2)
    """
    share = share_of(text, name=name)
    if share is None:
        return int(text.replace("_", ""))
    return max(1, round(share * total))


def share_of(text: str, *, name: str = "amount") -> Fraction | None:
    """The share of the stream a text stands for, or None when it is a count.

    >>> share_of("25%"), share_of("1000")
    (Fraction(1, 4), None)
    """
    try:
        if text.replace("_", "").isdecimal():
            return None
        share = Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise _not_an_amount(name, text) from None
    if not 0 < share <= 1:
        raise _not_an_amount(name, text)
    return share


def _not_an_amount(name: str, text: str) -> DriftlineError:
    return DriftlineError(
        f"{name} = {text!r} is neither a number of samples (40000) nor a share of the stream (0.1, 10%, 1/18)"
    )


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run. Sizes and intervals take a count (40000) or a share of the stream (0.1, 10%, 1/18)."""

    stream: str = "world"
    """Directory of a built stream, or world[:LENGTH[:SEED]] for the embedded one."""
    model: str = "resnet-tiny"
    """resnet-tiny, resnet18, resnet50, or timm:NAME (needs the timm extra)."""
    norm: Literal["group", "batch"] = "group"
    """Normalisation layers of the model."""
    learner: Literal["er", "none", "supervised"] = "er"
    """er: test, then train with replay; none: only test; supervised: shuffled epochs, the offline baseline."""
    schedule: Literal["auto", "constant", "cosine", "polrs"] = "auto"
    """How the learning rate moves; auto is constant online and cosine for the supervised baseline."""
    lr: float = 0.0
    """Learning rate at batch size 256 (in use: lr * batch_size / 256); 0 means 0.05 online, 0.025 supervised."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 1e-4
    """Weight decay of SGD."""
    batch_size: int = 64
    """Stream samples a step."""
    gd_steps: int = 1
    """Gradient steps on each batch."""
    replay: Literal["fifo", "reservoir", "ring", "none"] = "fifo"
    """Replay buffer."""
    buffer_size: str = "10%"
    """Size of the replay buffer (the first size, with --adaptive-buffer)."""
    adaptive_buffer: bool = False
    """ADRep: let the buffer's size follow the training accuracies."""
    replay_ratio: float = 1.0
    """Replay samples for each stream sample."""
    polrs_every: str = "1/18"
    """PoLRS: samples between two copies of the best member."""
    polrs_members: int = 3
    """PoLRS: size of the population."""
    polrs_factor: float = 2.0
    """PoLRS: factor between the rates of neighbouring members."""
    adrep_every: str = "1/90"
    """ADRep: samples between two decisions."""
    adrep_epsilon: float = 0.005
    """ADRep: difference of accuracies that counts (0.005 is half a point)."""
    test_every: int = 256
    """Positions between two test points of the album scoring."""
    epochs_baseline: int = 1
    """Epochs of the supervised baseline."""
    train_years: str | None = None
    """Supervised only: learn from these years alone, as 2010 or 2009:2011."""
    train_samples: int | None = None
    """Supervised only: learn from a random sample of this size, drawn from the whole range."""
    limit: int | None = None
    """Stop after this many samples of the stream."""
    image_size: int | None = None
    """Side of the square the model sees, in pixels; default 7/8 of the stored short side, or all of a small image."""
    crop_scale: float = 0.08
    """Smallest share of the image's area that a random crop keeps."""
    seed: int = 0
    """Seed of the weights, the replay draws and the augmentations."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the model; auto is bfloat16 where the processor has it."""
    parallel: Literal["auto", "data", "members"] = "auto"
    """Under torchrun: divide each batch (data), spread the PoLRS members (members), or both as they fit (auto)."""
    workers: int = 2
    """Threads that read and decode ahead; never changes a result."""
    checkpoint_every: str = "5%"
    """Samples between two checkpoints."""
    checkpoint_seconds: float = 600.0
    """Longest time between two checkpoints."""
    max_bad_share: float = 0.01
    """Stop when more than this share of the samples seen cannot be used."""
    log: tuple[Literal["tensorboard"], ...] = field(default=())
    """Further places to write the curves to (tensorboard needs its extra)."""

    def __post_init__(self) -> None:
        offline = self.learner == "supervised"
        if self.schedule == "auto":
            object.__setattr__(self, "schedule", "cosine" if offline else "constant")
        if self.lr == 0:
            object.__setattr__(self, "lr", LR_SUPERVISED if offline else LR_ONLINE)
        for problem in self._problems():
            raise DriftlineError(problem)

    def _problems(self) -> list[str]:
        """Rules within and across fields; each message says what to do."""
        bad: list[str] = []

        def need(holds: bool, message: str) -> None:
            if not holds:
                bad.append(message)

        choices = {
            "learner": LEARNERS,
            "schedule": SCHEDULES,
            "replay": REPLAYS,
            "norm": NORMS,
            "parallel": PARALLEL,
            "precision": PRECISIONS,
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            need(value in allowed, f"{name} = {value!r}: choose one of {', '.join(allowed)}")
        for value in self.log:
            need(value in LOGS, f"log = {value!r}: choose from {', '.join(LOGS)}")
        for name in ["batch_size", "gd_steps", "test_every", "epochs_baseline", "workers", "polrs_members"]:
            value = getattr(self, name)
            need(value >= 1, f"{name} = {value}: must be at least 1")
        for name in ["buffer_size", "polrs_every", "adrep_every", "checkpoint_every"]:
            text = getattr(self, name)
            need(amount(text, 10**12, name=name) >= 1, f"{name} = {text}: must be at least 1 sample")
        for name in ["limit", "image_size", "train_samples"]:
            value = getattr(self, name)
            need(value is None or value >= 1, f"{name} = {value}: must be at least 1")
        need(self.lr > 0 and math.isfinite(self.lr), f"lr = {self.lr}: must be a positive number")
        need(0 <= self.momentum < 1, f"momentum = {self.momentum}: must be at least 0 and less than 1")
        need(
            self.weight_decay >= 0 and math.isfinite(self.weight_decay),
            f"weight_decay = {self.weight_decay}: must be 0 or more",
        )
        need(0 < self.crop_scale <= 1, f"crop_scale = {self.crop_scale}: must be in (0, 1]")
        need(
            self.replay_ratio > 0 and math.isfinite(self.replay_ratio),
            f"replay_ratio = {self.replay_ratio}: must be a positive number; --replay none switches replay off",
        )
        need(
            self.polrs_factor > 1 and math.isfinite(self.polrs_factor),
            f"polrs_factor = {self.polrs_factor}: must be a number greater than 1",
        )
        need(
            0 <= self.adrep_epsilon < 1,
            f"adrep_epsilon = {self.adrep_epsilon}: is a difference of accuracies, 0.005 is half a point",
        )
        need(0 <= self.max_bad_share <= 1, f"max_bad_share = {self.max_bad_share}: is a share, from 0 to 1")
        need(0 <= self.seed < 2**63, f"seed = {self.seed}: must be 0 or more and less than 2**63")
        need(
            self.checkpoint_seconds > 0,
            f"checkpoint_seconds = {self.checkpoint_seconds}: must be positive",
        )
        need(
            not (self.replay == "none" and self.replay_ratio != 1.0),
            f"replay_ratio = {self.replay_ratio} with replay = none: choose a buffer (--replay fifo) or drop --replay-ratio",
        )
        need(
            not (self.adaptive_buffer and self.replay != "fifo"),
            f"adaptive_buffer with replay = {self.replay}: ADRep works on the FIFO buffer, add --replay fifo",
        )
        need(
            not (self.adaptive_buffer and self.learner != "er"),
            f"adaptive_buffer with learner = {self.learner}: ADRep follows online training, use --learner er or drop --adaptive-buffer",
        )
        need(
            not (self.schedule == "polrs" and self.polrs_members < 2),
            f"polrs_members = {self.polrs_members}: a population needs at least 2; --schedule constant trains one model",
        )
        need(
            not (self.schedule == "polrs" and self.learner != "er"),
            f"schedule = polrs with learner = {self.learner}: PoLRS searches online, use --learner er or another schedule",
        )
        for name in ["train_years", "train_samples"]:
            need(
                self.learner == "supervised" or getattr(self, name) is None,
                f"{name} with learner = {self.learner}: only --learner supervised can choose its training set",
            )
        return bad

    @property
    def num_members(self) -> int:
        """Models trained side by side.

        >>> RunConfig(schedule="polrs").num_members
        3
        """
        return self.polrs_members if self.schedule == "polrs" else 1

    @property
    def scaled_lr(self) -> float:
        """The starting rate in use: the linear rule applied to `lr`.

        >>> RunConfig(lr=0.05, batch_size=64).scaled_lr
        0.0125
        """
        return self.lr * self.batch_size / BATCH_OF_RATE

    def digest(self) -> str:
        """Hash of everything that can change a result.

        >>> RunConfig(workers=1).digest() == RunConfig(workers=4).digest()
        True
        >>> RunConfig(seed=1).digest() == RunConfig(seed=2).digest()
        False
        """
        values = {k: v for k, v in dataclasses.asdict(self).items() if k not in NOT_IN_HASH}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def to_toml(self) -> str:
        """The text of the file that `driftline run --config` reads back.

        >>> from_toml(RunConfig(lr=0.1).to_toml()) == RunConfig(lr=0.1)
        True
        """
        lines = [
            f"{name} = {_toml_value(value)}"
            for name, value in dataclasses.asdict(self).items()
            if value is not None
        ]
        return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML has JSON's escapes, but no pairs of surrogates; and it wants DEL escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    return repr(value)


def from_toml(text: str, *, source: str = "config") -> RunConfig:
    """The config written in a TOML text; unknown keys and wrong types are refused.

    >>> from_toml('lr = 0.1\\nbuffer_size = 40000').buffer_size
    '40000'
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DriftlineError(f"{source}: not valid TOML ({error})") from None
    return from_dict(values, source=source)


def from_dict(values: dict[str, Any], *, source: str = "config") -> RunConfig:
    """The config with these settings, the rest at their defaults.

    >>> from_dict({"seed": 3}).seed
    3
    """
    known = {f.name: f for f in dataclasses.fields(RunConfig)}
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise DriftlineError(f"{source}: unknown setting {name!r}; the settings are {', '.join(known)}")
        checked[name] = _typed(name, str(known[name].type), value, source)
    return RunConfig(**checked)


def _typed(name: str, declared: str, value: object, source: str) -> object:
    """The value in the type the field declares; a number stands for its text where the field takes amounts."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if declared == "bool" and isinstance(value, bool):
        return value
    if declared in ("int", "int | None") and is_number and isinstance(value, int):
        return value
    if declared == "float" and is_number:
        return float(value)  # type: ignore[arg-type]
    if declared.startswith("tuple") and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if declared in ("str", "str | None") or declared.startswith("Literal"):
        if isinstance(value, str):
            return value
        if is_number:
            return str(value)
    raise DriftlineError(f"{source}: {name} = {value!r} is not of type {declared}")


def read_config(path: Path) -> RunConfig:
    """The config in a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DriftlineError(f"cannot read the config {path}: {error}") from None
    return from_toml(text, source=str(path))
