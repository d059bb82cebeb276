"""Work shared among processes, each of which sends its results as it makes them."""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import get_context, parent_process
from queue import Empty
from typing import Any, Self

from headbook.child_processes import without_current_folder
from headbook.errors import ResourceError

MAX_DEFAULT_PROCESSES = 3  # more would need much memory; options may request more
ALIVE_CHECK_SECONDS = 1.0  # without a result, until the processes are checked


def default_processes() -> int:
    """Return the number of processes: half the cores available, at most `MAX_DEFAULT_PROCESSES`.

    With one for each core, drawing pages took more than half as much memory again as when
    processes shared the arrays of a study (`benchmarks/README.md`).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(max((cores or 1) // 2, 1), MAX_DEFAULT_PROCESSES)


class DrawingPool:
    """Processes that each do a share of some work; a context manager that ends them.

    The processes also end if their parent ends, even by a signal. They are spawned, not forked,
    because threads of libraries do not survive a fork. So a script that uses this class needs
    ``if __name__ == "__main__"``.

    Args:
        work: function of a module, called as ``work(*arguments, share)``; its results must be
            picklable.
        arguments: picklable and small, since each process gets a copy.
        processes: number of processes n; each gets every n-th piece of work.
    """

    def __init__(
        self, work: Callable[..., Iterator[Any]], arguments: tuple[Any, ...], processes: int
    ) -> None:
        context = get_context("spawn")
        pickled = pickle.dumps((work, arguments))
        with without_current_folder():  # a queue starts a process, too
            self._results = context.Queue()
        shares = [slice(number, None, processes) for number in range(processes)]
        self._processes = [
            context.Process(target=_do, args=(self._results, pickled, share), daemon=True)
            for share in shares
        ]

    def __enter__(self) -> Self:
        with without_current_folder():
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
            Exception: a process raised an error or died.
        """
        running = len(self._processes)
        while running:
            try:
                error, result = self._results.get(timeout=ALIVE_CHECK_SECONDS)
            except Empty:
                self._check_alive()
                continue
            if error:
                raise result
            running -= result is None
            if result is not None:
                yield result

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


def _do(results: Any, pickled: bytes, share: slice) -> None:
    """Send everything that the work yields, then None; runs in a process of its own.

    The work is unpickled here, not by `multiprocessing`: that imports what it needs, which takes
    seconds, during which the process must already end with its parent.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted as well, and ends this
    try:
        work, arguments = pickle.loads(pickled)  # noqa: S301 - our own
        for result in work(*arguments, share):
            results.put((False, result))
        results.put((False, None))
    except Exception as error:  # noqa: BLE001 - raised again where the work was asked for
        results.put((True, _portable(error)))


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
