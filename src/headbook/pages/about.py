"""Pages that hold no numbers: on citing a site, for wrong addresses, and the author's own."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from headbook.author import plain_words, section_parts, section_paths
from headbook.pages.parts.page import TemplatePage
from headbook.study.manifest import Manifest, ModelFacts

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+|[\w.-]+")  # of a model, with or without an owner
MAX_DESCRIPTION = 160  # characters of the text that search engines and the search show
COMMIT = re.compile(r"[0-9a-f]{40}")  # revision of a model of the hub


@dataclass(frozen=True, kw_only=True)
class AboutPage(TemplatePage):
    """The page on how to cite and reuse the site.

    Attributes:
        bibtex: BibTeX entry of this site.
        date: date of the numbers.
        annotators: tools that tagged and parsed the texts.
        hub: address of the model on the Hugging Face hub; empty for a model of a folder or file.
        has_url: whether the entry has the address of the site.
    """

    template: ClassVar[str] = "about.html"
    bibtex: str
    date: str
    annotators: tuple[str, ...]
    hub: str
    has_url: bool


def about_page(manifest: Manifest, bibtex: str) -> AboutPage:
    """Return the page on how to cite and reuse the site."""
    return AboutPage(
        path="about.html",
        title="About this site",
        description="How to cite it, what may be reused, and what made it.",
        bibtex=bibtex,
        date=manifest.created,
        annotators=tuple(manifest.annotators.values()),
        hub=hub_address(manifest.model),
        has_url="url = {" in bibtex,
    )


def hub_address(model: ModelFacts) -> str:
    """Return the address of a model on the Hugging Face hub; empty for a folder or a file."""
    if HUB_NAME.fullmatch(model.name) and COMMIT.fullmatch(model.revision):
        return f"https://huggingface.co/{model.name}/tree/{model.revision}"
    return ""


@dataclass(frozen=True, kw_only=True)
class MissingPage(TemplatePage):
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


@dataclass(frozen=True, kw_only=True)
class SectionPage(TemplatePage):
    """A page of the author's own.

    Attributes:
        text: the page below its heading, in Markdown.
    """

    template: ClassVar[str] = "section.html"
    text: str


def section_pages(manifest: Manifest) -> Iterator[SectionPage]:
    """Yield the pages of the author's own, in the order given."""
    parts = [section_parts(text) for text in manifest.sections]
    for path, (title, text) in zip(section_paths(title for title, _ in parts), parts, strict=True):
        start = plain_words(text.partition("\n\n")[0])
        short = start if len(start) <= MAX_DESCRIPTION else f"{start[:MAX_DESCRIPTION]}…"
        yield SectionPage(path=path, title=title, description=short or title, text=text)
