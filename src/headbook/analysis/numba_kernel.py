"""Loops that are compiled: the only door to numba."""

from collections.abc import Callable
from typing import Any

import numba


def kernel(loop: Callable[..., None], *, loose: bool = True) -> Callable[..., None]:
    """Compile a loop when it is first called; kept on disk where a folder can be written.

    Args:
        loose: sums may be taken in any order, as tensor operations take them; NaN and infinities
            stay.
    """
    options: Any = {"nogil": True, "error_model": "numpy"}
    if loose:
        options["fastmath"] = {"reassoc", "contract", "nsz"}
    try:
        found: Callable[..., None] = numba.njit(loop, cache=True, **options)
    except RuntimeError:  # nowhere to keep it
        found = numba.njit(loop, **options)
    return found
