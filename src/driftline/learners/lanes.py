"""Members of a population learn side by side, each on half of the processor's cores.

In: a job that computes some rows of a batch for one member. Out: its results, member by member. Beside each other two members wait
once a step, at its end; one after the other on all cores, they wait within every operation, which small models feel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Result = TypeVar("Result")
Job = Callable[[int, slice], Result]


class Lanes:
    """Two lanes, or one; the first belongs to the thread that asks. Members are dealt out, and of an odd one each takes half the rows.

    >>> Lanes(num_threads=4).map(lambda member, rows: (rows.start, rows.stop), 3, 10)
    [[(0, 10)], [(0, 10)], [(0, 5), (5, 10)]]
    >>> Lanes().map(lambda member, rows: (rows.start, rows.stop), 3, 10)
    [[(0, 10)], [(0, 10)], [(0, 10)]]
    """

    def __init__(self, num_threads: int | None = None) -> None:
        self._each = num_threads // 2 if num_threads else 0
        self._second = (
            ThreadPoolExecutor(1, "lane", torch.set_num_threads, (self._each,)) if self._each else None
        )

    @property
    def are_two(self) -> bool:
        """Whether there is a second lane."""
        return self._second is not None

    def map(self, job: Job[Result], num_members: int, num_rows: int) -> list[list[Result]]:
        """What the job makes of every member's rows, in order; the whole batch comes in one piece or in two."""
        whole = slice(0, num_rows)
        if self._second is None or num_rows < 2:
            return [[job(member, whole)] for member in range(num_members)]
        middle = num_rows // 2
        num_dealt = num_members - num_members % 2
        dealt = [[(member, whole) for member in range(first, num_dealt, 2)] for first in (0, 1)]
        if num_dealt < num_members:
            for lane, rows in zip(dealt, (slice(0, middle), slice(middle, num_rows)), strict=True):
                lane.append((num_dealt, rows))
        with (
            self.narrowed()
        ):  # until both have ended: how work is divided must not change under the second lane
            second = self._second.submit(_work, job, dealt[1])
            try:
                first = _work(job, dealt[0])
            finally:
                others = second.result()
        results = [[result] for pair in zip(first, others, strict=True) for result in pair]
        return results[:num_dealt] + ([[first[-1], others[-1]]] if num_dealt < num_members else [])

    @contextmanager
    def narrowed(self) -> Iterator[None]:
        """Inside, torch takes one lane's cores in this thread, for operations beside the lanes' too: a helper thread that had worked
        on one of those would go on spinning for milliseconds, on a core that the other lane needs.
        """
        before = torch.get_num_threads()
        if self._second is None or before == self._each:
            yield
            return
        torch.set_num_threads(self._each)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _work(job: Job[Result], tasks: list[tuple[int, slice]]) -> list[Result]:
    return [job(member, rows) for member, rows in tasks]
