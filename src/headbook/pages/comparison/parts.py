"""One kind of attention in both models; drift of weights and outputs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.comparison.comparison import Comparison, DepthMedians
from headbook.comparison.differences import HeadDifferences, LayerDifferences
from headbook.comparison.drift import (
    OUTPUT_DRIFT,
    QUERY_KEY,
    VALUE_OUTPUT,
    WEIGHT_DRIFT,
    DriftSummary,
    by_layer,
    divergence_text,
    rounded,
)
from headbook.comparison.matching import MatchedHeads
from headbook.comparison.study_pair import StackPair
from headbook.pages.parts.table import Content, PageTable, Row
from headbook.report.linked_rows import Parts
from headbook.report.results import StackResults, stack_results
from headbook.report.wording import STACKS, tie_note, tied_places
from headbook.results.formats import MISSING, head_name, percent
from headbook.results.sentence import head_link
from headbook.schema import HeadName


@dataclass(frozen=True, eq=False)
class StackComparison:
    """One kind of attention in both models.

    Attributes:
        pair: the two stacks.
        names: of the models.
        a, b: all numbers of measure.
        differences: differences of corresponding heads; None where heads do not correspond.
        matched: which heads attend alike; None of cross-attention.
        layers: differences of the tokens of corresponding layers; None likewise, and where a study
            has no sums for them.
        medians: over all heads or layers of each model, where they do not correspond.
    """

    pair: StackPair
    names: tuple[str, str]
    a: StackResults
    b: StackResults
    differences: HeadDifferences | None
    matched: MatchedHeads | None
    layers: LayerDifferences | None
    medians: DepthMedians

    @property
    def stack(self) -> str:
        """The pair's name in files."""
        return self.pair.name

    @property
    def title(self) -> str:
        """The kind of attention as pages call it."""
        names = dict.fromkeys(STACKS[stack.name] for stack in (self.pair.a, self.pair.b))
        return " and ".join(names)

    @property
    def heads(self) -> int:
        """Number of heads of the first model in the stack."""
        return len(self.pair.a.attention_layers) * self.pair.a.n_heads


def both_stacks(comparison: Comparison) -> tuple[StackComparison, ...]:
    """All kinds of attention that are compared."""
    return tuple(_both(comparison))


def _both(comparison: Comparison) -> Iterator[StackComparison]:
    sides = comparison.sides
    of_a, of_b = stack_results(sides.a), stack_results(sides.b)
    for pair in sides.stacks:
        yield StackComparison(
            pair,
            sides.names,
            of_a[pair.a.name],
            of_b[pair.b.name],
            comparison.heads.get(pair.name),
            comparison.matched.get(pair.name),
            comparison.layers.get(pair.name),
            comparison.depths.get(pair.name, {}),
        )


KINDS = (  # metric, label, how pages call it, how they write it
    (WEIGHT_DRIFT, QUERY_KEY, "W_Q\u00a0W_Kᵀ", percent),
    (WEIGHT_DRIFT, VALUE_OUTPUT, "W_V\u00a0W_O", percent),
    (OUTPUT_DRIFT, "", "outputs", divergence_text),
)
METRICS = frozenset({WEIGHT_DRIFT, OUTPUT_DRIFT})
ABOUT = (
    "W_Q W_Kᵀ and W_V W_O: change of the product of weights, as part of its size (Frobenius norm). "
    "Outputs: 1 − cosine of what a head writes, mean over tokens."
)


@dataclass(frozen=True, eq=False)
class DriftMeasure:
    """One of these numbers.

    Attributes:
        title: as pages call it.
        value: of each head; NaN without. *Shape:* ``(layer, head)``.
        floor: of the first model and itself in bfloat16; None where that is not known.
        written: a value in few digits.
    """

    title: str
    value: Floats
    floor: Floats | None
    written: Callable[[float], str]

    def text(self, place: tuple[int, int]) -> str:
        """Return a head's number."""
        return _text(self.written, float(self.value[place]))

    def rounding(self, place: tuple[int, int]) -> str:
        """Return the change by rounding in the same head; empty if it is unknown."""
        return "" if self.floor is None else _text(self.written, float(self.floor[place]))


def _text(written: Callable[[float], str], value: float) -> str:
    return MISSING if np.isnan(value) else written(value)


def moved(differences: HeadDifferences) -> tuple[DriftMeasure, ...]:
    """Return the measures of drift that are known of a stack."""
    return tuple(_moved(differences))


def _moved(differences: HeadDifferences) -> Iterator[DriftMeasure]:
    for metric, label, title, written in KINDS:
        place, floor = (differences.column(metric, "", x) for x in (label, rounded(label)))
        if place is not None and not np.isnan(differences.value[..., place]).all():
            below = None if floor is None else differences.value[..., floor]
            yield DriftMeasure(title, differences.value[..., place], below, written)


def moved_lead(stack: StackComparison, every: Sequence[DriftMeasure]) -> Iterator[Parts]:
    """Return where each measure changed most, beside rounding, as a sentence; empty if unknown."""
    if not every:
        return
    if not any(np.nan_to_num(measure.value).any() for measure in every):
        names = ", ".join(measure.title for measure in every)
        yield (f"Exactly equal in all heads: {names}.",)
        return
    parts: list[Parts] = []
    for measure in every:
        heads = [
            HeadName(stack.pair.a.name, *at) for at in tied_places(measure.value, measure.written)
        ]
        first, *others = heads
        by = f"by {_beside(measure, (first.layer, first.head))}"
        note = tie_note([head_name(head) for head in others])
        parts.append((f"{measure.title} in ", head_link(first), f"{note} {by}"))
    joined = [piece for n, part in enumerate(parts) for piece in (("; ",) * bool(n) + part)]
    yield ("Largest changes of weights and outputs: ", *joined, ".")


def moved_words(every: Sequence[DriftMeasure], place: tuple[int, int]) -> str:
    """Return the numbers of one head as a sentence; empty if none is known."""
    known = [measure for measure in every if not np.isnan(measure.value[place])]
    texts = [f"{measure.title} by {_beside(measure, place)}" for measure in known]
    return f"Change of its weights and outputs: {', '.join(texts)}." if texts else ""


def _beside(measure: DriftMeasure, place: tuple[int, int]) -> str:
    below = measure.rounding(place)
    return measure.text(place) + (f" (rounding {below})" if below else "")


def moved_cells(every: Sequence[DriftMeasure], place: tuple[int, int]) -> Iterator[Content]:
    """Yield the numbers of one head as cells, without rounding, which is alike in all."""
    yield from (measure.text(place) for measure in every)


def layer_moves(summary: DriftSummary | None, every: Sequence[DriftMeasure]) -> PageTable | None:
    """Return the median head of each layer; None if nothing is known or nothing changed."""
    if not any(np.nan_to_num(measure.value).any() for measure in every):
        return None
    attention = (
        []
        if summary is None
        else [DriftMeasure("attention", summary.value, summary.floor, divergence_text)]
    )
    parts = [*attention, *every]
    medians = [
        replace(
            measure,
            value=_medians(measure.value),
            floor=None if measure.floor is None else _medians(measure.floor),
        )
        for measure in parts
    ]
    known = ~np.isnan(np.hstack([measure.value for measure in medians])).all(1)
    layers = np.flatnonzero(known).tolist()
    rows = (Row(f"layer {layer}", tuple(_layer(medians, layer))) for layer in layers)
    titles = (
        x
        for measure in parts
        for x in (measure.title, "rounding")[: 1 + (measure.floor is not None)]
    )
    return PageTable(("Layer", *titles), tuple(rows))


def _layer(medians: Sequence[DriftMeasure], layer: int) -> Iterator[Content]:
    """Each number, and after it what rounding does, where that is known."""
    for measure in medians:
        yield measure.text((layer, 0))
        if measure.floor is not None:
            yield measure.rounding((layer, 0))


def _medians(values: Floats) -> Floats:
    """*Shape:* ``(layer, head)`` to ``(layer, 1)``."""
    medians: Floats = by_layer(values)[1][:, None]
    return medians
