"""Arrays and torch files from elsewhere: plain data comes out, or a DriftlineError. Nothing in them can run code.

In: a path to a `.npy` or torch file that somebody else made. Out: its values. How much memory they may take is bounded by the
length of the file: arrays are mapped, and an archive that would unpack to more than its own size is refused.
"""

from __future__ import annotations

import pickle
import struct
import tokenize
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline.types import DriftlineError

_BROKEN = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    SyntaxError,
    RuntimeError,
    AssertionError,
    MemoryError,
    tokenize.TokenError,
    struct.error,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)
"""What the two readers raise on damaged files."""


def load_array(path: Path) -> NDArray[Any]:
    """The array in a `.npy` file, mapped into memory.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.npy"
    >>> np.save(path, np.arange(3))
    >>> load_array(path).tolist()
    [0, 1, 2]
    """
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except _BROKEN as error:
        raise DriftlineError(f"{path} is no plain array ({_reason(error)})") from None


def load_torch(path: Path) -> Any:
    """The tensors, numbers, texts and lists in a torch file."""
    import torch  # takes seconds to import, and few need it

    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > path.stat().st_size:
                raise ValueError(f"it would unpack to {unpacked} bytes, more than it has")
        return torch.load(path, map_location="cpu", weights_only=True)
    except _BROKEN as error:
        raise DriftlineError(
            f"{path} is no torch file of plain data ({_reason(error)}); fetch it again"
        ) from None


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
