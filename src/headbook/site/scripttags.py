"""Which scripts a page loads, and in which order: the one place that says so.

Templates write their tags from here, and one file runs the scripts of these tags. The scripts are
classic ones: each finds what it needs in ``window.headbook``, where those before it have put it.
"""

import base64
import hashlib

EVERY = ("site",)
ATTENTION = ("weights", "switches", "drawing")
OWN = {
    "alignment.html": ("choose",),
    "film.html": ("film",),
    "head.html": (*ATTENTION, "instance", "panel", "attention"),
    "headpair.html": (*ATTENTION, "instance", "headpair"),
    "heads.html": ("numbers", "scatter", "headlist", "headcontrols", "heads"),
    "index.html": ("overview",),
    "sentence.html": (*ATTENTION, "tiles", "workspace"),
    "sentencepair.html": ("sentencepair",),
    "sentencepairs.html": ("search",),
    "sentences.html": ("search",),
    "tokens.html": ("types",),
}
# What a script loads when a reader asks for it, in the order in which it does.
ASKED = {
    "site": ("unpack", "find", "atlas", "live"),
    "live": ("vega",),
    "panel": ("save",),
    "sentencepair": ("paths",),
    "workspace": ("paths", "dock", "save", "scores", "neurons"),
}


def scripts_of(template: str) -> tuple[str, ...]:
    """The scripts that a page of a template has tags for."""
    return (*EVERY, *OWN.get(template, ()))


def digest(text: str) -> str:
    """How a page's policy names a script or a style that stands in it."""
    found = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{found}'"
