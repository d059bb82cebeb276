"""Work for other processes, in a module that takes no time to import there."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headbook.errors import OutputError


def squares(count: int, share: slice) -> Iterator[int]:
    yield from (number**2 for number in range(count)[share])


def refuses(share: slice) -> Iterator[int]:
    if share.start:
        raise OutputError("no room")
    yield 1


def dies(share: slice) -> Iterator[int]:
    if share.start:
        os._exit(3)
    yield 1


def is_killed(share: slice) -> Iterator[int]:
    if share.start:
        os.kill(os.getpid(), signal.SIGKILL)
    yield 1


class MumbledError(Exception):
    """One that cannot be pickled and made again."""

    def __init__(self, *, words: int) -> None:
        super().__init__(f"{words} words")


def mumbles(share: slice) -> Iterator[int]:
    if not share.start:
        raise MumbledError(words=3)
    yield 1


def waits(place: str, share: slice) -> Iterator[int]:
    (Path(place) / f"{os.getpid()}.pid").touch()
    time.sleep(60)
    yield share.start


@contextmanager
def echoes(_job: object, _device: str) -> Iterator[Callable[[int], str]]:
    """Give each shard a fault with its number."""
    yield lambda number: f"shard {number}"
