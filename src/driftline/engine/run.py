"""A run in a directory: the loop with its logs, checkpoints and kept weights around it, from the start or resumed.

In: settings and a directory. Out: step records while it goes on, and at the end the files of docs/files.md. After a crash at
any instant, `Run.resume` goes on from the last checkpoint and ends with the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from driftline.config import RunConfig, read_config
from driftline.engine import tensor_file
from driftline.engine.checkpoint import Checkpoints, weights_path
from driftline.engine.directory import claim, remove_logs
from driftline.engine.finish import class_table, finish_run, help_finish
from driftline.engine.logs import START, AppendedFile, Quarantine, RecordLog, write_table
from driftline.engine.loop import Loop
from driftline.engine.memory import keep_freed_memory
from driftline.engine.records import StepRecord
from driftline.engine.setup import Setup
from driftline.engine.start import is_restart, make_team, open_together, shared_state
from driftline.engine.tensor_file import DamagedFileError
from driftline.engine.tensorboard import TensorBoardLog
from driftline.engine.together import Gathering
from driftline.learners.base import Learner
from driftline.learners.lanes import Lanes
from driftline.learners.ranks import Parallel
from driftline.streams.durable import explaining_full_disk
from driftline.streams.fetch import FetchRequest, Pipeline
from driftline.types import PREDICTION, DriftlineError, Stream, curve_dtype

BAD_SAMPLES_AT_FIRST = 1000
"""The share of bad samples is judged as if at least this many had been seen."""

AGREE_EVERY = 10
"""Steps between two questions to all processes whether to stop or to save."""

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
        keep_freed_memory()
        self.config = config
        self.out = Path(out)
        self.resumed = 0
        self.seconds = 0.0
        self.num_bad = 0
        self.stop_when: Callable[[], bool] = lambda: False
        """Asked after steps: True saves the run and ends `records()` there."""
        self.stopped = False
        self.team = make_team(config)
        self.warn: Warn = warn if self.team.is_first else lambda message: None
        if learner is not None and self.team.size > 1:
            raise DriftlineError("a learner of your own runs in one process: start it without torchrun")
        self.setup = Setup(config, open_together(config, stream, self.team), self.team)
        plan = self.setup.plan()
        self.num_steps = plan.num_steps
        self.num_samples = plan.total
        self._plan = plan
        self.kept = kept_steps(plan.num_steps, config.learner == "supervised")
        self._pending: list[FetchRequest] = []
        make = learner or (lambda setup, num_steps: setup.learner(num_steps))
        self.learner = make(self.setup, plan.num_steps)
        self.lanes = self.setup.lanes if learner is None else Lanes()
        self.checkpoints = Checkpoints(self.out / "checkpoints")
        self.gathering = Gathering(self.team)
        self._logs: tuple[AppendedFile, ...] = ()
        self._lock: TextIO | None = None
        self.team.from_first(lambda: self._open_files(resume))
        self._pipeline = Pipeline(
            self.setup.train_fetcher(),
            self._next_request,
            config.workers,
            steps_at_once=self.setup.steps_at_once,
        )
        self.loop = Loop(
            plan,
            self._pipeline,
            self.learner,
            self.setup.adaptive(),
            learns=config.learner != "none",
            seed=config.seed,
            batch_size=config.batch_size,
            test_every=config.test_every,
            team=self.team,
            lanes=self.lanes,
        )

    def _open_files(self, resume: bool) -> bytes:
        """Take possession of the directory and open the logs; of several processes only the first does."""
        resume = resume or (is_restart() and (self.out / "config.toml").exists())
        with explaining_full_disk(self.out, self._how_to_go_on):
            self._lock = claim(self.out, self.config, resume=resume)
            self.predictions = RecordLog(self.out / "predictions.bin", PREDICTION)
            self.curves = RecordLog(self.out / "curves.bin", curve_dtype(self.learner.num_members))
            self.quarantine = Quarantine(self.out / "quarantine.jsonl")
            # At the start, so that a report of the unfinished run can name the classes.
            write_table(class_table(self.setup.stream.classes), self.out / "classes.parquet")
        self._logs = (self.predictions, self.curves, self.quarantine)
        return b""

    @classmethod
    def resume(
        cls,
        out: Path | str,
        *,
        workers: int | None = None,
        parallel: Parallel | None = None,
        stream: Stream | None = None,
        learner: MakeLearner | None = None,
        warn: Warn = print,
    ) -> Run:
        """The unfinished run in a directory, set back to its newest whole checkpoint.

        A stream or learner of your own must be given again: config.toml names only built-in ones.
        """
        folder = Path(out)
        if not (folder / "config.toml").exists():
            raise DriftlineError(f"{folder} holds no run: there is no config.toml in it")
        config = read_config(folder / "config.toml")
        config = replace(config, workers=workers or config.workers, parallel=parallel or config.parallel)
        return cls(config, folder, stream=stream, learner=learner, warn=warn, resume=True)

    # -- the loop with everything around it

    def records(self) -> Iterator[StepRecord]:
        """Goes through the stream (from the newest checkpoint on, if there is one), a record a step.

        Between two records the run can be left and saved; after an error it is closed, and `Run.resume` opens it again.
        """
        try:
            advice = self._how_to_go_on
            with explaining_full_disk(self.out, advice), self.team.explaining_lost_ranks(advice):
                self._restore()
                yield from self._steps()
        except GeneratorExit:  # left between two steps
            raise
        except BaseException:
            self.close()
            raise

    def _steps(self) -> Iterator[StepRecord]:
        started = time.monotonic() - self.seconds
        last_saved, last_step = time.monotonic(), self.loop.step
        every = self.setup.steps(self.config.checkpoint_every, "checkpoint_every")
        wants_board = "tensorboard" in self.config.log and self.team.is_first
        board = TensorBoardLog(self.out / "tensorboard", last_step) if wants_board else None
        try:
            for record in self.loop.records():
                self._set_aside(record)
                self.seconds = time.monotonic() - started
                late = time.monotonic() - last_saved >= self.config.checkpoint_seconds
                self.stopped, late = self._agreed(self.stop_when(), late)
                saves = late or self.stopped or self.loop.step - last_step >= every
                # Log.
                records = self.gathering.add(record, now=saves or self.loop.step == self.num_steps)
                for whole in records if self.team.is_first else []:
                    self.predictions.append(whole.predictions)
                    self.curves.append(whole.curve)
                    if board:
                        board.add(whole.curve)
                # Keep the weights that transfer is measured with.
                if self.loop.step in self.kept:
                    self._keep_weights(self.kept[self.loop.step], record)
                # Save, by count and by time.
                self.checkpoints.check()
                if saves:
                    self.save(wait=self.stopped)
                    last_saved, last_step = time.monotonic(), self.loop.step
                yield from records
                if self.stopped:
                    return
        finally:
            self._pipeline.close()
            if board:
                board.close()
            self.checkpoints.finish()

    def _agreed(self, stop: bool, late: bool) -> tuple[bool, bool]:
        """Whether any process wants to stop, and whether the first one finds it time to save."""
        if self.team.size == 1:
            return stop, late
        if self.loop.step % AGREE_EVERY and self.loop.step != self.num_steps:
            return False, False
        stops, lates = self.team.sum(np.array([float(stop), float(late and self.team.is_first)]))
        return bool(stops), bool(lates)

    def _next_request(self) -> FetchRequest | None:
        return self._pending.pop(0) if self._pending else self._plan.next()

    def _set_aside(self, record: StepRecord) -> None:
        if self.team.is_first:
            self.quarantine.append(record.step, record.bad)
        self.num_bad += len(record.bad)
        seen = max(BAD_SAMPLES_AT_FIRST, self.loop.step * self.config.batch_size)
        if record.bad and self.num_bad > self.config.max_bad_share * seen:
            raise self.team.error(
                f"step {record.step}: {self.num_bad} samples could not be used, more than {self.config.max_bad_share:.1%} of "
                f"those seen (the last: {record.bad[-1]}); check the stream with `driftline inspect {self.config.stream} "
                f"--verify`, or raise max_bad_share in {self.out}/config.toml, and {self._how_to_go_on}"
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
        if self.team.is_first:
            tensor_file.save(state, weights_path(self.out, name))

    # -- checkpoints

    def save(self, *, wait: bool = False) -> None:
        """Write a checkpoint in the background (or wait for it)."""
        self.loop.check_weights()
        learner = self.learner.state()  # all processes take part
        if not self.team.is_first:
            return
        state = {
            "digest": self.config.digest(),
            "stream": self.setup.stream.fingerprint,
            "loop": self.loop.state(),
            "learner": learner,
            "plan": {name: torch.from_numpy(np.array(value)) for name, value in self._plan.state().items()},
            "pending": [_request_state(request) for request in self._pipeline.pending() + self._pending],
            "logs": {log.path.name: log.mark() for log in self._logs},
            "num_bad": self.num_bad,
            "seconds": self.seconds,
            "resumed": self.resumed,
            "conditions": _conditions(self.team.size),
        }
        self.checkpoints.write(self.loop.step, state, before=self._sync_logs)
        if wait:
            self.checkpoints.finish()

    def _sync_logs(self) -> None:
        for log in self._logs:
            log.sync()

    def _restore(self) -> None:
        """Set everything back to the newest whole checkpoint, or to the start."""
        state = shared_state(self.team, self._newest)
        if state is not None:
            self._load(state)
        for log in self._logs:
            log.cut(state["logs"][log.path.name] if state else START)

    def _newest(self) -> tuple[dict[str, Any], Path] | None:
        state = self.checkpoints.newest(self._check_fit, self.warn)
        return None if state is None else (state, self.checkpoints.paths()[0])

    def _check_fit(self, state: dict[str, Any]) -> None:
        """That the run's other files are those the checkpoint was made beside."""
        for log in self._logs:
            if not log.holds(state["logs"][log.path.name]):
                raise DamagedFileError(
                    f"{log.path} is shorter than, or differs from, what it was at step {state['loop']['step']}"
                )
        for step, name in self.kept.items():
            if step <= state["loop"]["step"]:
                tensor_file.load(weights_path(self.out, name))

    def _load(self, state: dict[str, Any]) -> None:
        if state["digest"] != self.config.digest():
            raise self.team.error(
                f"{self.out}: the checkpoint was made with other settings than config.toml now has; "
                "put config.toml back as it was, or start a new run"
            )
        if state["stream"] != self.setup.stream.fingerprint:
            raise self.team.error(
                f"{self.out}: the stream {self.config.stream} has changed since the checkpoint was made"
            )
        for name, now in _conditions(self.team.size).items():
            if state["conditions"].get(name) != now:
                self.warn(
                    f"{name} was {state['conditions'].get(name)} before the interruption and is {now} now: "
                    "results may differ in the last bits from those of an uninterrupted run"
                )
        self.loop.load(state["loop"])
        self.learner.load(state["learner"])
        self._plan.load({name: value.numpy() for name, value in state["plan"].items()})
        self._pending = [_request(saved) for saved in state["pending"]]
        self.num_bad, self.seconds, self.resumed = state["num_bad"], state["seconds"], state["resumed"] + 1

    # -- the end

    def finish(self) -> dict[str, Any]:
        """Turn the logs into the run's files; the summary. Safe to repeat after a crash."""
        if self.loop.step != self.num_steps:
            raise DriftlineError(
                f"{self.out}: {self.loop.step} of {self.num_steps} steps are done; go through all of records() before finish()"
            )
        advice = self._how_to_go_on
        self._pipeline.forget()
        try:
            with explaining_full_disk(self.out, advice), self.team.explaining_lost_ranks(advice):
                if self.team.from_first(self._wants_last_checkpoint):
                    self.save(wait=True)
                summary = finish_run(self) if self.team.is_first else help_finish(self)
                if self.team.is_first:
                    remove_logs(self.out)
        finally:
            self.close()
        return summary

    def _wants_last_checkpoint(self) -> bytes:
        return b"" if self.checkpoints.has(self.loop.step) else b"yes"

    def execute(self) -> dict[str, Any]:
        """Run to the end and finish."""
        for _ in self.records():
            pass
        return self.finish()

    def close(self) -> None:
        """Let go of the directory and stop all threads; what was saved stays. Safe to repeat."""
        self._pipeline.close()
        try:
            self.checkpoints.finish()
        finally:
            for log in self._logs:
                log.close()
            if self._lock is not None:
                self._lock.close()
            self.team.close()

    @property
    def _how_to_go_on(self) -> str:
        return f"go on with `driftline resume {self.out}`"


def _conditions(num_processes: int) -> dict[str, Any]:
    """What bits depend on besides the settings."""
    return {
        "torch": torch.__version__,
        "processor": torch.backends.cpu.get_cpu_capability(),
        "number of threads": torch.get_num_threads(),
        "number of processes": num_processes,
    }


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
