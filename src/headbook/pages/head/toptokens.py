"""The tokens and pairs of tokens that a head favours, for its page."""

from dataclasses import dataclass

import numpy as np

from headbook.report.numbers.results import StackResults
from headbook.report.wording import counted, interval, number, percent, visible
from headbook.study.sentencedata import HeadName
from headbook.study.summaries.affinities import Affinities
from headbook.study.toptokens import KEY, LEAST, PAIR, QUERY, Favoured, favoured

MOST_ROWS = 8
KINDS = {
    QUERY: ("Query tokens", "what the token gives to all keys off the sink"),
    KEY: ("Key tokens", "what the token receives from all queries of its sentence"),
    PAIR: ("Pairs, query → key", "what the query gives to the key"),
}


@dataclass(frozen=True)
class TopRow:
    """A token or a pair.

    Attributes:
        query, key: as vocabulary tokens; empty where all count.
        ratio: mean attention over that of uniform attention.
        mean, interval: mean attention of an occurrence.
        count: occurrences.
        clear: whether the interval lies above uniform attention.
    """

    query: str
    key: str
    ratio: str
    mean: str
    interval: str
    count: str
    clear: bool


@dataclass(frozen=True)
class TopTable:
    """The first rows of one kind, with its heading and what is measured."""

    title: str
    about: str
    rows: tuple[TopRow, ...]


@dataclass(frozen=True)
class TopTokens:
    """All kinds, and what they were taken on."""

    tables: tuple[TopTable, ...]
    about: str


def top_tokens(results: StackResults, head: HeadName) -> TopTokens | None:
    """What a head favours; None where the study has not summed it or nothing occurs enough."""
    sums = results.study.corpus_sums.affinities.get(results.stack.name)
    if sums is None:
        return None
    layers = results.once(_of_layers)
    tables = []
    for what, (title, about) in KINDS.items():
        found = layers[head.layer][what]
        above = np.flatnonzero(found.ratio[head.head] > 1)[:MOST_ROWS]
        rows = tuple(_row(sums, found, head.head, int(place)) for place in above)
        if rows:
            tables.append(TopTable(title, about, rows))
    return TopTokens(tuple(tables), _about(results, sums)) if tables else None


def _of_layers(results: StackResults) -> dict[int, dict[str, Favoured]]:
    sums = results.study.corpus_sums.affinities[results.stack.name]
    layers = results.stack.attention_layers
    return {layer: {what: favoured(sums, layer, what) for what in KINDS} for layer in layers}


def _row(sums: Affinities, found: Favoured, head: int, place: int) -> TopRow:
    at = head, place
    item = found.item[at]
    query, key = (str(sums.named(np.array(each[item]))) for each in (sums.query, sums.key))
    mean, low, high = (float(part[at]) for part in (found.mean, found.low, found.high))
    return TopRow(
        query=visible(query),
        key=visible(key),
        ratio=f"{number(float(found.ratio[at]))}×",
        mean=percent(mean),
        interval=interval(low, high, share=True),
        count=f"{int(found.count[at]):,}",
        clear=bool(found.clear[at]),
    )


def _about(results: StackResults, sums: Affinities) -> str:
    """On how many sentences, and what of them was left out."""
    every = results.study.manifest.counts["sentences"]
    of = "" if sums.looked == every else f" of {every:,} (those with the smallest hashes)"
    kept = (
        f"; tokens and pairs with fewer than {sums.floor} occurrences were not kept"
        if sums.floor > LEAST
        else ""
    )
    return f"{counted(sums.looked, 'sentence')}{of}{kept}"
