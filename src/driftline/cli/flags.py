"""From the flags of a command to the dataclass that declares them."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TypeVar

import tyro

from driftline.types import DriftlineError

T = TypeVar("T")


def parse(declared: type[T], command: str, args: list[str], default: T | None = None) -> T:
    """Parse flags; the dataclass's docstrings are the help. Nested settings appear without a prefix."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found = tyro.cli(
                declared,
                prog=f"driftline {command}",
                args=args,
                default=default,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as end:
        # tyro draws a box around what a config refuses; we say it in one line, like every other mistake.
        if refused := _refusal(end):
            raise refused from None
        sys.stderr.write(said.getvalue())
        raise
    assert found is not None
    return found


def _refusal(end: SystemExit) -> DriftlineError | None:
    """The error that made the parser give up, if it was one of ours."""
    cause: BaseException | None = end
    while cause is not None:
        if isinstance(cause, DriftlineError):
            return cause
        cause = cause.__context__
    return None
