"""The guide to own data, followed to the letter: its script and its commands are run as they stand."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "own-data.md"


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    (script,) = blocks("python")
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    assert [command[:2] for command in commands] == [
        ["driftline", "build"],
        ["driftline", "inspect"],
        ["driftline", "run"],
        ["driftline", "report"],
    ]
    outputs = []
    for command in commands:
        result = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, (command, result.stdout, result.stderr)
        outputs.append(result.stdout)
    assert "300" in outputs[0]
    assert "1.157" in outputs[1]
    assert (tmp_path / "streams" / "photos" / "stream.json").exists()
    assert (tmp_path / "runs" / "photos" / "summary.json").exists()
