"""Online continual learning on one time-ordered, naturally shifting stream.

The names below are the Python interface; each is loaded when it is first used, so that importing driftline costs nothing.

>>> import tempfile
>>> import driftline
>>> run = driftline.Run(driftline.RunConfig(stream="world:2000", limit=512), tempfile.mkdtemp() + "/run")
>>> len([record.accuracy for record in run.records()])
8
>>> sorted(run.finish()["online_accuracy"])
['album', 'batch', 'sample']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driftline.version import VERSION as __version__

if TYPE_CHECKING:
    from driftline.config import RunConfig
    from driftline.engine.run import Run
    from driftline.metrics.log import PredictionLog
    from driftline.streams.open import open_stream
    from driftline.streams.worlds.world import World
    from driftline.types import DriftlineError

__all__ = ["DriftlineError", "PredictionLog", "Run", "RunConfig", "World", "__version__", "open_stream"]

_HOMES = {
    "DriftlineError": "driftline.types",
    "PredictionLog": "driftline.metrics.log",
    "Run": "driftline.engine.run",
    "RunConfig": "driftline.config",
    "World": "driftline.streams.worlds.world",
    "open_stream": "driftline.streams.open",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'driftline' has no attribute {name!r}")
