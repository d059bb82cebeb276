"""How such a site is written, and what the frame around every page of it needs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headbook import charts
from headbook.limits import check_room
from headbook.output_folder import OutputKind, check_output_folder, replace_folder
from headbook.pages.parts.menu import Entry, Menu
from headbook.pages.parts.page import Page, SiteFacts
from headbook.progress import Progress
from headbook.report.wording import counted
from headbook.site import export, publish
from headbook.site.assets import write_assets, write_runtime
from headbook.site.pagewriter import PageWriter, figures_of
from headbook.site.site import Summary, data_page
from headbook.study.manifest import Manifest
from headbook.terms import Stack

DATA: Entry = ("data.html", "Data")
Tables = Mapping[str, tuple[pd.DataFrame, export.Table]]


def render_site(
    out: Path, base_url: str | None, write: Callable[[Path, str], int], *, force: bool
) -> Summary:
    """Replace a folder by a site, as a whole.

    Args:
        write: writes the site into a folder, for an address on the web; returns its pages' number.
    """
    base = publish.base(base_url)
    check_output_folder(out, OutputKind.SITE, force=force)
    check_room()
    with replace_folder(out, OutputKind.SITE, force=force) as draft, charts.unchecked():
        pages = write(draft, base)
    return Summary(out / "index.html", pages, sum(export.sizes(out).values()))


def begin(folder: Path, stacks: Iterable[Stack], site: str) -> None:
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
    writer: PageWriter, base: str, pages: Iterable[Page], tables: Tables, progress: Progress
) -> int:
    """Write pages with their figures, tables with their page, and what the web wants.

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
    for name, (table, _) in tables.items():
        if not table.empty:
            export.write_table(table, name, data)
    files = export.files_of({name: meaning for name, (_, meaning) in tables.items()})
    last = data_page(data, files, figures)
    writer.page(last)
    paths.append(last.path)
    progress.advance(1, 0)
    for name, text in publish.web_files(base, paths):
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


def facts(title: str, models: str, manifest: Manifest) -> SiteFacts:
    """What every page says of how the numbers were made.

    Args:
        models: their names in words.
    """
    files = ", ".join(file.name for file in manifest.inputs)
    sentences = counted(manifest.counts["sentences"], "sentence")
    made = f"Headbook {manifest.headbook}{manifest.created and f', {manifest.created}'}"
    return SiteFacts(
        title=title,
        model=models,
        provenance=f"{models} on {files}: {sentences}. {made}.",
        source=f"{models} on {files}, {sentences}.",
        sentence_pages=False,
    )
