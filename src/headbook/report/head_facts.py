"""The facts that the list of heads shows: type, most attended kind of key, and best relation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.metrics import ids
from headbook.report.head_types import NOT_MEASURED, Place, Types, head_types, share_of_head
from headbook.report.relation_counts import METRIC, VIEW, words_of
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import (
    HeadRelation,
    HeadRelations,
    head_relations,
    points_text,
    relation_words,
)
from headbook.report.results import StackResults
from headbook.report.wording import head_name, head_page, number, rule_phrase
from headbook.schema import SinkView
from headbook.study.sentence_data import HeadName, heads_of

KEY_KINDS = {
    "previous": "previous token",
    "next": "next token",
    "self": "the token itself",
    "first": "first token",
    "separator": "separators",
    "special": "other special tokens",
    "punctuation": "punctuation",
    "same_token": "other occurrences of the token",
    "same_word": "other subword tokens of the word",
}
MIN_SHARE_ABOVE_UNIFORM = 0.01  # a smaller excess of attention names no kind of key


@dataclass(frozen=True)
class Fact:
    """A word about a head, with the numbers that support the word.

    Attributes:
        word: the word that readers filter by; empty if nothing is known.
        detail: numbers printed beside the word.
        sort_value: number by which heads with the same word are sorted; None without one.
    """

    word: str = ""
    detail: str = ""
    sort_value: float | None = None


@dataclass(frozen=True)
class HeadFacts:
    """The facts about a head in the list of heads.

    Attributes:
        head: stack, layer and number of the head.
        name, href: name of the head and address of its page.
        label: type of the head.
        attends_to: the kind of key whose attention is furthest above uniform attention.
        relation: the relation that the head finds best, with the best surface rule beside it.
        beats: whether the relation is claimed: the head beats that rule family-wise, and does more
            than prefer a class of words.
    """

    head: HeadName
    name: str
    href: str
    label: Fact
    attends_to: Fact
    relation: Fact
    beats: bool


def head_facts(results: StackResults) -> tuple[HeadFacts, ...]:
    """Return the facts about every head of a stack, layer by layer."""
    return results.cached(_facts)


def _facts(results: StackResults) -> tuple[HeadFacts, ...]:
    types, relations = head_types(results), _best_relations(results)
    return tuple(
        _facts_of_head(results, head, types, relations) for head in heads_of(results.stack)
    )


def _facts_of_head(
    results: StackResults, head: HeadName, types: Types, relations: HeadRelations | None
) -> HeadFacts:
    cell = head.layer, head.head
    head_type, best = types.get(cell), relations.at(*cell) if relations else None
    tests = results.cached(tests_of_stack) if best else None
    beats = best is not None and tests is not None and tests.claims(best.label, cell)
    return HeadFacts(
        head=head,
        name=head_name(head),
        href=head_page(head),
        label=Fact(head_type.family or NOT_MEASURED, head_type.detail) if head_type else Fact(),
        attends_to=_attends_to(results, cell),
        relation=_relation_fact(best, beats=beats) if best else Fact(),
        beats=beats,
    )


def _attends_to(results: StackResults, place: Place) -> Fact:
    """Return the kind of key whose share is furthest above uniform attention, among all keys.

    The first token and separators are not counted as special tokens once more.
    """
    shares, excess = {}, {}
    for kind in KEY_KINDS:
        share = share_of_head(results, ids.ATTENTION_TO, SinkView.RAW, kind, place).value
        if not math.isnan(share):
            uniform = results.uniform(ids.ATTENTION_TO, SinkView.RAW, kind).value[place[0]]
            shares[kind], excess[kind] = share, share - float(uniform)
    if "special" in shares:
        shares["special"] -= shares.get("first", 0) + shares.get("separator", 0)
        excess["special"] -= excess.get("first", 0) + excess.get("separator", 0)
    ranked = sorted(
        (kind for kind in excess if excess[kind] >= MIN_SHARE_ABOVE_UNIFORM),
        key=lambda kind: -excess[kind],
    )
    if not ranked:
        return Fact()
    texts = [number(shares[kind], share=True) for kind in ranked[:2]]
    detail = f"{texts[0]}, {KEY_KINDS[ranked[1]]} {texts[1]}" if ranked[1:] else texts[0]
    return Fact(KEY_KINDS[ranked[0]], detail, shares[ranked[0]])


def _relation_fact(best: HeadRelation, *, beats: bool) -> Fact:
    rule = rule_phrase(best.rule)
    rule_accuracy = number(best.at_rule.value, share=True)
    if beats:
        interval = f"[{points_text(best.margin.low)}, {points_text(best.margin.high)}]"
        comparison = (
            f"{points_text(best.margin.value)} points {interval} over {rule} ({rule_accuracy})"
        )
    else:
        comparison = f"not clearly above {rule} ({rule_accuracy})"
    accuracy = best.accuracy.value
    return Fact(
        relation_words(best.label), f"{number(accuracy, share=True)}, {comparison}", accuracy
    )


def _best_relations(results: StackResults) -> HeadRelations | None:
    """Return the best relation of every head; None if the study lacks the strongest words."""
    words = words_of(results)
    if not words:
        return None
    return head_relations(*words, np.stack([*_uniform_accuracies(results, words[0].labels)], -1))


def _uniform_accuracies(results: StackResults, labels: tuple[str, ...]) -> Iterator[Floats]:
    for label in labels:
        if results.has_value(METRIC, VIEW, label):
            yield results.uniform(METRIC, VIEW, label).value
        else:
            yield np.full(results.stack.n_layers, math.nan)
