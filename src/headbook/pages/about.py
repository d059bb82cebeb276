"""The page on citing and reusing a site, and the page for wrong addresses."""

from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.page import Page
from headbook.study.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class AboutPage(Page):
    """The page on how to cite and reuse the site.

    Attributes:
        bibtex: BibTeX entry of this site.
        date: date of the numbers.
        annotators: tools that tagged and parsed the texts.
    """

    template: ClassVar[str] = "about.html"
    bibtex: str
    date: str
    annotators: tuple[str, ...]


def about_page(manifest: Manifest, bibtex: str) -> AboutPage:
    """Return the page on how to cite and reuse the site."""
    return AboutPage(
        path="about.html",
        title="About this site",
        description="How to cite it, what may be reused, and what made it.",
        bibtex=bibtex,
        date=manifest.created,
        annotators=tuple(manifest.annotators.values()),
    )


@dataclass(frozen=True, kw_only=True)
class MissingPage(Page):
    """The page that a web server sends for a wrong address."""

    template: ClassVar[str] = "404.html"
    contents = False


def missing_page() -> MissingPage:
    """Return the page for wrong addresses."""
    return MissingPage(
        path="404.html",
        title="Page not found",
        description="There is no page at this address.",
    )
