"""Work shared out among threads: of torch's own loops, or of a pool that lasts as long as a run.

Torch's threads wait for work by spinning, and threads beside them have to fight them for each
processor. But they can be had only through the runtime below torch, which is the business of
whoever owns the process: the command line takes them, a program that calls us gets a pool.
"""

import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
RUNTIME = "libgomp*.so*"  # the OpenMP runtime that torch brings along on Linux

# Calls a function in as many threads as asked for, and waits for all of them.
Team = Callable[[Callable[[], None], int], None]
_team: ContextVar[Team | None] = ContextVar("headbook_team", default=None)


def share_out(run: Callable[[int, int], None], size: int, n_threads: int) -> None:
    """Run from each thread's first to its last of ``size``, and wait until all is done.

    Without `torch_threads` or `own_threads` around it, one thread does everything.

    Args:
        run: must not wait for Python's lock all the time; what it raises first is raised here.
    """
    ends = [size * number // n_threads for number in range(n_threads + 1)]
    numbers, faults = count(), list[BaseException]()

    def work() -> None:
        # Shares are taken rather than given: there may be fewer threads than were asked for.
        while (number := next(numbers)) < n_threads:
            try:
                run(ends[number], ends[number + 1])
            except BaseException as fault:  # noqa: BLE001 - raised again below
                faults.append(fault)

    team = _team.get()
    if n_threads == 1 or team is None:
        work()
    else:
        team(work, n_threads)
    if faults:
        raise faults[0]


@contextmanager
def torch_threads() -> Iterator[None]:
    """Share out work among torch's threads in this block, where they can be had."""
    parallel = _openmp()
    if parallel is None:
        with own_threads():
            yield
        return

    def call(work: Callable[[], None], n_threads: int) -> None:
        parallel(TASK(lambda _: work()), None, n_threads, 0)

    with _led_by(call):
        yield


@contextmanager
def own_threads() -> Iterator[None]:
    """Share out work in this block among threads that end with it; within another, among its."""
    if _team.get() is not None:
        yield
        return
    others = max(torch.get_num_threads() - 1, 1)  # the one that asks works, too
    with ThreadPoolExecutor(others, "headbook") as pool, _led_by(partial(_call_in, pool)):
        yield


def _call_in(pool: ThreadPoolExecutor, work: Callable[[], None], n_threads: int) -> None:
    others = [pool.submit(work) for _ in range(n_threads - 1)]
    work()
    for other in others:
        other.result()


@contextmanager
def _led_by(team: Team) -> Iterator[None]:
    token = _team.set(team)
    try:
        yield
    finally:
        _team.reset(token)


def _openmp() -> Callable[..., Any] | None:
    """``GOMP_parallel`` of the runtime that torch has loaded; None where it has another."""
    for file in sorted((Path(torch.__file__).parent / "lib").glob(RUNTIME)):
        try:
            parallel = ctypes.CDLL(str(file)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        parallel.argtypes = [TASK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        parallel.restype = None
        found: Callable[..., Any] = parallel
        return found
    return None
