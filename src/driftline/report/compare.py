"""Which runs may stand side by side: figures from different protocols are not comparable and are refused.

In: runs. Out: warnings for the reader, or a DriftlineError.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from driftline.report.run_files import RunFiles
from driftline.types import DriftlineError


def check_comparable(runs: Sequence[RunFiles]) -> list[str]:
    """Warnings about runs that can be compared only with care; runs scored in different ways are refused."""
    if not runs:
        raise DriftlineError("no run given: name at least one run directory")
    online = [run for run in runs if not run.is_supervised]
    _same(online, "test_every", [str(run.config.test_every) for run in online])
    finished = [run for run in runs if run.is_finished]
    _same(finished, "protocol", [_protocol(run) for run in finished])
    return _warnings(runs)


def _protocol(run: RunFiles) -> str:
    return json.dumps(run.summary.get("protocol"), sort_keys=True)


def _same(runs: Sequence[RunFiles], what: str, values: Sequence[str]) -> None:
    for run, value in zip(runs, values, strict=True):
        if value != values[0]:
            raise DriftlineError(
                f"{runs[0].path} and {run.path} are scored differently ({what} = {values[0]} and {value}): their accuracies cannot "
                "be compared; report them apart, or run one of them again"
            )


def stream_of(run: RunFiles) -> str:
    """What identifies the stream of a run: its fingerprint where the summary has one, else its name."""
    known = run.summary.get("stream")
    if isinstance(known, dict):
        return str(known.get("fingerprint") or known.get("name") or run.config.stream)
    return str(run.summary.get("stream_fingerprint") or run.config.stream)


def _warnings(runs: Sequence[RunFiles]) -> list[str]:
    found = []
    streams = list(dict.fromkeys(run.config.stream for run in runs))
    if len({stream_of(run) for run in runs}) > 1:
        found.append(
            f"These runs are on different streams ({', '.join(streams)}): their accuracies say nothing about each other."
        )
    limits = {run.config.limit for run in runs}
    if len(limits) > 1:
        text = ", ".join(
            "whole stream" if n is None else f"{n} samples" for n in sorted(limits, key=lambda n: n or 0)
        )
        found.append(f"These runs saw different lengths of the stream ({text}).")
    growing = [run.name for run in runs if not run.is_finished]
    if growing and len(runs) > 1:
        found.append(f"Not finished yet: {', '.join(growing)}.")
    return found
