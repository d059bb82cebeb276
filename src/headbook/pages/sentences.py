"""The page with the list of sentences that have pages."""

from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.page import Page
from headbook.report.wording import count_text, sentence_page
from headbook.schema import Side
from headbook.study.study import Study


@dataclass(frozen=True)
class SentenceLine:
    """A sentence in the list; ``listed``: whether its page shows all heads."""

    number: int
    href: str
    text: str
    tokens: int
    listed: bool


@dataclass(frozen=True, kw_only=True)
class SentencesPage(Page):
    """The page with the list of sentences that have a page.

    Attributes:
        lines: the sentences.
        total: sentences in the input.
    """

    template: ClassVar[str] = "sentences.html"
    scripts = ("filter_list",)
    lines: tuple[SentenceLine, ...]
    total: int


def _described(paged: int, whole: int, total: int) -> str:
    have = "has" if paged == 1 else "have"
    text = f"Of {count_text(total, 'sentence')}, {paged:,} {have} a page"
    if paged == total > 1:
        text = f"All {total:,} sentences have a page"
    if whole == paged:
        return f"{text}, with maps of all heads and paths of tokens."
    return (
        f"{text}: {whole:,} with maps of all heads and paths of tokens, the others with the maps "
        "of the heads whose exemplars they are."
    )


def sentences_page(study: Study) -> SentencesPage:
    """Return the page with the list of sentences."""
    chosen = study.sentence_data.paged
    whole = len(study.sentence_data.listed)
    total = study.manifest.counts["sentences"]
    return SentencesPage(
        path="sentences/index.html",
        title="Sentences",
        description=_described(len(chosen), whole, total),
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
