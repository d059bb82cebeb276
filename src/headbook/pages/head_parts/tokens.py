"""Tokens and classes of words that a head attends from and attends to."""

from dataclasses import dataclass

import numpy as np

from headbook.charts import Drawing
from headbook.charts.one_head import FlowNode, FlowRibbon, flow_picture
from headbook.pages.parts.table import MarkedText, PageTable, Row, words_cell
from headbook.report.class_flows import (
    MAX_TOKENS,
    OTHERS,
    ClassFlow,
    Flow,
    class_flow,
    class_name,
    tokens_above_mean_head,
)
from headbook.report.results import StackResults
from headbook.report.wording import count_text, visible
from headbook.results.formats import (
    head_file,
    head_name,
    interval_text,
    number,
    percent,
    whole_percent,
)
from headbook.schema import HeadName
from headbook.study.sums.token_sums import (
    KEY,
    MIN_SENTENCES,
    PAIR,
    QUERY,
    Affinities,
    FavouredTokens,
    favoured_tokens,
)

LABEL_TOKENS = {QUERY: 3, KEY: 2}  # tokens below the name of a class
NOTE_LETTERS = 20  # letters that fit below the name of a class
MOST_ROWS = 8
COLUMNS = ("ratio to uniform", "to the mean head", "mean attention", "count", "sentences")
KINDS = {
    QUERY: ("Query tokens", "what the token gives to all keys off the sink"),
    KEY: ("Key tokens", "what the token receives from all queries of its sentence"),
    PAIR: ("Pairs, query → key", "what the query gives to the key"),
}


@dataclass(frozen=True)
class TopTokens:
    """The tokens and pairs that a head clearly favours.

    Attributes:
        tables: tables of queries, keys and pairs, without the empty ones.
        about: sentences behind the tables, in words.
    """

    tables: tuple[PageTable, ...]
    about: str


def top_tokens(results: StackResults, head: HeadName) -> TopTokens | None:
    """Return the tokens and pairs whose interval lies above both baselines; None without any."""
    sums = results.study.corpus_sums.affinities.get(results.stack.name)
    if sums is None:
        return None
    layers = results.cached(_of_layers)
    tables = []
    for what, (title, about) in KINDS.items():
        favoured = layers[head.layer][what]
        clear = np.flatnonzero(favoured.clear[head.head])[:MOST_ROWS]
        rows = tuple(_token_row(sums, favoured, head.head, int(place)) for place in clear)
        if rows:
            columns = ("Pair" if what == PAIR else "Token", *COLUMNS)
            caption = f"{title}: {about}."
            tables.append(PageTable(columns, rows, caption, "numbers top-tokens"))
    return TopTokens(tuple(tables), _about(results, sums)) if tables else None


def _of_layers(results: StackResults) -> dict[int, dict[str, FavouredTokens]]:
    sums = results.study.corpus_sums.affinities[results.stack.name]
    layers = results.stack.attention_layers
    return {layer: {what: favoured_tokens(sums, layer, what) for what in KINDS} for layer in layers}


def _token_row(sums: Affinities, favoured: FavouredTokens, head: int, place: int) -> Row:
    """Return the row of a token or a pair."""
    at = head, place
    item = favoured.item[at]
    query, key = (str(sums.named(np.array(each[item]))) for each in (sums.query, sums.key))
    mean, low, high = (float(part[at]) for part in (favoured.mean, favoured.low, favoured.high))
    arrow = " → " if query and key else ""
    ends = interval_text(low, high, share=True)
    return Row(
        words_cell(MarkedText(visible(query), "bdi"), arrow, MarkedText(visible(key), "bdi")),
        (
            f"{number(float(favoured.ratio[at]))}×",
            f"{number(float(favoured.mean_head_ratio[at]))}×",
            words_cell(percent(mean), ends and " ", MarkedText(ends, "small"), style="number"),
            f"{int(favoured.count[at]):,}",
            f"{int(favoured.n_sentences[at]):,}",
        ),
    )


def _about(results: StackResults, sums: Affinities) -> str:
    """Return the number of sentences behind the tables, and what was left out of them, in words."""
    every = results.study.manifest.counts["sentences"]
    of = "" if sums.looked == every else f" of {every:,} (those with the smallest hashes)"
    kept = (
        f"; tokens and pairs in fewer than {sums.floor} sentences were not kept"
        if sums.floor > MIN_SENTENCES
        else ""
    )
    return f"{count_text(sums.looked, results.study.manifest.text_noun)}{of}{kept}"


@dataclass(frozen=True)
class FromTo:
    """Classes or tokens that a head attends from and to, relative to the mean head.

    Attributes:
        picture: flow between classes of words; None if the classes are unknown.
        tables: tokens of queries and of keys if there is no picture.
    """

    picture: Drawing | None
    tables: tuple[PageTable, ...] = ()


def from_to(results: StackResults, head: HeadName) -> FromTo | None:
    """Return the flow between classes of words, else tokens of both sides; None without either."""
    flow = class_flow(results, head)
    if flow is not None:
        return FromTo(_flow_picture(head, flow))
    tables = (_tokens_of_side(results, head, kind) for kind in (QUERY, KEY))
    known = tuple(table for table in tables if table is not None)
    return FromTo(None, known) if known else None


def _flow_picture(head: HeadName, flow: ClassFlow) -> Drawing:
    """Return the picture of a flow."""
    named = len(flow.queries), len(flow.keys)
    caption = (
        f"Attention of head {head_name(head)} between words, from {named[0]} classes of queries "
        f"(left) to {named[1]} classes of keys (right)."
    )
    ribbons = tuple(
        FlowRibbon(
            class_name(pair.query), class_name(pair.key), pair.share,
            f"{number(pair.ratio, like=10)}×" if pair.stands_out else "",
            _flow_title(pair), pair.stands_out,
        )
        for pair in flow.pairs
    )  # fmt: skip
    queries, keys = (
        tuple(_node(each, kind) for each in side)
        for side, kind in ((flow.queries, QUERY), (flow.keys, KEY))
    )
    return flow_picture(f"flow-{head_file(head)}", caption, queries, keys, ribbons)


def _node(flow: Flow, kind: str) -> FlowNode:
    """Return a class of one side, with as many tokens below its name as fit."""
    name = class_name(flow.query or flow.key)
    if OTHERS in {flow.query, flow.key}:
        return FlowNode(name, flow.share, name, "", "", stands_out=False)
    note = ""
    for token, sentences in flow.tokens[: LABEL_TOKENS[kind]]:
        longer = f"{note}{' · ' if note else ''}{token} {sentences:,}"
        if len(longer) > NOTE_LETTERS:
            break
        note = longer
    short = name.replace("ordinating conjunctions", "ord. conj.")  # the margins are narrow
    label = f"{short} {whole_percent(flow.share)}"
    return FlowNode(name, flow.share, label, note, _flow_title(flow), stands_out=flow.stands_out)


def _flow_title(flow: Flow) -> str:
    """Return a flow with all its numbers in words; empty if no table has a row of it."""
    if OTHERS in {flow.query, flow.key} or flow.sentences < MIN_SENTENCES:
        return ""
    ends = " → ".join(class_name(tag) for tag in (flow.query, flow.key) if tag)
    side = "" if flow.query and flow.key else "from " if flow.query else "to "
    ends_text = f" {interval_text(flow.low, flow.high)}".rstrip()
    return (
        f"{side}{ends}: {percent(flow.share)} of its attention between words, "
        f"{number(flow.ratio)} times{ends_text} the mean head, "
        f"{count_text(flow.sentences, 'sentence')}"
    )


def _tokens_of_side(results: StackResults, head: HeadName, kind: str) -> PageTable | None:
    """Return the tokens of queries or of keys that a head favours; None without any."""
    tokens = tokens_above_mean_head(results, head, kind)[:MAX_TOKENS]
    if not tokens:
        return None
    title = "Attends from" if kind == QUERY else "Attends to"
    rows = tuple(
        Row(
            words_cell(MarkedText(visible(token.token), "bdi")),
            (f"{number(token.ratio)}×", f"{token.sentences:,}"),
        )
        for token in tokens
    )
    return PageTable((title, "× mean head", "sentences"), rows, "", "numbers sides")
