"""Sentences with the attention of two heads: both maps on one scale, and their difference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.analysis.attention_divergence import jensen_shannon
from headbook.comparison.drift import divergence_text
from headbook.comparison.head_pairs import HeadPair, PairedStack, PairMaps
from headbook.pages.overview_parts.differences import MapPicture, signed_picture
from headbook.pages.parts.sentence_maps import text_data, weight_picture
from headbook.pages.parts.text import WINDOW, Token, running_text
from headbook.report.wording import sentence_page
from headbook.results.formats import number
from headbook.study.sentence_data import to_uint8

AT_ONCE = 3  # of the sentences that differ most


class Cited(NamedTuple):
    """A sentence by its place in the ranking: its number in the stack, and what it is called."""

    sentence: int
    place: str
    title: str


@dataclass(frozen=True)
class PairExemplar:
    """A sentence with the attention of both heads.

    Attributes:
        place: key of its maps in the page's data file.
        title: its place in the ranking.
        divergence: of both heads' rows in it, in nats.
        sentence, href: its name, and its page; empty where it has none.
        query, position: the token whose rows are furthest apart.
        strongest: for each model its strongest key for that query, with the weight.
        lines: for each model its name and the text, shaded by the row of that query.
        looking: the text of the queries, where it is another one.
        pictures: the map of each, and the difference.
        size: queries, keys.
    """

    place: str
    title: str
    divergence: str
    sentence: str
    href: str
    query: str
    position: int
    strongest: tuple[tuple[str, str], ...]
    lines: tuple[tuple[str, tuple[Token, ...]], ...]
    looking: tuple[Token, ...]
    pictures: tuple[MapPicture, ...]
    size: tuple[int, int]


def ranked_sentences(drift: Floats) -> Iterator[Cited]:
    """Yield the sentences that differ most, and the median, by rank; of equal ones the first.

    Args:
        drift: by sentence; NaN where there is none.
    """
    known = np.flatnonzero(~np.isnan(drift))
    order = known[np.argsort(-drift[known], kind="stable")]
    total = len(order)
    for rank, sentence in enumerate(order[:AT_ONCE], 1):
        yield Cited(int(sentence), str(rank), f"rank {rank} of {total}")
    median = (total - 1) // 2
    if median >= AT_ONCE:
        yield Cited(int(order[median]), "median", f"median, rank {median + 1} of {total}")


def pair_exemplars(
    paired: PairedStack, pair: HeadPair, drift: Floats, listed: frozenset[int]
) -> tuple[tuple[PairExemplar, ...], dict[str, Any]]:
    """Return the sentences of a pair of heads, and the data of scripts.

    Args:
        drift: of the pair by sentence, in nats.
        listed: sentences with a page, by index.

    Returns:
        For each sentence besides: ``keys`` and, where they are another text, ``queries`` (see
        `headbook.pages.parts.sentence_maps.text_data`), ``causal``, ``weights`` of both models
        (bytes, map after map in steps of 1/255), and no ``norms``.
    """
    found, values = [], {}
    for each in ranked_sentences(drift):
        both = paired.sentences[each.sentence]
        maps = paired.maps(both, pair)
        index = both[0].index
        divergence = divergence_text(float(drift[each.sentence]))
        href = sentence_page(index + 1) if index in listed else ""
        named = f"sentence {index + 1}", href
        found.append(_exemplar(paired, (each, divergence), maps, named))
        values[each.place] = pair_data(paired, maps)
    return tuple(found), values


def pair_data(paired: PairedStack, maps: PairMaps) -> dict[str, Any]:
    """Both maps of one sentence for scripts."""
    stack = paired.stack.a
    value = {
        "keys": text_data(maps.keys),
        "causal": stack.causal and not paired.words,
        "weights": to_uint8(np.stack([maps.a, maps.b])).tobytes(),
        "norms": [],
    }
    return value | ({"queries": text_data(maps.queries)} if stack.crosses else {})


def most_apart(maps: PairMaps) -> int:
    """Return the query whose rows are furthest apart, among those that count."""
    rows = jensen_shannon(maps.a, maps.b)
    return int(np.where(maps.counted, rows, -1).argmax())


def map_pictures(maps: PairMaps, names: Sequence[str]) -> tuple[MapPicture, ...]:
    """Return the map of each model, and the second minus the first."""
    return (
        MapPicture(names[0], weight_picture(to_uint8(maps.a)), "a"),
        MapPicture(names[1], weight_picture(to_uint8(maps.b)), "b"),
        MapPicture(f"{names[1]} minus {names[0]}", signed_picture(maps.b - maps.a), "difference"),
    )


def _exemplar(
    paired: PairedStack, ranked: tuple[Cited, str], maps: PairMaps, named: tuple[str, str]
) -> PairExemplar:
    query = most_apart(maps)
    crosses = paired.stack.a.crosses
    rows = maps.a[query], maps.b[query]
    keys = [int(row.argmax()) for row in rows]
    around = keys if crosses else [query, *keys]
    lines = tuple(
        (
            name,
            running_text(
                maps.keys,
                weights=to_uint8(row),
                query=None if crosses else query,
                key=key,
                around=around,
                most=WINDOW,
            ),
        )
        for name, row, key in zip(paired.names, rows, keys, strict=True)
    )
    return PairExemplar(
        place=ranked[0].place,
        title=ranked[0].title,
        divergence=ranked[1],
        sentence=named[0],
        href=named[1],
        query=maps.queries.pieces[query],
        position=query,
        strongest=tuple(
            (maps.keys.pieces[key], number(float(row[key])))
            for row, key in zip(rows, keys, strict=True)
        ),
        lines=lines,
        looking=running_text(maps.queries, query=query, around=[query]) if crosses else (),
        pictures=map_pictures(maps, paired.names),
        size=(maps.a.shape[0], maps.a.shape[1]),
    )


def what_is_drawn(paired: PairedStack) -> str:
    """Between what maps are, in words; empty where they are the tokens' own."""
    if not paired.words:
        return ""
    cut = ", each query on itself and earlier words only" if paired.cut else ""
    return (
        "The models read different tokens or see different keys, so maps are between the words "
        f"that both have read, sink masked and renormalised{cut}; rows are empty where too little "
        "is left of one of the two."
    )
