"""The card of a head: function, and the text of its strongest exemplar."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.pages.parts.text import Token, running_text
from headbook.report.answers.received_attention import Received
from headbook.report.facts.functions import functions_of
from headbook.report.results import StackResults
from headbook.report.wording import visible
from headbook.results.formats import head_name
from headbook.schema import HeadName, heads_of
from headbook.study.sentence_data import APART, UINT8_STEPS, Exemplar, Ranking, StoredText

REACH = 12  # tokens to either side of query and key that the card shows
STEPS = (1, 3, 6)  # tenths of the attention from which on a key is shaded more


@dataclass(frozen=True)
class HeadCard:
    """A head in short.

    Attributes:
        name: name of the head, also as the author calls it.
        noun: name of its function.
        style: class of the colour of its family; empty without a family.
        summary: sentence on its function.
        text: text of the strongest exemplar, as classes and letters; empty without one.
    """

    name: str
    noun: str
    style: str
    summary: str
    text: tuple[tuple[str, str], ...]


def strongest_of(results: StackResults) -> Mapping[HeadName, Exemplar]:
    """Return the strongest exemplar of every head that has one."""
    return results.cached(_strongest)


def _strongest(results: StackResults) -> Mapping[HeadName, Exemplar]:
    exemplars: dict[HeadName, Exemplar] = {}
    for exemplar in results.study.sentence_data.exemplars:
        if exemplar.head.stack == results.stack.name and exemplar.ranking is Ranking.STRONGEST:
            known = exemplars.setdefault(exemplar.head, exemplar)
            exemplars[exemplar.head] = min(known, exemplar, key=lambda e: e.rank)
    return exemplars


def card(results: StackResults, head: HeadName) -> HeadCard:
    """Return the card of one head."""
    function, exemplar = functions_of(results)[head], strongest_of(results).get(head)
    return HeadCard(
        name=" ".join(filter(None, (head_name(head), results.study.manifest.note_on(head).quoted))),
        noun=function.noun,
        style=function.style,
        summary=function.text.text,
        text=tuple(_text(results, exemplar)) if exemplar else (),
    )


def _text(results: StackResults, exemplar: Exemplar) -> Iterator[tuple[str, str]]:
    """Yield the text around query and key as classes and letters; only keys across two texts."""
    text = results.study.sentence_data.sentences[exemplar.index].texts[results.stack.keys]
    query = None if results.stack.crosses else exemplar.query
    yield from _shaded(text, exemplar.attention[exemplar.query], query, exemplar.key)


def received_text(results: StackResults, received: Received) -> Iterator[tuple[str, str]]:
    """Yield the text around a key, shaded by the attention that keys receive from other words."""
    index = received.exemplar.index
    text = results.study.sentence_data.sentences[index].texts[results.stack.keys]
    shades = np.rint(received.weights * UINT8_STEPS).astype(np.uint8)
    yield from _shaded(text, shades, None, received.key)


def _shaded(
    text: StoredText, weights: NDArray[np.uint8], query: int | None, key: int
) -> Iterator[tuple[str, str]]:
    """Yield a text around query and key as classes and letters, shaded by weights of its keys."""
    centres = [key] if query is None else [query, key]
    tokens = running_text(text, weights=weights, query=query, around=centres)
    near = [t for t in tokens if min(abs(t.position - c) for c in centres) <= REACH]
    last, text_before = near[0].position - 1 if near else 0, near[0].text_of_pair if near else None
    if near and near[0].position > 0:
        yield "", "… "
    for token in near:
        gap = "" if token.position == last + 1 else " … "
        last = token.position
        if token.special and (token.shade or 0) < 1 and token.position != key:
            continue
        before = token.before if gap or token is not near[0] else ""
        if token.text_of_pair != text_before:
            text_before, before = token.text_of_pair, f" {APART} "
        if gap or before:
            yield "", visible(gap + before)
        yield _kind(token, key), visible(token.text)
    if near and near[-1].position < len(text.pieces) - 1:
        yield "", " …"


def _kind(token: Token, key: int) -> str:
    """Return the class of a token: query, strongest key, or amount of attention."""
    if token.is_query:
        return "query"
    if token.position == key:
        return "key"
    step = sum((token.shade or 0) >= least for least in STEPS)
    return f"w{step}" if step else ""


def atlas_data(results: StackResults) -> list[list[str]]:
    """Return name, noun, style and summary of all heads, layer by layer."""
    cards = (card(results, head) for head in heads_of(results.stack))
    return [[each.name, each.noun, each.style, each.summary] for each in cards]
