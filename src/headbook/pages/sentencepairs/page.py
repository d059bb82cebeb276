"""The list of sentences that two models read, those first in which their attention differs most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headbook.comparison.listed import ListedSentence
from headbook.comparison.sides import Sides
from headbook.pages.comparison.nats import nats
from headbook.pages.parts.page import Page
from headbook.report.wording import MISSING, counted, sentence_page


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
        lists: how many of them both studies list, where that is not all; else empty.
    """

    template: ClassVar[str] = "sentencepairs.html"
    lines: tuple[SentenceLine, ...]
    total: int
    lists: str


def sentencepairs_page(sides: Sides, listed: Sequence[ListedSentence]) -> SentencePairsPage:
    """The list of sentences."""
    total = sides.sentences
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
        lists=_lists(sides, listed),
    )


def _lists(sides: Sides, listed: Sequence[ListedSentence]) -> str:
    """Which sentences have a page, where the studies list other ones or few."""
    both = sum(each.followed for each in listed)
    counts = [len(study.sentence_data.listed) for study in (sides.a, sides.b)]
    alone = len(listed) - both
    if not alone and both == max(counts):
        return ""
    names = sides.names
    begin = (
        f"{names[0]} lists {counted(counts[0], 'sentence')}, {names[1]} {counts[1]:,}, and both "
        f"{both:,} of the same, whose pages have the paths of all tokens."
    )
    more = f" Of {alone:,} more both keep attention maps: their pages have heads and layers alone."
    return begin + (more if alone else "")
