"""What was saved comes back, to the bit and of the same types; other tools can read the file; any change is noticed."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftline.engine import tensor_file
from driftline.engine.tensor_file import DTYPES, load, save

TENSORS = st.builds(
    lambda dtype, shape, seed: (
        torch.from_numpy(np.random.default_rng(seed).integers(0, 2, (*shape, 8), dtype=np.uint8))
        .view(torch.uint8)
        .to(dtype)
    ),
    st.sampled_from(list(DTYPES.values())),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 99),
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    PLAIN | TENSORS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(["#tensor", "#dict", "a.b"]), inner, max_size=3
        )
        | st.dictionaries(st.integers(0, 5), inner, max_size=3)
    ),
    max_leaves=10,
)


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b or (a != a and b != b)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(state=st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_every_state_comes_back_as_it_was(tmp_path: Path, state: dict[str, Any]) -> None:
    save(state, tmp_path / "state")
    assert_same(load(tmp_path / "state"), state)
    first = (tmp_path / "state").read_bytes()
    save(load(tmp_path / "state"), tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == first  # the bytes depend on the values alone


def test_the_file_is_laid_out_as_safetensors_demands(tmp_path: Path) -> None:
    """Read by the words of that format's description, with nothing of driftline."""
    weights = {
        "layer.weight": torch.randn(3, 4),
        "layer.count": torch.tensor(7),
        "flag": torch.tensor([True]),
    }
    save({"weights": weights}, tmp_path / "weights.safetensors")
    data = (tmp_path / "weights.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    assert data[8:9] == b"{"
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    assert all(isinstance(value, str) for value in metadata.values())
    kinds = {"F32": np.float32, "I64": np.int64, "BOOL": np.bool_}
    found, end = {}, 0
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        assert start == end  # no holes
        end = stop
        body = data[8 + length + start : 8 + length + stop]
        found[name] = np.frombuffer(body, kinds[entry["dtype"]]).reshape(entry["shape"])
    assert 8 + length + end == len(data)
    assert found.keys() == {f"weights.{name}" for name in weights}
    for name, tensor in weights.items():
        assert np.array_equal(found[f"weights.{name}"], tensor.numpy())


def test_no_byte_can_change_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save({"step": 1, "w": torch.arange(3)}, path)
    data = path.read_bytes()
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        with pytest.raises(tensor_file.DamagedFileError):
            load(path)


def test_tensors_of_any_memory_layout_are_saved_by_their_values(tmp_path: Path) -> None:
    image = torch.randn(2, 3, 4, 5)
    layouts = [image.contiguous(memory_format=torch.channels_last), image.transpose(1, 3), image[:, 1:, ::2]]
    save({"layouts": layouts}, tmp_path / "state")
    for saved, tensor in zip(load(tmp_path / "state")["layouts"], layouts, strict=True):
        assert torch.equal(saved, tensor)


def test_what_cannot_be_saved_is_refused_and_the_file_before_stays(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save({"step": 1}, path)
    with pytest.raises(TypeError, match=r"learner.model: a Linear cannot be part of a checkpoint"):
        save({"learner": {"model": torch.nn.Linear(1, 1)}}, path)
    assert load(path) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_an_optimizer_of_torch_can_be_saved(tmp_path: Path) -> None:
    """What a learner of one's own will hand over."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    save({"optimizer": optimizer.state_dict()}, tmp_path / "state")
    restored = torch.optim.AdamW(model.parameters())
    restored.load_state_dict(load(tmp_path / "state")["optimizer"])
    for parameter, moments in optimizer.state.items():
        for name, value in moments.items():
            assert torch.equal(restored.state[parameter][name], value)
    assert len(restored.state) == 2
