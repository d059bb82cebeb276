"""Every number of the tests of relations and surface rules as rows of a table."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from headbook.metrics import ids
from headbook.report.numbers.headrelations import head_rules
from headbook.report.numbers.inference import METRIC, VIEW, HalfScores, RelationTests, tests_of
from headbook.report.numbers.results import NO_ESTIMATE, Estimate, StackResults

Row = dict[str, Any]

# What rows are about.
RELATION = "relation"  # a head against the best surface rule for a relation
WHERE_WRONG = "relation_where_rule_wrong"  # its accuracy on the words that the rule misses
PREFERENCE = "class_preference"  # its preference for the right class, in the relation and outside
RULE = ids.SURFACE_RULE  # a head against the mean head, by the rule that explains the head best
ELSEWHERE = "other words of the same part of speech"
MEAN = "mean over heads"
CHOICE, HELD_OUT = "choice", "held_out"


def relation_rows(results: StackResults) -> Iterator[Row]:
    """Yield all numbers of the tests of a stack, one row for each comparison.

    Columns: ``claim``, ``stack``, ``layer``, ``head``, ``metric``, ``view``, ``label``, ``split``
    (``choice`` or ``held_out``), ``value``, ``low``, ``high``, ``baseline`` (the name of the rule
    or of what else is compared), ``baseline_value``, ``difference``, ``difference_low``,
    ``difference_high``, ``p`` (family-wise; NaN if nothing was tested), ``n_sentences`` and
    ``n_observations``.
    """
    tests = results.once(tests_of)
    for n in range(len(tests.labels) if tests else 0):
        assert tests is not None
        yield from _of_label(results, tests, n)
    for (layer, head), found in results.once(head_rules).items():
        where = _where(results, layer, head, ids.SURFACE_RULE, found.rule)
        yield _row(RULE, where, CHOICE, found.chosen, baseline=MEAN)
        yield _row(
            RULE, where, HELD_OUT, found.agreement,
            baseline=MEAN, other=found.mean.value, difference=found.margin,
        )  # fmt: skip


def _of_label(results: StackResults, tests: RelationTests, n: int) -> Iterator[Row]:
    layer, head = map(int, tests.head[n])
    where = _where(results, layer, head, METRIC, tests.labels[n])
    report = HalfScores(tests.accuracy, tests.at_rule, tests.margin)
    for split, scores in ((CHOICE, tests.choice), (HELD_OUT, report)):
        yield _row(
            RELATION, where, split, scores.accuracy.at(n),
            baseline=tests.rule[n],
            other=float(scores.at_rule.value[n]),
            difference=scores.margin.at(n),
            p=float(tests.p[n]) if split == HELD_OUT else math.nan,
        )  # fmt: skip
    if tests.where_wrong.events[n]:
        yield _row(WHERE_WRONG, where, HELD_OUT, tests.where_wrong.at(n), baseline=tests.rule[n])
    found = tests.preference
    if found.comparable[n]:
        difference = found.difference.at(n)
        share = difference._replace(value=float(found.share[n]), low=math.nan, high=math.nan)
        yield _row(
            PREFERENCE, where, HELD_OUT, share,
            baseline=ELSEWHERE, other=float(found.elsewhere[n]), difference=difference,
        )  # fmt: skip


def _where(
    results: StackResults, layer: int, head: int, metric: str, label: str
) -> dict[str, str | int]:
    stack = results.stack.name
    return {"stack": stack, "layer": layer, "head": head, "metric": metric, "label": label}


def _row(
    claim: str,
    where: Mapping[str, str | int],
    split: str,
    value: Estimate,
    *,
    baseline: str,
    other: float = math.nan,
    difference: Estimate = NO_ESTIMATE,
    p: float = math.nan,
) -> Row:
    return {
        "claim": claim,
        **where,
        "view": str(VIEW),
        "split": split,
        "value": value.value,
        "low": value.low,
        "high": value.high,
        "baseline": baseline,
        "baseline_value": other,
        "difference": difference.value,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "p": p,
        "n_sentences": value.sentences,
        "n_observations": value.events,
    }
