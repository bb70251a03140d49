"""A study as a page of the documentation: Markdown with pictures, around a commentary that people write.

In: the document of `findings.json`, the figures beside it, and the page as it was. Out: the page with fresh figures and numbers and
with the commentary kept: whatever stands between `<!-- comment NAME -->` and `<!-- end -->` is carried over.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image

from driftline.experiments.document import effect_text, sides_text, spread_text, table_of
from driftline.streams.durable import replacing

Json = dict[str, Any]

_COMMENT = re.compile(r"<!-- comment (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)
PAPER_SCALE = """## At the paper's scale

```
driftline reproduce all --scale full --stream streams/cloc --processes 4 --out results-cloc
```

takes the paper's settings, on one machine with four GPUs (`--processes`: one a GPU): ResNet50 with batch normalisation on 224-pixel
crops of images stored with a short side of 256; SGD with momentum 0.9 and weight decay 1e-4; rate 0.05 online and 0.025 supervised at
B = 256, proportional to B; PoLRS with three models and N = 2 M samples; ADRep from R = 40 K, a decision every 40 K samples, threshold
0.5 points; R = 40 K, 4 M and 39 M; B = 256, for the best model 64; 1 and 5 gradient steps; 1 and 5 supervised epochs. It needs the stream
([Building CLOC](cloc.md)) and is refused without it. Each run is also a file that `driftline run --config` takes, in
`src/driftline/experiments/presets/` (`driftline reproduce --list` names them); `best.toml` is PoLRS + ADRep + B = 64 for any stream.
These settings are checked to be the paper's, but the numbers on this page are of the embedded world, not of CLOC."""
MARKS = {"held": "held", "did not hold": "**did not hold**", "undecided": "*undecided*"}


def write_study_docs(document: Json, folder: Path, page: Path) -> None:
    """Write the page, and its pictures into `images/` beside it."""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    images = page.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    for name, figure in document["figures"].items():
        for file in figure["files"]:
            if file.endswith(".png"):
                # In 256 colours: a quarter of the size, and no difference to be seen in a chart.
                with Image.open(folder / file) as picture:
                    picture.convert("RGB").quantize(256).save(images / f"study-{name}.png", optimize=True)
    with replacing(page) as temporary:
        temporary.write_text(render_docs(document, comments(before)), encoding="utf-8")


def comments(text: str) -> dict[str, str]:
    """The commentary of a page, by name.

    >>> comments("x\\n<!-- comment shift -->\\nWhy.\\n<!-- end -->")
    {'shift': 'Why.\\n'}
    """
    return dict(_COMMENT.findall(text))


def render_docs(document: Json, kept: dict[str, str]) -> str:
    """The page as Markdown."""
    parts = [
        "# The study",
        _conditions(document),
        _comment("overview", kept),
        "## What held",
        _overview(document),
        document["rule"],
        *(_figure(name, figure, kept) for name, figure in document["figures"].items()),
        PAPER_SCALE,
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _conditions(document: Json) -> str:
    stream, how = document["stream"], document["conditions"]
    seeds = len(document["seeds"])
    return (
        f"Every figure of the paper on the stream `{stream['name']}`: {stream['samples']:,} samples, {stream['classes']} classes, "
        f"{stream['validation']:,} validation samples, scale `{document['scale']}`, {seeds} {'seed' if seeds == 1 else 'seeds'}. "
        f"Made on {document['made'][:10]} with driftline {document['driftline']} "
        f"({how['jobs']} {'run' if how['jobs'] == 1 else 'runs'} at a time, {how['threads']} {'thread' if how['threads'] == 1 else 'threads'} each; torch {how['torch']}). "
        "All numbers and pictures on this page come from `findings.json` by\n\n"
        f"```\n{how['command']}\n```\n\n"
        "Text between comment marks is written by hand and kept."
    )


def _comment(name: str, kept: dict[str, str]) -> str:
    return f"<!-- comment {name} -->\n{kept.get(name, '')}<!-- end -->"


def _overview(document: Json) -> str:
    found = [(name, f) for name, figure in document["figures"].items() for f in figure["findings"]]
    counts = Counter(f["verdict"] for _, f in found)
    summary = ", ".join(f"{counts[v]} {v}" for v in MARKS if counts[v])
    rows = [
        f"| {f['claim']} | [{name}](#{name}) | {MARKS[f['verdict']]} | {'; '.join(effect_text(c) for c in f['checks'])} |"
        for name, f in found
    ]
    head = "| claim | figure | verdict | effects (90 % interval) |\n|---|---|---|---|"
    return f"Of {len(found)} claims: {summary}.\n\n" + "\n".join([head, *rows])


def _figure(name: str, figure: Json, kept: dict[str, str]) -> str:
    parts = [f'<a id="{name}"></a>\n## {figure["title"]}']
    if any(file.endswith(".png") for file in figure["files"]):
        parts.append(f"![{figure['title']}](images/study-{name}.png)")
    parts.append(figure["caption"])
    parts += [f"Not drawn: {run} failed ({why})." for run, why in figure["failed"].items()]
    parts += [_finding(finding) for finding in figure["findings"]]
    parts.append(_comment(name, kept))
    head, rows = table_of(name, figure)
    if rows:
        parts.append(
            "<details><summary>Runs (mean over seeds, ± half their range)</summary>\n\n"
            + _table(head, rows)
            + "\n\n</details>"
        )
    return "\n\n".join(parts)


def _finding(finding: Json) -> str:
    rows = [
        [c["what"], sides_text(c), effect_text(c), spread_text(c), c["verdict"]] for c in finding["checks"]
    ]
    head = ["comparison", "values", "effect (90 % interval)", "over seeds", "verdict"]
    note = f" {finding['note']}" if finding["note"] else ""
    return (
        f"**{finding['claim']}** {MARKS[finding['verdict']]}. The paper: {finding['paper']}{note}\n\n"
        + _table(head, rows)
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
