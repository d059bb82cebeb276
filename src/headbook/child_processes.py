"""Start of Python processes that import nothing from the current folder.

`multiprocessing`, Ray and other libraries start processes with ``python -c``. Python then puts the
current folder first in the list of folders with modules, before its own library: a file
``pickle.py`` in a folder of somebody else would run. Afterwards processes take the list of their
parent.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

SAFE_PATH = "PYTHONSAFEPATH"  # a variable of Python, like its option -P


@contextmanager
def without_current_folder() -> Iterator[None]:
    """Let Python processes that start in this block import nothing from the current folder."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before
