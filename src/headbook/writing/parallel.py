"""Work shared out among processes, which hand on what they make as they make it."""

import os
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from typing import Any, Self

from headbook.writing.handed import Handed

MOST = 8  # processes
WAIT = 1.0  # seconds after which to look whether a process has died


def cores() -> int:
    """Cores that this process may use, `MOST` at most."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(mine or 1, MOST)


class Shares:
    """Processes that each do a share of some work; a context manager that ends them.

    They are begun afresh, not forked: threads of libraries do not survive a fork. So a script that
    uses this needs ``if __name__ == "__main__"``.

    Args:
        work: a function of a module, called as ``work(*given, share)``; what it yields must be
            picklable, and so must ``given``.
        processes: how many; each gets every so many-th piece of work.
        folder: where a file with the arrays of ``given`` stands meanwhile; else where the system
            has such files.
    """

    def __init__(
        self,
        work: Callable[..., Iterator[Any]],
        given: tuple[Any, ...],
        processes: int,
        folder: Path | None = None,
    ) -> None:
        context = get_context("spawn")
        number, name = tempfile.mkstemp(dir=folder, prefix=".handed-")
        os.close(number)
        self._file = Path(name)
        handed = Handed.of(given, self._file)
        self._found = context.Queue()
        shares = [slice(number, None, processes) for number in range(processes)]
        self._processes = [
            context.Process(target=_do, args=(self._found, work, handed, share), daemon=True)
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
        self._file.unlink()

    def __iter__(self) -> Iterator[Any]:
        """What the processes yield, as it comes.

        Raises:
            Exception: what a process has raised, or that one has died.
        """
        left = len(self._processes)
        while left:
            try:
                error, found = self._found.get(timeout=WAIT)
            except Empty:
                if any(process.exitcode for process in self._processes):
                    raise RuntimeError("a process that draws pages has died") from None
                continue
            if error:
                raise found
            left -= found is None
            if found is not None:
                yield found


def _do(found: Any, work: Callable[..., Iterator[Any]], handed: Handed, share: slice) -> None:
    """One process: everything that work yields, then None."""
    try:
        for each in work(*handed.taken(), share):
            found.put((False, each))
        found.put((False, None))
    except Exception as error:  # noqa: BLE001 - raised again where the work was asked for
        found.put((True, error))
