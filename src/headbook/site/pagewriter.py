"""From a page to its file: templates, and the data of its charts."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import NoneType
from typing import Any

import jinja2

from headbook import charts
from headbook.charts import Figure
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import Table
from headbook.pages.parts.text import Token
from headbook.resources import folder as resource_folder
from headbook.site import later, markup, publish
from headbook.site.contents import WITHOUT, with_contents
from headbook.site.scripttags import digest, scripts_of

LIVE = "data-chart="  # the buttons of live charts
SOURCES = "script-src 'self'"
# What holds no chart: of a table a `Drawing` at most.
PLAIN = {str, int, float, bool, NoneType, Table, Token}


@dataclass(frozen=True)
class PageWriter:
    """What writes the pages of one site; a copy of it serves another process.

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
        root = publish.root(self.base, page)
        html = _allowing(self.drawn(page.template, page=page, root=root))
        html, parts = later.taken_out(html, root, page.path)
        if parts:
            self.text(later.file_of(page.path), markup.script(later.name_of(page.path), parts))
        self.text(page.path, html if page.template in WITHOUT else with_contents(html))

    def live(self, figure: Figure) -> None:
        """Write the data of a live chart, if there is one."""
        path = self.folder / "data" / "charts" / f"{figure.name}.js"
        if figure.interactive and not path.exists():
            path.write_text(markup.script(f"chart-{figure.name}", charts.columnar(figure)))

    def drawn(self, template: str, **given: Any) -> str:
        """A template as text."""
        return self.environment.get_template(template).render(**given, **self.frame)

    def text(self, path: str, text: str) -> None:
        """Write a file of the site."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")


@cache
def _templates(base: str) -> jinja2.Environment:
    """The templates of sites at an address, each compiled once in a process."""
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
    environment.filters["address"] = partial(publish.address, base)
    return environment


def _allowing(html: str) -> str:
    """A page whose policy lets the script of its live charts run, if it has any.

    The script comes packed and is put into the page as a text: this one may run, and no other.
    """
    if LIVE not in html:
        return html
    return html.replace(SOURCES, f"{SOURCES} {digest(charts.runtime())}", 1)


def figures_of(value: Any) -> Iterator[Figure]:
    """Every chart inside a page."""
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
    """Names of the fields of a dataclass, the last first; none of anything else."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return tuple(field.name for field in reversed(fields))
