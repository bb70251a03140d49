"""The curves of a run as TensorBoard events, written while the run goes on.

In: rows of the curves, as the engine appends them. Out: an event file that `tensorboard --logdir` follows. TensorBoard is an
extra; nothing is imported before it is asked for.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline.types import DriftlineError

NOT_SCALARS = frozenset({"step", "position", "time"})
FLUSH_SECONDS = 5


class TensorBoardLog:
    """Appends the scalars of each step to event files in a folder; what cannot be drawn (NaN) is left out."""

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        """`first_step` is where a resumed run goes on: TensorBoard then drops what an earlier try wrote beyond it."""
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise DriftlineError(
                "log = tensorboard needs TensorBoard: pip install 'driftline[tensorboard]', or leave --log out"
            ) from None
        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._writer: Any = EventFileWriter(str(folder), flush_secs=FLUSH_SECONDS)
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=first_step, session_log=start))

    def add(self, curve_rows: NDArray[np.void]) -> None:
        """Write one event for each row (of `types.curve_dtype`)."""
        now = time.time()
        for row in curve_rows:
            named = {
                name: float(row[name]) for name in curve_rows.dtype.names or () if name not in NOT_SCALARS
            }
            values = [
                self._summary.Value(tag=k, simple_value=v) for k, v in named.items() if math.isfinite(v)
            ]
            self._writer.add_event(
                self._event(wall_time=now, step=int(row["step"]), summary=self._summary(value=values))
            )

    def close(self) -> None:
        """Write what is left and end the file."""
        self._writer.close()
