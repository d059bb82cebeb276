"""Facts about heads that attend alike: near doubles, and mean distances."""

import math

from headbook.analysis.accumulators import without_interval
from headbook.metrics import ids
from headbook.report.facts.functions import functions_of
from headbook.report.results import StackResults, sentence_start
from headbook.report.similar_heads import (
    MAX_DOUBLE_DISTANCE,
    HeadDistanceMatrix,
    compared_view,
    head_distances,
    mean_distances,
)
from headbook.report.wording import number_word
from headbook.results.fact import Fact, Tested
from headbook.results.sentence import say
from headbook.schema import HeadName
from headbook.study.tables import HELLINGER

MEAN_OF_PAIRS = "mean of pairs of heads"  # claim
SMALL_GROUP = 10  # heads of the largest group that is still small


def mean_distances_fact(results: StackResults) -> Fact:
    """Return the mean distance of all pairs of heads, of pairs of one layer, and of two layers."""
    evidence = [
        Tested(
            MEAN_OF_PAIRS, results.stack.name,
            ids.HEAD_DISTANCE if matrix.roots is None else HELLINGER, str(view), label,
            without_interval(mean, matrix.sentences),
        )
        for view, matrix in results.cached(head_distances).items()
        for label, mean in mean_distances(matrix).items()
        if not math.isnan(mean)
    ]  # fmt: skip
    return Fact("mean_distances", evidence=tuple(evidence))


def attends_evenly(results: StackResults, head: HeadName) -> bool:
    """Check whether the function of a head is to attend nearly evenly to all words."""
    return functions_of(results)[head].id == "even"


def doubles(results: StackResults) -> Fact:
    """Return how many heads of a stack have a near double, and in what kind of groups."""
    matrices = results.cached(head_distances)
    return doubles_of(results, matrices[compared_view(matrices)])


def doubles_of(results: StackResults, matrix: HeadDistanceMatrix) -> Fact:
    """Return the fact on near doubles for the distances of one view."""
    groups, n_heads = matrix.doubles, len(matrix.heads)
    if not groups:
        text = f"No two of {n_heads:,} heads are closer than {MAX_DOUBLE_DISTANCE:.2f} nats."
        return Fact("doubles", say(sentence_start(results, text)), holds=False)
    even = [
        all(attends_evenly(results, matrix.heads[index]) for index in group.heads)
        for group in groups
    ]
    n_doubles = sum(len(group.heads) for group in groups)
    who = "All" if n_doubles == n_heads else "Some" if 2 * n_doubles <= n_heads else "Most"
    text = (
        f"All {n_heads:,} heads have near doubles, {_groups(matrix)}{_evenly(even)}."
        if who == "All"
        else f"{who} heads have near doubles: {n_doubles:,} of {n_heads:,}, "
        f"{_groups(matrix)}{_evenly(even)}."
    )
    heads = tuple(matrix.heads[index] for group in groups for index in group.heads)
    return Fact("doubles", say(sentence_start(results, text)), heads=heads)


def _groups(matrix: HeadDistanceMatrix) -> str:
    """Return the kind of the groups of near doubles in words."""
    groups = matrix.doubles
    sizes = [len(group.heads) for group in groups]
    if len(groups) == 1:
        return "one pair" if sizes == [2] else "in one group"
    small = "small " * (max(sizes) <= SMALL_GROUP)
    n_pairs = sizes.count(2)
    pairs = f", {'all' if n_pairs == len(groups) else 'most'} of them pairs"
    n_across = sum(len({*matrix.layers[[*group.heads]].tolist()}) > 1 for group in groups)
    layers = ", often across layers" if 2 * n_across >= len(groups) else ""
    layers = layers if n_across else ", each within one layer"
    return f"in {small}groups{pairs * (2 * n_pairs > len(groups))}{layers}"


def _evenly(even: list[bool]) -> str:
    """Return in how many groups heads are alike because all attend nearly evenly."""
    if not any(even):
        return ""
    if len(even) == 1:
        return "; they attend nearly evenly"
    of = "all groups" if all(even) else f"{number_word(sum(even))} of them"
    return f"; in {of}, heads attend nearly evenly"
