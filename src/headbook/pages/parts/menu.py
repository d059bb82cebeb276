"""The menu at the top of every page, and what else every page leads to."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

Entry = tuple[str, str]  # address and name

FIRST = {
    "index.html": "Overview",
    "heads.html": "Heads",
    "sentences/index.html": "Sentences",
    "tokens.html": "Tokens",
}
ALL_METRICS = "metrics/index.html"
ANALYSES = {
    "patterns.html": "Attention patterns",
    "importance.html": "Importance of heads",
    "syntax.html": "Syntax: relations and trees",
    "speech.html": "Parts of speech",
    "similar.html": "Similar heads",
    "alignment.html": "Cross-attention",
    "flow.html": "Attention flow",
    "geometry.html": "Representation geometry",
    "context.html": "Head outputs and sentence ends",
    "groups.html": "Groups of sentences",
    ALL_METRICS: "All metrics",
}
METHODS = {"methods.html": "Methods"}
FOOT = {
    "data.html": "Data",
    "about.html": "About",
}
ALWAYS = ("index.html", ALL_METRICS, "methods.html", "data.html", "about.html")
# Pages that no entry leads to, by how their addresses begin, and the entry that they belong to.
WITHIN = {
    "heads/": "heads.html",
    "sentences/": "sentences/index.html",
    "metrics/": ALL_METRICS,
    "data.html": "methods.html",
    "about.html": "methods.html",
}


@dataclass(frozen=True)
class Menu:
    """Addresses and names of the pages that a site has.

    Attributes:
        first: entries before the analyses; ``last``: those after.
        analyses: entries that open below one.
        foot: what the foot of each page leads to.
        name: of the entry below which the analyses open.
        find: whether there is a search.
    """

    first: tuple[Entry, ...]
    analyses: tuple[Entry, ...]
    last: tuple[Entry, ...]
    foot: tuple[Entry, ...]
    name: str = "Analyses"
    find: bool = True

    def entry(self, path: str) -> str:
        """Address of the entry that a page belongs to; empty where there is none."""
        if path in FIRST or path in ANALYSES:
            return path
        return next((entry for start, entry in WITHIN.items() if path.startswith(start)), path)


def menu(across: Collection[str], *, sentence_pages: bool) -> Menu:
    """The menu of a site.

    Args:
        across: addresses of its pages across metrics.
        sentence_pages: whether there are pages of sentences.
    """
    there = {*ALWAYS, *across, *(["sentences/index.html"] if sentence_pages else [])}

    def some(entries: Mapping[str, str]) -> Iterator[Entry]:
        return ((path, name) for path, name in entries.items() if path in there)

    first, analyses, last, foot = (
        tuple(some(entries)) for entries in (FIRST, ANALYSES, METHODS, FOOT)
    )
    return Menu(first, analyses, last, foot)
