"""Renders pages to HTML files.

`with_contents` builds the table of contents from the headings of the rendered page, so templates
need not list them. `take_out_folded` moves what stands between ``<!--later-->`` and
``<!--/later-->`` into a compressed data file, about a fifth of the size, which
``templates/assets/site.js`` inserts again.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from html import unescape
from itertools import zip_longest
from pathlib import Path
from types import NoneType
from typing import Any
from urllib.parse import urlsplit

import jinja2

from headbook.charts import Figure, Plot
from headbook.pages.parts.blocks import Maps, Page, Symbols, Table
from headbook.pages.parts.page import TemplatePage
from headbook.pages.parts.table import PageTable
from headbook.pages.parts.text import Token
from headbook.resources import folder as resource_folder
from headbook.results.sentence import Sentence
from headbook.site import html as blocks
from headbook.site import markup
from headbook.site.rows import SiteRows

MIN_CONTENTS_ENTRIES = 2  # headings below which a page has no table of contents
MAIN = '<main id="main" tabindex="-1">\n'
MAIN_END = "</main>"
# Headings, and elements whose headings the table of contents leaves out.
HEADING_OR_SKIPPED = re.compile(
    r"<(?P<end>/?)(?:details|aside|nav)\b"
    r'|<h(?P<level>[23])(?: id="(?P<id>[^"]*)")?>(?P<text>.*?)</h(?P=level)>',
    re.DOTALL,
)
SMALL_TEXT_OR_TAG = re.compile(r"<small\b.*?</small>|<[^>]+>", re.DOTALL)
# A section that begins with a heading, whose id leads to both.
SECTION = re.compile(r'<section\b[^>]* id="(?P<id>[^"]*)"[^>]*>\s*\Z')
MAX_TAG = 300  # characters of such a section before the heading
ID = re.compile(r'\bid="([^"]*)"')


@dataclass(frozen=True)
class _Heading:
    """A heading of a page.

    Attributes:
        start: index of its first character in the page.
        level: 2 or 3.
        id: id of its element, or of the section that it begins, unique on the page.
        text: its text as HTML without elements.
    """

    start: int
    level: int
    id: str
    text: str


def with_contents(html: str) -> str:
    """Return a page with a table of contents and ids on headings; unchanged if it has few."""
    headings = [*_headings(html)]
    main_headings = [heading for heading in headings if heading.level == 2]
    listed = (
        headings
        if len(main_headings) > 1
        else [heading for heading in headings if heading.level == 3] or main_headings
    )
    if len(listed) < MIN_CONTENTS_ENTRIES:
        return html
    nav = f'<nav class="contents" aria-label="On this page">\n{_contents_list(listed)}\n</nav>\n'
    body = _with_ids(html, headings)
    body = body.replace(MAIN, f'{MAIN}{nav}<div class="within">\n', 1)
    before, end, after = body.rpartition(MAIN_END)
    return f"{before}</div>\n{end}{after}"


def _headings(html: str) -> Iterator[_Heading]:
    """Yield the headings of the main part; ids are made of their text if they have none."""
    start, end = html.index(MAIN), html.rindex(MAIN_END)
    taken_ids, skipped_depth, section_id = set(ID.findall(html)), 0, ""
    for match in HEADING_OR_SKIPPED.finditer(html, start, end):
        if not match["level"]:
            skipped_depth += -1 if match["end"] else 1
        elif not skipped_depth:
            text = " ".join(SMALL_TEXT_OR_TAG.sub("", match["text"]).split())
            section = SECTION.search(html, max(start, match.start() - MAX_TAG), match.start())
            heading_id = match["id"] or (section["id"] if section else "")
            heading_id = heading_id or _unique_id(
                text, section_id if match["level"] == "3" else "", taken_ids
            )
            section_id = heading_id if match["level"] == "2" else section_id
            yield _Heading(match.start(), int(match["level"]), heading_id, text)


def _unique_id(text: str, section_id: str, taken_ids: set[str]) -> str:
    """Return an id that no other element has, and add it to ``taken_ids``."""
    words = re.findall(r"\w+", unescape(text).lower())
    base = "-".join([*([section_id] if section_id else []), *words])
    unique, number = base, 2
    while unique in taken_ids:
        unique, number = f"{base}-{number}", number + 1
    taken_ids.add(unique)
    return unique


def _with_ids(html: str, headings: list[_Heading]) -> str:
    """Return the page with an id on each of its headings."""
    for heading in reversed(headings):
        tag, start = f"<h{heading.level}", heading.start
        if html.startswith(f"{tag}>", start) and f'id="{heading.id}"' not in html:
            html = f'{html[:start]}{tag} id="{heading.id}"{html[start + len(tag) :]}'
    return html


def _contents_list(headings: list[_Heading]) -> str:
    """Return nested lists of links: those to lower headings inside the last higher one."""
    top_level = min(heading.level for heading in headings)
    lines, is_nested = [], False
    for heading, following in zip_longest(headings, headings[1:]):
        link = f'<a href="#{heading.id}">{heading.text}</a>'
        lower_follows = following is not None and following.level > top_level
        if heading.level == top_level:
            is_nested = lower_follows
            lines.append(f"<li>{link}" + ("<ul>" if is_nested else "</li>"))
        else:  # headings before the first one of the top level are entries of the outer list
            lines.append(
                f"<li>{link}</li>" + ("</ul></li>" if is_nested and not lower_follows else "")
            )
    return "<ul>\n" + "\n".join(lines) + "\n</ul>"


FOLDED_FOLDER = "data/later"  # folder of the files of folded parts, from the site's root
FOLDED_START, FOLDED_END = "<!--later-->", "<!--/later-->"


def take_out_folded(html: str, root: str, path: str) -> tuple[str, list[str]]:
    """Return a page without its folded parts, and these parts.

    Args:
        root: path from the page to the site's root.
        path: path of the page from the site's root.
    """
    visible, *sections = html.split(FOLDED_START)
    parts: list[str] = []
    for section in sections:
        part, _, following = section.partition(FOLDED_END)
        visible += (
            f'<div data-later="{len(parts)}" data-src="{root}{folded_file(path)}"></div>{following}'
        )
        parts.append(part.removeprefix("\n").removesuffix("\n"))
    return visible, parts


def name_of(path: str) -> str:
    """Return the name of the folded parts of a page in scripts."""
    return f"later-{path.removesuffix('.html').replace('/', '-')}"


def folded_file(path: str) -> str:
    """Return the address of the folded parts of a page, from the site's root."""
    return f"{FOLDED_FOLDER}/{name_of(path).removeprefix('later-')}.js"


MISSING = "404.html"  # the page that a server shows for a wrong address


def site_address(url: str | None) -> str:
    """Return the address of a site's folder with a slash at its end; empty if it is unknown."""
    return f"{url.rstrip('/')}/" if url else ""


def page_address(base: str, path: str) -> str:
    """Return the address of a page on the web; the first page has the address of the folder."""
    return base + ("" if path == "index.html" else path)


def path_to_root(base: str, page: TemplatePage) -> str:
    """Return the path from a page to the site's root.

    A server shows the page for wrong addresses at any depth, so its path begins at the host if the
    address of the site is known.
    """
    return urlsplit(base).path if base and page.path == MISSING else page.root


# Types that hold no `Figure`; a table holds a `Drawing` at most.
PLAIN = {str, int, float, bool, NoneType, PageTable, Token, Table, Maps, Symbols, Sentence}


@dataclass(frozen=True)
class PageWriter:
    """Writer of the pages of one site; worker processes get a copy.

    Attributes:
        folder: folder of the site.
        base: address of the site on the web; empty if it is unknown.
        frame: variables of every template beside its page.
        rows: rows of the site's tables; without them numbers lead to tables, not to rows.
    """

    folder: Path
    base: str
    frame: Mapping[str, Any]
    rows: SiteRows | None = None

    @property
    def environment(self) -> jinja2.Environment:
        """Templates of the site's pages, with their filters."""
        return _templates(self.base)

    def write_page(self, page: TemplatePage) -> None:
        """Write a page, its folded parts, and the rows behind it.

        Raises:
            LookupError: a number of the page leads to no row.
        """
        root = path_to_root(self.base, page)
        rows = self.rows.of_page(page.path) if self.rows is not None else None
        of_blocks = isinstance(page, Page)
        printer = blocks.Printer(self.environment, root, rows, self.frame, joins_units=of_blocks)
        html = self.render(page.template, page=page, root=root, printer=printer)
        if rows is not None:
            html = rows.with_lines(html)
            if rows.found:
                self.write_text(rows.file, rows.script())
        html, parts = take_out_folded(html, root, page.path)
        if parts:
            self.write_text(folded_file(page.path), markup.script(name_of(page.path), parts))
        self.write_text(page.path, with_contents(html) if page.contents else html)

    def render(self, template: str, **variables: Any) -> str:
        """Return the text of a template with its variables filled in."""
        return self.environment.get_template(template).render(**variables, **self.frame)

    def write_text(self, path: str, text: str) -> None:
        """Write a text file of the site, with line feeds on every system.

        Args:
            path: path of the file from the site's root.
        """
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
        finalize=blocks.printed,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(markup.filters())
    environment.filters.update(blocks.filters())
    environment.filters["address"] = partial(page_address, base)
    return environment


def figures_of(value: Any) -> Iterator[Figure | Plot]:
    """Yield every chart inside a page."""
    pending = [value]
    while pending:  # most parts of a page are plain, and there are hundreds of thousands
        part_value = pending.pop()
        if isinstance(part_value, Figure | Plot):
            yield part_value
        elif isinstance(part_value, tuple):
            pending += [part for part in reversed(part_value) if type(part) not in PLAIN]
        else:
            value_type: type = type(part_value)
            parts = [getattr(part_value, name) for name in _parts(value_type)]
            pending += [part for part in parts if type(part) not in PLAIN]


@cache
def _parts(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass, the last first; none of another type."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return tuple(field.name for field in reversed(fields))
