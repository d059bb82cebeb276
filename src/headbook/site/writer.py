"""The one writer of a site: assets, pages, tables, figures, manifest, files for the web.

In one process or several.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import numpy as np
import pandas as pd

from headbook import charts
from headbook.charts import Figure, images
from headbook.charts.theme import DIVERGING, colours
from headbook.memory import check_address_space
from headbook.output_folder import OutputKind, check_output_folder, replace_folder
from headbook.pages.data import data_page
from headbook.pages.parts.grid import Grid, grid
from headbook.pages.parts.page import Entry, Menu, Page, SiteFacts
from headbook.pages.parts.table import COLOUR_STEPS
from headbook.progress import Progress
from headbook.report.results import StackResults
from headbook.report.wording import count_text
from headbook.schema import AttentionStack
from headbook.site import export
from headbook.site.assets import write_assets, write_runtime
from headbook.site.page_writer import MISSING, PageWriter, figures_of, page_address, site_address
from headbook.study.manifest import Manifest
from headbook.study.tables import Table

PREVIEW = "assets/preview.png"
PALETTE = colours(COLOUR_STEPS) + colours(COLOUR_STEPS, DIVERGING)  # of the picture

SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"  # its name by the protocol


def web_files(base: str, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names and texts of the files for search engines; none without an address.

    ``robots.txt`` is read only at the root of a host, so a site below a path has none.
    """
    if not base:
        return
    places = (escape(page_address(base, path)) for path in sorted(paths) if path != MISSING)
    urls = "".join(f"<url><loc>{place}</loc></url>\n" for place in places)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield "sitemap.xml", f'{head}<urlset xmlns="{SITEMAP}">\n{urls}</urlset>\n'
    if urlsplit(base).path == "/":
        yield "robots.txt", f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n"


def link_preview(results: Mapping[str, StackResults]) -> tuple[bytes, str]:
    """The grids of all heads as a picture for links to the site, and what it shows in words.

    Returns:
        A PNG; no bytes where there are no numbers of heads.
    """
    grids = [result.cached(grid) for result in results.values() if result.metrics]
    if not grids:
        return b"", ""
    description = "; ".join(f"All heads, {each.title}: {each.caption}" for each in grids)
    return images.banner([_steps(each) for each in grids], PALETTE), description


def _steps(stack_grid: Grid) -> images.Map:
    """Colours of a grid's cells in `PALETTE`, counted from 1; 0 where a value is missing."""
    first = 1 + (COLOUR_STEPS if stack_grid.ink == "d" else 0)
    steps = np.array([[cell.step for cell in cells] for _, cells in stack_grid.rows])
    return np.where(steps < 0, 0, first + steps).astype(np.uint8)


TEXTS = ("CITATION.cff", "references.bib", "README.txt")

# Pages from which on several processes are worth their start: each takes as long for it as to draw
# about a hundred.
PARALLEL_FROM = 400


@dataclass(frozen=True)
class WrittenSite:
    """What was written.

    Attributes:
        index: the page to open.
        pages: number of pages.
        size: bytes of the whole site.
    """

    index: Path
    pages: int
    size: int


def _draw(page_writer: PageWriter, pages: Iterable[Page]) -> Iterator[str]:
    """Write pages; yields their paths."""
    for page in pages:
        page_writer.page(page)
        yield page.path


def exported(pages: Iterable[Page]) -> list[Figure]:
    """The charts of pages that are files as well, one a name."""
    return [*{figure.name: figure for page in pages for figure in figures_of(page)}.values()]


DATA: Entry = ("data.html", "Data")


def render_site(
    out: Path, base_url: str | None, write: Callable[[Path, str], int], *, force: bool
) -> WrittenSite:
    """Replace a folder by a site, as a whole.

    Args:
        write: writes the site into a folder, for an address on the web; returns its pages' number.
    """
    base = site_address(base_url)
    check_output_folder(out, OutputKind.SITE, force=force)
    check_address_space()
    with replace_folder(out, OutputKind.SITE, force=force) as draft, charts.without_schema_checks():
        pages = write(draft, base)
    return WrittenSite(out / "index.html", pages, sum(export.sizes(out).values()))


def write_site_start(folder: Path, stacks: Iterable[AttentionStack], site: str) -> None:
    """Write style and scripts, and make the folders of data and figures.

    Args:
        stacks: of all models.
        site: see `headbook.site.assets.write_assets`.
    """
    write_assets(folder, max(n for s in stacks for n in (s.n_layers, s.n_heads)), site)
    write_runtime(folder)
    (folder / "data" / "charts").mkdir(parents=True)
    (folder / "figures").mkdir()


def write_pages(
    writer: PageWriter,
    base: str,
    pages: Iterable[Page],
    tables: Sequence[tuple[Table[Any], pd.DataFrame]],
    progress: Progress,
) -> int:
    """Write pages with their figures, tables with their page, and what the web wants.

    Args:
        tables: entries of tables, each with its rows; tables without rows are left out.

    Returns:
        The number of pages.
    """
    paths, figures = [], 0
    for page in pages:
        for figure in figures_of(page):
            export.write_figure(figure, writer.folder / "figures", columns=False)
            figures += 1
        writer.page(page)
        paths.append(page.path)
        progress.advance(1, 0)
    data = writer.folder / "data"
    for table, frame in tables:
        if not frame.empty:
            export.write_table(frame, table, data)
    files = export.table_files(table for table, _ in tables)
    last = data_page(data, files, figures)
    writer.page(last)
    paths.append(last.path)
    progress.advance(1, 0)
    for name, text in web_files(base, paths):
        writer.text(name, text)
    (writer.folder / ".nojekyll").touch()
    return len(paths)


def page_writer(
    folder: Path,
    base: str,
    facts: SiteFacts,
    manifest: Manifest,
    entries: Sequence[Entry],
    *,
    measures: Sequence[Entry] = (),
) -> PageWriter:
    """What writes the pages of a site.

    Args:
        manifest: of the first study.
        entries: addresses and names of the pages that the menu leads to.
        measures: the same of those that open below one entry.
    """
    frame: dict[str, Any] = {
        "site": facts,
        "manifest": manifest,
        "across": frozenset(),
        "menu": Menu(
            first=tuple(entry for entry in entries if entry != DATA),
            analyses=tuple(measures),
            last=(DATA,),
            foot=(DATA,),
            name="Metrics",
            find=False,
        ),
        "base": base,
        "preview": "",
    }
    return PageWriter(folder, base, frame)


def site_facts(title: str, models: str, manifest: Manifest) -> SiteFacts:
    """What every page says of how the numbers were made.

    Args:
        models: their names in words.
    """
    files = ", ".join(file.name for file in manifest.inputs)
    sentences = count_text(manifest.counts["sentences"], "sentence")
    made = f"Headbook {manifest.headbook}{manifest.created and f', {manifest.created}'}"
    return SiteFacts(
        title=title,
        model=models,
        provenance=f"{models} on {files}: {sentences}. {made}.",
        source=f"{models} on {files}, {sentences}.",
        sentence_pages=False,
    )
