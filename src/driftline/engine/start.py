"""How the processes of a run find each other, and how what one of them has on disk reaches the others.

In: settings and torchrun's environment. Out: a team whose ranks are known to run the same code on the same settings and stream.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from driftline.config import RunConfig
from driftline.engine import tensor_file
from driftline.engine.tensor_file import State
from driftline.learners.ranks import Ranks
from driftline.learners.replay import Arithmetic
from driftline.learners.team import Team, source_hash
from driftline.streams.open import open_stream
from driftline.types import DriftlineError, Stream
from driftline.version import VERSION


def make_team(config: RunConfig) -> Team:
    """All processes that torchrun started, or this one alone."""
    ranks = Ranks.from_environment(config.num_members, config.parallel)
    return Team(ranks, _device_here(config.device)) if ranks.size > 1 else Team(ranks)


def _device_here(device: str) -> torch.device:
    """A GPU for each process of a machine."""
    chosen = Arithmetic.choose(device, "float32").device
    if chosen.type == "cpu":
        return chosen
    local, num_here = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if chosen.index is not None and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        raise DriftlineError(
            f"device = {device} with several processes: use --device cuda, each takes its own GPU"
        )
    if local >= num_here:
        raise DriftlineError(
            f"process {local} of this machine has no GPU of its own: start at most {num_here} processes here"
        )
    return chosen if chosen.index is not None else torch.device("cuda", local)


def is_restart() -> bool:
    """Whether torchrun has started these processes again after one of them failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def open_together(config: RunConfig, stream: Stream | None, team: Team) -> Stream:
    """The stream, once every process has opened the same one and agrees on settings and code."""
    if team.size == 1:
        return stream or open_stream(config.stream)
    problem = fingerprint = ""
    try:
        stream = stream or open_stream(config.stream)
        fingerprint = stream.fingerprint
    except DriftlineError as error:
        problem = str(error)
    facts = {
        "driftline": f"{VERSION}, source {source_hash()}",
        "set of settings": config.digest(),
        "stream": fingerprint,
    }
    team.same_everywhere(facts, problem)
    assert stream is not None
    return stream


def shared_state(team: Team, find: Callable[[], tuple[State, Path] | None]) -> State | None:
    """A state and its file that the first process finds; the others get the file's bytes and need not see its disk."""
    found: list[tuple[State, Path]] = []

    def read() -> bytes:
        found.extend(one for one in [find()] if one is not None)
        return found[0][1].read_bytes() if found and team.size > 1 else b""

    data = team.from_first(read)
    if team.is_first:
        return found[0][0] if found else None
    if not data:
        return None
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return tensor_file.load(Path(file.name))
