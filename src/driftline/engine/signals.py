"""SIGINT and SIGTERM: the first one asks a run to save and stop after its step, the second one stops it at once.

In: signals of the process. Out: a code to exit with, between two steps; or `Stopped`, raised wherever the process is. Either way
what has been saved stays as it was.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Stopped(BaseException):
    """A signal asked for an end at once."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Signals:
    """Watches for signals while it lasts; only the main thread can use it.

    >>> with Signals() as signals:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     signals.code
    143
    """

    def __init__(self) -> None:
        self.code = 0
        """What to exit with once the step is done; 0 while no signal has come."""
        self.at_once = False
        """Set where there is nothing to save, because what is under way can be repeated."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._catch) for number in EXIT_CODES}
        return self

    def _catch(self, number: int, frame: FrameType | None) -> None:
        wants_end_now = self.at_once or bool(self.code)
        self.code = EXIT_CODES[signal.Signals(number)]
        if wants_end_now:
            raise Stopped(self.code)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
