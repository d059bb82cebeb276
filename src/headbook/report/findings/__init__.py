"""Sentences computed from numbers, each printed only where its interval supports it.

What stands out among many, heads or runs of layers, is chosen on one half of the sentences and
reported on the other, so that its number is not the luck of the choice. Every claim is set against
a control: uniform attention, a head that picks at random, a tree that knows no words, or the
model's twin without training.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.report.findings.attention import (
    distance_trend,
    like_untrained,
    neighbour_heads,
    positional_heads,
    repeated_tokens,
    sink_layers,
    variability,
)
from headbook.report.findings.finding import Finding, Link, highest
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

if TYPE_CHECKING:
    from headbook.report.relation_tests import RelationTests

__all__ = ["HELD_OUT", "SELECTION", "Finding", "Link", "findings_of", "highest"]

MOST = 12  # findings of a stack
Rules = tuple[Callable[[StackResults], Iterator[Finding]], ...]
GENERAL: Rules = (
    distance_trend,
    sink_layers,
    drift_from_input,
    own_word,
    like_untrained,
)  # of all heads together
SPECIAL: Rules = (
    positional_heads,
    beyond_distance,
    parts_of_speech,
    phrase_trees,
    dependency_trees,
    variability,
    rare_words,
    repeated_tokens,
    neighbour_heads,
    dependencies,
)


def findings_of(results: StackResults, tests: "RelationTests | None" = None) -> list[Finding]:
    """What is worth saying about a stack, the most general first; at most `MOST` sentences.

    Args:
        tests: which heads find relations; without it nothing is said of them.
    """
    found = chain(
        (finding for rule in GENERAL for finding in rule(results)),
        relations(results, tests) if tests is not None else (),
        (finding for rule in SPECIAL for finding in rule(results)),
    )
    return [*islice(found, MOST)]
