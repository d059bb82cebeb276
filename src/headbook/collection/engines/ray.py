"""Shards measured by actors of a Ray cluster, each with a model of its own.

They are told one number at a time and write that shard's file, as the processes of `local` do:
the folder of parts has to be there on every machine. An actor that has ended is replaced by a new
one, wherever Ray finds room: tasks given to one that Ray restarts itself fail until it is there.
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from headbook.collection.engines.local import TRIES, Job, take_share
from headbook.errors import ConfigError, HeadbookError

MISSING = "--engine ray: the package ray is missing; install it: pip install 'headbook[ray]'"


def shared_out(job: Job, shards: Iterable[int], came: Callable[[int, str], None]) -> None:
    """Have shards measured.

    Args:
        came: told the number of each shard that is done, and of each that failed `TRIES` times
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
            if why and failures[number] < TRIES:
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
def _cluster(job: Job, size: int) -> Iterator[Any]:
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


def _beginning(ray: Any, job: Job) -> Callable[[], Any]:
    """What begins an actor; with a GPU of its own, where GPUs are asked for."""
    graphics = any(device.startswith("cuda") for device in job.config.devices)
    kind = ray.remote(num_cpus=1, num_gpus=int(graphics))(Actor)
    # Ray gives an actor one GPU, which is the first that it sees.
    return partial(kind.remote, job, "cuda" if graphics else job.config.devices[0])


class Actor:
    """Measures shards; its model is loaded with the first, so that what fails then is heard."""

    def __init__(self, job: Job, device: str) -> None:
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
            take_share(self._job.config.n_workers)
            self._measure = self._stack.enter_context(self._job.begin(self._job, self._device))
        return self._measure(number)
