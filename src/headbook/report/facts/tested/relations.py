"""Rows of the table of tests on relations and surface rules."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headbook.analysis.accumulators import NO_ESTIMATE
from headbook.metrics import ids
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import RelationTests, tests_of_stack
from headbook.report.relations import head_rules
from headbook.report.results import StackResults
from headbook.results.fact import Tested
from headbook.schema import ALL, HELD_OUT_SPLIT, RELATION

# Claims of rows of the table of tests.
WHERE_WRONG = "relation_where_rule_wrong"  # the best head on the words that the rule misses
PREFERENCE = "class_preference"  # strongest words of the right class
RULE = ids.SURFACE_RULE  # a head against the mean head, by the rule that explains the head best
BEST_OF_LAYER = f"{RELATION}, best head of the layer"
BEST_RULE = f"{RELATION}, best surface rule"
MEAN = "mean over heads"
ELSEWHERE = "other words of the same part of speech"
CHOICE = "choice"


def relation_test(results: StackResults, tests: RelationTests, n: int, split: str = ALL) -> Tested:
    """Return the best head of a label against the best surface rule, on one split."""
    scores = {ALL: tests.scores, CHOICE: tests.selection, HELD_OUT_SPLIT: tests.held_out}[split]
    layer, head = map(int, tests.head[n])
    return Tested(
        RELATION, results.stack.name, METRIC, VIEW, tests.labels[n], scores.accuracy.at(n),
        layer, head, split, tests.rule[n], float(scores.at_rule.value[n]), scores.margin.at(n),
        float(tests.p[n]) if split == HELD_OUT_SPLIT else np.nan,
    )  # fmt: skip


def where_rule_fails(results: StackResults, tests: RelationTests, n: int) -> Tested | None:
    """Return the accuracy of the best head on the words that the rule misses, if it misses any."""
    value = tests.accuracy_where_rule_fails.at(n)
    tested = replace(relation_test(results, tests, n), claim=WHERE_WRONG, value=value)
    return replace(tested, baseline_value=np.nan, difference=NO_ESTIMATE) if value.events else None


def class_preference(
    results: StackResults, tests: RelationTests, n: int, split: str = ALL
) -> Tested | None:
    """Return how often the strongest word is of the right class; None if nothing is comparable."""
    preference = tests.preference if split == ALL else tests.held_out_preference
    if not preference.comparable[n]:
        return None
    layer, head = map(int, tests.head[n])
    difference = preference.difference.at(n)
    share = difference._replace(value=float(preference.share[n]), low=np.nan, high=np.nan)
    return Tested(
        PREFERENCE, results.stack.name, METRIC, VIEW, tests.labels[n], share, layer, head, split,
        ELSEWHERE, float(preference.elsewhere[n]), difference,
    )  # fmt: skip


def best_rule_of(results: StackResults, tests: RelationTests, n: int) -> Tested:
    """Return the share of words that the best surface rule of a label names, without a head."""
    return Tested(
        BEST_RULE, results.stack.name, METRIC, VIEW, tests.labels[n], NO_ESTIMATE,
        baseline=tests.rule[n], baseline_value=float(tests.scores.at_rule.value[n]),
    )  # fmt: skip


def best_of_layer(
    results: StackResults, tests: RelationTests, n: int, layer: int, split: str = ALL
) -> Tested | None:
    """Return the best head of a layer against the best surface rule; None without heads."""
    whole = split == ALL
    margin = (tests.layer_margin if whole else tests.held_out_layer_margin).at(layer, n)
    if np.isnan(tests.layer_margin.value[layer, n]):
        return None
    head = int(tests.layer_head[layer, n])
    scores = tests.scores if whole else tests.held_out
    return Tested(
        BEST_OF_LAYER, results.stack.name, METRIC, VIEW, tests.labels[n], NO_ESTIMATE, layer,
        head, split, tests.rule[n], float(scores.at_rule.value[n]), margin,
        np.nan if whole else float(tests.p_of_all_heads[layer, head, n]),
    )  # fmt: skip


def relation_rows(results: StackResults) -> Iterator[Tested]:
    """Yield all numbers of the tests of relations: a row for each comparison."""
    tests = results.cached(tests_of_stack)
    for n in range(len(tests.labels) if tests else 0):
        assert tests is not None
        yield from _of_label(results, tests, n)
    yield from _of_heads(results)


def _of_label(results: StackResults, tests: RelationTests, n: int) -> Iterator[Tested]:
    rows = [relation_test(results, tests, n, split) for split in (ALL, CHOICE, HELD_OUT_SPLIT)]
    rows.append(best_rule_of(results, tests, n))
    optional = [where_rule_fails(results, tests, n)]
    for split in (ALL, HELD_OUT_SPLIT):
        optional.append(class_preference(results, tests, n, split))
        layers = range(len(tests.layer_margin.value))
        optional += (best_of_layer(results, tests, n, layer, split) for layer in layers)
    yield from rows
    yield from (row for row in optional if row is not None)


def _of_heads(results: StackResults) -> Iterator[Tested]:
    """Yield the surface rule that explains each head best, on both halves."""
    for (layer, head), rule in results.cached(head_rules).items():
        chosen = Tested(
            RULE, results.stack.name, RULE, VIEW, rule.rule, rule.chosen, layer, head, CHOICE, MEAN
        )
        yield chosen
        yield replace(
            chosen, split=HELD_OUT_SPLIT, value=rule.agreement, baseline_value=rule.mean.value,
            difference=rule.margin,
        )  # fmt: skip
