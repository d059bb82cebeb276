"""Memory limits of this process, return of freed memory, and values cached per object.

Attention is measured layer by layer, which takes a few tables of one layer's heads at a time.
Comparisons of heads, and the maps of pages, need tables of all heads at once.
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

# Program that draws a chart, to try in a process of its own.
CHART_SCRIPT = (
    "import vl_convert; vl_convert.vegalite_to_svg({'mark': 'point', 'data': {'values': [{}]}})"
)


def check_address_space() -> None:
    """Raise an error if a limit of address space would make vl-convert abort the process.

    The engine of vl-convert reserves tens of gigabytes of addresses, which take no memory, and
    aborts without them. If a limit is set, a subprocess therefore draws a chart first.

    Raises:
        ResourceError: the subprocess failed; the message says how to raise the limit.
    """
    limit = _address_space()
    if limit is None:
        return
    command = [sys.executable, "-P", "-c", CHART_SCRIPT]  # -P: no module of the current folder
    drawing = subprocess.run(command, check=False, capture_output=True)  # noqa: S603
    if drawing.returncode:
        raise ResourceError(
            f"ulimit -v: got a limit of {limit // 10**6:,} MB of address space, under which no "
            "chart can be drawn: drawing reserves addresses; expected ulimit -v unlimited"
        )


@contextmanager
def libraries_loaded() -> Iterator[None]:
    """Tell a limit of address space, under which libraries cannot be loaded, from other errors.

    Raises:
        ResourceError: a library could not be loaded, and there is such a limit.
    """
    try:
        yield
    except (OSError, ImportError) as error:
        limit = _address_space()
        if limit is None:
            raise
        raise ResourceError(
            f"ulimit -v: got a limit of {limit // 10**6:,} MB of address space, under which the "
            "libraries that run models cannot be loaded; expected ulimit -v unlimited"
        ) from error


def _address_space() -> int | None:
    """Return the limit of address space of this process in bytes, or None without one."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415 - not everywhere

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


T = TypeVar("T")


class CachedByFunction:
    """Base class of objects that cache one result per function, in the dictionary ``_made``."""

    _made: dict[Callable[[Any], Any], Any]

    def cached(self, build: Callable[[Self], T]) -> T:
        """Return ``build(self)``, computed at the first call with this function."""
        if build not in self._made:
            self._made[build] = build(self)
        result: T = self._made[build]
        return result


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MAX_KEPT_BLOCK = 32 << 20  # bytes of the largest block that glibc can keep


def keep_freed_blocks() -> None:
    """Ask the C library to keep freed blocks for the next allocation.

    Each layer needs the same few megabytes again. Returning them to the system and fetching them
    anew, page by page, costs more time than the metrics computed in them. Without glibc nothing
    happens. The setting holds for the whole process, so only the command line calls this function.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, MAX_KEPT_BLOCK)
            mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def trim_memory() -> None:
    r"""Return freed blocks of the C library to the system, if the library is glibc.

    Useful after a large part of a run: most freed memory lies in fragments between live objects,
    too small for later allocations.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
        if trim is not None:
            trim(0)


@contextmanager
def gc_frozen() -> Iterator[None]:
    r"""Disable garbage collection in this block, and exclude its objects from later collections.

    Meant for imports of large libraries, whose objects stay until the end. The exclusion holds for
    the whole process, so only the command line uses it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


MIN_FITTING_TOKENS = 512  # texts up to this length are always measured; default of --max-length
MEMORY_DIVISOR = 8  # by default, tables take an eighth of the machine's memory
BYTES_PER_PAIR = 24  # bytes of one pair of tokens of one head, over all tables that exist at once
LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def map_memory(requested: float | None, limit_files: Iterable[str] = LIMIT_FILES) -> float:
    """Return how many bytes tables of all heads may take: ``--memory``, or a part of all memory.

    Args:
        requested: bytes of the option ``--memory``, or None.
        limit_files: files that may hold the memory limit of a container, in bytes.
    """
    if requested is not None:
        return requested
    has_page_count = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})  # Windows has no such name
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if has_page_count else []
    sizes += [limit for file in limit_files if (limit := _limit_in(Path(file))) is not None]
    return min(sizes, default=math.inf) / MEMORY_DIVISOR


def longest_text(stacks: Iterable[AttentionStack], memory: float) -> int:
    r"""Return the length in tokens of the longest text whose tables of all heads fit into memory.

    The result is at least `MIN_FITTING_TOKENS`.
    """
    n_heads = max(len(stack.attention_layers) * stack.n_heads for stack in stacks)
    n_tokens = math.sqrt(memory / (BYTES_PER_PAIR * max(n_heads, 1)))
    return max(MIN_FITTING_TOKENS, int(min(n_tokens, 2**31)))


def _limit_in(file: Path) -> int | None:
    """Return the memory limit in bytes that a file holds, or None if it holds none."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
