"""How the process keeps memory that tensors have given back.

A step allocates and frees the same tensors as the one before. The C library hands blocks of such sizes back to the system and
asks for them again, which clears every page anew; here it is told to keep them. Results are the same.
"""

from __future__ import annotations

import ctypes
import functools

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of the two settings in malloc.h."""
LARGEST_KEPT_BYTES = 2**25
"""Larger blocks still go back to the system when they are freed (2^25 is the most that glibc takes)."""
MOST_KEPT_BYTES = 2**28


@functools.cache
def keep_freed_memory() -> bool:
    """Tell the C library, once a process; False where it cannot be told (it is not glibc).

    >>> keep_freed_memory() in (True, False)
    True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_KEPT_BYTES) and mallopt(TRIM_THRESHOLD, MOST_KEPT_BYTES))
