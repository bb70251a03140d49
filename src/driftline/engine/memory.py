"""How the process keeps memory that tensors have given back, and the most it has had.

A step allocates and frees the same tensors as the one before. The C library hands blocks of such sizes back to the system and
asks for them again, which clears every page anew; here it is told to keep them. Results are the same.
"""

from __future__ import annotations

import ctypes
import functools
import re
import resource
import sys
from pathlib import Path

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


def peak_memory_mb() -> float:
    """The most memory that this process has had at a time.

    >>> peak_memory_mb() > 10
    True
    """
    try:
        # `getrusage` would count what the process that started this one had.
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    if found:
        return int(found[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 1024)
