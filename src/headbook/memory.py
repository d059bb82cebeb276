"""Memory limits of this process, how freed memory is returned.

And values that are computed once per object.

Attention itself is measured layer by layer, which takes a few tables of one layer's heads at a
time. What compares heads, and the maps of pages, need tables of all heads at once.
"""

import ctypes
import gc
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from headbook.errors import ResourceError
from headbook.schema import AttentionStack

PROBE = "import vl_convert; vl_convert.vegalite_to_svg({'mark': 'point', 'data': {'values': [{}]}})"


def check_address_space() -> None:
    """Refuse a limit of address space under which the engine of vl-convert would end the process.

    It reserves tens of gigabytes of addresses, which take no memory, and dies without them: so
    another process tries where there is a limit.

    Raises:
        ResourceError: with what to do.
    """
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - not everywhere

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    tried = subprocess.run([sys.executable, "-c", PROBE], check=False, capture_output=True)  # noqa: S603
    if tried.returncode:
        raise ResourceError(
            f"a limit of {limit // 10**6:,} MB of address space came (ulimit -v), under which no "
            "chart can be drawn: that reserves addresses, not memory; expected ulimit -v unlimited"
        )


T = TypeVar("T")


class CachedByFunction:
    """An object that remembers what functions made of it; ``_made`` is a dictionary of its own."""

    _made: dict[Callable[[Any], Any], Any]

    def cached(self, build: Callable[[Self], T]) -> T:
        """What ``build`` makes of this object."""
        if build not in self._made:
            self._made[build] = build(self)
        found: T = self._made[build]
        return found


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 32 << 20  # the largest block that glibc agrees to keep


def keep_freed_blocks() -> None:
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


def trim_memory() -> None:
    """Have the C library give freed blocks back to the system, where it can.

    After a large part of a run: among what stays of it, most of what was freed lies in pieces that
    fit nothing that comes after.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
        if trim is not None:
            trim(0)


@contextmanager
def gc_frozen() -> Iterator[None]:
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


ALWAYS_FITS = (
    512  # tokens of a text that always has room: what is read without being asked for more
)
PART = 8  # of a machine's memory one part of so many is taken without being asked for more
CELL = 24  # bytes of a pair of tokens and a head, of all tables that are there at once
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def map_memory(asked: float | None, limits: Iterable[str] = LIMITS) -> float:
    """Bytes that such tables may take: as asked for, or a part of what this process can have.

    Args:
        asked: of the option ``--memory``; None without.
        limits: files in which a container may say how much it gives.
    """
    if asked is not None:
        return asked
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if _counted() else []
    sizes += [limit for file in limits if (limit := _read(Path(file))) is not None]
    return min(sizes, default=math.inf) / PART


def longest_text(stacks: Iterable[AttentionStack], memory: float) -> int:
    """Tokens of the longest text whose tables of all heads have room; at least `ALWAYS_FITS`."""
    heads = max(len(stack.attention_layers) * stack.n_heads for stack in stacks)
    fitting = math.sqrt(memory / (CELL * max(heads, 1)))
    return max(ALWAYS_FITS, int(min(fitting, 2**31)))


def _counted() -> bool:
    """Whether the system tells how much memory there is: Windows does not, in this way."""
    return "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})


def _read(file: Path) -> int | None:
    """The limit that a file holds; None without one."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
