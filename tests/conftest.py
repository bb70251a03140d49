"""Settings of all tests: a slow machine is no failure, so hypothesis sets no deadline."""

from hypothesis import settings

settings.register_profile("driftline", deadline=None)
settings.load_profile("driftline")
