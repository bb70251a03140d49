"""One file that holds nested values and tensors: whole, or recognised as damaged. Nothing in it can run code.

In: dicts, lists and tuples of tensors, numbers, texts and None. Out: a file in the safetensors layout (a JSON header, then bare
bytes), so other tools can read the tensors. The header carries the other values as JSON, a version, and the SHA-256 of everything else in
the file. Every size is checked against the length of the file before memory is taken.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from driftline.streams.durable import replacing
from driftline.types import DriftlineError
from driftline.version import FORMAT

State = dict[str, Any]

LENGTH = struct.Struct("<Q")
PREFIX = b'{"__metadata__":{"sha256":"'
"""How every header begins; the checksum stands right behind it, at the same place in each file."""
DIGEST_AT = LENGTH.size + len(PREFIX)
NO_DIGEST = b"0" * 64
MAX_HEADER_BYTES = 1 << 27

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class DamagedFileError(DriftlineError):
    """The file is not what was written."""


# -- write


def save(state: State, path: Path) -> None:
    """Write a state, all or nothing.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
    >>> save({"step": 3, "weights": torch.ones(2), "betas": (0.9, None)}, path)
    >>> load(path)
    {'step': 3, 'weights': tensor([1., 1.]), 'betas': (0.9, None)}
    """
    tensors: dict[str, Tensor] = {}
    tree = _to_json(state, "", tensors)
    # Wide numbers first: each tensor then starts at a multiple of its width.
    ordered = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))
    digest = hashlib.sha256()
    with replacing(path) as temporary, temporary.open("wb") as file:
        for part in (memoryview(_header(tree, ordered)), *map(_bytes, ordered.values())):
            digest.update(part)
            file.write(part)
        file.seek(DIGEST_AT)
        file.write(digest.hexdigest().encode())


def _to_json(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The value as JSON; tensors are collected and stand in it by their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        while name in tensors:
            name += "'"
        tensors[name] = value.detach()
        return {"#tensor": name}
    if isinstance(value, list | tuple):
        items = [_to_json(item, f"{name}.{i}", tensors) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"#tuple": items}
    if isinstance(value, dict):
        pairs = [[key, _to_json(v, f"{name}.{key}".lstrip("."), tensors)] for key, v in value.items()]
        plain = all(isinstance(key, str) and not key.startswith("#") for key in value)
        return dict(pairs) if plain else {"#dict": pairs}
    raise TypeError(f"{name}: a {type(value).__name__} cannot be part of a checkpoint")


def _header(tree: Any, tensors: dict[str, Tensor]) -> bytes:
    """Length and header, with zeros in place of the checksum."""
    metadata = {"version": str(FORMAT), "state": json.dumps(tree)}
    entries: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    rest = json.dumps(metadata)[1:] + "".join(f",{json.dumps(k)}:{json.dumps(v)}" for k, v in entries.items())
    text = PREFIX + NO_DIGEST + b'",' + rest.encode() + b"}"
    text += b" " * (-len(text) % 8)
    return LENGTH.pack(len(text)) + text


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(bytearray())


# -- read


def load(path: Path) -> State:
    """Read a state back; raises DamagedFileError if a bit is wrong."""
    try:
        with path.open("rb") as file:
            return _load(file, path)
    except FileNotFoundError:
        raise DamagedFileError(f"{path} is missing") from None
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read ({error.strerror})") from None


def _load(file: BinaryIO, path: Path) -> State:
    size = os.fstat(file.fileno()).st_size
    head = _read_header(file, size, path)
    found = head[DIGEST_AT : DIGEST_AT + len(NO_DIGEST)]
    digest = hashlib.sha256(head.replace(PREFIX + found, PREFIX + NO_DIGEST, 1))
    try:
        entries: dict[str, Any] = json.loads(head[LENGTH.size :])
        metadata = entries.pop("__metadata__")
        version, tree = metadata["version"], metadata["state"]
        tensors = _empty_tensors(entries, size - len(head))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise DamagedFileError(
            f"{path} is damaged: its header makes no sense ({type(error).__name__})"
        ) from None
    for tensor in tensors.values():
        view = _bytes(tensor)
        if file.readinto(view) != len(view):  # type: ignore[attr-defined]
            raise DamagedFileError(f"{path} was shortened while it was read")
        digest.update(view)
    if digest.hexdigest().encode() != found:
        raise DamagedFileError(f"{path} is damaged: the checksum does not match")
    if version != str(FORMAT):
        raise DriftlineError(
            f"{path} has format {version}, this driftline reads {FORMAT}: use the driftline that wrote it"
        )
    try:
        state = _from_json(json.loads(tree), tensors)
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise DamagedFileError(f"{path} is no checkpoint ({type(error).__name__})") from None
    if not isinstance(state, dict):
        raise DamagedFileError(f"{path} is no checkpoint")
    return state


def _read_header(file: BinaryIO, size: int, path: Path) -> bytes:
    """Length and header as they are in the file."""
    first = file.read(DIGEST_AT)
    if len(first) < DIGEST_AT:
        raise DamagedFileError(f"{path} is cut short: {size} bytes")
    (length,) = LENGTH.unpack(first[: LENGTH.size])
    if first[LENGTH.size :] != PREFIX:
        raise DamagedFileError(f"{path} is not a driftline checkpoint, or damaged")
    if not DIGEST_AT <= LENGTH.size + length <= min(size, MAX_HEADER_BYTES):
        raise DamagedFileError(f"{path} is cut short: {size} bytes")
    return first + file.read(LENGTH.size + length - DIGEST_AT)


def _empty_tensors(entries: dict[str, Any], num_bytes: int) -> dict[str, Tensor]:
    """Memory for each tensor, in the file's order; they must fill the file exactly, so it bounds what is taken."""
    layout = {}
    end = 0
    for name, entry in entries.items():
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(shape)
        start, end = end, end + math.prod(shape) * dtype.itemsize
        if entry["data_offsets"] != [start, end]:
            raise ValueError(entry["data_offsets"])
        layout[name] = (shape, dtype)
    if end != num_bytes:
        raise ValueError(num_bytes)
    return {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in layout.items()}


def _from_json(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_from_json(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "#tensor" in value:
        return tensors[value["#tensor"]]
    if "#tuple" in value:
        return tuple(_from_json(item, tensors) for item in value["#tuple"])
    if "#dict" in value:
        return {key: _from_json(item, tensors) for key, item in value["#dict"]}
    return {key: _from_json(item, tensors) for key, item in value.items()}
