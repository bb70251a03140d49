"""Files and names that mean harm: nothing they hold runs, leaves its root, or takes memory it was not given."""

from __future__ import annotations

import io
import os
import pickle
import resource
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from driftline.engine import tensor_file
from driftline.report.page import write_report
from driftline.streams.building.readers import cloc
from driftline.streams.images.sources import FolderSource, Missing
from driftline.streams.store import StoredStream
from driftline.streams.store.untrusted import load_array, load_torch
from driftline.types import ClassTable, DriftlineError

Bench = Any
GIGABYTE = 2**30


class Exploit:
    """Unpickled, it makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.trace),)


@pytest.fixture(params=["pickle", "torch zip", "torch legacy"])
def malicious(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[bytes, Path]:
    """A file that runs code in a careless reader, and the trace it would leave."""
    trace = tmp_path / "it ran"
    buffer = io.BytesIO()
    if request.param == "pickle":
        pickle.dump(Exploit(trace), buffer)
    else:
        zipped = request.param == "torch zip"
        torch.save([Exploit(trace)], buffer, _use_new_zipfile_serialization=zipped)
    torch.load(
        io.BytesIO(buffer.getvalue()), weights_only=False
    ) if request.param != "pickle" else pickle.loads(buffer.getvalue())
    assert trace.exists()  # it works
    trace.rmdir()
    return buffer.getvalue(), trace


def test_a_malicious_checkpoint_does_not_run(bench: Bench, malicious: tuple[bytes, Path]) -> None:
    data, trace = malicious
    out = bench.interrupted(65)
    for path in (out / "checkpoints").glob("state-*"):
        path.write_bytes(data)
    with pytest.raises(DriftlineError, match="not a driftline checkpoint"):
        bench.resume().execute()
    assert not trace.exists()


def test_malicious_kept_weights_do_not_run(bench: Bench, malicious: tuple[bytes, Path]) -> None:
    data, trace = malicious
    out = bench.interrupted(65)
    (out / "checkpoints" / "weights-H-3.safetensors").write_bytes(data)
    with pytest.raises(DriftlineError, match="not a driftline checkpoint"):
        bench.resume().execute()
    assert not trace.exists()


def test_a_malicious_release_does_not_run(tmp_path: Path, malicious: tuple[bytes, Path]) -> None:
    data, trace = malicious
    for name in ("labels", "time", "userID", "store_loc"):
        (tmp_path / f"train_{name}.torchSave").write_bytes(data)
    with pytest.raises(DriftlineError, match="no torch file of plain data"):
        cloc.read_train(cloc.find_release(tmp_path))
    objects = np.empty(1, object)
    objects[0] = Exploit(trace)
    np.save(tmp_path / "cellID.npy", objects, allow_pickle=True)
    with pytest.raises(DriftlineError, match="no plain array"):
        load_array(tmp_path / "cellID.npy")
    assert not trace.exists()


@pytest.fixture
def little_memory() -> Any:
    """The process may take one gigabyte more than it has."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + GIGABYTE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_bomb_in_a_torch_file_is_refused(tmp_path: Path, little_memory: None) -> None:
    """More than a gigabyte of zeros in a file of a few megabytes."""
    path = tmp_path / "bomb.torchSave"
    buffer = io.BytesIO()
    torch.save(torch.zeros(8, dtype=torch.uint8), buffer)
    with (
        zipfile.ZipFile(buffer) as whole,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bomb,
    ):
        for member in whole.infolist():
            if member.filename.endswith("data/0"):
                with bomb.open(member.filename, "w", force_zip64=True) as file:
                    for _ in range(1300):
                        file.write(bytes(2**20))
            else:
                bomb.writestr(member.filename, whole.read(member))
    assert path.stat().st_size < 2**26
    with pytest.raises(DriftlineError, match="would unpack to 1363"):
        load_torch(path)


def test_sizes_that_a_header_claims_are_checked_before_memory_is_taken(
    tmp_path: Path, little_memory: None
) -> None:
    claims = tmp_path / "claims.npy"
    np.save(claims, np.zeros(16))
    claims.write_bytes(claims.read_bytes().replace(b"(16,), }      ", b"(16000000000,)"[:14]))
    with pytest.raises(DriftlineError):
        load_array(claims)
    header = tensor_file.PREFIX + tensor_file.NO_DIGEST
    header += b'","version":"1","state":"{}"},"a":{"dtype":"F32","shape":[4000000000],"data_offsets":[0,16000000000]}}'
    state = tmp_path / "state"
    state.write_bytes(tensor_file.LENGTH.pack(len(header)) + header)
    with pytest.raises(DriftlineError, match="header makes no sense"):
        tensor_file.load(state)
    state.write_bytes(tensor_file.LENGTH.pack(2**62) + header)
    with pytest.raises(DriftlineError, match="cut short"):
        tensor_file.load(state)


@pytest.mark.parametrize(
    "name",
    ["../secret.jpg", "a/../../secret.jpg", "/etc/passwd", "link/secret.jpg", "..", "", "a\0b", "loop"],
)
def test_no_name_in_a_table_leaves_the_image_folder(tmp_path: Path, name: str) -> None:
    root = tmp_path / "images"
    (root / "a").mkdir(parents=True)
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    (root / "link").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    (found,) = FolderSource(root).read([name])
    assert isinstance(found, Missing)


def test_a_shard_list_cannot_name_other_files(tmp_path: Path) -> None:
    """Names of files come from numbers, never from the text of stream.json."""
    (tmp_path / "stream.json").write_text(
        '{"format": "driftline-stream", "version": 1, "shards": ["../../etc/passwd"]}'
    )
    with pytest.raises(DriftlineError, match="damaged"):
        StoredStream(tmp_path)


def test_markup_in_labels_and_names_stays_text_in_the_page(bench: Bench) -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    bench.stream.classes = ClassTable((hostile, "</title>", "a&b", '"', "'"))
    bench.stream.name = hostile
    bench.settings = {"limit": 320}
    bench.start().execute()
    out = bench.folder / "run"
    assert pl.read_parquet(out / "classes.parquet")["name"][0] == hostile
    renamed = bench.folder / "<b>run"
    shutil.move(out, renamed)
    write_report([renamed], bench.folder / "page.html")
    page = (bench.folder / "page.html").read_text()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "<b>run" not in page
