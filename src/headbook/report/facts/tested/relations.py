"""Rows of the table of tests on relations and surface rules."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from headbook.analysis.accumulators import NO_ESTIMATE
from headbook.metrics import ids
from headbook.report.facts.fact import Tested
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import RelationTests, tests_of_stack
from headbook.report.relations import head_rules
from headbook.report.results import StackResults
from headbook.schema import ALL, HELD_OUT_SPLIT, RELATION

# Claims of rows.
WHERE_WRONG = "relation_where_rule_wrong"  # that head on the words that the rule misses
PREFERENCE = "class_preference"  # that head's strongest words of the right class
RULE = ids.SURFACE_RULE  # a head against the mean head, by the rule that explains the head best
MEAN = "mean over heads"
ELSEWHERE = "other words of the same part of speech"
BEST_OF_LAYER = f"{RELATION}, best head of the layer"
BEST_RULE = f"{RELATION}, best surface rule"
CHOICE = "choice"


def relation_rows(results: StackResults) -> Iterator[Tested]:
    """Yield all numbers of a stack's relation tests, one row for each comparison."""
    tests = results.cached(tests_of_stack)
    for n in range(len(tests.labels) if tests else 0):
        assert tests is not None
        yield from _label_rows(results, tests, n)
    for (layer, head), rule in results.cached(head_rules).items():
        row_of = partial(
            Tested, RULE, results.stack.name, RULE, VIEW, rule.rule, layer=layer, head=head,
            baseline=MEAN,
        )  # fmt: skip
        yield row_of(split=CHOICE, value=rule.chosen)
        yield row_of(
            split=HELD_OUT_SPLIT, value=rule.agreement, baseline_value=rule.mean.value,
            difference=rule.margin,
        )  # fmt: skip


def _label_rows(results: StackResults, tests: RelationTests, n: int) -> Iterator[Tested]:
    layer, head = map(int, tests.head[n])
    row_of = partial(
        Tested, stack=results.stack.name, metric=METRIC, view=VIEW, label=tests.labels[n],
        layer=layer, head=head,
    )  # fmt: skip
    by_split = {ALL: tests.scores, CHOICE: tests.selection, HELD_OUT_SPLIT: tests.held_out}
    for split, scores in by_split.items():
        yield row_of(
            RELATION, split=split, value=scores.accuracy.at(n), baseline=tests.rule[n],
            baseline_value=float(scores.at_rule.value[n]), difference=scores.margin.at(n),
            p=float(tests.p[n]) if split == HELD_OUT_SPLIT else math.nan,
        )  # fmt: skip
    if tests.accuracy_where_rule_fails.events[n]:
        value = tests.accuracy_where_rule_fails.at(n)
        yield row_of(WHERE_WRONG, value=value, baseline=tests.rule[n])
    for split, preference in (
        (ALL, tests.preference), (HELD_OUT_SPLIT, tests.held_out_preference)
    ):  # fmt: skip
        if preference.comparable[n]:
            difference = preference.difference.at(n)
            share = difference._replace(
                value=float(preference.share[n]), low=math.nan, high=math.nan
            )
            yield row_of(
                PREFERENCE, split=split, value=share, baseline=ELSEWHERE,
                baseline_value=float(preference.elsewhere[n]), difference=difference,
            )  # fmt: skip


def relations_by_layer(results: StackResults) -> Iterator[Tested]:
    """Yield the best head of each layer for every tested relation, against the best rule."""
    tests = results.cached(tests_of_stack)
    for n, label in enumerate(tests.labels if tests else ()):
        assert tests is not None
        for layer in np.flatnonzero(~np.isnan(tests.layer_margin.value[:, n])).tolist():
            head = int(tests.layer_head[layer, n])
            for split, scores, margins in (
                (ALL, tests.scores, tests.layer_margin),
                (HELD_OUT_SPLIT, tests.held_out, tests.held_out_layer_margin),
            ):
                p = math.nan if split == ALL else float(tests.p_of_all_heads[layer, head, n])
                yield Tested(
                    BEST_OF_LAYER, results.stack.name, METRIC, VIEW, label, NO_ESTIMATE,
                    layer, head, split, tests.rule[n],
                    baseline_value=float(scores.at_rule.value[n]),
                    difference=margins.at(layer, n), p=p,
                )  # fmt: skip


def rules_of_relations(results: StackResults) -> Iterator[Tested]:
    """Yield the best surface rule of every tested relation, without a head."""
    tests, stack = results.cached(tests_of_stack), results.stack.name
    for n, label in enumerate(tests.labels if tests else ()):
        assert tests is not None
        yield Tested(
            BEST_RULE, stack, METRIC, VIEW, label, NO_ESTIMATE, baseline=tests.rule[n],
            baseline_value=float(tests.scores.at_rule.value[n]),
        )  # fmt: skip
