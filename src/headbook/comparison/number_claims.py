"""The claim on the largest supported change of a number of a head, with the function of the head.

Changes of different numbers are ranked by their size among heads
(`headbook.comparison.change_sizes`).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from headbook.comparison.change_sizes import (
    HeadNumberChange,
    largest_changes,
    number_title,
    value_text,
)
from headbook.comparison.claims import DEFINITION, NAMED, SizedClaim
from headbook.comparison.comparison import Comparison
from headbook.comparison.differences import HeadDifferences
from headbook.comparison.study_pair import StackPair
from headbook.report.answers.overview.claim_parts import OF_STACK, OverviewClaim, short_link
from headbook.report.facts.functions import HeadFunction
from headbook.report.linked_rows import Parts, head_number
from headbook.report.wording import count_text
from headbook.results.formats import number, p_text
from headbook.results.sentence import Sentence
from headbook.schema import HeadName

PairOfFunctions = tuple[Mapping[HeadName, HeadFunction], Mapping[HeadName, HeadFunction]]


class ComparedNumbers(NamedTuple):
    """Numbers of the heads of one stack in both models.

    Attributes:
        pair: the stacks of both models.
        differences: differences of the heads.
        functions: function of each head in both models.
    """

    pair: StackPair
    differences: HeadDifferences
    functions: PairOfFunctions


def number_claims(
    comparison: Comparison, functions: Mapping[str, PairOfFunctions]
) -> Iterator[SizedClaim]:
    """Yield the claim of each stack that has a supported change.

    Args:
        comparison: the two models.
        functions: function of each head in both models, by name of the pair of stacks.
    """
    for pair in comparison.sides.stacks:
        differences = comparison.heads.get(pair.name)
        if differences is None:
            continue
        numbers = ComparedNumbers(pair, differences, functions.get(pair.name, ({}, {})))
        changes = [*largest_changes(differences, pair.a)]
        if changes:
            yield _claim(numbers, changes)


def _claim(numbers: ComparedNumbers, changes: list[HeadNumberChange]) -> SizedClaim:
    """Return the claim on the largest change, and on the heads with the next ones."""
    named = changes[:NAMED]
    first, stack = named[0], numbers.pair.a.name
    index = (*first.place, first.column)
    q = float(numbers.differences.q[index])
    sentence: Parts = (
        f"Largest supported change{OF_STACK[stack]}: ", *_change(numbers, first), ".",
    )  # fmt: skip
    rest = [part for change in named[1:] for part in ("; ", *_with_function(numbers, change))]
    beyond = "beyond the rounding floor" if numbers.differences.floor is not None else "beyond 0"
    evidence: Parts = (
        *_with_function(numbers, first), *rest, ". Of each head its largest change, in the view of "
        "the metric’s page, in standard deviations of the number among the heads of both models "
        f"(at least those of the metric’s median label): {number(first.size)} for the first, q "
        f"{p_text(q)}. {count_text(len(changes), 'head')} with a supported change of any such "
        f"number: q < 0.05 over all heads and labels of a metric, interval {beyond}. "
        f"{count_text(int(numbers.differences.sentences[index]), 'sentence')}. ",
        DEFINITION,
    )  # fmt: skip
    heads = frozenset(HeadName(stack, *change.place) for change in named)
    return SizedClaim(
        first.size, OverviewClaim("numbers", stack, Sentence(sentence), heads, Sentence(evidence))
    )


def _change(numbers: ComparedNumbers, change: HeadNumberChange) -> Parts:
    """Return a head with a number of it in both models."""
    differences, column = numbers.differences, numbers.differences.columns[change.column]
    index = (*change.place, change.column)
    head = HeadName(numbers.pair.name, *change.place)
    a, b = (
        head_number(value_text(column, float(part[index])), head, column)._replace(
            table="differences"
        )
        for part in (differences.a, differences.b)
    )
    title = number_title(column)
    name = short_link(HeadName(numbers.pair.a.name, *change.place))
    return (name, f", {title[:1].lower()}{title[1:]}, ", a, " → ", b)


def _with_function(numbers: ComparedNumbers, change: HeadNumberChange) -> Parts:
    """Return a head with a number, and with its function in both models if that is known."""
    head = HeadName(numbers.pair.a.name, *change.place)
    nouns = [functions[head].noun for functions in numbers.functions if head in functions]
    same = len({*nouns}) < 2
    function = f" (function: {nouns[0] if same else ' → '.join(nouns)})" if nouns else ""
    return (*_change(numbers, change), function)


def supported_numbers(comparison: Comparison) -> int:
    """Return the number of supported differences of heads and layers."""
    parts = [*comparison.heads.values(), *comparison.layers.values()]
    return sum(int(np.count_nonzero(part.supported)) for part in parts)
