"""Rows about dependency relations that pages print beside the tested ones."""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import REPORT
from headbook.metrics import ids
from headbook.report.numbers.inference import METRIC, VIEW, tests_of
from headbook.report.numbers.relationrows import RELATION
from headbook.report.numbers.results import StackResults
from headbook.report.tables.rows import HELD_OUT, UNIFORM, Row, row

FAR = ids.RELATION_ACCURACY_FAR


def relations_by_layer(results: StackResults) -> Iterator[Row]:
    """Yield the best head of each layer for every tested relation, against the best rule."""
    tests = results.once(tests_of)
    for n, label in enumerate(tests.labels if tests else ()):
        assert tests is not None
        for layer in np.flatnonzero(~np.isnan(tests.layer_margin.value[:, n])).tolist():
            head = int(tests.layer_head[layer, n])
            yield row(
                f"{RELATION}, best head of the layer", results.stack.name, (METRIC, VIEW, label),
                layer=layer, head=head, split=HELD_OUT, baseline=tests.rule[n],
                baseline_value=float(tests.at_rule.value[n]),
                difference=tests.layer_margin.at(layer, n), p=float(tests.every[layer, head, n]),
            )  # fmt: skip


def beside_relations(results: StackResults) -> Iterator[Row]:
    """Yield the best head of every tested relation beside uniform attention and on far words.

    The best surface rule has a row without a head, too: pages of heads that were not tested for a
    relation print it.
    """
    tests, stack = results.once(tests_of), results.stack.name
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
        yield row(f"{RELATION}, best surface rule", stack, (METRIC, VIEW, label), split=HELD_OUT,
                  baseline=tests.rule[n], baseline_value=float(tests.at_rule.value[n]))  # fmt: skip
