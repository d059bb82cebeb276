"""The card of a head: role, sink, and strongest exemplar."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.metrics import ids
from headbook.pages.parts.text import Token, running_text
from headbook.report.answers.head_roles import head_roles
from headbook.report.answers.received_attention import Received
from headbook.report.families import in_page_words, style_of
from headbook.report.results import StackResults, share_of_head
from headbook.report.roles import roles_by_head
from headbook.report.sink import sink_words
from headbook.report.wording import visible
from headbook.results.formats import head_name, head_page, number
from headbook.schema import HeadName, SinkView, heads_of
from headbook.study.sentence_data import UINT8_STEPS, Exemplar, Ranking, StoredText

REACH = 12  # tokens to either side of query and key that the card shows
STEPS = (1, 3, 6)  # tenths of the attention from which on a key is shaded more


@dataclass(frozen=True)
class HeadCard:
    """A head in short: type, role, sink, and strongest exemplar.

    Attributes:
        name, href: the head, also as the author calls it, and its page.
        type, style: type, and classes of the colours; both empty without a type.
        border: types that the head is close to; may be empty.
        summary: role of the head in a few words.
        evidence: sentence with the numbers behind the role.
        given, brought: shares of the sink in attention and in the output norm; – without a sink.
        what: tokens of the sink, in words.
        caption: query, key and weight of the strongest exemplar; empty without one.
        text: text of the exemplar, as classes and letters.
    """

    name: str
    href: str
    type: str
    style: str
    border: str
    summary: str
    evidence: str
    given: str
    brought: str
    what: str
    caption: str
    text: tuple[tuple[str, str], ...]

    @property
    def data(self) -> list[Any]:
        """Fields of the card for the page's script, without those that the tile has."""
        return [self.name, self.href, self.type, self.style, self.border, self.summary,
                self.evidence, self.given, self.brought, self.what, self.caption,
                [list(part) for part in self.text]]  # fmt: skip


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
    known, exemplar = roles_by_head(results)[head], strongest_of(results).get(head)
    head_type, cell = known.type, (head.layer, head.head)
    claim = known.claim("relation") or next(iter(known.claims), None)
    given, brought = (
        number(share_of_head(results, metric, SinkView.RAW, "", cell).value, share=True)
        for metric in (ids.SINK_SHARE, ids.SINK_NORM_SHARE)
    )
    return HeadCard(
        name=" ".join(filter(None, (head_name(head), results.study.manifest.note_on(head).quoted))),
        href=head_page(head),
        type=in_page_words(head_type.name) if head_type else "",
        style=style_of(head_type) if head_type else "",
        border=in_page_words(head_type.near) if head_type else "",
        summary=head_roles(results)[head].plain,
        evidence=claim.text if claim and claim.kind != "sink" else "",
        given=given,
        brought=brought,
        what=sink_words(results),
        caption=_caption(results, exemplar) if exemplar else "",
        text=tuple(_text(results, exemplar)) if exemplar else (),
    )


def _caption(results: StackResults, exemplar: Exemplar) -> str:
    texts = results.study.sentence_data.sentences[exemplar.index].texts
    query = texts[results.stack.queries].pieces[exemplar.query]
    key = texts[results.stack.keys].pieces[exemplar.key]
    return visible(f"Strongest: {query} → {key}, {number(exemplar.score)}")


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
    last = near[0].position - 1 if near else 0
    if near and near[0].position > 0:
        yield "", "… "
    for token in near:
        gap = "" if token.position == last + 1 else " … "
        last = token.position
        if token.special and (token.shade or 0) < 1 and token.position != key:
            continue
        before = token.before if gap or token is not near[0] else ""
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


def atlas_data(results: StackResults) -> list[list[Any]]:
    """Return the cards of all heads, layer by layer."""
    return [card(results, head).data for head in heads_of(results.stack)]
