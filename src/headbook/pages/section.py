"""Pages of the author's own: Markdown that ``--section`` names."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from headbook.author import plain_words, section_parts, section_paths
from headbook.pages.parts.page import TemplatePage
from headbook.study.manifest import Manifest

MAX_DESCRIPTION = 160  # characters of the text that search engines and the search show


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
