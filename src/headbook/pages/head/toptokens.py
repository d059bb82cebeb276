"""The tokens and pairs of tokens that a head favours, for its page."""

from dataclasses import dataclass

import numpy as np

from headbook.pages.parts.table import Mark, Row, Table, words
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
class TopTokens:
    """All kinds, and what they were taken on."""

    tables: tuple[Table, ...]
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
            columns = ("Pair" if what == PAIR else "Token", "ratio", "mean attention", "count")
            caption = f"{title}: {about}."
            tables.append(Table(columns, rows, caption, "numbers top-tokens"))
    return TopTokens(tuple(tables), _about(results, sums)) if tables else None


def _of_layers(results: StackResults) -> dict[int, dict[str, Favoured]]:
    sums = results.study.corpus_sums.affinities[results.stack.name]
    layers = results.stack.attention_layers
    return {layer: {what: favoured(sums, layer, what) for what in KINDS} for layer in layers}


def _row(sums: Affinities, found: Favoured, head: int, place: int) -> Row:
    """A token or a pair; grey where the interval does not lie above uniform attention."""
    at = head, place
    item = found.item[at]
    query, key = (str(sums.named(np.array(each[item]))) for each in (sums.query, sums.key))
    mean, low, high = (float(part[at]) for part in (found.mean, found.low, found.high))
    arrow = " → " if query and key else ""
    ends = interval(low, high, share=True)
    return Row(
        words(Mark(visible(query), "bdi"), arrow, Mark(visible(key), "bdi")),
        (
            f"{number(float(found.ratio[at]))}×",
            words(percent(mean), ends and " ", Mark(ends, "small"), style="number"),
            f"{int(found.count[at]):,}",
        ),
        "" if found.clear[at] else "thin",
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
