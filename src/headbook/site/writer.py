"""The writer of sites: assets, pages, tables, figures, manifest and files for search engines.

`SiteContents` declares the contents in which sites differ; `headbook.site.sites` has the sites of
one study, of two studies, and of many checkpoints. Pages are drawn in one process or in several.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import numpy as np

from headbook import charts
from headbook.analysis.arrays import Floats
from headbook.charts import Figure, Plot, images
from headbook.charts.theme import DIVERGING, colours
from headbook.memory import check_address_space
from headbook.option_values import check_base_url
from headbook.output_folder import OutputKind, check_output_folder, replace_folder
from headbook.pages.data import DescribedFile, data_page
from headbook.pages.parts.blocks import Page
from headbook.pages.parts.head_list import Column, initial_columns, number_columns
from headbook.pages.parts.page import EVERY, SiteFacts, TemplatePage
from headbook.pages.parts.table import COLOUR_STEPS, colour_step, domain
from headbook.progress import Progress, reporter
from headbook.report.answers.data import NumberExample
from headbook.report.results import StackResults
from headbook.report.wording import STACKS
from headbook.schema import AttentionStack
from headbook.site import export
from headbook.site.assets import write_assets
from headbook.site.markup import script
from headbook.site.page_writer import (
    MISSING,
    PageWriter,
    figures_of,
    page_address,
    site_address,
)
from headbook.site.parallel import DrawingPool, default_processes
from headbook.site.registry import Menu
from headbook.site.rows import SiteRows
from headbook.study.manifest import Manifest
from headbook.written_site import Site

PREVIEW = "assets/preview.png"
# Colours of the picture for links.
PALETTE = colours(COLOUR_STEPS) + colours(COLOUR_STEPS, DIVERGING)

SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"  # XML namespace of the sitemap protocol


def web_files(base: str, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the files for search engines; none without an address.

    Args:
        base: address of the site.
        paths: pages to list, beside the page for wrong addresses, which is not listed.

    ``robots.txt`` is read only at the root of a host, so a site below a path has none.
    """
    if not base:
        return
    addresses = (escape(page_address(base, path)) for path in sorted(paths) if path != MISSING)
    urls = "".join(f"<url><loc>{address}</loc></url>\n" for address in addresses)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield "sitemap.xml", f'{head}<urlset xmlns="{SITEMAP}">\n{urls}</urlset>\n'
    if urlsplit(base).path == "/":
        yield "robots.txt", f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n"


def link_preview(results: Mapping[str, StackResults]) -> tuple[bytes, str]:
    """Draw one number of all heads as a picture for links to the site, and describe it.

    Returns:
        A PNG; no bytes where there are no numbers of heads.
    """
    maps, about = [], []
    for name, stack_results in results.items():
        if columns := initial_columns(number_columns({name: stack_results})):
            column = columns[-1]
            maps.append(_steps(column.numbers(stack_results).value, column, stack_results))
            about.append(f"All heads, {STACKS[name]}: {column.title}, {column.unit}")
    return (images.banner(maps, PALETTE) if maps else b""), "; ".join(about)


def _steps(values: Floats, column: Column, results: StackResults) -> images.Map:
    """Return colours of cells in `PALETTE`, counted from 1; 0 if a value is missing."""
    values = values[[*results.stack.attention_layers]]
    ends = domain(values, column.metric.limits)
    steps = [[colour_step(float(value), ends) for value in row] for row in values]
    first_colour = 1 + (COLOUR_STEPS if ends[0] < 0 else 0)
    return np.array(
        [[0 if step is None else first_colour + step for step in row] for row in steps], np.uint8
    )


# Pages from which on several processes save time: the start of a process takes as long as drawing
# about a hundred pages.
MIN_PARALLEL_PAGES = 400

Work = Callable[..., Iterator[str]]


class SiteContents(ABC):
    """The contents of one kind of site.

    Attributes:
        kind: kind of site, as in `headbook.site.assets.write_assets`.
        texts: templates of files beside the pages.
        across: addresses of pages across metrics.
        stacks: kinds of attention of all models.
        manifest: manifest of the first study.
        facts: provenance, shown on every page.
        records: descriptions of files of the folder ``data`` that are no tables, by name.
        rows: rows of the site's tables.
    """

    kind: ClassVar[str] = ""
    texts: ClassVar[tuple[str, ...]] = ()
    across: frozenset[str] = frozenset()
    stacks: Iterable[AttentionStack]
    manifest: Manifest
    facts: SiteFacts
    records: Mapping[str, DescribedFile] = {}
    rows: SiteRows

    @property
    def preview(self) -> tuple[bytes, str]:
        """Picture for links to the site, and its description; empty without a picture."""
        return b"", ""

    @property
    @abstractmethod
    def menu(self) -> Menu:
        """Entries of the menu."""

    @property
    @abstractmethod
    def charted(self) -> tuple[TemplatePage, ...]:
        """Pages whose charts are also files."""

    @property
    @abstractmethod
    def n_pages(self) -> int:
        """Number of pages, for the progress bar."""

    @abstractmethod
    def write_data(self, writer: PageWriter) -> list[str]:
        """Write tables, manifest and data of scripts; return a message for each file left out."""

    @abstractmethod
    def pages(self, writer: PageWriter) -> Iterator[TemplatePage]:
        """Make all pages but the first page, the page of files, and those of `many`."""

    def example(self) -> NumberExample | None:
        """Return a number of a table as an example; None without any."""
        return None

    def map_sheet(self) -> str:
        """Return the style sheet with small maps of all heads; empty without any."""
        return ""

    def first(self) -> TemplatePage | None:
        """Make a page that is written before everything else, if there is one."""
        return None

    def many(self, share: slice = EVERY) -> Iterator[TemplatePage]:
        """Make the pages that several processes may share."""
        return iter(())

    def work(self, _: ExitStack, /) -> tuple[Work, Path]:
        """Return what a process does to write a share of `many`, and the folder that it reads.

        The work is called with that folder, a `PageWriter` and a share; it yields paths of pages.
        """
        raise NotImplementedError


def write_site(
    make_site: Callable[[], SiteContents],
    out: Path,
    *,
    base_url: str | None,
    force: bool,
    progress: Progress | bool | None,
    processes: int = 1,
) -> Site:
    """Write a site; the folder appears when it is complete.

    Args:
        make_site: makes the parts of the site, after folder and memory were checked.
        base_url: address where the folder will be published, or None.
        force: replace an existing site.
        processes: number of processes that draw pages; 0: chosen by the number of pages.

    Raises:
        ConfigError: ``base_url`` is no address of a folder on the web.
        OutputError: ``out`` may not be replaced or written.
        ResourceError: the process may not use enough memory.
    """
    check_base_url(base_url)
    check_output_folder(out, OutputKind.SITE, force=force)
    check_address_space()
    site, base = make_site(), site_address(base_url)
    with replace_folder(out, OutputKind.SITE, force=force) as draft, charts.without_schema_checks():
        writer = page_writer(site, draft, base)
        with reporter(progress) as bar:
            pages = _write_files(site, writer, bar, processes)
    return Site(out / "index.html", pages, sum(export.sizes(out).values()))


def page_writer(site: SiteContents, folder: Path, base: str) -> PageWriter:
    """Return the writer of a site's pages, which knows the frame around each page."""
    frame = {
        "site": site.facts,
        "manifest": site.manifest,
        "across": site.across,
        "menu": site.menu,
        "base": base,
        "preview": site.preview[1],
    }
    return PageWriter(folder, base, frame, site.rows)


def _write_files(site: SiteContents, writer: PageWriter, progress: Progress, processes: int) -> int:
    """Write every file of a site; return the number of pages."""
    folder = writer.folder
    paths: list[str] = []
    write_assets(
        folder,
        max(size for stack in site.stacks for size in (stack.n_layers, stack.n_heads)),
        site.kind,
    )
    if sheet := site.map_sheet():
        writer.write_text("assets/maps.css", sheet)
    if site.preview[0]:
        (folder / PREVIEW).write_bytes(site.preview[0])
    (folder / "data").mkdir(parents=True)
    (folder / "figures").mkdir()
    with _many_drawn(site, writer, processes) as many:
        if (first := site.first()) is not None:
            paths += draw_pages(writer, (first,))
            progress.message(f"overview, while the rest is made: {folder / first.path}")
        left_out = site.write_data(writer)
        export.release_memory()
        figures = exported(site.charted)
        characters: set[str] = set()
        for figure in figures:
            characters |= export.write_figure(figure, folder / "figures", columns=False)
            figure.forget()  # all charts together take hundreds of megabytes
        progress.stage("pages", site.n_pages)
        progress.advance(len(paths), 0)
        pages = chain(site.pages(writer), (_data_page(site, writer, len(figures), left_out),))
        for path in chain(draw_pages(writer, pages), many):
            progress.advance(1, 0)
            paths.append(path)
    export.warn_of_missing_glyphs(characters)
    texts = {name: writer.render(name) for name in site.texts}
    for name, text in (*web_files(writer.base, {*paths} - {MISSING}), *texts.items()):
        writer.write_text(name, text)
    (folder / ".nojekyll").touch()
    return len(paths)


def _data_page(
    site: SiteContents, writer: PageWriter, figures: int, left_out: Sequence[str]
) -> Page:
    """Make the page of files, and write what scripts need to know of tables."""
    tables, data = site.rows.tables, writer.folder / "data"
    facts = export.table_facts(tables.values(), data)
    writer.write_text("data/tables.js", script("tables", facts))
    example = site.example()
    return data_page(
        data, tables, facts, site.records, figures=figures, left_out=left_out,
        example=example and (example, site.rows.example(example, facts)),
    )  # fmt: skip


@contextmanager
def _many_drawn(site: SiteContents, writer: PageWriter, processes: int) -> Iterator[Iterable[str]]:
    """Write the pages that processes may share, and yield an iterable of their paths.

    If the site has many pages, other processes write them while this one writes everything else.
    """
    processes = processes or (default_processes() if site.n_pages >= MIN_PARALLEL_PAGES else 1)
    if processes == 1:
        yield draw_pages(writer, site.many())
        return
    with ExitStack() as stack:
        work, stored = site.work(stack)
        copy = replace(writer, rows=site.rows.shared())
        yield stack.enter_context(DrawingPool(work, (stored, copy), processes - 1))


def draw_pages(writer: PageWriter, pages: Iterable[TemplatePage]) -> Iterator[str]:
    """Write pages; yield their paths."""
    for page in pages:
        writer.write_page(page)
        yield page.path


def exported(pages: Iterable[TemplatePage]) -> list[Figure | Plot]:
    """Return the charts of pages that are files as well, one a name."""
    return [*{figure.name: figure for page in pages for figure in figures_of(page)}.values()]
