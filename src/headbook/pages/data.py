"""The files of a site, and what their columns mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import ClassVar

from headbook.pages.parts.page import Page
from headbook.report.wording import size_text

DescribedFile = tuple[str, Mapping[str, str]]  # what a file holds, and its columns


@dataclass(frozen=True)
class DataFile:
    """A file of the site: its address, what it holds, its columns and its size."""

    href: str
    what: str
    columns: tuple[tuple[str, str], ...]
    size: str

    @property
    def table(self) -> str:
        """Name of the table, for the fragment of its description's address."""
        return PurePath(self.href).name.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class DataPage(Page):
    """The site's files.

    Attributes:
        files: tables and records with their columns.
        figures: how many charts stand in ``figures/``.
        left_out: files that were too large, in words.
    """

    template: ClassVar[str] = "data.html"
    files: tuple[DataFile, ...]
    figures: int
    left_out: tuple[str, ...]


def data_page(
    data: Path, files: Mapping[str, DescribedFile], figures: int, left_out: tuple[str, ...] = ()
) -> DataPage:
    """The page of a site's files.

    Args:
        files: what each holds, by its name in the folder ``data``; some may not be there.
    """
    return DataPage(
        path="data.html",
        title="Data",
        description="Every number of this site as a file, with the meaning of each column.",
        files=tuple(
            DataFile(f"data/{name}", what, tuple(columns.items()), size_text(size))
            for name, (what, columns) in files.items()
            if (data / name).exists()
            for size in [(data / name).stat().st_size]
        ),
        figures=figures,
        left_out=left_out,
    )
