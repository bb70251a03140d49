"""Import of the authors' CLOC release: their labels, their order."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from driftline.geo import s2
from driftline.streams.building.build import build
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.building.dry_run import dry_run
from driftline.streams.store import StoredStream
from driftline.types import DriftlineError

NUM = 500
# Not in ascending order: the labels of a release mean the places in its own list.
CELLS = np.random.default_rng(0).permutation(s2.children_of(s2.faces()))


def write_release(folder: Path, **changes: Any) -> Path:
    rng = np.random.default_rng(1)
    folder.mkdir(exist_ok=True)
    columns: dict[str, Any] = {
        "labels": torch.tensor(rng.integers(0, 24, NUM)),
        "time": np.sort(rng.integers(10**9, 10**9 + 10**4, NUM)).tolist(),
        "userID": [f"{k}@N00" for k in rng.integers(1, 9, NUM)],
        "store_loc": [f"12/{k}.jpg\n" for k in range(NUM)],
    }
    for name, values in (columns | changes).items():
        if values is not None:
            torch.save(values, folder / f"train_{name}.torchSave")
    lines = [f"{k % 24},x,{10**9 + 100 * k},{k}@N01,y,z/{k}.jpg" for k in range(20)]
    (folder / "yfcc_2004To2014_compact_val.csv").write_text("\n".join(lines) + "\n")
    np.save(folder / "cellID_yfcc.npy", CELLS)
    return folder


def test_a_release_keeps_its_labels_and_its_order(tmp_path: Path) -> None:
    folder = write_release(tmp_path / "release")
    report = build(BuildConfig((str(folder),), tmp_path / "out", format="cloc"))
    stream = StoredStream(tmp_path / "out")
    samples = stream.train.samples(0, NUM)
    assert report.accounting.num_read == NUM + 20
    assert samples.label.tolist() == torch.load(folder / "train_labels.torchSave", weights_only=True).tolist()
    assert samples.time.tolist() == torch.load(folder / "train_time.torchSave", weights_only=True)
    users = torch.load(folder / "train_userID.torchSave", weights_only=True)
    assert samples.user.tolist() == [int(user.split("@")[0]) * 100 for user in users]
    assert stream.validation.labels(np.arange(20)).tolist() == [k % 24 for k in range(20)]
    assert stream.classes.cells is not None
    assert stream.classes.cells.tolist() == CELLS.tolist()
    lat, _ = s2.centres(CELLS)
    assert stream.classes.lat is not None
    assert np.allclose(stream.classes.lat, lat)
    again = build(BuildConfig((str(folder),), tmp_path / "again"))
    assert again.format == "cloc"
    assert (tmp_path / "again" / "samples.parquet").read_bytes() == (
        tmp_path / "out" / "samples.parquet"
    ).read_bytes()


def test_rows_out_of_time_are_put_in_order_and_keep_it_within_a_second(tmp_path: Path) -> None:
    times = [30, 10, 20, 10, *range(100, 100 + NUM - 4)]
    folder = write_release(tmp_path / "release", time=times)
    build(BuildConfig((str(folder),), tmp_path / "out", format="cloc"))
    first = StoredStream(tmp_path / "out").train.samples(0, 4)
    labels = torch.load(folder / "train_labels.torchSave", weights_only=True)
    assert first.time.tolist() == [10, 10, 20, 30]
    assert first.label.tolist() == labels[[1, 3, 2, 0]].tolist()


def test_dirty_rows_of_a_release_are_counted(tmp_path: Path) -> None:
    paths = [f"{k}.jpg" for k in range(NUM)]
    paths[3], paths[4] = "../../etc/passwd", ""
    labels = list(range(24)) * 20 + [-1] * 20
    folder = write_release(tmp_path / "release", store_loc=paths, labels=labels)
    with (folder / "yfcc_2004To2014_compact_val.csv").open("ab") as file:
        file.write(b"half a line\n7,x,123\n")
    report = build(BuildConfig((str(folder),), tmp_path / "out", format="cloc"))
    assert report.accounting.refused == {"broken_line": 2, "no_id": 1, "unsafe_path": 1, "no_class": 20}


def test_without_cells_the_labels_name_themselves(tmp_path: Path) -> None:
    folder = write_release(tmp_path / "release")
    (folder / "cellID_yfcc.npy").unlink()
    build(BuildConfig((str(folder),), tmp_path / "out", format="cloc"))
    classes = StoredStream(tmp_path / "out").classes
    assert classes.names[:3] == ("0", "1", "2")
    assert classes.cells is None


@pytest.mark.parametrize("form", ["signed", "tokens", "decimal"])
def test_cells_in_other_forms(tmp_path: Path, form: str) -> None:
    folder = write_release(tmp_path / "release")
    forms = {
        "signed": CELLS.view(np.int64),
        "tokens": np.array(s2.tokens(CELLS)),
        "decimal": np.array([str(c) for c in CELLS]),
    }
    np.save(folder / "cellID_yfcc.npy", forms[form])
    build(BuildConfig((str(folder),), tmp_path / "out", format="cloc"))
    cells = StoredStream(tmp_path / "out").classes.cells
    assert cells is not None
    assert cells.tolist() == CELLS.tolist()


def test_dry_run_of_a_release(tmp_path: Path) -> None:
    estimate = dry_run(BuildConfig((str(write_release(tmp_path / "r")),), tmp_path / "out", format="cloc"))
    assert (estimate.num_stream, estimate.num_validation, estimate.num_classes) == (NUM, 20, 24)


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit('code of a file was run')",))


def test_bad_releases_are_refused(tmp_path: Path) -> None:
    def refuses(folder: Path, message: str) -> None:
        with pytest.raises(DriftlineError, match=message):
            build(BuildConfig((str(folder),), tmp_path / "out", format="cloc"))

    refuses(tmp_path / "nowhere", "no directory")
    refuses(write_release(tmp_path / "a", time=None), r"train_time.torchSave is missing")
    refuses(write_release(tmp_path / "b", time=[1, 2]), "different lengths")
    refuses(write_release(tmp_path / "c", labels=torch.tensor([30] * NUM)), "not of one release")
    refuses(write_release(tmp_path / "d", userID=Evil()), "no torch file of plain data")
    refuses(write_release(tmp_path / "e", labels={"a": 1}), "a list or a tensor")
    pickled = write_release(tmp_path / "f")
    np.save(pickled / "cellID_yfcc.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    refuses(pickled, "no plain array")
    wrong = write_release(tmp_path / "g")
    np.save(wrong / "cellID_yfcc.npy", np.array([2, 4], np.uint64))
    refuses(wrong, "no S2 cell id")
