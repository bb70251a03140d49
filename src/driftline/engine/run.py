"""A run in a directory: the loop with its logs, checkpoints and kept weights around it, from the start or resumed.

In: settings and a directory. Out: step records while it goes on, and at the end the files of docs/files.md. After a crash at
any instant, `Run.resume` goes on from the last checkpoint and ends with the same bytes.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from driftline.config import RunConfig, read_config
from driftline.engine import checkpoint
from driftline.engine.finish import finish_run
from driftline.engine.logs import Quarantine, RecordLog
from driftline.engine.loop import Loop, StepRecord
from driftline.engine.setup import Setup
from driftline.engine.tensorboard import TensorBoardLog
from driftline.learners.base import Learner
from driftline.streams.durable import explaining_full_disk, remove_unfinished, replacing
from driftline.streams.fetch import FetchRequest, Pipeline
from driftline.streams.open import open_stream
from driftline.types import PREDICTION, DriftlineError, Stream, curve_dtype
from driftline.version import FORMAT

BAD_SAMPLES_AT_FIRST = 1000
"""The share of bad samples is judged as if at least this many had been seen."""

Warn = Callable[[str], None]
MakeLearner = Callable[[Setup, int], Learner]


def kept_steps(num_steps: int, supervised: bool) -> dict[int, str]:
    """After how many steps the weights are kept, and under what name.

    >>> kept_steps(300, supervised=False)
    {100: 'H/3', 200: '2H/3', 300: 'H'}
    """
    last = {num_steps: "H"}
    if supervised:
        return last
    return {max(1, round(num_steps / 3)): "H/3", max(1, round(2 * num_steps / 3)): "2H/3"} | last


class Run:
    """One run. Iterate over `records()`, then call `finish()`; or let `execute()` do both.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "run"
    >>> run = Run(RunConfig(stream="world:2000", limit=256), out)
    >>> sum(len(record.predictions) for record in run.records())
    256
    """

    def __init__(
        self,
        config: RunConfig,
        out: Path | str,
        *,
        stream: Stream | None = None,
        learner: MakeLearner | None = None,
        warn: Warn = print,
        resume: bool = False,
    ) -> None:
        self.config = config
        self.out = Path(out)
        self.warn = warn
        self.resumed = 0
        self.seconds = 0.0
        self.num_bad = 0
        self.setup = Setup(config, stream or open_stream(config.stream))
        plan = self.setup.plan()
        self.num_steps = plan.num_steps
        self._plan = plan
        self._pending: list[FetchRequest] = []
        make = learner or (lambda setup, num_steps: setup.learner(num_steps))
        self.learner = make(self.setup, plan.num_steps)
        with explaining_full_disk(self.out):
            self._open_directory(resume)
        self._pipeline = Pipeline(
            self.setup.fetcher(self.setup.stream.train), self._next_request, config.workers
        )
        self.loop = Loop(
            plan,
            self._pipeline,
            self.learner,
            self.setup.adaptive(),
            learns=config.learner != "none",
            batch_size=config.batch_size,
            test_every=config.test_every,
        )

    @classmethod
    def resume(
        cls,
        out: Path | str,
        *,
        workers: int | None = None,
        learner: MakeLearner | None = None,
        warn: Warn = print,
    ) -> Run:
        """The unfinished run in a directory, set back to its newest whole checkpoint."""
        folder = Path(out)
        if not (folder / "config.toml").exists():
            raise DriftlineError(f"{folder} holds no run: there is no config.toml in it")
        if (folder / "summary.json").exists():
            raise DriftlineError(f"{folder} holds a finished run; `driftline report {folder}` shows it")
        config = read_config(folder / "config.toml")
        config = replace(config, workers=workers or config.workers)
        return cls(config, folder, learner=learner, warn=warn, resume=True)

    def _open_directory(self, resume: bool) -> None:
        """Take possession of the directory: a new one, or that of the run to resume."""
        config_file = self.out / "config.toml"
        if not resume and (self.out / "summary.json").exists():
            raise DriftlineError(f"{self.out} holds a finished run; choose another --out")
        if not resume and config_file.exists():
            raise DriftlineError(
                f"{self.out} holds an unfinished run: `driftline resume {self.out}` goes on with it, or choose another --out"
            )
        self.out.mkdir(parents=True, exist_ok=True)
        self._lock = (self.out / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DriftlineError(
                f"{self.out} is in use by another run; choose another --out or wait for it"
            ) from None
        remove_unfinished(self.out)
        if not resume:
            with replacing(config_file) as temporary:
                temporary.write_text(f"# driftline run, format {FORMAT}\n{self.config.to_toml()}")
        (self.out / "checkpoints").mkdir(exist_ok=True)
        remove_unfinished(self.out / "checkpoints")
        self.checkpoints = checkpoint.Checkpoints(self.out / "checkpoints")
        self.predictions = RecordLog(self.out / "predictions.bin", PREDICTION)
        self.curves = RecordLog(self.out / "curves.bin", curve_dtype(self.learner.num_members))
        self.quarantine = Quarantine(self.out / "quarantine.jsonl")

    # -- the loop with everything around it

    def records(self) -> Iterator[StepRecord]:
        """Goes through the stream (from the newest checkpoint on, if there is one), a record a step."""
        with explaining_full_disk(self.out):
            self._restore()
            started = time.monotonic() - self.seconds
            last_saved, last_step = time.monotonic(), self.loop.step
            every = self.setup.steps(self.config.checkpoint_every, "checkpoint_every")
            keep = kept_steps(self.num_steps, self.config.learner == "supervised")
            board = (
                TensorBoardLog(self.out / "tensorboard", last_step)
                if "tensorboard" in self.config.log
                else None
            )
            try:
                for record in self.loop.records():
                    # Log.
                    self.predictions.append(record.predictions)
                    self.curves.append(record.curve)
                    if board:
                        board.add(record.curve)
                    self._set_aside(record)
                    self.seconds = time.monotonic() - started
                    # Keep the weights that transfer is measured with.
                    if self.loop.step in keep:
                        self._keep_weights(keep[self.loop.step], record)
                    # Save, by count and by time.
                    due = self.loop.step - last_step >= every
                    if due or time.monotonic() - last_saved >= self.config.checkpoint_seconds:
                        self.save()
                        last_saved, last_step = time.monotonic(), self.loop.step
                    yield record
            finally:
                self._pipeline.close()
                if board:
                    board.close()
                self.checkpoints.finish()

    def _next_request(self) -> FetchRequest | None:
        return self._pending.pop(0) if self._pending else self._plan.next()

    def _set_aside(self, record: StepRecord) -> None:
        self.quarantine.append(record.step, record.bad)
        self.num_bad += len(record.bad)
        seen = max(BAD_SAMPLES_AT_FIRST, self.loop.step * self.config.batch_size)
        if self.num_bad > self.config.max_bad_share * seen:
            reason = record.bad[-1].reason if record.bad else "see quarantine.jsonl"
            raise DriftlineError(
                f"step {record.step}: {self.num_bad} samples could not be used, more than {self.config.max_bad_share:.1%} of "
                f"those seen (the last: {reason}); check the stream with `driftline inspect {self.config.stream} --verify`, "
                "or allow more with --max-bad-share"
            )

    def _keep_weights(self, name: str, record: StepRecord) -> None:
        curve = record.curve[0]
        state = {
            "name": name,
            "weights": self.learner.weights(),
            "step": int(curve["step"]),
            "position": int(curve["position"]),
            "time": int(curve["time"]),
        }
        checkpoint.save(state, self.out / "checkpoints" / f"weights-{name.replace('/', '-')}.pt")

    # -- checkpoints

    def save(self, *, wait: bool = False) -> None:
        """Write a checkpoint in the background (or wait for it)."""
        state = {
            "digest": self.config.digest(),
            "stream": self.setup.stream.fingerprint,
            "loop": self.loop.state(),
            "learner": self.learner.state(),
            "plan": {name: torch.from_numpy(np.array(value)) for name, value in self._plan.state().items()},
            "pending": [_request_state(request) for request in self._unfinished()],
            "num_predictions": len(self.predictions),
            "num_curves": len(self.curves),
            "quarantine_size": self.quarantine.size(),
            "num_bad": self.num_bad,
            "seconds": self.seconds,
            "resumed": self.resumed,
        }
        self.checkpoints.write(self.loop.step, state, before=self._sync_logs)
        if wait:
            self.checkpoints.finish()

    def _unfinished(self) -> list[FetchRequest]:
        return self._pipeline.pending() + self._pending

    def _sync_logs(self) -> None:
        for log in (self.predictions, self.curves, self.quarantine):
            log.sync()

    def _restore(self) -> None:
        """Set everything back to the newest whole checkpoint, or to the start."""
        state = self.checkpoints.newest(self.warn)
        if state is None:
            state = {"num_predictions": 0, "num_curves": 0, "quarantine_size": 0}
        else:
            self._load(state)
        self.predictions.cut(state["num_predictions"])
        self.curves.cut(state["num_curves"])
        self.quarantine.cut(state["quarantine_size"])

    def _load(self, state: dict[str, Any]) -> None:
        if state["digest"] != self.config.digest():
            raise DriftlineError(
                f"{self.out}: the checkpoint was made with other settings than config.toml now has; "
                "put config.toml back as it was, or start a new run"
            )
        if state["stream"] != self.setup.stream.fingerprint:
            raise DriftlineError(
                f"{self.out}: the stream {self.config.stream} has changed since the checkpoint was made"
            )
        self.loop.load(state["loop"])
        self.learner.load(state["learner"])
        self._plan.load({name: value.numpy() for name, value in state["plan"].items()})
        self._pending = [_request(saved) for saved in state["pending"]]
        self.num_bad, self.seconds, self.resumed = state["num_bad"], state["seconds"], state["resumed"] + 1

    # -- the end

    def finish(self) -> dict[str, Any]:
        """Turn the logs into the run's files; the summary. Safe to repeat after a crash."""
        with explaining_full_disk(self.out):
            if not self.checkpoints.paths() or self.loop.step not in {
                int(p.stem[6:]) for p in self.checkpoints.paths()
            }:
                self.save(wait=True)
            for log in (self.predictions, self.curves, self.quarantine):
                log.close()
            summary = finish_run(self)
            self._lock.close()
        return summary

    def execute(self) -> dict[str, Any]:
        """Run to the end and finish."""
        for _ in self.records():
            pass
        return self.finish()


def _request_state(request: FetchRequest) -> dict[str, Any]:
    return {
        "step": request.step,
        "stream": torch.from_numpy(request.stream),
        "replay": torch.from_numpy(request.replay),
        "gd_steps": request.gd_steps,
        "test": request.test,
        "buffer_size": request.buffer_size,
    }


def _request(state: dict[str, Any]) -> FetchRequest:
    arrays = {name: state[name].numpy() for name in ("stream", "replay")}
    return FetchRequest(**{**state, **arrays})
