"""One kind of attention in both models; drift of weights and outputs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
        a, b: all numbers of each.
        found: differences of corresponding heads; None where heads do not correspond.
        matched: which heads attend alike; None of cross-attention.
        layers: differences of the tokens of corresponding layers; None likewise, and where a study
            has no sums for them.
        medians: over all heads or layers of each model, where they do not correspond.
    """

    pair: StackPair
    names: tuple[str, str]
    a: StackResults
    b: StackResults
    found: HeadDifferences | None
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
    mine, theirs = stack_results(sides.a), stack_results(sides.b)
    for pair in sides.stacks:
        yield StackComparison(
            pair,
            sides.names,
            mine[pair.a.name],
            theirs[pair.b.name],
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


def moved(found: HeadDifferences) -> tuple[DriftMeasure, ...]:
    """Return the measures of drift that are known of a stack."""
    return tuple(_moved(found))


def _moved(found: HeadDifferences) -> Iterator[DriftMeasure]:
    for metric, label, title, written in KINDS:
        place, floor = (found.column(metric, "", x) for x in (label, rounded(label)))
        if place is not None and not np.isnan(found.value[..., place]).all():
            below = None if floor is None else found.value[..., floor]
            yield DriftMeasure(title, found.value[..., place], below, written)


def moved_lead(both: StackComparison, every: Sequence[DriftMeasure]) -> Iterator[Parts]:
    """Return where each measure changed most, beside rounding, as a sentence; empty if unknown."""
    if not every:
        return
    if not any(np.nan_to_num(each.value).any() for each in every):
        names = ", ".join(each.title for each in every)
        yield (f"Exactly equal in all heads: {names}.",)
        return
    parts: list[Parts] = []
    for each in every:
        heads = [HeadName(both.pair.a.name, *at) for at in tied_places(each.value, each.written)]
        first, *others = heads
        by = f"by {_beside(each, (first.layer, first.head))}"
        note = tie_note([head_name(head) for head in others])
        parts.append((f"{each.title} in ", head_link(first), f"{note} {by}"))
    joined = [piece for n, part in enumerate(parts) for piece in (("; ",) * bool(n) + part)]
    yield ("Largest changes of weights and outputs: ", *joined, ".")


def moved_words(every: Sequence[DriftMeasure], place: tuple[int, int]) -> str:
    """Return the numbers of one head as a sentence; empty if none is known."""
    there = [each for each in every if not np.isnan(each.value[place])]
    texts = [f"{each.title} by {_beside(each, place)}" for each in there]
    return f"Change of its weights and outputs: {', '.join(texts)}." if texts else ""


def _beside(each: DriftMeasure, place: tuple[int, int]) -> str:
    below = each.rounding(place)
    return each.text(place) + (f" (rounding {below})" if below else "")


def moved_cells(every: Sequence[DriftMeasure], place: tuple[int, int]) -> Iterator[Content]:
    """Yield the numbers of one head as cells, without rounding, which is alike in all."""
    yield from (each.text(place) for each in every)


def layer_moves(summary: DriftSummary | None, every: Sequence[DriftMeasure]) -> PageTable | None:
    """Return the median head of each layer; None if nothing is known or nothing changed."""
    if not any(np.nan_to_num(each.value).any() for each in every):
        return None
    attention = (
        []
        if summary is None
        else [DriftMeasure("attention", summary.value, summary.floor, divergence_text)]
    )
    parts = [*attention, *every]
    medians = [
        DriftMeasure(each.title, _medians(each.value), each.floor if each.floor is None else
              _medians(each.floor), each.written)
        for each in parts
    ]  # fmt: skip
    known = ~np.isnan(np.hstack([each.value for each in medians])).all(1)
    layers = np.flatnonzero(known).tolist()
    rows = (Row(f"layer {layer}", tuple(_layer(medians, layer))) for layer in layers)
    titles = (x for each in parts for x in (each.title, "rounding")[: 1 + (each.floor is not None)])
    return PageTable(("Layer", *titles), tuple(rows))


def _layer(medians: Sequence[DriftMeasure], layer: int) -> Iterator[Content]:
    """Each number, and after it what rounding does, where that is known."""
    for each in medians:
        yield each.text((layer, 0))
        if each.floor is not None:
            yield each.rounding((layer, 0))


def _medians(values: Floats) -> Floats:
    """*Shape:* ``(layer, head)`` to ``(layer, 1)``."""
    found: Floats = by_layer(values)[1][:, None]
    return found
