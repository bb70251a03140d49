"""Writes docs/flags.md, the reference of all flags, from the dataclasses that declare them.

Run it after changing a flag: `.venv/bin/python docs/write_flags.py`. A test compares the page with what this would write.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from pathlib import Path

from driftline.cli.build import FetchFlags, InspectFlags
from driftline.cli.main import COMMANDS
from driftline.cli.run import DemoFlags, ResumeFlags, RunFlags
from driftline.cli.show import ReportFlags, WatchFlags
from driftline.cli.study import BenchFlags, ReproduceFlags
from driftline.config import RunConfig
from driftline.streams.building.build_config import BuildConfig

PAGES: dict[str, list[type]] = {
    "demo": [DemoFlags],
    "run": [RunFlags, RunConfig],
    "resume": [ResumeFlags],
    "report": [ReportFlags],
    "watch": [WatchFlags],
    "build": [BuildConfig],
    "fetch": [FetchFlags],
    "inspect": [InspectFlags],
    "reproduce": [ReproduceFlags],
    "bench": [BenchFlags],
}
HEAD = """# Flags

Every flag of every command, with its default. `driftline COMMAND --help` shows the same. The settings of `run` are also the keys
of the TOML file that `--config` takes, with underscores for dashes. Sizes and intervals take a count (`40000`) or a share of the
stream (`0.1`, `10%`, `1/18`). Made by `docs/write_flags.py`.
"""


def meanings(declared: type) -> dict[str, str]:
    """The docstring under each field of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(declared))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def default(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "" if field.default_factory is not dataclasses.MISSING else "required"
    return "" if field.default is None else f"`{field.default}`"


def flag(field: dataclasses.Field) -> str:
    if "Positional" in str(field.type):
        return f"`{field.name.upper()}`"
    name = "as" if 'name="as"' in str(field.type) else field.name.replace("_", "-")
    return f"`--{name}`"


def rows(declared: type) -> list[str]:
    texts = meanings(declared)
    return [
        f"| {flag(field)} | {default(field)} | {texts[field.name].replace('|', chr(92) + '|')} |"
        for field in dataclasses.fields(declared)
        if field.name in texts
    ]


def page() -> str:
    parts = [HEAD]
    for command, declared in PAGES.items():
        parts.append(
            f"\n## driftline {command}\n\n{COMMANDS[command][1].capitalize()}.\n\n| flag | default | meaning |\n|---|---|---|"
        )
        parts += [line for one in declared for line in rows(one)]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("flags.md").write_text(page())
