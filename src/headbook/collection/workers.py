"""Shards measured by several processes, each with a model of its own.

A worker is told one number at a time and writes that shard's file. It may end at any moment: its
shard goes to another one, and a shard that is done twice is the same file.
"""

import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from headbook.config import Config
from headbook.errors import ResourceError

TRIES = 3  # of a shard, before nobody else is given it
READY = -1  # what a worker says when its model is loaded


@dataclass(frozen=True)
class Job:
    """What workers are told.

    Attributes:
        inputs: files, as they were given.
        folder: where parts are kept.
        plan: what it was begun with.
        serve: what a worker runs: it is given the job, the numbers that come, and what to call
            of each: its number, and whether it is done.
    """

    inputs: tuple[str, ...]
    config: Config
    folder: str
    plan: Mapping[str, str]
    serve: Callable[["Job", Iterable[int], Callable[[int, bool], None]], None]


def shared_out(job: Job, shards: Iterable[int], workers: int, done: Callable[[int], None]) -> None:
    """Have shards measured; those that failed `TRIES` times are left to the caller.

    Args:
        done: told the number of each shard that is done.

    Raises:
        ResourceError: workers die, of one shard or before they have begun.
    """
    crew = _Crew(job, workers, deque(shards), done)
    try:
        while crew.waiting or crew.busy:
            crew.hire()
            crew.listen()
    finally:
        crew.dismiss()


class _Crew:
    """The processes, and what each is doing."""

    def __init__(
        self, job: Job, size: int, waiting: deque[int], done: Callable[[int], None]
    ) -> None:
        self.waiting = waiting
        self._job, self._size, self._done = job, size, done
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[Connection, BaseProcess] = {}
        self._doing: dict[Connection, int] = {}  # a shard, or `READY` while a model is loaded
        self._deaths: Counter[int] = Counter()
        self._failures: Counter[int] = Counter()

    @property
    def busy(self) -> bool:
        """Whether any shard is being measured."""
        return any(number != READY for number in self._doing.values())

    def hire(self) -> None:
        """Begin as many processes as there is work for."""
        free = sum(number == READY for number in self._doing.values())
        while len(self._processes) < self._size and free < len(self.waiting):
            mine, theirs = self._context.Pipe()
            process = self._context.Process(
                target=_serve, args=(theirs, self._job, self._size), daemon=True
            )
            process.start()
            theirs.close()  # or its end would not be seen
            self._processes[mine], self._doing[mine] = process, READY
            free += 1

    def listen(self) -> None:
        """Wait until any process says something, or ends."""
        for connection in wait([*self._processes]):
            assert isinstance(connection, Connection)
            try:
                number, well = connection.recv()
            except (EOFError, OSError):
                self._bury(connection)
                continue
            if number == READY:
                self._deaths[READY] = 0
            elif well:
                self._done(number)
            else:
                self._again(number)
            self._give(connection)

    def _give(self, connection: Connection) -> None:
        """Tell a process its next shard; without one it is let go."""
        self._doing.pop(connection)
        if not self.waiting:
            self._processes.pop(connection)
            connection.close()
            return
        self._doing[connection] = self.waiting.popleft()
        with suppress(OSError):  # it has ended meanwhile, which is heard next
            connection.send(self._doing[connection])

    def _again(self, number: int) -> None:
        self._failures[number] += 1
        if self._failures[number] < TRIES:
            self.waiting.append(number)

    def _bury(self, connection: Connection) -> None:
        number = self._doing.pop(connection)
        process = self._processes.pop(connection)
        connection.close()
        process.join()
        self._deaths[number] += 1
        if self._deaths[number] == TRIES:
            what = "before their models were loaded" if number == READY else f"of shard {number:,}"
            raise ResourceError(
                f"{TRIES} workers died {what}, the last with code {process.exitcode}; expected "
                "memory for each: fewer --workers or --batch-tokens need less; what is done is kept"
            )
        if number != READY:
            self.waiting.appendleft(number)

    def dismiss(self) -> None:
        """End all that are still there."""
        for connection, process in self._processes.items():
            connection.close()
            process.kill()
            process.join()


def _serve(connection: Connection, job: Job, size: int) -> None:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that began it ends it
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))

    def numbers() -> Iterator[int]:
        connection.send((READY, True))
        while True:
            yield connection.recv()

    with suppress(EOFError, BrokenPipeError, ConnectionError):  # nobody is there any more
        job.serve(job, numbers(), lambda number, well: connection.send((number, well)))
