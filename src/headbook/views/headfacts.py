"""What the list of heads says of each: its class, what it looks at most, what it finds best."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headbook.measures.arithmetic import Floats
from headbook.measures.relations import LABELS
from headbook.numbers.classes import Classes, Place, head_classes, value
from headbook.numbers.headrelations import HeadRelation, HeadRelations, head_relations
from headbook.numbers.results import StackResults
from headbook.stored.shown import HeadName, heads_of
from headbook.terms import View
from headbook.views.answers import offset_name
from headbook.views.plain import detail
from headbook.views.ranked import METRIC, VIEW, points, tests_of
from headbook.wording import head_name, head_page, number

LOOKS = {
    "previous": "previous token",
    "next": "next token",
    "self": "itself",
    "first": "first token",
    "separator": "separators",
    "special": "other special tokens",
    "punctuation": "punctuation",
    "same_token": "same token elsewhere",
    "same_word": "other pieces of its word",
}
LEAST = 0.01  # beyond uniform attention; less is nothing that a head looks at


@dataclass(frozen=True)
class Fact:
    """A word about a head, with the number behind it.

    Attributes:
        word: what readers filter by; empty where nothing is known.
        behind: what stands beside it.
        size: the number that puts heads with the same word in order, None without one.
    """

    word: str = ""
    behind: str = ""
    size: float | None = None


@dataclass(frozen=True)
class HeadFacts:
    """A head in the list.

    Attributes:
        head: its stack, layer and number.
        name, href: the head and its page.
        label: what its maps look like.
        looks: the kind of key that gets most beyond uniform attention.
        relation: what it finds best, with the best fixed offset beside it.
        beats: whether it finds more than that offset does, family-wise.
    """

    head: HeadName
    name: str
    href: str
    label: Fact
    looks: Fact
    relation: Fact
    beats: bool


def head_facts(results: StackResults) -> tuple[HeadFacts, ...]:
    """Every head of a stack, layer by layer."""
    return results.once(_facts)


def _facts(results: StackResults) -> tuple[HeadFacts, ...]:
    classes, relations = head_classes(results), _relations(results)
    return tuple(_of(results, head, classes, relations) for head in heads_of(results.stack))


def _of(
    results: StackResults, head: HeadName, classes: Classes, relations: HeadRelations | None
) -> HeadFacts:
    place = head.layer, head.head
    found, best = classes.get(place), relations.at(*place) if relations else None
    tests = results.once(tests_of) if best else None
    beats = best is not None and tests is not None and tests.beats(best.label, place)
    return HeadFacts(
        head=head,
        name=head_name(head),
        href=head_page(head),
        label=Fact(str(found.label), detail(found)) if found else Fact(),
        looks=_looks(results, place),
        relation=_relation(best, beats=beats) if best else Fact(),
        beats=beats,
    )


def _looks(results: StackResults, place: Place) -> Fact:
    """Among all keys; the first token and separators are not counted as special once more."""
    own, gain = {}, {}
    for kind in LOOKS:
        share = value(results, "attention_to", kind, place)
        if not math.isnan(share):
            even = results.uniform("attention_to", View.RAW, kind).value[place[0]]
            own[kind], gain[kind] = share, share - float(even)
    if "special" in own:
        own["special"] -= own.get("first", 0) + own.get("separator", 0)
        gain["special"] -= gain.get("first", 0) + gain.get("separator", 0)
    ranked = sorted((kind for kind in gain if gain[kind] >= LEAST), key=lambda kind: -gain[kind])
    if not ranked:
        return Fact()
    shares = [number(own[kind], share=True) for kind in ranked[:2]]
    behind = f"{shares[0]}, then {LOOKS[ranked[1]]} {shares[1]}" if ranked[1:] else shares[0]
    return Fact(LOOKS[ranked[0]], behind, own[ranked[0]])


def _relation(best: HeadRelation, *, beats: bool) -> Fact:
    offset = f"offset {offset_name(best.offset)}"
    other = number(best.at_offset.value, share=True)
    if beats:
        ends = f"[{points(best.margin.low)}, {points(best.margin.high)}]"
        compared = f"beats {offset} ({other}) by {points(best.margin.value)} {ends}"
    else:
        compared = f"{offset}: {other}"
    accuracy = best.accuracy.value
    return Fact(relation_name(best.label), f"{number(accuracy, share=True)}; {compared}", accuracy)


def relation_name(label: str) -> str:
    """A relation with its direction, as words."""
    relation, _, way = label.rpartition(":")
    return f"{relation} {way.replace('_', ' ')}"


def _relations(results: StackResults) -> HeadRelations | None:
    """None where the study did not keep what the comparison needs."""
    sums = results.study.survey.heads.get(results.stack.name)
    there = [label for label in LABELS if results.has(METRIC, VIEW, label)]
    if results.stack.crosses or sums is None or sums.found is None or not there:
        return None
    present = ~np.isnan(results.heads(METRIC, VIEW, there[0]).value)
    return head_relations(sums.found, present, np.stack([*_uniform(results)], -1))


def _uniform(results: StackResults) -> Iterator[Floats]:
    for label in LABELS:
        if results.has(METRIC, VIEW, label):
            yield results.uniform(METRIC, VIEW, label).value
        else:
            yield np.full(results.stack.n_layers, math.nan)
