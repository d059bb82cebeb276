"""Which relations heads serve beyond the best fixed offset."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.flips import LEVEL
from headbook.metrics import ids
from headbook.metrics.base import Source
from headbook.report.findings.finding import Finding, begun, head_link, metric_link
from headbook.report.numbers.claims import estimate, point_estimate
from headbook.report.numbers.relationnames import ends_of
from headbook.report.numbers.results import StackResults
from headbook.report.wording import signed, small, tested
from headbook.study.sentencedata import HeadName

if TYPE_CHECKING:
    from headbook.report.numbers.inference import RelationTests


def relations(results: StackResults, tests: "RelationTests") -> Iterator[Finding]:
    """In how many relations a head beats the best fixed offset, and which one most."""
    found = np.flatnonzero(tests.supported)
    if not len(found):
        return
    at = int(found[np.argmax(tests.margin.value[found])])
    head = HeadName(results.stack.name, *map(int, tests.head[at]))
    ends, offset = ends_of(tests.labels[at]), signed(int(tests.offset[at]))
    yield Finding(
        (
            begun(results, f"In {small(len(found))} of {len(tests.labels):,} pairs of relation "),
            "and direction, a head beats the ",
            metric_link(ids.RELATION_ACCURACY, "best fixed offset"),
            f" (p ≤ {LEVEL:g} family-wise). ",
            head_link(head),
            f" attends from {ends.query} to {ends.key} in {estimate(tests.accuracy.at(at))} of "
            f"cases: {point_estimate(tests.margin.at(at))} over the best fixed offset ({offset}), "
            f"{tested(float(tests.p[at]))}.",
        ),
        int(tests.accuracy.sentences[at]),
        Source.SAMPLE,
        _sampled(results),
    )


def _sampled(results: StackResults) -> int:
    """How many sentences the relations of a stack were looked for in."""
    relation_hits = results.study.corpus_sums.heads[results.stack.name].relation_hits
    return len(relation_hits.hits.content_hash) if relation_hits else 0
