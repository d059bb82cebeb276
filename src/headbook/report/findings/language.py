"""Findings on parts of speech, dependencies, relations, trees and rare words."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, NO_ESTIMATE, SELECTION
from headbook.analysis.multiple_testing import ALPHA
from headbook.metrics import ids
from headbook.metrics.base import Source
from headbook.report.findings.finding import (
    Finding,
    Parts,
    estimate_with_unit,
    finding,
    metric_link,
    sentence_start,
)
from headbook.report.leaders import Chosen, chosen_head
from headbook.report.relations import TAG_NAMES, ends_of
from headbook.report.results import LEAST_PREFERENCE, TAG_VIEW, StackResults, share_of_head
from headbook.report.trees import TREES, heads_above_plain_trees, plain_trees
from headbook.report.wording import (
    FEW_WORDS,
    capital,
    estimate,
    number_word,
    p_family_wise_text,
    point_estimate,
    rule_phrase,
)
from headbook.results.formats import interval_text, number, percent
from headbook.results.sentence import head_link
from headbook.schema import HeadKey, HeadName, SinkView

if TYPE_CHECKING:
    from headbook.report.relation_tests import RelationTests


MIN_SENTENCES = 10  # with a part of speech, in each split, for a finding


def parts_of_speech(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on the head with the strongest preference for one part of speech."""
    view, name = TAG_VIEW, ids.POS_RECEIVED_RATIO
    tag = _favourite(results, name, view)
    best = chosen_head(results, HeadKey(name, view, tag)) if tag else None
    held_out = best.held_out if best else NO_ESTIMATE
    if best and held_out.low >= LEAST_PREFERENCE and held_out.sentences >= MIN_SENTENCES:
        share = results.heads(ids.POS_RECEIVED, view, tag).at(*best.place)
        share_of_sink = share_of_head(results, ids.SINK_SHARE, SinkView.RAW, "", best.place).value
        sink = "" if np.isnan(share_of_sink) else f" (sink: {percent(share_of_sink)})"
        yield finding(
            results,
            name,
            (
                head_link(best.head),
                f"{best.note} attends most to ",
                metric_link(
                    ids.POS_RECEIVED,
                    f"{TAG_NAMES[tag]} ({tag})" if tag in TAG_NAMES else f"words tagged {tag}",
                ),
                f": {estimate_with_unit(share, ids.POS_RECEIVED)} of its attention outside the "
                "sink, "
                f"{number(best.value.value)} times "
                f"{interval_text(best.value.low, best.value.high)} uniform attention"
                f"{sink}.",
            ),
            best.value.sentences,
        )


def _favourite(results: StackResults, name: str, view: SinkView) -> str:
    """Return the tag with the highest value of any head on the selection split, or ""."""
    highest_by_tag: dict[str, float] = {}
    for tag in results.labels(name):
        if results.has_value(name, view, tag):
            selection = results.split(SELECTION, name, view, tag)
            has_enough = (selection.events >= FEW_WORDS) & (selection.sentences >= MIN_SENTENCES)
            value = np.where(has_enough, selection.value, np.nan)
            if not np.isnan(value).all():
                highest_by_tag[tag] = float(np.nanmax(value))
    return max(highest_by_tag, key=lambda tag: highest_by_tag[tag], default="")


def dependencies(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on the head most aligned with dependencies, and its share on neighbours."""
    view, name, label = results.stack.default_view, ids.DEPENDENCY_ALIGNMENT, "either"
    best = chosen_head(results, HeadKey(name, view, label))
    if best is not None and best.is_above_uniform:
        yield finding(
            results,
            name,
            (
                head_link(best.head),
                f"{best.note} gives most attention along ",
                metric_link(name, "dependencies"),
                f": {estimate_with_unit(best.value, name)} of its attention, uniform attention: "
                f"{number(best.uniform.value, share=True)}.{_near(results, best, view)}",
            ),
            best.value.sentences,
        )


def _near(results: StackResults, best: Chosen, view: SinkView) -> str:
    """Return a sentence on the attention of a head to neighbouring tokens."""
    shares = [
        results.heads(ids.ATTENTION_TO, view, neighbour).at(*best.place).value
        for neighbour in ("previous", "next")
        if results.has_value(ids.ATTENTION_TO, view, neighbour)
    ]
    if not shares:
        return ""
    share = number(sum(shares), share=True)
    return f" Neighbouring tokens, where most dependencies are, receive {share}."


def beyond_distance(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on the head most aligned with dependencies beyond distance."""
    name, view = ids.DEPENDENCY_EXCESS, SinkView.NOSINK
    best = chosen_head(results, HeadKey(name, view, ""))
    if best is not None and best.held_out.low > 0:
        yield finding(
            results,
            name,
            (
                head_link(best.head),
                f"{best.note} aligns most with dependencies: {point_estimate(best.value)} over ",
                metric_link(name, "a baseline by distance"),
                ".",
            ),
            best.value.sentences,
        )


class _TreeWords(NamedTuple):
    """The words of a finding on induced trees: their name, and the name of their score."""

    trees: str
    score: str


TREE_WORDS = {
    ids.PHRASE_TREES: _TreeWords("phrase trees", "F1"),
    ids.DEPENDENCY_TREES: _TreeWords("dependency trees", "UAS"),
}


def phrase_trees(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on the head with the best phrase trees, against trees without attention."""
    yield from _trees(results, ids.PHRASE_TREES)


def dependency_trees(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on the head with the best dependency trees, against linking neighbours."""
    yield from _trees(results, ids.DEPENDENCY_TREES)


def _trees(results: StackResults, metric: str) -> Iterator[Finding]:
    best = chosen_head(results, HeadKey(metric, SinkView.NOSINK, TREES[metric].own))
    if best is None:
        return
    plain, *_ = plain_trees(results, metric)
    is_better = bool(heads_above_plain_trees(results, metric, HELD_OUT)[best.place])
    words = TREE_WORDS[metric]
    link = metric_link(metric, capital(words.trees) if is_better else words.trees)
    score_text = f"{words.score} {estimate_with_unit(best.value, metric)}"
    baseline_text = f"{plain.name}: {estimate_with_unit(plain.score, metric)}"
    if is_better:
        yield finding(
            results,
            metric,
            (
                link,
                " induced from ",
                head_link(best.head),
                f"{best.note} reach {score_text}; {baseline_text}.",
            ),
            best.value.sentences,
        )
    elif _all_below(results, metric) and np.isfinite(best.value.low + plain.score.low):
        yield finding(
            results,
            metric,
            (
                sentence_start(results, f"No head beats {plain.name} in "), link, "; the best, ",
                head_link(best.head), f"{best.note}: {score_text}; {baseline_text}.",
            ),
            best.value.sentences,
        )  # fmt: skip


def _all_below(results: StackResults, metric: str) -> bool:
    """Check whether the interval of every head lies below that of the best plain tree."""
    heads = results.heads(metric, SinkView.NOSINK, TREES[metric].own)
    plain, *_ = plain_trees(results, metric)
    is_known = ~np.isnan(heads.value)
    return bool((heads.high[is_known] < plain.score.low).all())


def rare_words(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on the head whose strongest key is the rarest word most often."""
    name, view = ids.RARE_WORD_FOCUS, SinkView.NOSINK
    best = chosen_head(results, HeadKey(name, view, ""))
    if best is not None and best.is_above_uniform:
        yield finding(results, name, _rarest(best, name), best.value.sentences)


def _rarest(best: Chosen, name: str) -> Parts:
    return (
        "In ",
        head_link(best.head),
        f"{best.note}, the ",
        metric_link(name, "rarest word"),
        f" of the sentence is the strongest key of {estimate_with_unit(best.value, name)} of words"
        f" (random choice: {number(best.uniform.value, share=True)}).",
    )


def relations(results: StackResults, tests: "RelationTests") -> Iterator[Finding]:
    """Yield a finding on the number of relations in which a head beats the best surface rule.

    One relation is named, the one with the largest margin on the selection split.
    """
    label = tests.best_label(tests.claimed)
    if label is None:
        return
    head = HeadName(results.stack.name, *map(int, tests.head[label]))
    ends, rule = ends_of(tests.labels[label]), rule_phrase(tests.rule[label])
    n_claimed = int(tests.claimed.sum())
    words = results.study.corpus_sums.heads[results.stack.name].strongest_words
    yield Finding(
        (
            sentence_start(
                results, f"In {number_word(n_claimed)} of {len(tests.labels):,} pairs of relation "
            ),
            "and direction, a head beats the ",
            metric_link(ids.RELATION_ACCURACY, "best surface rule"),
            f" (p ≤ {ALPHA:g} family-wise) and does more than prefer a class of words. ",
            head_link(head),
            f" attends from {ends.query} to {ends.key} in "
            f"{estimate(tests.scores.accuracy.at(label))} of cases: "
            f"{point_estimate(tests.scores.margin.at(label))} over the best surface rule ({rule}), "
            f"{p_family_wise_text(float(tests.p[label]))}.",
        ),
        int(tests.scores.accuracy.sentences[label]),
        Source.SAMPLE,
        len(words.index) if words else 0,
        results.study.manifest.text_noun,
    )
