"""What the frame around every page of such a site needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headbook.pages.data.page import DataFile, DataPage
from headbook.pages.parts.menu import Entry, Menu
from headbook.pages.parts.page import SiteFacts
from headbook.report.wording import counted, written
from headbook.site import export
from headbook.site.pagewriter import PageWriter
from headbook.study.manifest import Manifest

DATA: Entry = ("data.html", "Data")


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


def write_tables(
    folder: Path, tables: dict[str, tuple[pd.DataFrame, export.Table]]
) -> list[DataFile]:
    """Tables with their meaning into the folder ``data``, those that have rows."""
    data, files = folder / "data", []
    for name, (frame, table) in tables.items():
        if frame.empty:
            continue
        export.write_table(frame, name, data)
        for suffix in (".csv", ".csv.gz", ".parquet"):
            file = data / f"{name}{suffix}"
            if file.exists():
                size = written(file.stat().st_size)
                columns = tuple(table.columns.items())
                files.append(DataFile(f"data/{file.name}", table.what, columns, size))
    return files


def data_page(files: Sequence[DataFile], figures: int) -> DataPage:
    """The page of a site's files."""
    return DataPage(
        path="data.html",
        title="Data",
        description="Every number of this site as a file, with the meaning of each column.",
        files=tuple(files),
        figures=figures,
        left_out=(),
    )
