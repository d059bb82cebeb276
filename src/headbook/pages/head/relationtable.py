"""The relations that one head serves, for its page."""

import math

import numpy as np

from headbook.analysis.intervals import FEW
from headbook.metrics import ids
from headbook.pages.parts.measured import Measured, measured
from headbook.report.numbers.inference import VIEW, RelationTests, tests_of
from headbook.report.numbers.relationnames import relation_words
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.wording import percent, rule_phrase, tested
from headbook.study.sentencedata import HeadName

METRIC = ids.RELATION_ACCURACY
MOST = 8


def found_relations(results: StackResults, head: HeadName) -> tuple[Measured, ...]:
    """The relations that the head serves most above uniform attention.

    Numbers are those of the reporting half where the head was tested for a relation; those of all
    sentences elsewhere.
    """
    rows = []
    for label in results.labels(METRIC):
        accuracy = results.heads(METRIC, VIEW, label).at(head.layer, head.head)
        if accuracy.effective >= FEW:
            even = results.uniform(METRIC, VIEW, label).at(head.layer).value
            rows.append((accuracy.value - even, label, accuracy))
    rows.sort(key=lambda row: -row[0])
    tests = results.once(tests_of) if rows else None
    return tuple(
        _relation(label, accuracy, _test(tests, head, label), tests)
        for _, label, accuracy in rows[:MOST]
    )


def _test(tests: RelationTests | None, head: HeadName, label: str) -> int | None:
    """The number of the test of a head and a relation; None where there was none."""
    if tests is None or label not in tests.labels:
        return None
    n = list(tests.labels).index(label)
    cell = (head.layer, head.head)
    return n if tuple(map(int, tests.head[n])) == cell and not np.isnan(tests.p[n]) else None


def _relation(
    label: str, accuracy: Estimate, n: int | None, tests: RelationTests | None
) -> Measured:
    words, share, supported = relation_words(label), math.nan, False
    if tests is not None and label in tests.labels:
        place = list(tests.labels).index(label)
        share = float(tests.at_rule.value[place])
        baseline = f"best surface rule ({rule_phrase(tests.rule[place])}): {percent(share)}; "
    else:
        baseline = ""
    if n is None or tests is None:
        baseline += "another head was tested" if baseline else "not tested"
    else:
        accuracy, supported = tests.accuracy.at(n), bool(tests.claimed[n])
        baseline += tested(float(tests.p[n]))
        if tests.above_rule[n] and not supported:
            baseline += ", but no more than a preference for a class of words"
    behind = f"{accuracy.events:,.0f} words"
    return measured(words, baseline, accuracy, share, behind=behind, supported=supported)
