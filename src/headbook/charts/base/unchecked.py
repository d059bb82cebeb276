"""Drawing charts that are known to be right."""

from collections.abc import Iterator
from contextlib import contextmanager

from altair.utils import schemapi


@contextmanager
def unchecked() -> Iterator[None]:
    """Draw without comparing every part of a chart with Vega-Lite's schema as it is made.

    That takes longer than all other work on a page; tests draw the same charts with it.
    """
    with schemapi.debug_mode(False):
        yield


def checks() -> bool:
    """Whether charts are compared with the schema."""
    return schemapi.DEBUG_MODE
