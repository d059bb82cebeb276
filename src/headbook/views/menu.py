"""The menu at the top of every page."""

from collections.abc import Collection

MENU = {
    "index.html": "Overview",
    "heads.html": "Heads",
    "alignment.html": "Cross-attention",
    "metrics/index.html": "Metrics",
    "speech.html": "Parts of speech",
    "syntax.html": "Syntax",
    "patterns.html": "Patterns",
    "similar.html": "Similar heads",
    "tokens.html": "Tokens",
    "flow.html": "Flow",
    "geometry.html": "Geometry",
    "context.html": "Context",
    "groups.html": "Groups",
    "sentences/index.html": "Sentences",
    "methods.html": "Methods",
    "data.html": "Data",
    "about.html": "About",
}
ALWAYS = ("index.html", "metrics/index.html", "methods.html", "data.html", "about.html")


def menu(across: Collection[str], *, sentence_pages: bool) -> tuple[tuple[str, str], ...]:
    """Address and name of each page of the menu that the site has.

    Args:
        across: addresses of its pages across metrics.
        sentence_pages: whether there are pages of sentences.
    """
    there = {*ALWAYS, *across, *(["sentences/index.html"] if sentence_pages else [])}
    return tuple((path, name) for path, name in MENU.items() if path in there)
