"""What the work panel of a sentence shows before any script runs: a head, a word, ranked lists."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.pages.widgets.exemplars import GROUPS
from headbook.pages.widgets.inspector import roles_of
from headbook.pages.widgets.instance import weight_picture
from headbook.report.numbers.results import StackResults
from headbook.report.wording import head_name, head_page
from headbook.study.sentencedata import STEPS, Exemplar, HeadName, Ranking, StoredSentence

RANKED = 12  # rows of each list
MOST_CITED = 60_000  # weights of the maps on the page of a sentence that has not those of all heads


@dataclass(frozen=True)
class CitedMap:
    """A head that has a sentence among its exemplars.

    Attributes:
        name, href: the head and its page.
        head: layer and number, as scripts write them.
        why: rankings and ranks.
        picture: its map as an image address.
    """

    name: str
    href: str
    head: str
    why: str
    picture: str


@dataclass(frozen=True)
class RankedLine:
    """A line of a ranked list: a head or none, its token, the weight."""

    name: str
    href: str
    token: str
    value: str


@dataclass(frozen=True)
class Start:
    """A head in a sentence, and the token that the lists are of.

    Attributes:
        stack, head: as scripts write them.
        name, href, summary: the head, its page, and what it does.
        query: position of the token.
        token: the same in letters.
        picture: the head's map as an image address.
        ranked: the keys of that query, the largest weights first.
        others: heads by the largest weight between that query and another word.
    """

    stack: str
    head: str
    name: str
    href: str
    summary: str
    query: int
    token: str
    picture: str
    ranked: tuple[RankedLine, ...]
    others: tuple[RankedLine, ...]


def cited_maps(
    results: StackResults, sentence: StoredSentence
) -> Mapping[HeadName, list[Exemplar]]:
    """The exemplars that a sentence is, by head, in the order of heads.

    Where there are more than a page has room for, those of the best ranks.
    """
    found: dict[HeadName, list[Exemplar]] = {}
    for each in results.once(_by_sentence).get(sentence.index, ()):
        found.setdefault(each.head, []).append(each)
    best = sorted(found, key=lambda head: (_best(found[head]), head))
    size = next((exemplars[0].attention.size for exemplars in found.values()), 1)
    return {head: found[head] for head in sorted(best[: max(1, MOST_CITED // size)])}


def citing(results: StackResults, sentence: StoredSentence) -> int:
    """How many heads cite a sentence, with or without a map on its page."""
    return len({exemplar.head for exemplar in results.once(_by_sentence).get(sentence.index, ())})


def _best(exemplars: list[Exemplar]) -> tuple[bool, int]:
    return min((exemplar.ranking is not Ranking.STRONGEST, exemplar.rank) for exemplar in exemplars)


def _by_sentence(results: StackResults) -> Mapping[int, list[Exemplar]]:
    found: dict[int, list[Exemplar]] = {}
    for exemplar in results.study.sentence_data.exemplars:
        if exemplar.head.stack == results.stack.name:
            found.setdefault(exemplar.index, []).append(exemplar)
    return found


def cited(found: Mapping[HeadName, list[Exemplar]]) -> Iterator[CitedMap]:
    """The same for pages."""
    for head, exemplars in found.items():
        ranks = (f"{_ranking(exemplar.ranking)}, rank {exemplar.rank}" for exemplar in exemplars)
        yield CitedMap(
            name=head_name(head),
            href=head_page(head),
            head=f"{head.layer}.{head.head}",
            why="; ".join(ranks),
            picture=weight_picture(exemplars[0].attention),
        )


def start(
    results: StackResults, sentence: StoredSentence, maps: NDArray[np.uint8] | None
) -> Start | None:
    """The head and the query that a page begins with; None without maps.

    The strongest exemplar that the sentence is, else the largest weight between two words.

    Args:
        maps: as in `headbook.study.sentencedata.SentenceData`.
    """
    found = cited_maps(results, sentence)
    known = {head: each[0].attention for head, each in found.items()}
    if maps is not None:
        stack = results.stack
        places = ((x, y) for x in stack.attention_layers for y in range(stack.n_heads))
        known = {HeadName(stack.name, *cell): maps[cell] for cell in places}
    if not known:
        return None
    exemplars = [exemplar for group in found.values() for exemplar in group]
    if exemplars:
        best = min(exemplars, key=lambda e: (e.ranking is not Ranking.STRONGEST, e.rank, -e.score))
        return _start(results, sentence, known, best.head, best.query)
    keys = sentence.texts[results.stack.keys].sink(causal=results.stack.causal)
    largest = {head: np.where(keys, 0, cells) for head, cells in known.items()}
    head = max(largest, key=lambda each: int(largest[each].max()))
    query, _ = divmod(int(largest[head].argmax()), len(keys))
    return _start(results, sentence, known, head, query)


def _start(
    results: StackResults,
    sentence: StoredSentence,
    known: Mapping[HeadName, NDArray[np.uint8]],
    head: HeadName,
    query: int,
) -> Start:
    stack = results.stack
    token = sentence.texts[stack.queries].pieces[query]
    row, pieces = known[head][query].astype(int), sentence.texts[stack.keys].pieces
    keys = [int(key) for key in np.argsort(-row, kind="stable")[:RANKED] if row[key]]
    summary = roles_of(results)[head].short
    return Start(
        stack=stack.name,
        head=f"{head.layer}.{head.head}",
        name=head_name(head),
        href=head_page(head),
        summary=summary,
        query=query,
        token=token,
        picture=weight_picture(known[head]),
        ranked=tuple(RankedLine("", "", pieces[key], weight(int(row[key]))) for key in keys),
        others=tuple(_others(results, sentence, known, query)),
    )


def _others(
    results: StackResults,
    sentence: StoredSentence,
    known: Mapping[HeadName, NDArray[np.uint8]],
    query: int,
) -> Iterator[RankedLine]:
    text = sentence.texts[results.stack.keys]
    left_out = text.sink(causal=results.stack.causal)
    if not results.stack.crosses:
        left_out[query] = True
    best = []
    for head, cells in known.items():
        row = np.where(left_out, 0, cells[query]).astype(int)
        best.append((-int(row.max()), head, int(row.argmax())))
    for steps, head, key in sorted(best)[:RANKED]:
        if steps:
            yield RankedLine(head_name(head), head_page(head), text.pieces[key], weight(-steps))


def weight(steps: int) -> str:
    """Return a stored weight in two digits, as many as 8 bits hold."""
    return f"{steps / STEPS:.2f}"


def _ranking(ranking: Ranking) -> str:
    """A ranking as pages call it; the strongest have no heading of their own."""
    name = "strongest" if ranking is Ranking.STRONGEST else GROUPS[ranking][0]
    return name[:1].lower() + name[1:]
