"""Elements, text, links and tables of written pages."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from headbook.pages.parts.table import PageTable
from headbook.site.markup import values

LATER = re.compile(r'<div data-later="(?P<place>\d+)" data-src="(?P<src>[^"]*)"></div>')
LINKS = ("href", "src", "data-src")
LINK = re.compile(r"(?:https://(?:arxiv\.org/abs|doi\.org)/\S+)")  # addresses a page may lead to

ROW = re.compile(r"row=\w+:\d+&on=[\w/-]+")  # of a table, in the address of the page of files


class Element(NamedTuple):
    """A start tag."""

    tag: str
    attributes: dict[str, str]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"<{tag}> has an attribute twice"
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@cache
def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


def elements(html: str, tag: str = "") -> list[Element]:
    """Return the elements of a page in order, or those with one tag."""
    return [e for e in _read(html).elements if tag in {"", e.tag}]


def text_of(html: str) -> str:
    """All text of a page."""
    return "".join(_read(html).texts)


def html_of(file: Path) -> str:
    """Return the page with its folded parts from their file."""
    html = written_html(file)
    waiting = {match["src"] for match in LATER.finditer(html)}
    return _whole(html, tuple((src, (file.parent / src).read_bytes()) for src in sorted(waiting)))


@cache
def _whole(html: str, waiting: tuple[tuple[str, bytes], ...]) -> str:
    """Return a page, given what its file holds and the files that it names."""
    parts = {src: _parts(src, content) for src, content in waiting}
    return LATER.sub(lambda match: parts[match["src"]][int(match["place"])], html)


def _parts(src: str, content: bytes) -> list[str]:
    name, parts = _data(content)
    assert name == f"later-{Path(src).stem}"
    found: list[str] = parts
    return found


def written_html(file: Path) -> str:
    """Return the page as it was written."""
    return file.read_bytes().decode("utf-8")


def links(html: str) -> Iterator[tuple[str, str]]:
    """Tag and address of everything that a page leads to or loads."""
    for element in elements(html):
        for name in LINKS:
            if name in element.attributes:
                yield element.tag, element.attributes[name]


def broken_links(root: Path, page: Path) -> list[str]:
    """Addresses in a page that lead out of the folder or to nothing."""
    return [link for _, link in links(html_of(page)) if not _leads(root, page, link)]


def _leads(root: Path, page: Path, link: str) -> bool:
    if link.startswith("data:image/webp;base64,"):
        return True
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or (parts.query and not ROW.fullmatch(parts.query)):
        return LINK.fullmatch(link) is not None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file() or not target.is_relative_to(root.resolve()):
        return False
    if "=" in parts.fragment:
        return True  # a view, for the page's scripts
    return not parts.fragment or parts.fragment in _places(html_of(target))


@cache
def _places(html: str) -> frozenset[str]:
    return frozenset(ids(html))


def ids(html: str) -> list[str]:
    """Every id of a page, in order."""
    return [e.attributes["id"] for e in elements(html) if "id" in e.attributes]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its address there."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def differing(one: Path, other: Path) -> list[str]:
    """Addresses whose bytes differ between two folders, or that only one of them has."""
    mine, theirs = tree(one), tree(other)
    return [name for name in sorted(mine | theirs) if mine.get(name) != theirs.get(name)]


def data_file(file: Path) -> tuple[str, Any]:
    """Name and value of a data file."""
    return _data(file.read_bytes())


def _data(content: bytes) -> tuple[str, Any]:
    text, _, behind = values(content.decode()).partition(b"\n")

    def revived(found: dict[str, Any]) -> Any:
        place = found.get("bytes")
        return behind[slice(*place)] if isinstance(place, list) else found

    name, value = json.loads(text, object_hook=revived)
    return name, value


def digest(text: str) -> str:
    """How a policy names a text that may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def text(content: Any) -> str:
    """Return the text of a cell or a title without its interval."""
    if content is None:
        return "·"
    return content if isinstance(content, str) else getattr(content, "text", str(content))


def lines(table: PageTable) -> list[dict[str, Any]]:
    """Rows, with what stands in their cells by title, from left to right."""
    titles = [text(title) for title in table.columns]
    return [dict(zip(titles, (row.head, *row.cells), strict=True)) for row in table.rows]
