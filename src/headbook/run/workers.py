"""Worker pools that measure shards: processes of this machine, or actors of a Ray cluster.

A worker is told one number at a time and writes that shard's file. It may end at any moment: its
shard goes to another one, and a shard that is done twice is the same file.

Where there are only processors, and forks are safe, workers are forked from a process that has
imported everything and done nothing else: they begin at once, and share what was imported. Drivers
of GPUs do not survive a fork; there each worker imports everything itself.

They are told one number at a time and write that shard's file, as the processes of `local` do:
the folder of parts has to be there on every machine. An actor that has ended is replaced by a new
one, wherever Ray finds room: tasks given to one that Ray restarts itself fail until it is there.
"""

import logging
import multiprocessing
import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from headbook.config import Config
from headbook.errors import ConfigError, HeadbookError, ResourceError
from headbook.model.devices import pick_device

MAX_TRIES = 3  # of a shard, before the others go on without it
COLLECT = "headbook.run.collect"  # imports all that a worker needs
READY = -1  # what a worker says when its model is loaded
STOP = -2  # what it says when nothing can go on


@dataclass(frozen=True)
class WorkerJob:
    """What workers are told.

    Attributes:
        inputs: files, as they were given.
        here: the folder from which they are.
        folder: where parts are kept.
        plan: what it was begun with.
        begin: loads a worker's model on a device, and gives what measures a shard: it takes its
            number, and gives why it failed, or nothing.
    """

    inputs: tuple[str, ...]
    here: Path
    config: Config
    folder: Path
    plan: Mapping[str, str]
    begin: Callable[["WorkerJob", str], AbstractContextManager[Callable[[int], str]]]


def measure_in_processes(
    job: WorkerJob, shards: Iterable[int], came: Callable[[int, str], None]
) -> None:
    """Have shards measured by processes of this machine, one to a device in turn.

    Args:
        came: told the number of each shard that is done, and of each that failed `MAX_TRIES` times
            also why.

    Raises:
        ResourceError: workers die before they have begun.
        HeadbookError: one says that nothing can go on, as on a full disk.
    """
    crew = _WorkerPool(job, deque(shards), came)
    try:
        while crew.waiting or crew.busy:
            crew.hire()
            crew.listen()
    finally:
        crew.dismiss()


class _WorkerPool:
    """The processes, and what each is doing."""

    def __init__(
        self, job: WorkerJob, waiting: deque[int], came: Callable[[int, str], None]
    ) -> None:
        self.waiting = waiting
        self._job, self._came = job, came
        self._size, self._places = job.config.n_workers, job.config.devices
        self._context = _context(self._places)
        self._processes: dict[Connection, BaseProcess] = {}
        self._doing: dict[Connection, int] = {}  # a shard, or `READY` while a model is loaded
        self._devices: dict[Connection, str] = {}
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
            device = self._free_device()
            process = self._context.Process(
                target=_serve, args=(theirs, self._job, device, dict(os.environ)), daemon=True
            )
            process.start()
            theirs.close()  # or its end would not be seen
            self._processes[mine], self._doing[mine] = process, READY
            self._devices[mine] = device
            free += 1

    def _free_device(self) -> str:
        """The one that the fewest processes use."""
        used = Counter(self._devices[each] for each in self._processes)
        return min(self._places, key=lambda device: used[device])

    def listen(self) -> None:
        """Wait until any process says something, or ends."""
        for connection in wait([*self._processes]):
            assert isinstance(connection, Connection)
            try:
                number, why = connection.recv()
            except (EOFError, OSError):
                self._bury(connection)
                continue
            if number == STOP:
                raise HeadbookError(why)
            if number == READY:
                self._failures[READY] = 0
            elif why:
                self._fail(number, why)
            else:
                self._came(number, "")
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

    def _fail(self, number: int, why: str) -> None:
        """Have a shard tried again, at the end, unless that is of no use."""
        self._failures[number] += 1
        if self._failures[number] < MAX_TRIES:
            self.waiting.append(number)
        else:
            self._came(number, why)

    def _bury(self, connection: Connection) -> None:
        """Go on without a process that has ended."""
        number = self._doing.pop(connection)
        process = self._processes.pop(connection)
        connection.close()
        process.join()
        if number != READY:
            self._fail(number, f"the process that measured it ended with code {process.exitcode}")
            return
        self._failures[READY] += 1
        if self._failures[READY] == MAX_TRIES:
            raise ResourceError(
                f"{MAX_TRIES} workers died before their models were loaded, the last with code "
                f"{process.exitcode}; expected memory for each: fewer --workers or --batch-tokens "
                "need less; what is done is kept"
            )

    def dismiss(self) -> None:
        """End all that are still there."""
        for connection, process in self._processes.items():
            connection.close()
            process.kill()
            process.join()


def _context(devices: Iterable[str]) -> ForkServerContext | SpawnContext:
    """How workers for some devices are begun."""
    if sys.platform == "linux" and all(pick_device(each).type == "cpu" for each in devices):
        multiprocessing.set_forkserver_preload([COLLECT])
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


def _serve(
    connection: Connection, job: WorkerJob, device: str, environment: Mapping[str, str]
) -> None:
    """A worker's life.

    Args:
        environment: of who began it, which the process that it is forked from may not have.
    """
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that began it ends it
    limit_threads(job.config.n_workers)
    with suppress(EOFError, BrokenPipeError, ConnectionError):  # nobody is there any more
        try:
            with job.begin(job, device) as measure:
                connection.send((READY, ""))
                while True:
                    number = connection.recv()
                    connection.send((number, measure(number)))
        except HeadbookError as error:
            connection.send((STOP, str(error)))


def limit_threads(workers: int) -> None:
    """Take one process's share of the processors."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))


MISSING = "--engine ray: the package ray is missing; install it: pip install 'headbook[ray]'"


def measure_on_ray(job: WorkerJob, shards: Iterable[int], came: Callable[[int, str], None]) -> None:
    """Have shards measured.

    Args:
        came: told the number of each shard that is done, and of each that failed `MAX_TRIES` times
            also why.

    Raises:
        ConfigError: Ray is not installed, or its cluster cannot be had.
        HeadbookError: an actor says that nothing can go on, as on a full disk.
    """
    waiting, failures = deque(shards), Counter[int]()
    size = min(job.config.n_workers, len(waiting))
    if not size:
        return
    with _cluster(job, size) as ray:
        begin = _beginning(ray, job)
        free = deque(begin() for _ in range(size))
        doing: dict[Any, tuple[Any, int]] = {}
        while waiting or doing:
            while waiting and free:
                actor, number = free.popleft(), waiting.popleft()
                doing[actor.measure.remote(number)] = actor, number
            (result,), _ = ray.wait([*doing])
            actor, number = doing.pop(result)
            why, alive = _outcome(ray, result)
            free.append(actor if alive else begin())
            failures[number] += bool(why)
            if why and failures[number] < MAX_TRIES:
                waiting.append(number)
            else:
                came(number, why)


def _outcome(ray: Any, result: Any) -> tuple[str, bool]:
    """Why a shard failed, empty where it did not; and whether its actor is still there.

    Raises:
        HeadbookError: nothing can go on.
    """
    try:
        why: str = ray.get(result)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, HeadbookError):
            raise HeadbookError(str(error.cause)) from error
        return " ".join(f"{type(error.cause).__name__}: {error.cause}".split()), False
    except ray.exceptions.RayError as error:
        return f"the actor that measured it ended: {type(error).__name__}", False
    return why, True


@contextmanager
def _cluster(job: WorkerJob, size: int) -> Iterator[Any]:
    """Ray, connected as long as the block lasts.

    Raises:
        ConfigError: it is not installed, or the cluster is not there.
    """
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(MISSING) from error
    own = not ray.is_initialized()
    if own:
        # Without an address Ray would take a cluster that happens to be there.
        address = job.config.address or "local"
        local = address == "local"  # such a one needs no more processors, and no page about itself
        try:
            ray.init(
                address,
                num_cpus=size if local else None,
                include_dashboard=False if local else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"--address {address}: {' '.join(str(error).split())}; expected a Ray cluster"
            ) from error
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()


def _beginning(ray: Any, job: WorkerJob) -> Callable[[], Any]:
    """What begins an actor; with a GPU of its own, where GPUs are asked for."""
    graphics = any(device.startswith("cuda") for device in job.config.devices)
    kind = ray.remote(num_cpus=1, num_gpus=int(graphics))(ShardActor)
    # Ray gives an actor one GPU, which is the first that it sees.
    return partial(kind.remote, job, "cuda" if graphics else job.config.devices[0])


class ShardActor:
    """Measures shards; its model is loaded with the first, so that what fails then is heard."""

    def __init__(self, job: WorkerJob, device: str) -> None:
        self._job, self._device = job, device
        self._stack = ExitStack()
        self._measure: Callable[[int], str] | None = None

    def measure(self, number: int) -> str:
        """Measure a shard; why it failed, if it did.

        Raises:
            HeadbookError: nothing can go on.
        """
        if self._measure is None:
            os.chdir(self._job.here)
            limit_threads(self._job.config.n_workers)
            self._measure = self._stack.enter_context(self._job.begin(self._job, self._device))
        return self._measure(number)
