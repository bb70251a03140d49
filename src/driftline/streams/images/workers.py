"""A pool of worker processes for idempotent tasks, which survives the death of a worker.

Flow: tasks -> results as they are done. A task whose worker was killed is given to a new worker; after three deaths the
run stops with an error that names it. The pool knows which task each worker has, so no other task is touched.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

from driftline.types import DriftlineError

MAX_DEATHS = 3
POLL_SECONDS = 0.5

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")
Advance = Callable[[int, int], None]
"""A task calls it with the numbers of rows it has dealt with, and of failures among them, since the last call."""


def default_workers() -> int:
    """The processors this process may use.

    >>> default_workers() >= 1
    True
    """
    return len(os.sched_getaffinity(0))


def run_tasks(
    function: Callable[[TaskT, Advance], ResultT],
    tasks: Sequence[TaskT],
    *,
    workers: int,
    on_advance: Advance,
    name: Callable[[TaskT], str] = str,
) -> Iterator[ResultT]:
    """Results of function(task, advance) for all tasks, in the order they are done.

    With `workers=0` the tasks run in this process, one after the other.

    >>> list(run_tasks(lambda task, advance: task * 2, [1, 2], workers=0, on_advance=print))
    [2, 4]
    """
    if workers == 0:
        for task in tasks:
            yield function(task, on_advance)
        return
    pool = _Pool(function, tasks, workers, on_advance, name)
    try:
        yield from pool.results()
    finally:
        pool.stop()


@dataclass
class _Worker(Generic[TaskT]):
    process: SpawnProcess
    pipe: Connection
    task: TaskT
    deaths: int
    """Workers that have died of the task."""
    num_rows: int = 0
    num_failed: int = 0


class _Pool(Generic[TaskT, ResultT]):
    def __init__(
        self,
        function: Callable[[TaskT, Advance], ResultT],
        tasks: Sequence[TaskT],
        workers: int,
        on_advance: Advance,
        name: Callable[[TaskT], str],
    ) -> None:
        self._function = function
        self._waiting = deque((task, 0) for task in tasks)
        self._num_workers = min(workers, len(tasks))
        self._on_advance = on_advance
        self._name = name
        self._workers: dict[Connection, _Worker[TaskT]] = {}

    def results(self) -> Iterator[ResultT]:
        """Hand out tasks and pass on what comes back, until nothing is left."""
        while self._waiting or self._workers:
            while self._waiting and len(self._workers) < self._num_workers:
                self._start(*self._waiting.popleft())
            for pipe in wait(list(self._workers), timeout=POLL_SECONDS):
                assert isinstance(pipe, Connection)
                yield from self._heard(pipe)

    def _start(self, task: TaskT, deaths: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        process.start()
        theirs.close()
        ours.send((self._function, task))
        self._workers[ours] = _Worker(process, ours, task, deaths)

    def _heard(self, pipe: Connection) -> Iterator[ResultT]:
        worker = self._workers[pipe]
        try:
            kind, value = pipe.recv()
        except (EOFError, ConnectionResetError):
            self._died(worker)
            return
        if kind == "advance":
            worker.num_rows += value[0]
            worker.num_failed += value[1]
            self._on_advance(*value)
        elif kind == "refused":
            raise DriftlineError(value)
        elif kind == "failed":
            raise RuntimeError(f"{self._name(worker.task)} failed in a worker:\n{value}")
        else:
            self._next(worker)
            yield value

    def _next(self, worker: _Worker[TaskT]) -> None:
        """Give a worker that is done the next task, or let it go."""
        if self._waiting:
            worker.task, worker.deaths = self._waiting.popleft()
            worker.num_rows = worker.num_failed = 0
            worker.pipe.send((self._function, worker.task))
        else:
            del self._workers[worker.pipe]
            worker.pipe.close()
            worker.process.join()

    def _died(self, worker: _Worker[TaskT]) -> None:
        del self._workers[worker.pipe]
        worker.process.join()
        self._on_advance(-worker.num_rows, -worker.num_failed)
        deaths = worker.deaths + 1
        if deaths >= MAX_DEATHS:
            raise DriftlineError(
                f"{self._name(worker.task)}: its worker died {deaths} times ({_cause(worker.process.exitcode)}); nothing is "
                "lost: give it more memory or fewer --workers, and run the same command again"
            )
        self._waiting.appendleft((worker.task, deaths))

    def stop(self) -> None:
        """End what is still running."""
        for worker in self._workers.values():
            worker.process.terminate()
        for worker in self._workers.values():
            worker.process.join()
            worker.pipe.close()


def _cause(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"by {signal.Signals(-exit_code).name}" + (
            ", perhaps for lack of memory" if exit_code == -9 else ""
        )
    return f"exit code {exit_code}"


def _serve(pipe: Connection, parent: int) -> None:
    """The life of a worker: tasks in, results out, until the other end closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()

    def advance(num_rows: int, num_failed: int) -> None:
        if os.getppid() != parent:
            os._exit(1)
        pipe.send(("advance", (num_rows, num_failed)))

    while True:
        try:
            function, task = pipe.recv()
        except EOFError:
            return
        pipe.send(outcome(function, task, advance))


def _die_with_parent() -> None:
    """An orphan must not go on writing beside the build that is started after its parent was killed."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def outcome(function: Any, task: Any, advance: Advance) -> tuple[str, Any]:
    """A task's result, or what went wrong, as a value that can be sent between processes.

    >>> outcome(lambda task, advance: task + 1, 1, print)
    ('done', 2)
    """
    try:
        return "done", function(task, advance)
    except DriftlineError as error:
        return "refused", str(error)
    except BaseException:
        return "failed", traceback.format_exc()
