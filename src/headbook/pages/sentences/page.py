"""The list of sentences that have pages."""

from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.page import Page
from headbook.report.wording import sentence_page
from headbook.study.study import Study
from headbook.terms import Side


@dataclass(frozen=True)
class SentenceLine:
    """One sentence in the list; ``listed``: whether its page shows all heads."""

    number: int
    href: str
    text: str
    tokens: int
    listed: bool


@dataclass(frozen=True, kw_only=True)
class SentencesPage(Page):
    """The list of sentences that have a page.

    Attributes:
        lines: the sentences.
        total: sentences in the input.
    """

    template: ClassVar[str] = "sentences.html"
    lines: tuple[SentenceLine, ...]
    total: int


def sentences_page(study: Study) -> SentencesPage:
    """The list of sentences."""
    chosen = study.sentence_data.paged
    whole = len(study.sentence_data.listed)
    total = study.manifest.counts["sentences"]
    return SentencesPage(
        path="sentences/index.html",
        title="Sentences",
        description=f"Sentences with a page: {len(chosen):,} of {total:,}. Maps of all heads and "
        f"paths of tokens: {whole:,}; the others have the maps of the heads that cite them as "
        "exemplars.",
        lines=tuple(
            SentenceLine(
                s.number,
                sentence_page(s.number),
                s.texts[Side.SOURCE].text,
                sum(len(text.pieces) for text in s.texts.values()),
                s.listed,
            )
            for s in chosen
        ),
        total=total,
    )
