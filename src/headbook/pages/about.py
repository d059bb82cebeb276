"""The page on citing and reusing a site, and the page for wrong addresses."""

import re
from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.page import TemplatePage
from headbook.study.manifest import Manifest, ModelFacts

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+|[\w.-]+")  # of a model, with or without an owner
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
