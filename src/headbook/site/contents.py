"""The contents of a long page, which stay in sight beside it or above it.

They are read off the page itself, so that no template can forget a heading.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

FEWEST = 2  # entries below which a page needs none
WITHOUT = (
    "index.html",
    "comparison.html",
    "film.html",
    "filmheads.html",
    "head.html",
    "heads.html",
    "sentence.html",
    "404.html",
)  # wide or short
MAIN = '<main id="main" tabindex="-1">\n'
END = "</main>"
# Headings, and what may hold some that are no part of a page's own order.
PART = re.compile(
    r"<(?P<end>/?)(?:details|aside|nav)\b"
    r'|<h(?P<level>[23])(?: id="(?P<id>[^"]*)")?>(?P<text>.*?)</h(?P=level)>',
    re.DOTALL,
)
ASIDE = re.compile(r"<small\b.*?</small>|<[^>]+>", re.DOTALL)
ID = re.compile(r'\bid="([^"]*)"')


@dataclass(frozen=True)
class _Heading:
    """A heading of a page: where it stands, and what it says as HTML without elements."""

    start: int
    level: int
    id: str
    text: str


def with_contents(html: str) -> str:
    """A page with its contents, every heading with an id; the page as it was if it has few."""
    headings = [*_headings(html)]
    upper = [heading for heading in headings if heading.level == 2]
    listed = (
        headings
        if len(upper) > 1
        else [heading for heading in headings if heading.level == 3] or upper
    )
    if len(listed) < FEWEST:
        return html
    nav = f'<nav class="contents" aria-label="On this page">\n{_list(listed)}\n</nav>\n'
    body = _named(html, headings)
    body = body.replace(MAIN, f'{MAIN}{nav}<div class="within">\n', 1)
    before, end, after = body.rpartition(END)
    return f"{before}</div>\n{end}{after}"


def _headings(html: str) -> Iterator[_Heading]:
    """The headings of the main part; ids that are missing are made of what they say."""
    start, end = html.index(MAIN), html.rindex(END)
    taken, depth, above = set(ID.findall(html)), 0, ""
    for part in PART.finditer(html, start, end):
        if not part["level"]:
            depth += -1 if part["end"] else 1
        elif not depth:
            text = " ".join(ASIDE.sub("", part["text"]).split())
            name = part["id"] or _free(text, above if part["level"] == "3" else "", taken)
            above = name if part["level"] == "2" else above
            yield _Heading(part.start(), int(part["level"]), name, text)


def _free(text: str, above: str, taken: set[str]) -> str:
    """An id that no other element has; it is noted as taken."""
    words = re.findall(r"\w+", unescape(text).lower())
    first = "-".join([*([above] if above else []), *words])
    name, number = first, 2
    while name in taken:
        name, number = f"{first}-{number}", number + 1
    taken.add(name)
    return name


def _named(html: str, headings: list[_Heading]) -> str:
    """The page with an id on each of its headings."""
    for heading in reversed(headings):
        tag, at = f"<h{heading.level}", heading.start
        if html.startswith(f"{tag}>", at):
            html = f'{html[:at]}{tag} id="{heading.id}"{html[at + len(tag) :]}'
    return html


def _list(headings: list[_Heading]) -> str:
    """Links, those of lower headings inside those of upper ones."""
    top = min(heading.level for heading in headings)
    lines = []
    for i, each in enumerate(headings):
        lower = i + 1 < len(headings) and headings[i + 1].level
        link = f'<a href="#{each.id}">{each.text}</a>'
        if each.level == top:
            lines.append(f"<li>{link}" + ("<ul>" if lower and lower > top else "</li>"))
        else:
            lines.append(f"<li>{link}</li>" + ("" if lower and lower > top else "</ul></li>"))
    return "<ul>\n" + "\n".join(lines) + "\n</ul>"
