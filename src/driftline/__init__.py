"""Online continual learning on one time-ordered, naturally shifting stream."""

from driftline.version import VERSION as __version__

__all__ = ["__version__"]
