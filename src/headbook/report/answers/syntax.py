"""Answers on heads and grammar: which heads beat the best surface rule for a relation."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.metrics import ids
from headbook.report.leaders import chosen_head
from headbook.report.linked_rows import Parts, relation_number
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import RelationTests
from headbook.report.relations import arrow_words, best_head_of_relation, ends_of, points_text
from headbook.report.results import StackResults
from headbook.report.trees import heads_with_better_trees
from headbook.report.wording import (
    NUMBER_WORDS,
    capital,
    count_text,
    number_word,
    p_family_wise_text,
    rule_phrase,
)
from headbook.results.formats import head_name, metric_page, percent
from headbook.results.sentence import Link, head_link, metric_link
from headbook.schema import HeadKey, HeadName, relation_of

MAX_WORDS = 30  # of an answer
RULE = "the best rule of word order and word class"


def syntax_answer(results: StackResults, tests: RelationTests | None) -> Parts:
    """Return the sentence that answers which heads follow grammar.

    Relations are named in the order of their margins on the selection split, so that the held-out
    margin, which is the evidence, is not inflated by the choice.

    Args:
        tests: the tests of the stack; None if the study lacks them.
    """
    if tests is None:
        return (
            "Not measured here: the texts have no relations between words, or --metrics left them "
            "out.",
        )
    if not tests.labels:
        return (
            f"Not known: no relation has words in at least {MIN_EFFECTIVE} sentences of the half "
            "that reports.",
        )
    if tests.claimed.any():
        return _claimed(results, tests)
    n_above, n_tested = int(tests.above_rule.sum()), len(tests.labels)
    tested = f"{n_tested} relation{'s and directions' * (n_tested > 1)}"
    if n_above:
        return (
            f"No {_kind(results)}head clearly does: in {number_word(n_above)} of {tested} one "
            f"beats {RULE}, perhaps by preferring a word class.",
        )
    where = f"any of {tested}" if n_tested > 1 else "the relation tested"
    start = f"No {_kind(results)}head clearly beats {RULE} in {where}"
    trees = _better_trees(results)
    return (f"{start}; ", *trees) if trees else (f"{start}.",)


def _better_trees(results: StackResults) -> Parts:
    """Return the end of a sentence on heads with better dependency trees than linking neighbours.

    A tree is a weaker test than a relation: any word at either end of a dependency counts.
    """
    count = len(heads_with_better_trees(results, ids.DEPENDENCY_TREES))
    if not count:
        return ()
    trees = f"{number_word(count)} {'heads’' if count > 1 else 'head’s'} trees"
    return (
        Link(trees, f"syntax.html#trees-{results.stack.name}"),
        " match dependencies better than linking neighbours.",
    )


def aligned_head(results: StackResults) -> Parts:
    """Return the head that gives dependencies most weight beyond distance, if any does.

    Weight on dependencies supports no claim of a relation, which readers of other pages are told.
    """
    best = chosen_head(results, HeadKey(ids.DEPENDENCY_EXCESS, VIEW, ""))
    if best is None or not best.held_out.low > 0:
        return ()
    return (
        "By weight, ",
        head_link(best.head),
        f"{best.note} aligns most with dependencies, beyond ",
        metric_link(ids.DEPENDENCY_EXCESS, "what distances explain"),
        "; that is no relation, since its strongest word need not be the right one.",
    )


def _claimed(results: StackResults, tests: RelationTests) -> Parts:
    """Return the answer that names the head with the largest margin, and the one after it."""
    best = tests.best_label(tests.claimed)
    assert best is not None, "some relation is claimed"
    heads = claimed_heads(results, tests)
    ends, count = ends_of(tests.labels[best]), len(heads)
    margin = 100 * float(tests.scores.margin.value[best])
    points = (
        f"{margin:.0f} point{'s' * (round(margin) != 1)}" if margin >= 1 else f"{margin:.1f} points"
    )
    number = (
        capital(number_word(count))
        if count < len(NUMBER_WORDS)
        else f"More than {NUMBER_WORDS[-1]}"
    )
    answer: Parts = (
        f"{number} head{'s' * (count > 1)} clearly do{'es' * (count == 1)}: ",
        head_link(heads[0]),
        f" attends from {ends.query} to {ends.key} ",
        relation_number(results, tests, best, points),
        " more often than the best surface rule",
    )
    others = _others(heads[1:])
    n_words = sum(
        len((part if isinstance(part, str) else part.text).split()) for part in (*answer, *others)
    )
    return (*answer, *others) if n_words <= MAX_WORDS else (*answer, ".")


def _others(heads: list[HeadName]) -> Parts:
    """Return the end of a sentence that names the first of the other heads."""
    if not heads:
        return (".",)
    if len(heads) == 1:
        return ("; the other is ", head_link(heads[0]), ".")
    others = len(heads) - 1
    rest = f"{number_word(others)} " if others < len(NUMBER_WORDS) else ""
    return ("; ", head_link(heads[0]), f" and {rest}other{'s' * (others > 1)} follow.")


def claimed_heads(results: StackResults, tests: RelationTests) -> list[HeadName]:
    """Return the heads with a claimed relation, by their margin on the selection split."""
    margins = tests.selection.margin.value
    order = sorted(tests.claimed.nonzero()[0].tolist(), key=lambda label: -margins[label])
    heads = (best_head_of_relation(tests, label, results.stack.name) for label in order)
    return [*dict.fromkeys(heads)]


def _kind(results: StackResults) -> str:
    """Return the name of the stack before a noun; empty if the model has one stack."""
    return "" if results.stack.name == "self" else f"{results.stack.name} "


def worked_example(results: StackResults, tests: RelationTests, n: int) -> str:
    """Return the numbers of a relation as a worked example."""
    accuracy, rule = tests.scores.accuracy.at(n), float(tests.scores.at_rule.value[n])
    words, margin = round(accuracy.events), tests.scores.margin.at(n)
    head = head_name(best_head_of_relation(tests, n, results.stack.name))
    known = not np.isnan(margin.low)
    ends = f" [{points_text(margin.low)}, {points_text(margin.high)}]" if known else ""
    p = (
        f"; on the half that did not choose {p_family_wise_text(float(tests.p[n]))} over "
        f"{tests.family:,} pairs of a head and a relation with its direction"
    )
    p = "" if np.isnan(tests.p[n]) else p
    return (
        f"{arrow_words(tests.labels[n])}, {head}: right for {round(accuracy.value * words)} of "
        f"{count_text(words, 'word')} = {percent(accuracy.value)}. "
        f"{rule_phrase(tests.rule[n])} is right for {round(rule * words)}: {percent(rule)}. "
        f"Difference {points_text(margin.value)} points{ends}{p}."
    )


def seldom_relations(results: StackResults, tested: Sequence[str]) -> str:
    """Return the relations that occur in too few sentences for a test."""
    known = (x for x in results.labels(METRIC) if results.has_value(METRIC, VIEW, x))
    return ", ".join(dict.fromkeys(relation_of(label)[0] for label in known if label not in tested))


def split_words(results: StackResults) -> Parts:
    """Return how many words have several tokens, with a link to attention inside words."""
    count = partial(results.study.manifest.count, results.stack.queries)
    if not count("words"):
        return ()
    text = f"Of {count('words'):,} words {count('split_words'):,} are split into several tokens"
    if ids.ATTENTION_TO not in results.by_id:
        return (f"{text}.",)
    return (f"{text}; ", Link("attention inside words", metric_page(ids.ATTENTION_TO)), ".")
