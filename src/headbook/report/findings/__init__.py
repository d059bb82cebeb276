"""Findings: sentences computed from numbers, each printed only if its interval supports it.

A head is named as the first only with the heads that a paired test does not tell from it. One half
of the sentences selects, and the other one has to confirm it. Every claim is compared with a
baseline:
uniform attention, random choice, a tree without attention, or the same architecture with random
weights.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.report.findings.attention import (
    distance_trend,
    like_untrained,
    sink_layers,
    variability,
)
from headbook.report.findings.finding import Finding
from headbook.report.findings.language import (
    beyond_distance,
    dependencies,
    dependency_trees,
    parts_of_speech,
    phrase_trees,
    rare_words,
    relations,
)
from headbook.report.findings.states import drift_from_input, own_word
from headbook.report.results import StackResults
from headbook.results.sentence import Link

if TYPE_CHECKING:
    from headbook.report.relation_tests import RelationTests

__all__ = ["HELD_OUT", "SELECTION", "Finding", "Link", "findings_of"]

Rules = tuple[Callable[[StackResults], Iterator[Finding]], ...]
# Rules on all heads together.
GENERAL: Rules = (distance_trend, sink_layers, drift_from_input, own_word, like_untrained)
SPECIAL: Rules = (
    beyond_distance,
    parts_of_speech,
    phrase_trees,
    dependency_trees,
    variability,
    rare_words,
    dependencies,
)


def findings_of(results: StackResults, tests: "RelationTests | None" = None) -> list[Finding]:
    """Return the findings of a stack, the most general first.

    Args:
        tests: the tests of relations; None for no findings on relations.
    """
    return [*chain(
        (finding for rule in GENERAL for finding in rule(results)),
        relations(results, tests) if tests is not None else (),
        (finding for rule in SPECIAL for finding in rule(results)),
    )]  # fmt: skip
