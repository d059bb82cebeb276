"""Work for other processes, in a module that takes no time to import there."""

import os
from collections.abc import Iterator

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
