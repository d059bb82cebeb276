"""The tokens and pairs of tokens that a head favours, for its page."""

from dataclasses import dataclass

import numpy as np

from headbook.pages.parts.table import Mark, Row, Table, words
from headbook.report.numbers.results import StackResults
from headbook.report.wording import counted, interval, number, percent, visible
from headbook.study.sentencedata import HeadName
from headbook.study.summaries.affinities import DISTINCT, Affinities
from headbook.study.toptokens import KEY, PAIR, QUERY, Favoured, favoured

MOST_ROWS = 8
COLUMNS = ("ratio to uniform", "to the mean head", "mean attention", "count", "sentences")
KINDS = {
    QUERY: ("Query tokens", "what the token gives to all keys off the sink"),
    KEY: ("Key tokens", "what the token receives from all queries of its sentence"),
    PAIR: ("Pairs, query → key", "what the query gives to the key"),
}


@dataclass(frozen=True)
class TopTokens:
    """The tokens and pairs that a head favours.

    Attributes:
        tables: by kind; none where nothing qualifies.
        about: the sentences that they were taken on.
        nothing: why there is no table; empty where there is one.
    """

    tables: tuple[Table, ...]
    about: str
    nothing: str


def top_tokens(results: StackResults, head: HeadName) -> TopTokens | None:
    """Return the tokens and pairs that a head favours; None if the study has no sums of them."""
    sums = results.study.corpus_sums.affinities.get(results.stack.name)
    if sums is None:
        return None
    layers = results.once(_of_layers)
    tables, occurring = [], 0
    for what, (title, about) in KINDS.items():
        found = layers[head.layer][what]
        occurring += found.item.size
        more = (found.ratio[head.head] > 1) & (found.mean_head_ratio[head.head] > 1)
        above = np.flatnonzero(more)[:MOST_ROWS]
        rows = tuple(_row(sums, found, head.head, int(place)) for place in above)
        if rows:
            columns = ("Pair" if what == PAIR else "Token", *COLUMNS)
            caption = f"{title}: {about}."
            tables.append(Table(columns, rows, caption, "numbers top-tokens"))
    nothing = (
        f"No token and no pair of tokens occurs in {DISTINCT} different sentences."
        if not occurring
        else "No token or pair receives more than under uniform attention and from the mean head."
    )
    return TopTokens(tuple(tables), _about(results, sums), "" if tables else nothing)


def _of_layers(results: StackResults) -> dict[int, dict[str, Favoured]]:
    sums = results.study.corpus_sums.affinities[results.stack.name]
    layers = results.stack.attention_layers
    return {layer: {what: favoured(sums, layer, what) for what in KINDS} for layer in layers}


def _row(sums: Affinities, found: Favoured, head: int, place: int) -> Row:
    """Return a token or a pair; grey where the interval reaches a baseline."""
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
            f"{number(float(found.mean_head_ratio[at]))}×",
            words(percent(mean), ends and " ", Mark(ends, "small"), style="number"),
            f"{int(found.count[at]):,}",
            f"{int(found.sentences[at]):,}",
        ),
        "" if found.clear[at] else "thin",
    )


def _about(results: StackResults, sums: Affinities) -> str:
    """On how many sentences, and what of them was left out."""
    every = results.study.manifest.counts["sentences"]
    of = "" if sums.looked == every else f" of {every:,} (those with the smallest hashes)"
    kept = (
        f"; tokens and pairs in fewer than {sums.floor} sentences were not kept"
        if sums.floor > DISTINCT
        else ""
    )
    return f"{counted(sums.looked, 'sentence')}{of}{kept}"
