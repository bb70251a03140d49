"""Who does what when several processes carry out one run: the members a process hosts and its part of each batch.

In: torchrun's environment and the size of the population. Out: a value, the same arithmetic on every process. A process of
several is called a rank, as torch does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from driftline.streams.fetch import share
from driftline.types import DriftlineError

Parallel = Literal["auto", "data", "members"]


@dataclass(frozen=True)
class Ranks:
    """One process among those of a run: a grid of members x parts of the batch, filled row by row."""

    rank: int
    size: int
    num_members: int
    members: tuple[int, ...]
    """Members of the population that learn here."""
    part: int
    parts: int
    """Each member's batches are divided over this many ranks; this one has number `part`."""

    @staticmethod
    def arrange(rank: int, size: int, num_members: int, parallel: Parallel = "auto") -> Ranks:
        """This rank's place.

        As many ranks as members, or a multiple: each member has its own ranks. Fewer, but a divisor: several whole members
        on each rank. Otherwise all members are on all ranks, and only the batch is divided.

        >>> Ranks.arrange(3, 6, num_members=3)
        Ranks(rank=3, size=6, num_members=3, members=(1,), part=1, parts=2)
        >>> Ranks.arrange(1, 2, num_members=4).members
        (2, 3)
        >>> Ranks.arrange(1, 2, num_members=3)
        Ranks(rank=1, size=2, num_members=3, members=(0, 1, 2), part=1, parts=2)
        """
        everything = tuple(range(num_members))
        spread = parallel != "data" and num_members > 1
        if spread and size % num_members == 0:
            parts = size // num_members
            return Ranks(rank, size, num_members, (rank // parts,), rank % parts, parts)
        if spread and num_members % size == 0:
            here = everything[share(num_members, rank, size)]
            return Ranks(rank, size, num_members, here, 0, 1)
        if parallel == "members" and size > 1:
            raise DriftlineError(_cannot_spread(size, num_members))
        return Ranks(rank, size, num_members, everything, rank, size)

    @staticmethod
    def from_environment(
        num_members: int, parallel: Parallel, environment: Mapping[str, str] = os.environ
    ) -> Ranks:
        """The place that torchrun gave this process; alone when it was not started by torchrun.

        >>> Ranks.from_environment(1, "auto", {"RANK": "1", "WORLD_SIZE": "2"}).part
        1
        """
        texts = [environment.get("RANK", "0"), environment.get("WORLD_SIZE", "1")]
        try:
            rank, size = map(int, texts)
        except ValueError:
            raise DriftlineError(
                f"RANK = {texts[0]!r}, WORLD_SIZE = {texts[1]!r}: not numbers; start with torchrun, or unset both"
            ) from None
        if not 0 <= rank < size:
            raise DriftlineError(f"RANK = {rank}, WORLD_SIZE = {size}: start with torchrun, or unset both")
        return Ranks.arrange(rank, size, num_members, parallel)

    @staticmethod
    def single(num_members: int = 1) -> Ranks:
        """One process that does everything."""
        return Ranks.arrange(0, 1, num_members)

    def hosts(self, member: int) -> bool:
        """Whether a member learns here."""
        return self.size == 1 or member in self.members

    def ranks_of(self, member: int) -> list[int]:
        """The ranks on which a member learns, in order of their parts.

        >>> Ranks.arrange(0, 6, num_members=3).ranks_of(2)
        [4, 5]
        """
        if len(self.members) == self.num_members:
            return list(range(self.size))
        first = member * self.parts // len(self.members)
        return list(range(first, first + self.parts))


def _cannot_spread(size: int, num_members: int) -> str:
    if num_members == 1:
        return "parallel = members: there is one model, not a population; use --parallel data, or --schedule polrs"
    divisors = [n for n in range(1, num_members) if num_members % n == 0]
    fitting = ", ".join(map(str, divisors))
    return (
        f"parallel = members: {num_members} members cannot be spread evenly over {size} processes; start {fitting} or a multiple "
        f"of {num_members}, or use --parallel data"
    )
