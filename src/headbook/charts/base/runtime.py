"""Vega as one script, which live charts load when a reader asks for one.

Bundling it takes as long as rendering fifty pages, and a version of vl-convert always gives the
same bytes, so it is kept where the user's programs keep what they can make again.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

from headbook.charts.base.fonts import converter

ENTRY = "window.vegaEmbed=vegaEmbed;"


@cache
def runtime() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that defines ``vegaEmbed`` and no more."""
    file = user_cache_path("headbook") / f"vega-{version('vl-convert-python')}.js"
    script = _kept(file)
    if script is None:
        script = str(converter().javascript_bundle(ENTRY))
        if file.is_absolute():  # else there is no home, and the folder would be the current one's
            _keep(file, script)
    return script


def _kept(file: Path) -> str | None:
    """The script in a file; None where it is not there, or not as it was written."""
    try:
        seal, _, script = file.read_bytes().decode().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return script if seal == _seal(script) else None


def _keep(file: Path, script: str) -> None:
    """Write a script for later runs, under its name when it is whole; a folder may be read-only."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        number, draft = tempfile.mkstemp(prefix=file.name, dir=file.parent)
        try:
            with os.fdopen(number, "wb") as stream:
                stream.write(f"{_seal(script)}\n{script}".encode())
            Path(draft).replace(file)
        except OSError:
            Path(draft).unlink(missing_ok=True)


def _seal(script: str) -> str:
    return f"// {hashlib.sha256((ENTRY + script).encode()).hexdigest()}"
