"""Work shared out among threads: those of torch's own loops, where they can be had.

These wait for work by spinning. Threads beside them would have to fight them for each processor.
"""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import torch

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
RUNTIME = "libgomp*.so*"  # the OpenMP runtime that torch brings along on Linux


def share_out(run: Callable[[int, int], None], size: int, n_threads: int) -> None:
    """Run from each thread's first to its last of ``size``, and wait until all is done.

    Args:
        run: must not wait for Python's lock all the time; what it raises first is raised here.
    """
    ends = [size * number // n_threads for number in range(n_threads + 1)]
    numbers, faults = count(), list[BaseException]()

    def work(_: Any = None) -> None:
        # Shares are taken rather than given: there may be fewer threads than were asked for.
        while (number := next(numbers)) < n_threads:
            try:
                run(ends[number], ends[number + 1])
            except BaseException as fault:  # noqa: BLE001 - raised again below
                faults.append(fault)

    if n_threads == 1:
        work()
    elif (parallel := _openmp()) is not None:
        parallel(TASK(work), None, n_threads, 0)
    else:
        others = [_pool(n_threads).submit(work) for _ in range(n_threads - 1)]
        work()
        for other in others:
            other.result()
    if faults:
        raise faults[0]


@cache
def _openmp() -> Callable[..., None] | None:
    """``GOMP_parallel`` of the runtime that torch has loaded; None where it has another."""
    for file in sorted((Path(torch.__file__).parent / "lib").glob(RUNTIME)):
        try:
            parallel = ctypes.CDLL(str(file)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        parallel.argtypes = [TASK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        parallel.restype = None
        found: Callable[..., None] = parallel
        return found
    return None


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work; the one that asks works, too."""
    return ThreadPoolExecutor(n_threads - 1, thread_name_prefix="headbook")
