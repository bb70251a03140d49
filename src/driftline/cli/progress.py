"""What a person sees while a run goes on: a live panel on a terminal, plain lines elsewhere.

In: step records. Out: position, date in the stream, accuracy beside blind, loss, rate, buffer, speed, time left.
"""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from driftline.engine.records import StepRecord
from driftline.metrics.blind import BlindCounter

LINE_SECONDS = 10.0
"""Without a terminal a line is printed this often."""
REFRESH_SECONDS = 0.25
BAR_WIDTH = 40


@dataclass
class Tally:
    """Running figures of a run, from its records."""

    num_samples: int
    position: int = 0
    time_s: int = 0
    num_scored: int = 0
    num_correct: int = 0
    album_sum: float = 0.0
    album_steps: int = 0
    blind_sum: float = 0.0
    last: StepRecord | None = None
    _blind: BlindCounter = field(default_factory=BlindCounter)

    def add(self, record: StepRecord) -> None:
        """Take in one step."""
        rows = record.predictions
        self.last = record
        self.position += len(rows)
        if not len(rows):
            return
        self.time_s = int(rows["time"][-1])
        correct = rows["pred"] == rows["label"]
        self.num_correct += int(correct.sum())
        scored = rows["scored"]
        blind = self._blind.update(rows["label"], scored)
        if scored.any():
            self.album_steps += 1
            self.album_sum += float(correct[scored].mean())
            self.blind_sum += blind / int(scored.sum())

    @property
    def album(self) -> float:
        """Average online accuracy so far, album scoring."""
        return self.album_sum / self.album_steps if self.album_steps else math.nan

    @property
    def blind(self) -> float:
        """The blind classifier's, on the same samples."""
        return self.blind_sum / self.album_steps if self.album_steps else math.nan

    @property
    def sample(self) -> float:
        """Share of all samples predicted right so far."""
        return self.num_correct / self.position if self.position else math.nan


class _RunConsole(Console):
    """Falls silent when whoever read the output has gone (`driftline run ... | head`); the run goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Progress:
    """Shows a run; use as a context manager and call `add` for each record."""

    def __init__(self, num_samples: int, num_steps: int, name: str, console: Console | None = None) -> None:
        self.console = console or _RunConsole()
        self.tally = Tally(num_samples)
        self.num_steps = num_steps
        self.name = name
        self._started = time.monotonic()
        self._shown = 0.0
        self._first_step: int | None = None
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def add(self, record: StepRecord) -> None:
        """Count one step, and show it if it is time."""
        if self._first_step is None:
            self._first_step = record.step
        self.tally.add(record)
        now = time.monotonic()
        interval = REFRESH_SECONDS if self._live else LINE_SECONDS
        if now - self._shown >= interval or record.step + 1 == self.num_steps:
            self._shown = now
            if self._live:
                self._live.update(self._panel(), refresh=True)
            else:
                self.console.print(self.line(), highlight=False, soft_wrap=True)

    def _speed(self) -> tuple[float, float]:
        """Steps a second, and seconds left."""
        assert self.tally.last is not None
        assert self._first_step is not None
        done = self.tally.last.step + 1
        speed = (done - self._first_step) / max(time.monotonic() - self._started, 1e-9)
        return speed, (self.num_steps - done) / max(speed, 1e-9)

    def line(self) -> str:
        """One plain line."""
        tally, last = self.tally, self.tally.last
        assert last is not None
        curve = last.curve[0]
        _, left = self._speed()
        parts = [f"{self.name} {(last.step + 1) / self.num_steps:4.0%}"]
        if tally.position:
            date = datetime.fromtimestamp(tally.time_s, UTC)
            parts += [
                f"{date:%Y-%m}",
                f"album {tally.album:.1%} blind {tally.blind:.1%} all {tally.sample:.1%}",
            ]
        parts += [f"loss {curve['loss']:.2f}", f"rate {curve['lr']:.2g}", f"left {_duration(left)}"]
        return "  ".join(parts)

    def _panel(self) -> Table:
        tally, last = self.tally, self.tally.last
        assert last is not None
        curve = last.curve[0]
        speed, left = self._speed()
        share = (last.step + 1) / self.num_steps
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(no_wrap=True)
        full = round(share * BAR_WIDTH)
        bar = Text("━" * full, style="cyan") + Text("━" * (BAR_WIDTH - full), style="grey37")
        table.add_row(self.name, bar + Text(f"  {share:.0%}"))
        if tally.position:
            date = datetime.fromtimestamp(tally.time_s, UTC)
            table.add_row(
                "position", f"{tally.position:,} of {tally.num_samples:,}   in the stream: {date:%d %B %Y}"
            )
            table.add_row(
                "online accuracy",
                Text(f"{tally.album:.1%}", style="bold green")
                + Text(f"   blind {tally.blind:.1%}   (album)   all samples {tally.sample:.1%}"),
            )
        buffer = f"   buffer {int(curve['buffer_size']):,}" if curve["buffer_size"] else ""
        table.add_row("loss", f"{curve['loss']:.3f}   rate {curve['lr']:.3g}{buffer}")
        batch = len(last.predictions) or 1
        table.add_row("speed", f"{speed * batch:,.0f} samples/s   {_duration(left)} left")
        return table


def _duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> _duration(75), _duration(7300)
    ('1:15 min', '2:01 h')
    """
    whole = int(np.clip(seconds, 0, 1e8))
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
