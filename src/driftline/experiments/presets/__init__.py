"""Ready settings as TOML files that `driftline run --config` takes: the best model, and every run of the paper on CLOC.

The files are written by hand; a test compares those named `cloc-…` with what the recipes give at full scale.
"""

from __future__ import annotations

from pathlib import Path

from driftline.config import RunConfig, read_config
from driftline.types import DriftlineError

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """All presets.

    >>> "best" in names()
    True
    """
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def preset(name: str) -> RunConfig:
    """The settings of a preset.

    >>> preset("best").schedule
    'polrs'
    """
    if name not in names():
        raise DriftlineError(f"there is no preset {name!r}; choose from {', '.join(names())}")
    return read_config(FOLDER / f"{name}.toml")
