"""The page about Headbook: how to cite it, and whose work it stands on."""

from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.page import Page
from headbook.study.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class AboutPage(Page):
    """How to cite and reuse the site.

    Attributes:
        bibtex: an entry for this site.
        date: of the numbers.
        annotators: what tagged and parsed the texts.
    """

    template: ClassVar[str] = "about.html"
    bibtex: str
    date: str
    annotators: tuple[str, ...]


def about_page(manifest: Manifest, bibtex: str) -> AboutPage:
    """How to cite and reuse the site."""
    return AboutPage(
        path="about.html",
        title="About this site",
        description="How to cite it, what may be reused, and what made it.",
        bibtex=bibtex,
        date=manifest.created,
        annotators=tuple(manifest.annotators.values()),
    )
