"""The list of sentences that two models read, those first in which their attention differs most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headbook.comparison.listed import ListedSentence
from headbook.pages.comparison.nats import nats
from headbook.pages.parts.page import Page
from headbook.report.wording import MISSING, sentence_page


@dataclass(frozen=True)
class SentenceLine:
    """One sentence in the list; ``divergence``: mean over heads, in nats."""

    number: int
    href: str
    text: str
    divergence: str


@dataclass(frozen=True, kw_only=True)
class SentencePairsPage(Page):
    """The list of sentences.

    Attributes:
        lines: the sentences, those that differ most first.
        total: sentences in the input.
    """

    template: ClassVar[str] = "sentencepairs.html"
    lines: tuple[SentenceLine, ...]
    total: int


def sentencepairs_page(listed: Sequence[ListedSentence], total: int) -> SentencePairsPage:
    """The list of sentences.

    Args:
        total: sentences in the input.
    """
    order = sorted(listed, key=lambda each: (np.isnan(each.mean), -each.mean, each.a.number))
    return SentencePairsPage(
        path="sentences/index.html",
        title="Sentences",
        description=f"Sentences with a page: {len(listed):,} of {total:,}, those first in which "
        "the attention of the two models differs most.",
        lines=tuple(
            SentenceLine(
                each.a.number,
                sentence_page(each.a.number),
                next(iter(each.a.texts.values())).text,
                MISSING if np.isnan(each.mean) else nats(each.mean),
            )
            for each in order
        ),
        total=total,
    )
