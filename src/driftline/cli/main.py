"""Finds the command, runs it, and turns errors into one line and an exit code.

Heavy packages are imported by the command that needs them, so that help comes at once.
"""

from __future__ import annotations

import difflib
import sys
from importlib import import_module

from driftline.types import DriftlineError, ToldElsewhereError
from driftline.version import VERSION

COMMANDS = {
    "demo": ("run", "learn on the embedded world and write a report: start here"),
    "run": ("run", "learn online from a stream, test first, then train"),
    "resume": ("run", "go on with a run that was interrupted"),
    "report": ("show", "turn runs into one self-contained page, and into figures"),
    "watch": ("show", "serve the growing page of a run in progress"),
    "build": ("build", "make a stream from a table of metadata and images"),
    "fetch": ("build", "download the images of a stream built without them"),
    "inspect": ("build", "say what a stream holds; --verify checks every record"),
    "reproduce": ("study", "run the experiments behind the paper's figures"),
    "bench": ("study", "measure this machine against the limits"),
}
"""Command -> module under `driftline.cli`, and what it is for."""

USAGE_ERROR = 2


def usage() -> str:
    """The text of `driftline --help`.

    >>> "driftline demo" in usage()
    True
    """
    lines = [
        "usage: driftline COMMAND [options]        driftline COMMAND --help        driftline --version",
        "",
        "Online continual learning on one time-ordered stream: every sample is predicted first, then learned from.",
        "",
        "commands:",
        *(f"  {name:<10} {purpose}" for name, (_, purpose) in COMMANDS.items()),
        "",
        "first steps:",
        "  driftline demo                                    a few minutes, ends with a report",
        "  driftline run --stream world --out runs/first     the same learner with your own settings",
        "  driftline build TABLE --out streams/mine          your own labelled, time-stamped data",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Run `driftline` with these arguments (those of the process by default) and exit."""
    args = sys.argv[1:] if argv is None else argv
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage())
        sys.exit(0 if args else USAGE_ERROR)
    if args[0] in ("-V", "--version"):
        print(f"driftline {VERSION}")
        sys.exit(0)
    if args[0] not in COMMANDS:
        close = difflib.get_close_matches(args[0], COMMANDS, 1)
        hint = f"did you mean `driftline {close[0]}`?" if close else f"the commands are {', '.join(COMMANDS)}"
        print(f"error: there is no command {args[0]!r}; {hint}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    module = import_module(f"driftline.cli.{COMMANDS[args[0]][0]}")
    try:
        code = getattr(module, args[0])(args[1:])
    except ToldElsewhereError:
        sys.exit(USAGE_ERROR)
    except DriftlineError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    except BrokenPipeError:
        sys.exit(0)  # the reader of our output has seen enough
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(code or 0)
