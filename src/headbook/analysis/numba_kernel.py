"""Compilation of loops with numba; no other module imports numba."""

from collections.abc import Callable
from typing import Any

import numba


def kernel(loop: Callable[..., None], *, reorder_sums: bool = True) -> Callable[..., None]:
    """Compile a loop at its first call, with a cache on disk if a folder is writable.

    Args:
        reorder_sums: whether sums may be reordered, as in tensor operations; NaN and infinities
            are kept.
    """
    options: Any = {"nogil": True, "error_model": "numpy"}
    if reorder_sums:
        options["fastmath"] = {"reassoc", "contract", "nsz"}
    try:
        compiled: Callable[..., None] = numba.njit(loop, cache=True, **options)
    except RuntimeError:  # no folder for the cache can be written
        compiled = numba.njit(loop, **options)
    return compiled
