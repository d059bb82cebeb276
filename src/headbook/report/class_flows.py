"""Attention of a head from classes of words to classes of words, against the mean head."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import divide
from headbook.report.relations import TAG_NAMES
from headbook.report.results import StackResults
from headbook.schema import UPOS, HeadName
from headbook.study.sums.token_sums import ANY_TOKEN, KEY, MIN_SENTENCES, QUERY
from headbook.study.sums.word_samples import FLOW_CELLS, FlowEstimates

MIN_CLASS_SHARE = 0.035  # share of the attention below which a class joins the others
MAX_CLASSES = 8  # classes of a side that are named
MIN_FLOW_SHARE = 0.015  # share of the attention from which on a flow may stand out
MIN_FLOW_RATIO = 1.4  # ratio to the mean head from which on a flow may stand out
MIN_CLASS_RATIO = 1.15  # ratio to the mean head from which on a class may stand out
MIN_TOKEN_RATIO = 1.1  # ratio to the mean head from which on a token is named
MIN_TOKEN_SENTENCES = 2  # sentences in which a token named below its class occurs
MAX_TOKENS = 8  # tokens of a side where classes are not known
OTHERS = "others"


class Flow(NamedTuple):
    """Attention between two classes, or of one class, beside the mean head.

    Attributes:
        query, key: parts of speech; empty for all, `OTHERS` for those that are not named.
        share: share of the head's attention between words.
        ratio, low, high: ratio to the mean head with its interval; NaN for `OTHERS`.
        sentences: sentences that hold such words; 0 for `OTHERS`.
        stands_out: whether the head has clearly more than the mean head.
        tokens: tokens of the class that take most of what the head has over the mean head, with
            the number of their sentences.
    """

    query: str
    key: str
    share: float
    ratio: float = np.nan
    low: float = np.nan
    high: float = np.nan
    sentences: int = 0
    stands_out: bool = False
    tokens: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class ClassFlow:
    """Attention of one head between classes of words.

    Attributes:
        queries, keys: classes of both sides, the largest share first, `OTHERS` last.
        pairs: attention between two classes of these.
    """

    queries: tuple[Flow, ...]
    keys: tuple[Flow, ...]
    pairs: tuple[Flow, ...]


class FavouredToken(NamedTuple):
    """A token that a head attends from, or attends to, more than the mean head.

    Attributes:
        token: the vocabulary token.
        ratio: ratio of its mean attention to that of the mean head.
        sentences: sentences in which it occurs.
    """

    token: str
    ratio: float
    sentences: int


def flows_of_stack(results: StackResults) -> FlowEstimates | None:
    """Return the flows between classes of all heads; None if the study has none."""
    return results.cached(_flows)


def _flows(results: StackResults) -> FlowEstimates | None:
    sums = results.study.corpus_sums.class_flows.get(results.stack.name)
    return sums.estimates() if sums is not None and sums.mean_totals[0] > 0 else None


def class_flow(results: StackResults, head: HeadName) -> ClassFlow | None:
    """Return the flow of one head; None if no class of queries or of keys can be named.

    A class below `MIN_CLASS_SHARE`, in fewer than `MIN_SENTENCES` sentences, or after the first
    `MAX_CLASSES` joins the others.
    """
    numbers = flows_of_stack(results)
    if numbers is None or np.isnan(numbers.share[head.layer, head.head]).all():
        return None
    flows = dict(zip(FLOW_CELLS, _flows_of_head(numbers, head), strict=True))
    sides = [
        _side(results, head, [flows[cell] for cell in FLOW_CELLS if cell.count("") and cell[side]])
        for side in (0, 1)
    ]
    named = [
        {flow[side] for flow in flows_of_side} - {OTHERS}
        for side, flows_of_side in enumerate(sides)
    ]
    if not all(named):
        return None
    shares: dict[tuple[str, str], float] = {}
    for (query, key), flow in flows.items():
        if query and key and flow.share > 0:
            pair = query if query in named[0] else OTHERS, key if key in named[1] else OTHERS
            shares[pair] = shares.get(pair, 0.0) + flow.share
    pairs = (
        Flow(*pair, share) if OTHERS in pair else flows[pair] for pair, share in shares.items()
    )
    return ClassFlow(sides[0], sides[1], tuple(pairs))


def _flows_of_head(numbers: FlowEstimates, head: HeadName) -> Iterator[Flow]:
    """Yield the flow of each cell of `FLOW_CELLS`."""
    parts = zip(*(part[head.layer, head.head].tolist() for part in numbers), strict=True)
    for (query, key), (share, _, ratio, low, high, sentences) in zip(
        FLOW_CELLS, parts, strict=True
    ):
        is_pair = bool(query and key)
        stands_out = low > 1 and (
            share >= MIN_FLOW_SHARE and ratio >= MIN_FLOW_RATIO
            if is_pair
            else ratio >= MIN_CLASS_RATIO
        )
        yield Flow(query, key, share, ratio, low, high, int(sentences), stands_out)


def _side(results: StackResults, head: HeadName, classes: Iterable[Flow]) -> tuple[Flow, ...]:
    """Return the classes of a side that are named, the largest first, and the others."""
    ranked = sorted((flow for flow in classes if flow.share > 0), key=lambda flow: -flow.share)
    named = [
        flow for flow in ranked if flow.share >= MIN_CLASS_SHARE and flow.sentences >= MIN_SENTENCES
    ][:MAX_CLASSES]
    rest = sum(flow.share for flow in ranked if flow not in named)
    kind = QUERY if ranked and ranked[0].query else KEY
    tokens = _tokens_by_class(results, head, kind)
    with_tokens = (flow._replace(tokens=tokens.get(flow.query or flow.key, ())) for flow in named)
    others = Flow(OTHERS, "", rest) if kind == QUERY else Flow("", OTHERS, rest)
    return (*with_tokens, *((others,) if rest > 0 else ()))


def rule_queries(results: StackResults, head: HeadName, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the classes of queries whose flow to some classes of keys stands out, by its share."""
    numbers = flows_of_stack(results)
    if numbers is None:
        return ()
    flows = [
        flow
        for flow in _flows_of_head(numbers, head)
        if flow.query and flow.key in keys and flow.share > 0
    ]
    clear = {flow.query for flow in flows if flow.stands_out}
    shares = {tag: sum(flow.share for flow in flows if flow.query == tag) for tag in clear}
    return tuple(sorted(shares, key=lambda tag: (-shares[tag], tag)))


def key_flows(results: StackResults, head: HeadName) -> dict[str, Flow]:
    """Return the flow to each class of keys, by part of speech; empty if the study has none."""
    numbers = flows_of_stack(results)
    if numbers is None:
        return {}
    return {
        flow.key: flow
        for flow in _flows_of_head(numbers, head)
        if not flow.query and flow.share == flow.share
    }


def class_name(tag: str) -> str:
    """Return the name of a part of speech, or of the others, on pages."""
    return TAG_NAMES.get(tag, tag)


def _class_of_tokens(results: StackResults) -> Mapping[str, str]:
    """Return the part of speech that each token has most often as a word of its own.

    Counted in the stored sentences; tokens that are always parts of words have none.
    """
    counts: dict[str, dict[str, int]] = {}
    for sentence in results.study.sentence_data.sentences.values():
        text = sentence.texts[results.stack.keys]
        n_pieces = Counter(text.words)
        for piece, word, tag in zip(text.pieces, text.words, text.tags, strict=True):
            if tag in UPOS and n_pieces[word] == 1:
                of_token = counts.setdefault(piece.strip().lower(), {})
                of_token[tag] = of_token.get(tag, 0) + 1
    return {token: max(tags, key=lambda tag: tags[tag]) for token, tags in counts.items()}


def _tokens_by_class(
    results: StackResults, head: HeadName, kind: str
) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the tokens of each class that take most of the difference from the mean head."""
    classes = results.cached(_class_of_tokens)
    by_tag: dict[str, list[tuple[str, int]]] = {}
    for token in tokens_above_mean_head(results, head, kind, MIN_TOKEN_SENTENCES):
        tag = classes.get(token.token.strip().lower(), "")
        by_tag.setdefault(tag, []).append((token.token.strip(), token.sentences))
    return {tag: tuple(tokens) for tag, tokens in by_tag.items() if tag}


def tokens_above_mean_head(
    results: StackResults, head: HeadName, kind: str, min_sentences: int = MIN_SENTENCES
) -> tuple[FavouredToken, ...]:
    """Return the tokens that a head favours, those with most of its difference from the mean first.

    Args:
        kind: `QUERY` or `KEY`.
        min_sentences: sentences in which a token occurs at least.
    """
    sums = results.study.corpus_sums.affinities.get(results.stack.name)
    if sums is None:
        return ()
    entries, others = (sums.query, sums.key) if kind == QUERY else (sums.key, sums.query)
    count, _, sentences = sums.counts[:, head.layer]
    above = np.flatnonzero(
        (entries != ANY_TOKEN) & (others == ANY_TOKEN) & (sentences >= min_sentences)
    )
    mean = divide(sums.sums[0, head.layer, head.head, above], count[above])
    ratio = divide(mean, sums.mean_head[above])
    gain = count[above] * (mean - sums.mean_head[above])
    order = np.argsort(-gain, kind="stable")
    order = order[ratio[order] >= MIN_TOKEN_RATIO]
    names = sums.named(entries[above[order]])
    return tuple(
        FavouredToken(str(name), float(ratio[place]), int(sentences[above[place]]))
        for name, place in zip(names, order, strict=True)
    )
