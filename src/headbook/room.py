"""How much memory tables of all pairs of a text's tokens may take, and how long a text may be then.

Attention itself is measured layer by layer, which takes a few tables of one layer's heads at a
time. What compares heads, and the maps of pages, need tables of all heads at once.
"""

import math
import os
from collections.abc import Iterable
from pathlib import Path

from headbook.terms import Stack

USUAL = 512  # tokens of a text that always has room: what is read without being asked for more
PART = 8  # of a machine's memory one part of so many is taken without being asked for more
CELL = 24  # bytes of a pair of tokens and a head, of all tables that are there at once
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def room(asked: float | None, limits: Iterable[str] = LIMITS) -> float:
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


def longest(stacks: Iterable[Stack], memory: float) -> int:
    """Tokens of the longest text whose tables of all heads have room; at least `USUAL`."""
    heads = max(len(stack.attention_layers) * stack.n_heads for stack in stacks)
    fitting = math.sqrt(memory / (CELL * max(heads, 1)))
    return max(USUAL, int(min(fitting, 2**31)))


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
