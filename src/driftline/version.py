"""The version of the package and of the files that others build on."""

VERSION = "0.1.0"
"""Version of the package."""

FORMAT = 1
"""Version number written into every file of a stream and of a run; a reader refuses any other."""
