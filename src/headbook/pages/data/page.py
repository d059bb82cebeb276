"""The files of a site, and what their columns mean."""

from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.page import Page


@dataclass(frozen=True)
class DataFile:
    """A file of the site: its address, what it holds, its columns and its size."""

    href: str
    what: str
    columns: tuple[tuple[str, str], ...]
    size: str


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
