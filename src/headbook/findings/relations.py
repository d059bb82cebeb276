"""Which relations heads find where no fixed offset does."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from headbook.findings.said import (
    Finding,
    begun,
    head_link,
    in_percent,
    metric_link,
)
from headbook.metrics.base import Source
from headbook.numbers.results import StackResults
from headbook.stored.shown import HeadName
from headbook.summaries.flips import LEVEL
from headbook.wording import p_equals

if TYPE_CHECKING:
    from headbook.numbers.inference import RelationTests

WAYS = {"to_head": "from the word to its head", "to_dependent": "from the head to the word"}


def relations(results: StackResults, tests: "RelationTests") -> Iterator[Finding]:
    """The relation that a head finds most often where the best fixed offset misses it."""
    found = np.flatnonzero(tests.supported)
    if not len(found):
        return
    at = int(found[np.argmax(tests.margin.value[found])])
    head = HeadName(results.stack.name, *map(int, tests.head[at]))
    relation, _, way = tests.labels[at].rpartition(":")
    offset = f"{int(tests.offset[at]):+d}".replace("-", "−")
    many = f"{len(tests.labels):,} relations and directions"
    yield Finding(
        (
            begun(results, f"In {len(found):,} of {many} a head finds "),
            metric_link("relation_accuracy", "more words than the best fixed offset"),
            f" (family-wise p < {LEVEL:g}). Most so ",
            head_link(head),
            f" in {relation}, {WAYS[way]}: {in_percent(tests.accuracy.at(at))}, offset {offset} "
            f"{in_percent(tests.at_offset.at(at))}, difference {in_percent(tests.margin.at(at))}, "
            f"{p_equals(float(tests.p[at]))}.",
        ),
        int(tests.accuracy.sentences[at]),
        Source.SAMPLE,
        _sampled(results),
    )


def _sampled(results: StackResults) -> int:
    """How many sentences the relations of a stack were looked for in."""
    found = results.study.survey.heads[results.stack.name].found
    return len(found.hits.key) if found else 0
