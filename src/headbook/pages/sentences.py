"""The page with the list of sentences that have pages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.page import TemplatePage
from headbook.report.facts.functions import FunctionFamily, families_of, functions_of
from headbook.report.results import StackResults, study_of
from headbook.report.wording import capital, count_text, sentence_page
from headbook.results.sentence import Link, head_link
from headbook.schema import HeadName, Side
from headbook.study.sentence_data import Ranking

Results = Mapping[str, StackResults]


@dataclass(frozen=True)
class SentenceLine:
    """One sentence in the list.

    Attributes:
        number, href: number of the sentence in the input, and address of its page.
        text: the sentence.
        tokens: number of its tokens.
        listed: whether its page shows all heads.
        families: families of the heads that have it among their strongest exemplars: class of the
            colour, and links to the heads.
    """

    number: int
    href: str
    text: str
    tokens: int
    listed: bool
    families: tuple[tuple[str, tuple[Link, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class SentencesPage(TemplatePage):
    """The page with the list of sentences that have a page.

    Attributes:
        lines: the sentences.
        total: sentences in the input.
        families: class of the colour and name of each family that a line shows.
    """

    template: ClassVar[str] = "sentences.html"
    scripts = ("filter_list",)
    lines: tuple[SentenceLine, ...]
    total: int
    families: tuple[tuple[str, str], ...]


def _described(paged: int, whole: int, total: int, noun: str) -> str:
    have = "has" if paged == 1 else "have"
    text = f"Of {count_text(total, noun)}, {paged:,} {have} a page"
    if paged == total > 1:
        text = f"All {count_text(total, noun)} have a page"
    if whole == paged:
        return f"{text}, with maps of all heads and paths of tokens."
    return (
        f"{text}: {whole:,} with maps of all heads and paths of tokens, the others with the maps "
        "of the heads whose exemplars they are."
    )


def sentences_page(results: Results) -> SentencesPage:
    """Return the page with the list of sentences."""
    study = study_of(results)
    chosen = study.sentence_data.paged
    whole = len(study.sentence_data.listed)
    total = study.manifest.counts["sentences"]
    strongest = _strongest(results)
    lines = tuple(
        SentenceLine(
            s.number,
            sentence_page(s.number),
            s.texts[Side.SOURCE].apart,
            sum(len(text.pieces) for text in s.texts.values()),
            s.listed,
            tuple(_families(strongest.get(s.index, {}))),
        )
        for s in chosen
    )
    styles = {style for line in lines for style, _ in line.families}
    return SentencesPage(
        path="sentences/index.html",
        title=capital(f"{study.manifest.text_noun}s"),
        description=_described(len(chosen), whole, total, study.manifest.text_noun),
        lines=lines,
        total=total,
        families=tuple(each for each in _names(results) if each[0] in styles),
    )


def _strongest(results: Results) -> Mapping[int, dict[FunctionFamily, list[HeadName]]]:
    """Return the heads that have each sentence among their strongest exemplars, by family."""
    by_sentence: dict[int, dict[FunctionFamily, list[HeadName]]] = {}
    for exemplar in study_of(results).sentence_data.exemplars:
        head = exemplar.head
        if exemplar.ranking is Ranking.STRONGEST and head.stack in results:
            family = functions_of(results[head.stack])[head].family
            if family is not None:
                of_families = by_sentence.setdefault(exemplar.index, {})
                of_families.setdefault(family, []).append(head)
    return by_sentence


def _families(
    heads: Mapping[FunctionFamily, list[HeadName]],
) -> Iterator[tuple[str, tuple[Link, ...]]]:
    for family in FunctionFamily:
        if family in heads:
            yield f"f-{family}", tuple(map(head_link, sorted(heads[family])))


def _names(results: Results) -> Iterator[tuple[str, str]]:
    of_stacks = [families_of(each) for each in results.values()]
    for family in FunctionFamily:
        names = (names[family] for names in of_stacks if family in names)
        yield f"f-{family}", " or ".join(dict.fromkeys(names))
