"""Worker pools that measure shards: processes of this machine, or actors of a Ray cluster.

A worker gets the number of one shard at a time and writes the shard's file. A worker may end at any
moment: another one measures its shard, and a shard that is measured twice gives the same file.

On CPUs under Linux, workers are forked from a process that has only imported all modules: workers
start at once and share the memory of the imports. GPU drivers do not work after a fork, so each
worker imports all modules itself if there are GPUs.

Actors of Ray need the folder of the store on every machine. An actor that has ended is replaced by
a new one, not restarted by Ray: tasks of a restarting actor fail until it has started.
"""

import logging
import multiprocessing
import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, chdir, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from headbook.child_processes import without_current_folder
from headbook.config import Config
from headbook.errors import ConfigError, HeadbookError, ResourceError
from headbook.inputs import InputSource
from headbook.model.devices import pick_device
from headbook.run.shards import MAX_TRIES

COLLECT_MODULE = "headbook.run.collect"  # module that imports all that a worker needs
READY_MESSAGE = -1  # message of a worker that has loaded its model
STOP_MESSAGE = -2  # message of a worker that met an error of all shards


@dataclass(frozen=True)
class WorkerJob:
    """Settings of the workers of a run.

    Attributes:
        inputs: files, folders and ids of datasets, or sources in memory.
        here: working folder, which relative paths of inputs begin from.
        config: options.
        folder: folder of the store.
        plan: plan of the store.
        begin: context manager that loads a worker's model on a device. Its value is a function that
            measures the shard of a number and returns the error, or an empty text.
    """

    inputs: tuple[str | InputSource, ...]
    here: Path
    config: Config
    folder: Path
    plan: Mapping[str, str]
    begin: Callable[["WorkerJob", str], AbstractContextManager[Callable[[int], str]]]


OnDone = Callable[[int, str], None]  # takes a shard's number and error, empty if it was measured


def measure_in_workers(job: WorkerJob, shards: Iterable[int], on_done: OnDone) -> None:
    """Measure shards with the workers of the option ``--engine``.

    Args:
        job: settings of the workers.
        shards: numbers of the shards.
        on_done: called for each shard that was measured, or that failed `MAX_TRIES` times.

    Raises:
        ConfigError: Ray is not installed, or its cluster cannot be reached.
        ResourceError: workers end before they have loaded their models.
        HeadbookError: a worker met an error of all shards, such as a full disk.
    """
    measure = measure_in_processes if job.config.engine == "local" else measure_on_ray
    measure(job, shards, on_done)


def measure_in_processes(job: WorkerJob, shards: Iterable[int], on_done: OnDone) -> None:
    """Measure shards in processes of this machine, which share the devices evenly.

    Raises:
        ResourceError: workers end before they have loaded their models.
        HeadbookError: a worker met an error of all shards, such as a full disk.
    """
    pool = _WorkerPool(job, deque(shards), on_done)
    try:
        while pool.waiting or pool.busy:
            pool.start_workers()
            pool.receive()
    finally:
        pool.stop()


class _WorkerPool:
    """Worker processes, and the shard that each is measuring.

    Attributes:
        waiting: numbers of the shards that no process has begun.
    """

    def __init__(self, job: WorkerJob, waiting: deque[int], on_done: OnDone) -> None:
        self.waiting = waiting
        self._job, self._on_done = job, on_done
        self._size, self._device_names = job.config.n_workers, job.config.devices
        self._context = _process_context(self._device_names)
        self._processes: dict[Connection, BaseProcess] = {}
        # Number of the shard, or `READY_MESSAGE` while the model is loaded.
        self._measuring: dict[Connection, int] = {}
        self._devices: dict[Connection, str] = {}
        self._failures: Counter[int] = Counter()

    @property
    def busy(self) -> bool:
        """Whether a process is measuring a shard."""
        return any(number != READY_MESSAGE for number in self._measuring.values())

    def start_workers(self) -> None:
        """Start processes, at most as many as shards are waiting."""
        n_loading = sum(number == READY_MESSAGE for number in self._measuring.values())
        while len(self._processes) < self._size and n_loading < len(self.waiting):
            pool_end, worker_end = self._context.Pipe()
            device = self._free_device()
            process = self._context.Process(
                target=_serve, args=(worker_end, self._job, device, dict(os.environ)), daemon=True
            )
            with without_current_folder():
                process.start()
            worker_end.close()  # else `recv` would not notice the end of the process
            self._processes[pool_end], self._measuring[pool_end] = process, READY_MESSAGE
            self._devices[pool_end] = device
            n_loading += 1

    def _free_device(self) -> str:
        """Return the device that the fewest processes use."""
        used = Counter(self._devices[connection] for connection in self._processes)
        return min(self._device_names, key=lambda device: used[device])

    def receive(self) -> None:
        """Wait until processes send a message or end, and give each its next shard.

        Raises:
            HeadbookError: a worker met an error of all shards.
            ResourceError: workers end before they have loaded their models.
        """
        for connection in wait([*self._processes]):
            assert isinstance(connection, Connection)
            try:
                number, error = connection.recv()
            except (EOFError, OSError):
                self._replace(connection)
                continue
            if number == STOP_MESSAGE:
                raise HeadbookError(error)
            if number == READY_MESSAGE:
                self._failures[READY_MESSAGE] = 0
            elif error:
                self._fail(number, error)
            else:
                self._on_done(number, "")
            self._assign(connection)

    def _assign(self, connection: Connection) -> None:
        """Send a process its next shard; without a shard, let the process end."""
        self._measuring.pop(connection)
        if not self.waiting:
            self._processes.pop(connection)
            connection.close()
            return
        self._measuring[connection] = self.waiting.popleft()
        with suppress(OSError):  # the process has ended, which `receive` notices next
            connection.send(self._measuring[connection])

    def _fail(self, number: int, error: str) -> None:
        """Put a failed shard at the end of the queue, unless it has failed `MAX_TRIES` times."""
        self._failures[number] += 1
        if self._failures[number] < MAX_TRIES:
            self.waiting.append(number)
        else:
            self._on_done(number, error)

    def _replace(self, connection: Connection) -> None:
        """Remove a process that has ended, and count its shard as failed once.

        Raises:
            ResourceError: `MAX_TRIES` processes in a row ended before their models were loaded.
        """
        number = self._measuring.pop(connection)
        process = self._processes.pop(connection)
        connection.close()
        process.join()
        if number != READY_MESSAGE:
            self._fail(number, f"the process that measured it ended with code {process.exitcode}")
            return
        self._failures[READY_MESSAGE] += 1
        if self._failures[READY_MESSAGE] == MAX_TRIES:
            raise ResourceError(
                f"{MAX_TRIES} workers ended before their models were loaded, the last with code "
                f"{process.exitcode}; expected memory for each: fewer --workers or --batch-tokens "
                "need less; finished shards are kept"
            )

    def stop(self) -> None:
        """Kill all processes."""
        for connection, process in self._processes.items():
            connection.close()
            process.kill()
            process.join()


def _process_context(devices: Iterable[str]) -> ForkServerContext | SpawnContext:
    """Return how processes are started: forked if all devices are CPUs, under Linux."""
    if sys.platform == "linux" and all(pick_device(device).type == "cpu" for device in devices):
        multiprocessing.set_forkserver_preload([COLLECT_MODULE])
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


def _serve(
    connection: Connection, job: WorkerJob, device: str, environment: Mapping[str, str]
) -> None:
    """Measure shards as a worker process, until the connection is closed.

    Args:
        connection: connection to the pool.
        job: settings of the workers.
        device: device of this worker.
        environment: variables of the pool's process; the process that a worker is forked from may
            have been started with others.
    """
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool ends its workers
    limit_threads(job.config.n_workers)
    with suppress(EOFError, BrokenPipeError, ConnectionError):  # the pool has ended
        try:
            with job.begin(job, device) as measure:
                connection.send((READY_MESSAGE, ""))
                while True:
                    number = connection.recv()
                    connection.send((number, measure(number)))
        except HeadbookError as error:
            connection.send((STOP_MESSAGE, str(error)))


def limit_threads(workers: int) -> None:
    """Limit torch to one worker's share of the processors."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))


PYTHON_LIBRARY = Path(os.__file__).parent
RAY_MISSING = "--engine ray: the package ray is missing; install it: pip install 'headbook[ray]'"


def measure_on_ray(job: WorkerJob, shards: Iterable[int], on_done: OnDone) -> None:
    """Measure shards in actors of a Ray cluster.

    Raises:
        ConfigError: Ray is not installed, or its cluster cannot be reached.
        HeadbookError: an actor met an error of all shards, such as a full disk.
    """
    waiting, failures = deque(shards), Counter[int]()
    size = min(job.config.n_workers, len(waiting))
    if not size:
        return
    with _cluster(job, size) as ray:
        new_actor = _actor_factory(ray, job)
        idle_actors = deque(new_actor() for _ in range(size))
        measuring: dict[Any, tuple[Any, int]] = {}
        while waiting or measuring:
            while waiting and idle_actors:
                actor, number = idle_actors.popleft(), waiting.popleft()
                measuring[actor.measure.remote(number)] = actor, number
            (result,), _ = ray.wait([*measuring])
            actor, number = measuring.pop(result)
            error, alive = _result_of_actor(ray, result)
            idle_actors.append(actor if alive else new_actor())
            failures[number] += bool(error)
            if error and failures[number] < MAX_TRIES:
                waiting.append(number)
            else:
                on_done(number, error)


def _result_of_actor(ray: Any, result: Any) -> tuple[str, bool]:
    """Return the error of a shard, empty if it was measured, and whether its actor is alive.

    Raises:
        HeadbookError: the actor met an error of all shards.
    """
    try:
        failure: str = ray.get(result)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, HeadbookError):
            raise HeadbookError(str(error.cause)) from error
        return " ".join(f"{type(error.cause).__name__}: {error.cause}".split()), False
    except ray.exceptions.RayError as error:
        return f"the actor that measured it ended: {type(error).__name__}", False
    return failure, True


@contextmanager
def _cluster(job: WorkerJob, size: int) -> Iterator[Any]:
    """Connect to a Ray cluster until the block ends; the value is Ray's module.

    Raises:
        ConfigError: Ray is not installed, or its cluster cannot be reached.
    """
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(RAY_MISSING) from error
    started_here = not ray.is_initialized()
    if started_here:
        # Without an address, Ray would connect to any cluster that runs on this machine.
        address = job.config.address or "local"
        local = address == "local"  # a cluster of this run alone: as many CPUs as actors, no page
        try:
            # Actors import from the folder that is the current one here, before Python's library.
            with without_current_folder(), chdir(PYTHON_LIBRARY):
                ray.init(
                    address,
                    num_cpus=size if local else None,
                    include_dashboard=False if local else None,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"--address={address}: {' '.join(str(error).split())}; expected a Ray cluster"
            ) from error
    try:
        yield ray
    finally:
        if started_here:
            ray.shutdown()


def _actor_factory(ray: Any, job: WorkerJob) -> Callable[[], Any]:
    """Return the function that starts an actor, with a GPU of its own if devices are GPUs."""
    graphics = any(device.startswith("cuda") for device in job.config.devices)
    kind = ray.remote(num_cpus=1, num_gpus=int(graphics))(ShardActor)
    # An actor sees only the GPU that Ray gives it, as the first one.
    return partial(kind.remote, job, "cuda" if graphics else job.config.devices[0])


class ShardActor:
    """Worker on Ray. It loads its model with its first shard: errors of a constructor are lost."""

    def __init__(self, job: WorkerJob, device: str) -> None:
        self._job, self._device = job, device
        self._stack = ExitStack()
        self._measure: Callable[[int], str] | None = None

    def measure(self, number: int) -> str:
        """Measure a shard and return its error, or an empty text.

        Raises:
            HeadbookError: an error of all shards, such as a full disk.
        """
        if self._measure is None:
            os.chdir(self._job.here)
            limit_threads(self._job.config.n_workers)
            self._measure = self._stack.enter_context(self._job.begin(self._job, self._device))
        return self._measure(number)
