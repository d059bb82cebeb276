"""How the C library treats freed memory while a model runs."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 32 << 20  # the largest block that glibc agrees to keep


def keep_freed_memory() -> None:
    """Ask the C library to keep freed blocks for the next allocation.

    Each layer needs the same few megabytes again. Given back to the system and fetched anew, page
    by page, they cost more than the metrics computed in them. Only glibc has this switch; elsewhere
    nothing happens. It holds for the whole process, to its end: for the command line alone.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, LARGEST)
            mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def give_back_freed_memory() -> None:
    """Have the C library give freed blocks back to the system, where it can.

    After a large part of a run: among what stays of it, most of what was freed lies in pieces that
    fit nothing that comes after.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
        if trim is not None:
            trim(0)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Look for no garbage in this block, nor later among what it leaves behind.

    For imports of large libraries: all that they make stays. It holds for the whole process: for
    the command line alone.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
