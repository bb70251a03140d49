"""Randomness without state: a draw is a function of what it is for.

A key such as (seed, "crop", step, position) goes in, a uniform number comes out. So a draw does not depend on what was drawn
before it, on the number of workers, or on where a run was resumed, and any element of a long sequence is had at once.
The mixing function is the finaliser of splitmix64 (Steele, Lea and Flood, 2014).
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GOLDEN, _MULTIPLY_1, _MULTIPLY_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL = 0xFFFFFFFFFFFFFFFF
_G, _M1, _M2 = np.uint64(_GOLDEN), np.uint64(_MULTIPLY_1), np.uint64(_MULTIPLY_2)
_S27, _S30, _S31, _S11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)

Key = int | str | ArrayLike


def bits(seed: int, *keys: Key) -> NDArray[np.uint64]:
    """64 well-mixed bits for each element of the keys, which broadcast against one another.

    >>> bits(1, "crop", [3, 4]).tolist() == [bits(1, "crop", 3).item(), bits(1, "crop", 4).item()]
    True
    """
    # Plain integers as far as the keys are single: NumPy takes ten times as long for one number.
    single = _mix_one(seed)
    rest = iter(keys)
    for key in rest:
        if isinstance(key, str):
            key = zlib.crc32(key.encode())
        if not isinstance(key, int):
            mixed = _mix_many(np.uint64(single), key)
            break
        single = _mix_one(single ^ (key & _ALL))
    else:
        return np.asarray(single, np.uint64)
    for key in rest:
        mixed = _mix_many(mixed, zlib.crc32(key.encode()) if isinstance(key, str) else key)
    return mixed


def _mix_one(x: int) -> int:
    x = (x + _GOLDEN) & _ALL
    x = ((x ^ (x >> 30)) * _MULTIPLY_1) & _ALL
    x = ((x ^ (x >> 27)) * _MULTIPLY_2) & _ALL
    return x ^ (x >> 31)


def _mix_many(mixed: NDArray[np.uint64] | np.uint64, key: ArrayLike) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        x = (mixed ^ np.asarray(key, dtype=np.int64).astype(np.uint64)) + _G
        x = (x ^ (x >> _S30)) * _M1
        x = (x ^ (x >> _S27)) * _M2
        return np.asarray(x ^ (x >> _S31))


def uniform(seed: int, *keys: Key) -> NDArray[np.float64]:
    """Numbers in [0, 1), one for each element of the keys.

    >>> u = uniform(0, "flip", np.arange(1000))
    >>> bool(0 <= u.min() and u.max() < 1 and 0.45 < u.mean() < 0.55)
    True
    """
    return np.asarray((bits(seed, *keys) >> _S11).astype(np.float64) * 2.0**-53)


def normal(seed: int, *keys: Key) -> NDArray[np.float64]:
    """Standard normal numbers (Box and Muller), one for each element of the keys.

    >>> z = normal(0, "jitter", np.arange(4000))
    >>> bool(abs(z.mean()) < 0.1 and abs(z.std() - 1) < 0.1)
    True
    """
    radius = np.sqrt(-2.0 * np.log1p(-uniform(seed, *keys, "radius")))
    return np.asarray(radius * np.cos(2.0 * np.pi * uniform(seed, *keys, "angle")))


def generator(seed: int, *keys: int | str) -> np.random.Generator:
    """A NumPy generator for draws that need one, such as choosing without replacement.

    >>> int(generator(3, "replay", 9).integers(100)) == int(generator(3, "replay", 9).integers(100))
    True
    """
    return np.random.Generator(np.random.PCG64(int(bits(seed, *keys))))


def permuted(seed: int, index: ArrayLike, total: int, *keys: int | str) -> NDArray[np.int64]:
    """Where the elements `index` of 0..total-1 stand in a random permutation, in constant memory.

    A Feistel network of four rounds permutes the next power of four; elements that fall outside walk on along their
    cycle until they are inside.

    >>> sorted(permuted(0, np.arange(10), 10).tolist()) == list(range(10))
    True
    """
    half = max(1, (max(total - 1, 1).bit_length() + 1) // 2)
    low = np.uint64((1 << half) - 1)
    shift = np.uint64(half)
    x = np.asarray(index, dtype=np.int64).astype(np.uint64)
    outside = np.ones(x.shape, dtype=bool)
    while outside.any():
        left, right = x[outside] >> shift, x[outside] & low
        for round_number in range(4):
            noise = bits(seed, "permute", *keys, round_number, right.astype(np.int64)) & low
            left, right = right, left ^ noise
        x[outside] = (left << shift) | right
        outside = x >= np.uint64(total)
    return x.astype(np.int64)
