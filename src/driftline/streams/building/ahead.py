"""Work done ahead of need on a few threads, with results in order; polars, pyarrow and NumPy let go of the interpreter."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int = 2, ahead: int = 2
) -> Iterator[Result]:
    """function(item) for all items, in order, with at most `ahead` results waiting to be taken.

    >>> list(map_ahead(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    with ThreadPoolExecutor(max_workers=threads) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The items, in order; the next one is made on another thread while one is in use.

    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    iterator = iter(items)
    with ThreadPoolExecutor(max_workers=1) as pool:
        # Wrapped, so that no item can be taken for the end.
        waiting = pool.submit(lambda: list(itertools.islice(iterator, 1)))
        while found := waiting.result():
            waiting = pool.submit(lambda: list(itertools.islice(iterator, 1)))
            yield found[0]
