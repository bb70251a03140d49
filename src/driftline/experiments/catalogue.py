"""All recipes by name, in the order of the paper."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from driftline.experiments.recipe import Recipe
from driftline.experiments.recipes import (
    batch_size,
    batch_size_supervised,
    best_model,
    buffer_size,
    fifo_vs_reservoir,
    geolocation,
    learning_rate,
    shift,
    stats,
    transfer_of_buffers,
    tuning,
)
from driftline.types import DriftlineError

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "stats": stats.RECIPE,
        "shift": shift.RECIPE,
        "learning-rate": learning_rate.RECIPE,
        "buffer-size": buffer_size.RECIPE,
        "transfer-of-buffers": transfer_of_buffers.RECIPE,
        "batch-size": batch_size.RECIPE,
        "batch-size-supervised": batch_size_supervised.RECIPE,
        "fifo-vs-reservoir": fifo_vs_reservoir.RECIPE,
        "best-model": best_model.RECIPE,
        "geolocation": geolocation.RECIPE,
        "tuning": tuning.RECIPE,
    }
)
ALL = tuple(name for name in RECIPES if name != "tuning")
"""The figures of the paper; the choice of the rates comes before the study and is not part of it."""


def chosen(names: Sequence[str]) -> list[Recipe]:
    """The recipes of these names, each once; `all` stands for the figures of the paper.

    >>> [recipe.name for recipe in chosen(["shift", "stats", "shift"])]
    ['shift', 'stats']
    """
    if not names:
        raise DriftlineError(f"which figure? Give all, or some of: {', '.join(RECIPES)}")
    wanted: dict[str, Recipe] = {}
    for name in names:
        if name != "all" and name not in RECIPES:
            close = difflib.get_close_matches(name, RECIPES, 1)
            hint = f"did you mean {close[0]}?" if close else f"choose all, or some of: {', '.join(RECIPES)}"
            raise DriftlineError(f"there is no figure {name!r}; {hint}")
        wanted |= {n: RECIPES[n] for n in (ALL if name == "all" else (name,))}
    return list(wanted.values())
