"""What a person sees while a study goes on: one bar over all runs on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from driftline.experiments.pool import Pool

LINE_SECONDS = 15.0
REFRESH_SECONDS = 0.5
BAR_WIDTH = 40


class StudyProgress:
    """Shows a pool; use as a context manager and call it with the pool again and again."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._live: Live | None = None
        self._shown = 0.0
        self._started = time.monotonic()
        self._done_at_start: float | None = None

    def __enter__(self) -> StudyProgress:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, pool: Pool) -> None:
        """Show the pool, if it is time."""
        now = time.monotonic()
        if now - self._shown < (REFRESH_SECONDS if self._live else LINE_SECONDS) and pool.running:
            return
        self._shown = now
        share = done_share(pool)
        if self._done_at_start is None:
            self._done_at_start = share
        if self._live:
            self._live.update(self._panel(pool, share), refresh=True)
        else:
            self.console.print(self.line(pool, share), highlight=False, soft_wrap=True)

    def _left(self, share: float) -> str:
        """Time left, judged by what was done since the start."""
        gained = share - (self._done_at_start or 0.0)
        if gained <= 0 or share >= 1:
            return ""
        minutes = (1 - share) * (time.monotonic() - self._started) / gained / 60
        return f"  about {minutes:.0f} min left" if minutes >= 1 else "  less than a minute left"

    def line(self, pool: Pool, share: float) -> str:
        """One plain line."""
        finished = sum(job.is_finished for job in pool.jobs)
        failed = f", {len(pool.failed)} failed" if pool.failed else ""
        going = "; ".join(f"{job.name} {job.progress():.0%}" for job in pool.running)
        return f"study {share:4.0%}  {finished} of {len(pool.jobs)} runs{failed}{self._left(share)}  {going}"

    def _panel(self, pool: Pool, share: float) -> Text:
        full = round(share * BAR_WIDTH)
        finished = sum(job.is_finished for job in pool.jobs)
        text = Text("study  ", style="dim") + Text("━" * full, style="cyan")
        text += Text("━" * (BAR_WIDTH - full), style="grey37") + Text(f"  {share:.0%}")
        text += Text(f"   {finished} of {len(pool.jobs)} runs{self._left(share)}\n")
        if pool.failed:
            text += Text(f"{len(pool.failed)} failed\n", style="red")
        for job in pool.running:
            text += Text(f"  {job.progress():4.0%}  ", style="dim") + Text(f"{job.name}\n")
        return text


def done_share(pool: Pool) -> float:
    """Share of the study's work that is done, runs weighted by their cost; failed ones count as done.

    >>> done_share(Pool([], 1, 1))
    1.0
    """
    total = sum(job.cost for job in pool.jobs)
    if not total:
        return 1.0
    done = sum(job.cost * (1.0 if job.out.name in pool.failed else job.progress()) for job in pool.jobs)
    return done / total
