"""From the flags of a command to the dataclass that declares them."""

from __future__ import annotations

from typing import TypeVar

import tyro

T = TypeVar("T")


def parse(declared: type[T], command: str, args: list[str], default: T | None = None) -> T:
    """Parse flags; the dataclass's docstrings are the help. Nested settings appear without a prefix."""
    found = tyro.cli(
        declared, prog=f"driftline {command}", args=args, default=default, config=(tyro.conf.OmitArgPrefixes,)
    )
    assert found is not None
    return found
