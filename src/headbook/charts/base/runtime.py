"""Vega as one script, which live charts load when a reader asks for one.

Bundling it takes as long as rendering fifty pages, and a version of vl-convert always gives the
same bytes, so it is kept where the user's programs keep what they can make again.
"""

from contextlib import suppress
from functools import cache
from importlib.metadata import version

import vl_convert
from platformdirs import user_cache_path

from headbook.sealed import read_sealed, write_sealed

ENTRY = "window.vegaEmbed=vegaEmbed;"


@cache
def runtime() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that defines ``vegaEmbed`` and no more."""
    file = user_cache_path("headbook") / f"vega-{version('vl-convert-python')}.kept"
    entry, _, kept = (read_sealed(file) or b"").decode().partition("\n")
    if entry == ENTRY:
        return kept
    script = str(vl_convert.javascript_bundle(ENTRY))
    if file.is_absolute():  # else there is no home, and the folder would be the current one's
        with suppress(OSError):  # it may be read-only, or the disk full
            write_sealed(file, f"{ENTRY}\n{script}".encode())
    return script
