"""The shard tasks of a build on a Ray cluster.

Flow: the same tasks and function that the process pool takes -> results as they are done. Every node must see the
table, the images and the output directory under the same paths, and have the same driftline installed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from driftline.streams.images.shard_task import ShardTask
from driftline.streams.images.workers import MAX_DEATHS, Advance, outcome
from driftline.types import DriftlineError


def run_on_ray(
    function: Callable[[ShardTask, Advance], tuple[int, int]],
    tasks: Sequence[ShardTask],
    *,
    address: str | None,
    on_advance: Advance,
) -> Iterator[tuple[int, int]]:
    """Results of function(task, advance) for all tasks; a task whose worker or node dies is given to another."""
    try:
        import ray
    except ImportError:
        raise DriftlineError("--engine ray needs Ray; install driftline[ray], or use --engine pool") from None
    if not ray.is_initialized():
        # A cluster of our own stays on this machine: nothing of it listens on the network or reports to Ray's makers.
        if not address:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        new = {} if address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False, **new)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise DriftlineError(
                f"no Ray cluster at {address!r} ({error}); start one with `ray start --head`"
            ) from None
    remote = ray.remote(num_cpus=1, max_retries=MAX_DEATHS - 1)(_quietly)
    limit = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = deque(tasks)
    running: dict[Any, ShardTask] = {}
    try:
        while waiting or running:
            while waiting and len(running) < limit:
                task = waiting.popleft()
                running[remote.remote(function, task)] = task
            for reference in ray.wait(list(running), num_returns=1)[0]:
                num_rows, num_kept = _unpacked(ray, reference, running.pop(reference))
                on_advance(num_rows, num_rows - num_kept)
                yield num_rows, num_kept
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _quietly(function: Callable[[ShardTask, Advance], tuple[int, int]], task: ShardTask) -> tuple[str, Any]:
    return outcome(function, task, lambda num_rows, num_failed: None)


def _unpacked(ray: Any, reference: Any, task: ShardTask) -> tuple[int, int]:
    try:
        kind, value = ray.get(reference)
    except ray.exceptions.RayError as error:
        raise DriftlineError(
            f"{task.name}: its Ray worker died {MAX_DEATHS} times ({type(error).__name__}); nothing is lost: "
            "give the workers more memory, and run the same command again"
        ) from None
    if kind == "refused":
        raise DriftlineError(value)
    if kind == "failed":
        raise RuntimeError(f"{task.name} failed on Ray:\n{value}")
    num_rows, num_kept = value
    return num_rows, num_kept
