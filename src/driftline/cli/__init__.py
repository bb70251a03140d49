"""The command line: `driftline COMMAND`. Commands parse, call one function of the layers below, and print."""

from driftline.cli.main import main

__all__ = ["main"]
