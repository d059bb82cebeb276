"""From a page to its file: templates, folded parts, contents, data of live charts.

They are read off the page itself, so that no template can forget a heading.

What a template puts between two marks leaves the page; ``templates/assets/site.js`` brings it back.
The file is compressed, so that the many numbers of a head weigh a fifth of what they would there.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from html import unescape
from pathlib import Path
from types import NoneType
from typing import Any
from urllib.parse import urlsplit

import jinja2

from headbook import charts
from headbook.charts import Figure
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import PageTable
from headbook.pages.parts.text import Token
from headbook.resources import folder as resource_folder
from headbook.site import markup
from headbook.site.assets import digest, scripts_of

FEWEST = 2  # entries below which a page needs none
WITHOUT = (
    "index.html",
    "comparison/comparison.html",
    "film/film.html",
    "film/filmheads.html",
    "head.html",
    "heads.html",
    "sentence.html",
    "404.html",
)  # wide or short
MAIN = '<main id="main" tabindex="-1">\n'
MAIN_END = "</main>"
# Headings, and what may hold some that are no part of a page's own order.
PART = re.compile(
    r"<(?P<end>/?)(?:details|aside|nav)\b"
    r'|<h(?P<level>[23])(?: id="(?P<id>[^"]*)")?>(?P<text>.*?)</h(?P=level)>',
    re.DOTALL,
)
MARKUP = re.compile(r"<small\b.*?</small>|<[^>]+>", re.DOTALL)
ID = re.compile(r'\bid="([^"]*)"')


@dataclass(frozen=True)
class _Heading:
    """A heading of a page: where it stands, and what it says as HTML without elements."""

    start: int
    level: int
    id: str
    text: str


def with_contents(html: str) -> str:
    """Return a page with a table of contents and ids on headings; unchanged if it has few."""
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
    before, end, after = body.rpartition(MAIN_END)
    return f"{before}</div>\n{end}{after}"


def _headings(html: str) -> Iterator[_Heading]:
    """Yield the headings of the main part, with ids made of their text if they lack one."""
    start, end = html.index(MAIN), html.rindex(MAIN_END)
    taken, depth, above = set(ID.findall(html)), 0, ""
    for part in PART.finditer(html, start, end):
        if not part["level"]:
            depth += -1 if part["end"] else 1
        elif not depth:
            text = " ".join(MARKUP.sub("", part["text"]).split())
            name = part["id"] or _free(text, above if part["level"] == "3" else "", taken)
            above = name if part["level"] == "2" else above
            yield _Heading(part.start(), int(part["level"]), name, text)


def _free(text: str, above: str, taken: set[str]) -> str:
    """Return an id that no other element has, and add it to ``taken``."""
    words = re.findall(r"\w+", unescape(text).lower())
    first = "-".join([*([above] if above else []), *words])
    name, number = first, 2
    while name in taken:
        name, number = f"{first}-{number}", number + 1
    taken.add(name)
    return name


def _named(html: str, headings: list[_Heading]) -> str:
    """Return the page with an id on each of its headings."""
    for heading in reversed(headings):
        tag, at = f"<h{heading.level}", heading.start
        if html.startswith(f"{tag}>", at):
            html = f'{html[:at]}{tag} id="{heading.id}"{html[at + len(tag) :]}'
    return html


def _list(headings: list[_Heading]) -> str:
    """Return links to headings, lower ones inside upper ones."""
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


FOLDER = "data/later"
START, FOLDED_END = "<!--later-->", "<!--/later-->"


def take_out_folded(html: str, root: str, path: str) -> tuple[str, list[str]]:
    """Return a page without its folded parts, and these parts.

    Args:
        root: the way from the page to the site's root.
        path: of the page.
    """
    kept, *marked = html.split(START)
    parts: list[str] = []
    for each in marked:
        part, _, rest = each.partition(FOLDED_END)
        kept += f'<div data-later="{len(parts)}" data-src="{root}{folded_file(path)}"></div>{rest}'
        parts.append(part.removeprefix("\n").removesuffix("\n"))
    return kept, parts


def name_of(path: str) -> str:
    """Return the name of the folded parts of a page in scripts."""
    return f"later-{path.removesuffix('.html').replace('/', '-')}"


def folded_file(path: str) -> str:
    """Return the address of the folded parts of a page, from the site's root."""
    return f"{FOLDER}/{name_of(path).removeprefix('later-')}.js"


MISSING = "404.html"  # the page that a server shows for a wrong address


def site_address(url: str | None) -> str:
    """Return the address of a site's folder with a slash at its end; empty if it is unknown."""
    return f"{url.rstrip('/')}/" if url else ""


def page_address(base: str, path: str) -> str:
    """Return the address of a page on the web; the first page has the address of the folder."""
    return base + ("" if path == "index.html" else path)


def path_to_root(base: str, page: Page) -> str:
    """Return the path from a page to the site's root.

    The page for wrong addresses is shown at any depth, so its way begins at the host, where that
    is known.
    """
    return urlsplit(base).path if base and page.path == MISSING else page.root


LIVE = "data-chart="  # the buttons of live charts
SOURCES = "script-src 'self'"
# Types that hold no `Figure`; a table holds a `Drawing` at most.
PLAIN = {str, int, float, bool, NoneType, PageTable, Token}


@dataclass(frozen=True)
class PageWriter:
    """Writer of the pages of one site; other processes get a copy.

    Attributes:
        folder: of the site.
        base: its address on the web; empty where it is not known.
        frame: what every template can use beside its page.
    """

    folder: Path
    base: str
    frame: Mapping[str, Any]

    @property
    def environment(self) -> jinja2.Environment:
        """The templates."""
        return _templates(self.base)

    def page(self, page: Page) -> None:
        """Write a page, and the data of its live charts."""
        for figure in figures_of(page):
            self.live(figure)
        root = path_to_root(self.base, page)
        html = _allowing(self.drawn(page.template, page=page, root=root))
        html, parts = take_out_folded(html, root, page.path)
        if parts:
            self.text(folded_file(page.path), markup.script(name_of(page.path), parts))
        self.text(page.path, html if page.template in WITHOUT else with_contents(html))

    def live(self, figure: Figure) -> None:
        """Write the data of a live chart, if there is one."""
        path = self.folder / "data" / "charts" / f"{figure.name}.js"
        if figure.interactive and not path.exists():
            path.write_text(markup.script(f"chart-{figure.name}", figure.live()))

    def drawn(self, template: str, **given: Any) -> str:
        """Return a template as text."""
        return self.environment.get_template(template).render(**given, **self.frame)

    def text(self, path: str, text: str) -> None:
        """Write a file of the site."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")


@cache
def _templates(base: str) -> jinja2.Environment:
    """Return the templates of sites at an address, each compiled once in a process."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_folder("templates")),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        finalize=markup.printed,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(markup.filters())
    environment.filters["scripts"] = scripts_of
    environment.filters["address"] = partial(page_address, base)
    return environment


def _allowing(html: str) -> str:
    """Return a page whose policy lets the script of its live charts run, if it has any.

    The script comes packed and is put into the page as a text: this one may run, and no other.
    """
    if LIVE not in html:
        return html
    return html.replace(SOURCES, f"{SOURCES} {digest(charts.vega_bundle())}", 1)


def figures_of(value: Any) -> Iterator[Figure]:
    """Yield every chart inside a page."""
    waiting = [value]
    while waiting:  # most parts of a page are plain, and there are hundreds of thousands
        each = waiting.pop()
        if isinstance(each, Figure):
            yield each
        elif isinstance(each, tuple):
            waiting += [part for part in reversed(each) if type(part) not in PLAIN]
        else:
            kind: type = type(each)
            parts = [getattr(each, name) for name in _parts(kind)]
            waiting += [part for part in parts if type(part) not in PLAIN]


@cache
def _parts(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass, the last first; none of another type."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return tuple(field.name for field in reversed(fields))
