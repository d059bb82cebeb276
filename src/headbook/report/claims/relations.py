"""Rows of the table of tests on relations and surface rules."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, NO_ESTIMATE, Estimate
from headbook.metrics import ids
from headbook.report.claims.heads import UNIFORM, Row, row
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import RelationTests, SplitScores, tests_of_stack
from headbook.report.relations import head_rules
from headbook.report.results import StackResults
from headbook.schema import HELD_OUT_SPLIT, RELATION

RelationRow = dict[str, Any]

# Claims of rows.
WHERE_WRONG = "relation_where_rule_wrong"  # that head on the words that the rule misses
PREFERENCE = "class_preference"  # that head's strongest words of the right class
RULE = ids.SURFACE_RULE  # a head against the mean head, by the rule that explains the head best
ELSEWHERE = "other words of the same part of speech"
MEAN = "mean over heads"
BEST_OF_LAYER = f"{RELATION}, best head of the layer"
CHOICE, HELD_OUT_WORDS = "choice", "held_out"


def relation_rows(results: StackResults) -> Iterator[RelationRow]:
    """Yield all numbers of a stack's relation tests, one row for each comparison.

    Columns: ``claim``, ``stack``, ``layer``, ``head``, ``metric``, ``view``, ``label``, ``split``
    (``choice`` or ``held_out``), ``value``, ``low``, ``high``, ``baseline`` (the name of the rule
    or of another baseline), ``baseline_value``, ``difference``, ``difference_low``,
    ``difference_high``, ``p`` (family-wise; NaN without a test), ``n_sentences`` and
    ``n_observations``.
    """
    tests = results.cached(tests_of_stack)
    for n in range(len(tests.labels) if tests else 0):
        assert tests is not None
        yield from _label_rows(results, tests, n)
    for (layer, head), rule in results.cached(head_rules).items():
        identity = _identity(results, layer, head, ids.SURFACE_RULE, rule.rule)
        yield _row(RULE, identity, CHOICE, rule.chosen, baseline=MEAN)
        yield _row(
            RULE, identity, HELD_OUT_WORDS, rule.agreement,
            baseline=MEAN, baseline_value=rule.mean.value, difference=rule.margin,
        )  # fmt: skip


def _label_rows(results: StackResults, tests: RelationTests, n: int) -> Iterator[RelationRow]:
    layer, head = map(int, tests.head[n])
    identity = _identity(results, layer, head, METRIC, tests.labels[n])
    held_out_scores = SplitScores(tests.accuracy, tests.at_rule, tests.margin)
    for split, scores in ((CHOICE, tests.selection_scores), (HELD_OUT_WORDS, held_out_scores)):
        yield _row(
            RELATION, identity, split, scores.accuracy.at(n),
            baseline=tests.rule[n],
            baseline_value=float(scores.at_rule.value[n]),
            difference=scores.margin.at(n),
            p=float(tests.p[n]) if split == HELD_OUT_WORDS else math.nan,
        )  # fmt: skip
    if tests.accuracy_where_rule_fails.events[n]:
        yield _row(
            WHERE_WRONG,
            identity,
            HELD_OUT_WORDS,
            tests.accuracy_where_rule_fails.at(n),
            baseline=tests.rule[n],
        )
    preference = tests.preference
    if preference.comparable[n]:
        difference = preference.difference.at(n)
        share = difference._replace(value=float(preference.share[n]), low=math.nan, high=math.nan)
        yield _row(
            PREFERENCE, identity, HELD_OUT_WORDS, share,
            baseline=ELSEWHERE, baseline_value=float(preference.elsewhere[n]),
            difference=difference,
        )  # fmt: skip


def _identity(
    results: StackResults, layer: int, head: int, metric: str, label: str
) -> dict[str, str | int]:
    stack = results.stack.name
    return {"stack": stack, "layer": layer, "head": head, "metric": metric, "label": label}


def _row(
    claim: str,
    identity: Mapping[str, str | int],
    split: str,
    value: Estimate,
    *,
    baseline: str,
    baseline_value: float = math.nan,
    difference: Estimate = NO_ESTIMATE,
    p: float = math.nan,
) -> RelationRow:
    return {
        "claim": claim,
        **identity,
        "view": str(VIEW),
        "split": split,
        "value": value.value,
        "low": value.low,
        "high": value.high,
        "baseline": baseline,
        "baseline_value": baseline_value,
        "difference": difference.value,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "p": p,
        "n_sentences": value.sentences,
        "n_observations": value.events,
    }


FAR = ids.RELATION_ACCURACY_FAR


def relations_by_layer(results: StackResults) -> Iterator[Row]:
    """Yield the best head of each layer for every tested relation, against the best rule."""
    tests = results.cached(tests_of_stack)
    for n, label in enumerate(tests.labels if tests else ()):
        assert tests is not None
        for layer in np.flatnonzero(~np.isnan(tests.layer_margin.value[:, n])).tolist():
            head = int(tests.layer_head[layer, n])
            yield row(
                BEST_OF_LAYER, results.stack.name, (METRIC, VIEW, label),
                layer=layer, head=head, split=HELD_OUT_SPLIT, baseline=tests.rule[n],
                baseline_value=float(tests.at_rule.value[n]),
                difference=tests.layer_margin.at(layer, n),
                p=float(tests.p_of_all_heads[layer, head, n]),
            )  # fmt: skip


def beside_relations(results: StackResults) -> Iterator[Row]:
    """Yield the best head of every tested relation under uniform attention and on distant words.

    The best surface rule has a row without a head, too: pages of heads that were not tested for a
    relation print it.
    """
    tests, stack = results.cached(tests_of_stack), results.stack.name
    for n, label in enumerate(tests.labels if tests else ()):
        assert tests is not None
        layer, head = map(int, tests.head[n])
        uniform = results.split(HELD_OUT, METRIC, VIEW, label, of="uniform").value[layer]
        yield row(
            f"{RELATION}, uniform attention", stack, (METRIC, VIEW, label), layer=layer, head=head,
            split=HELD_OUT_SPLIT, value=tests.accuracy.at(n), baseline=UNIFORM,
            baseline_value=float(uniform),
        )  # fmt: skip
        if results.has_value(FAR, VIEW, label):
            value = results.split(HELD_OUT, FAR, VIEW, label).at(layer, head)
            yield row(f"{RELATION}, at distance 3 or more", stack, (FAR, VIEW, label), layer=layer,
                      head=head, split=HELD_OUT_SPLIT, value=value)  # fmt: skip
        yield row(f"{RELATION}, best surface rule", stack, (METRIC, VIEW, label),
                  split=HELD_OUT_SPLIT,
                  baseline=tests.rule[n], baseline_value=float(tests.at_rule.value[n]))  # fmt: skip
