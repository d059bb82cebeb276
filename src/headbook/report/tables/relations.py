"""Rows about dependency relations: the tested ones, and what pages print beside them."""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import REPORT
from headbook.metrics import ids
from headbook.report.numbers.inference import RelationTests, best_offsets, relation_tests
from headbook.report.numbers.results import StackResults
from headbook.report.tables.rows import HELD_OUT, UNIFORM, Row, row
from headbook.report.wording import signed
from headbook.terms import View

RELATION = "relation"
METRIC, FAR, VIEW = ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR, View.NOSINK


def tested_relations(results: StackResults) -> Iterator[Row]:
    """Yield every tested relation and direction: its best head against the best fixed offset.

    The best heads of each layer have a difference alone, as charts show it.
    """
    tests = results.once(_tests)
    for n, label in enumerate(tests.labels if tests else ()):
        assert tests is not None
        layer, head = map(int, tests.head[n])
        baseline = f"fixed offset {signed(int(tests.offset[n]))}"
        other, column = float(tests.at_offset.value[n]), (METRIC, VIEW, label)
        yield row(
            RELATION, results.stack.name, column, layer=layer, head=head, split=HELD_OUT,
            value=tests.accuracy.at(n), baseline=baseline, baseline_value=other,
            difference=tests.margin.at(n), p=float(tests.p[n]),
        )  # fmt: skip
        for layer in np.flatnonzero(~np.isnan(tests.layer_margin.value[:, n])).tolist():
            head = int(tests.layer_head[layer, n])
            yield row(
                f"{RELATION}, best head of the layer", results.stack.name, column, layer=layer,
                head=head, split=HELD_OUT, baseline=baseline, baseline_value=other,
                difference=tests.layer_margin.at(layer, n), p=float(tests.every[layer, head, n]),
            )  # fmt: skip


def beside_relations(results: StackResults) -> Iterator[Row]:
    """Yield what pages print beside tested relations.

    The best head beside uniform attention and on words far apart; and the best fixed offset over
    all sentences, for heads that were not tested for a relation.
    """
    tests, stack = results.once(_tests), results.stack.name
    for n, label in enumerate(tests.labels if tests else ()):
        assert tests is not None
        layer, head = map(int, tests.head[n])
        even = results.half(REPORT, METRIC, VIEW, label, of="uniform").value[layer]
        yield row(
            f"{RELATION}, uniform attention", stack, (METRIC, VIEW, label), layer=layer, head=head,
            split=HELD_OUT, value=tests.accuracy.at(n), baseline=UNIFORM,
            baseline_value=float(even),
        )  # fmt: skip
        if results.has(FAR, VIEW, label):
            value = results.half(REPORT, FAR, VIEW, label).at(layer, head)
            yield row(f"{RELATION}, at distance 3 or more", stack, (FAR, VIEW, label), layer=layer,
                      head=head, split=HELD_OUT, value=value)  # fmt: skip
    hits = results.study.corpus_sums.heads[stack].relation_hits
    offsets = zip(hits.labels, *best_offsets(hits), strict=True) if hits and tests else ()
    for label, offset, share in offsets:
        if not np.isnan(share):
            yield row(f"{RELATION}, best fixed offset", stack, (METRIC, VIEW, label),
                      baseline=f"fixed offset {signed(int(offset))}",
                      baseline_value=float(share))  # fmt: skip


def _tests(results: StackResults) -> RelationTests | None:
    """Return the tests of a stack; None if the study did not keep what the tests need."""
    hits = results.study.corpus_sums.heads[results.stack.name].relation_hits
    there = [x for x in results.labels(METRIC) if results.has(METRIC, VIEW, x)]
    if results.stack.crosses or hits is None or not there:
        return None
    return relation_tests(hits, ~np.isnan(results.heads(METRIC, VIEW, there[0]).value))
