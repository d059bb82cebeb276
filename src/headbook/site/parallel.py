"""Work shared among processes, each of which sends its results as it makes them."""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import get_context, parent_process
from queue import Empty
from typing import Any, Self

from headbook.errors import ResourceError

MOST = 3  # processes by default
WAIT = 1.0  # seconds after which to look whether a process has died


def default_processes() -> int:
    """Return one process for every two cores that this process may use, `MOST` at most.

    With one for each core, drawing pages took more than half as much memory again as when
    processes shared the arrays of a study (`benchmarks/README.md`).
    """
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(max((mine or 1) // 2, 1), MOST)


class DrawingPool:
    """Processes that each do a share of some work; a context manager that ends them.

    They end with the process that began them, too, however that ends.

    They are begun afresh, not forked: threads of libraries do not survive a fork. So a script that
    uses this needs ``if __name__ == "__main__"``.

    Args:
        work: a function of a module, called as ``work(*given, share)``; what it yields must be
            picklable, and so must ``given``.
        given: small, since each process gets a copy; large values are read from files instead.
        processes: how many; each gets every so many-th piece of work.
    """

    def __init__(
        self, work: Callable[..., Iterator[Any]], given: tuple[Any, ...], processes: int
    ) -> None:
        context = get_context("spawn")
        pickled = pickle.dumps((work, given))
        self._found = context.Queue()
        shares = [slice(number, None, processes) for number in range(processes)]
        self._processes = [
            context.Process(target=_do, args=(self._found, pickled, share), daemon=True)
            for share in shares
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    def __iter__(self) -> Iterator[Any]:
        """Yield what the processes yield, as soon as it arrives.

        Raises:
            ResourceError: a process was killed.
            Exception: what a process has raised, or that one has died.
        """
        left = len(self._processes)
        while left:
            try:
                error, found = self._found.get(timeout=WAIT)
            except Empty:
                self._check_alive()
                continue
            if error:
                raise found
            left -= found is None
            if found is not None:
                yield found

    def _check_alive(self) -> None:
        codes = [process.exitcode for process in self._processes]
        number = -min((code for code in codes if code), default=0)
        if number > 0:
            name = signal.Signals(number).name if number in {*signal.Signals} else str(number)
            raise ResourceError(
                f"a process that draws pages was killed by {name}, as systems do where memory is "
                "short; expected more memory, or --processes 1"
            )
        if any(codes) or None not in codes:
            raise RuntimeError("a process that draws pages has died")


def _do(found: Any, pickled: bytes, share: slice) -> None:
    """Send everything that the work yields, then None; runs in a process of its own.

    The work is unpickled here, not by `multiprocessing`: that imports what it needs, which takes
    seconds, during which the process must already end with its parent.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted as well, and ends this
    try:
        work, given = pickle.loads(pickled)  # noqa: S301 - our own
        for each in work(*given, share):
            found.put((False, each))
        found.put((False, None))
    except Exception as error:  # noqa: BLE001 - raised again where the work was asked for
        found.put((True, _portable(error)))


def _end_with_parent() -> None:
    """End this process when its parent ends, even if that was killed.

    The system closes the parent's end of a pipe then, on every system; no signal is needed.
    """
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _portable(error: Exception) -> Exception:
    """Return an error that another process can unpickle, or an error with its message."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever it is that it cannot
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
