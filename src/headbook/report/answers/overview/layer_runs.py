"""Sentence on what the layers of a model do one after the other, by the families of their heads.

Layers are divided into at most `MAX_RUNS` runs by the likelihood of their counts of families, where
each further run has to raise the log likelihood by more than the number of its free parameters
(Akaike 1974).
"""

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.report.facts.functions import WHERE_OF_FAMILY, FunctionFamily, functions_of
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.thresholds import MOST_HEADS
from headbook.report.wording import STACKS, capital

MAX_RUNS = 3
MAX_WORDS = 30
SEVERAL_THINGS = "in many ways"
TO = WHERE_OF_FAMILY | {  # of most heads of some layers
    FunctionFamily.SAME_KEYS: "to the same few words",
    FunctionFamily.EVEN: "to most words",
    FunctionFamily.SINK: "to nothing in particular",
}


class FamilyRun(NamedTuple):
    """Neighbouring layers and the families of most of their heads.

    Attributes:
        layers: the layers with attention.
        named: one family of more than half of the heads, else two that are so together; else none.
    """

    layers: tuple[int, ...]
    named: frozenset[FunctionFamily]


def layers_sentence(results: StackResults) -> str:
    """Return what most heads of successive layers attend to, in at most `MAX_WORDS` words.

    Empty if families were not measured, or if no run of layers has families of most of its heads.
    """
    for most in range(MAX_RUNS, 0, -1):
        runs = layer_runs(results, most)
        if not any(run.named for run in runs):
            return ""
        sentence = _sentence(results, runs)
        if len(sentence.split()) <= MAX_WORDS:
            return sentence
    return ""


def layer_runs(results: StackResults, most: int = MAX_RUNS) -> list[FamilyRun]:
    """Return at most ``most`` runs of layers; neighbouring ones of equal families are joined."""
    layers, families = results.stack.attention_layers, [*FunctionFamily]
    counts = np.zeros((len(layers), len(families)))
    for head, function in functions_of(results).items():
        if function.family is not None:
            counts[layers.index(head.layer), families.index(function.family)] += 1
    if not counts.any():
        return []
    runs, start = list[FamilyRun](), 0
    for end in (*_ends(counts, most), len(layers)):
        run = FamilyRun(layers[start:end], _named(counts[start:end].sum(0)))
        if runs and runs[-1].named == run.named:
            run = FamilyRun((*runs.pop().layers, *run.layers), run.named)
        runs.append(run)
        start = end
    return runs


def _ends(counts: Floats, most: int) -> tuple[int, ...]:
    """Return where all runs but the last end, by the criterion.

    Args:
        counts: number of heads by layer and family.
        most: largest number of runs.
    """
    sums = np.concatenate((np.zeros((1, counts.shape[1])), counts.cumsum(0)))
    cost = int((counts.sum(0) > 0).sum())  # parameters: shares but for one, and where the run ends
    divisions = (
        ends
        for n in range(min(most, len(counts)))
        for ends in combinations(range(1, len(counts)), n)
    )

    def loss(ends: tuple[int, ...]) -> float:
        bounds = (0, *ends, len(counts))
        likelihood = sum(_likelihood(sums[b] - sums[a]) for a, b in pairwise(bounds))
        return cost * len(ends) - likelihood

    return min(divisions, key=loss)


def _likelihood(counts: Floats) -> float:
    """Return the largest log likelihood of counts of families."""
    known = counts[counts > 0]
    return float((known * np.log(known / known.sum())).sum())


def _named(counts: Floats) -> frozenset[FunctionFamily]:
    """Return the commonest family if most heads have it, else the two commonest, or none.

    Args:
        counts: number of heads by family.
    """
    by_family = dict(zip(FunctionFamily, counts.tolist(), strict=True))
    ranked = sorted(TO, key=lambda family: -by_family[family])
    for n in (1, 2):
        if sum(by_family[family] for family in ranked[:n]) > MOST_HEADS.value * counts.sum():
            return frozenset(ranked[:n])
    return frozenset()


def _sentence(results: StackResults, runs: Sequence[FamilyRun]) -> str:
    """Return the runs as one sentence; of several stacks, only runs with named families."""
    parts = list[str]()
    several = len(results.study.manifest.stacks) > 1
    for run in runs:
        if several and not run.named:
            continue
        to = [TO[family] for family in FunctionFamily if family in run.named]
        first, most = not parts, "most " if to else ""
        attends = f"{most}heads attend " if first else most
        parts.append(f"{_where(results, run.layers)} {attends}{' or '.join(to) or SEVERAL_THINGS}")
    if several:
        return f"{capital(STACKS[results.stack.name])}, sink masked: {'; '.join(parts)}."
    return f"Besides {sink_tokens(results)}, {'; '.join(parts)}."


def _where(results: StackResults, layers: Sequence[int]) -> str:
    """Return a run of layers in words."""
    if len(layers) == 1:
        return f"in layer {layers[0]}"
    if tuple(layers) == tuple(results.stack.attention_layers):
        return "in all layers"
    return f"in layers {layers[0]}–{layers[-1]}"
