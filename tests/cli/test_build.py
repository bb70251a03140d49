"""`driftline build`, `inspect` and `fetch` as a user meets them: what is printed, and the exit code."""

import json

import pytest

from driftline.cli import main


@pytest.fixture
def driftline(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def call(*args):
        with pytest.raises(SystemExit) as stop:
            main([str(arg) for arg in args])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return call


def test_a_world_is_built_inspected_and_verified(driftline, tmp_path):
    code, out, _ = driftline("build", "world:3000", "--out", tmp_path / "w", "--workers", 1)
    assert code == 0
    assert "3,000" in out
    assert f"driftline run --stream {tmp_path / 'w'}" in out.replace("\n", "")
    code, out, _ = driftline("inspect", tmp_path / "w")
    manifest = json.loads((tmp_path / "w" / "stream.json").read_text())
    assert code == 0
    assert "Images per year" in out
    assert "Albums by size" in out
    assert str(manifest["name"]) in out
    code, out, _ = driftline("inspect", tmp_path / "w", "--verify")
    assert code == 0
    assert "every one as it should be" in out


def test_verify_names_a_flipped_bit_and_fails(driftline, tmp_path):
    driftline("build", "world:3000", "--out", tmp_path / "w", "--workers", 1)
    shard = tmp_path / "w" / "images-00000.bin"
    data = bytearray(shard.read_bytes())
    data[5000] ^= 1
    shard.write_bytes(data)
    code, out, err = driftline("inspect", tmp_path / "w", "--verify")
    assert code == 1
    assert "problem:" in err
    assert "1 problem" in out


def test_dry_run_builds_nothing(driftline, tmp_path):
    code, out, _ = driftline("build", "world:3000", "--out", tmp_path / "w", "--dry-run")
    assert code == 0
    assert "Would be built" in out
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["build", "nowhere.csv", "--out", "OUT"], "nowhere.csv"),
        (["build", "world:12", "--out", "OUT"], "12"),
        (["inspect", "OUT"], "no stream"),
        (["inspect", "world:3000", "--verify"], "rendered"),
        (["fetch", "OUT"], "no stream"),
    ],
)
def test_mistakes_get_one_line_and_code_2(driftline, tmp_path, args, says):
    code, _, err = driftline(*[str(tmp_path / "out") if a == "OUT" else a for a in args])
    assert code == 2
    assert err.startswith("error: ")
    assert says in err
    assert "Traceback" not in err
