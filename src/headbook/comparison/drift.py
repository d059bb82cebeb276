"""Divergence of attention, weights and outputs between corresponding heads, with floor and ceiling.

The divergence is computed on sentences whose maps both studies store and which both models read as
the same tokens: not on targets that each model generated itself. *Floor:* the divergence of the
first model from itself in bfloat16, if such a study is given: the effect of rounding alone.
*Ceiling:* the divergence of each head of the first model from the next head of its layer in the
second: the difference of heads that do not correspond.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import log

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import Estimates, RatioSums
from headbook.analysis.arrays import Floats, divide
from headbook.analysis.attention_divergence import DivergenceSums, attention_divergence
from headbook.analysis.paired import ClusterSums
from headbook.comparison.differences import ComparedColumn, HeadDifferences
from headbook.comparison.matching import token_rows
from headbook.comparison.study_pair import StackPair, StudyPair, same_ids
from headbook.schema import SinkView
from headbook.study.sentence_data import MappedSentence

PATTERN_DRIFT = "pattern_drift"
SHUFFLED = "heads shuffled"  # the label of the ceiling; `ROUNDED` is the label of the floor
ROUNDED = "bfloat16"
LIMITS = (0.0, log(2))


def head_drifts(sides: StudyPair, pair: StackPair) -> Iterator[HeadDifferences]:
    """Yield the divergence of corresponding heads in all views, and the ceiling."""
    asked = {pair.a.queries, pair.a.keys}
    sentences = [(one, other) for one, other in sides.mapped() if same_ids(one, other, asked)]
    if not sentences:
        return
    for label, shift in (("", 0), (SHUFFLED, 1)):
        if shift and pair.a.n_heads == 1:
            continue
        for view in SinkView:
            found = [_drift(one, other, pair, view, shift) for one, other in sentences]
            yield _numbers(ComparedColumn(PATTERN_DRIFT, str(view), label), found, pair)


def rounding_drift(sides: StudyPair, pair: StackPair) -> Iterator[HeadDifferences]:
    """Yield the divergence of the first model from itself with rounded weights.

    Args:
        sides: the first model with exact and with rounded weights.
    """
    for each in head_drifts(sides, pair):
        (column,) = each.columns
        if not column.label:
            yield each.named((column._replace(label=ROUNDED),))


def _drift(
    one: MappedSentence, other: MappedSentence, pair: StackPair, view: SinkView, shift: int
) -> DivergenceSums:
    """Return the divergence sums of one sentence.

    Args:
        shift: number of heads by which the second model's heads are shifted in their layer.
    """
    first, second = token_rows(one, pair.a, view), token_rows(other, pair.b, view)
    if shift:
        numbers = np.arange(len(second.weights)).reshape(-1, pair.b.n_heads)
        order = np.roll(numbers, -shift, 1).reshape(-1)
        second = type(second)(second.weights[order], second.counted[order])
    return attention_divergence(first, second)


def _numbers(
    column: ComparedColumn, found: list[DivergenceSums], pair: StackPair
) -> HeadDifferences:
    """Return means over queries, with intervals clustered by sentence."""
    shape = (len(found), pair.a.n_layers, pair.a.n_heads, 1)
    n, d = (np.stack(parts).reshape(shape) for parts in zip(*found, strict=True))
    there = np.zeros((pair.a.n_layers, 1, 1), bool)
    there[[*pair.a.attention_layers]] = True
    d = np.where(there, d, 0)
    numbers = Estimates.of(RatioSums.of(n, d, d, np.zeros(len(n), np.int64)), LIMITS)
    nothing: Floats = np.full(shape[1:], np.nan)
    values = numbers.value, numbers.low, numbers.high
    return HeadDifferences((column,), nothing, nothing, *values, nothing, numbers.sentences)


EQUAL = 1e-12  # nats; equal rows differ by no more, because of rounding
CHANGED = 0.5  # share of the largest median of a layer from which on a layer counts as changed
QUARTILES = (25, 50, 75)


@dataclass(frozen=True, eq=False)
class DriftSummary:
    """Divergence of the heads of one stack in the raw view. *Shape* of all: ``(layer, head)``.

    Attributes:
        value, low, high: divergence of corresponding heads in nats, with the ends of its 95 %
            interval; NaN without a head.
        floor: divergence of the first model from itself in bfloat16; None if not measured.
        floor_high: upper ends of the floor's intervals; None if not measured.
        ceiling: divergence of each head from another head of its layer; None with one head a layer.
    """

    value: Floats
    low: Floats
    high: Floats
    floor: Floats | None
    floor_high: Floats | None
    ceiling: Floats | None

    @property
    def there(self) -> NDArray[np.bool_]:
        """Mask of heads that have a number. *Shape:* ``(layer, head)``."""
        return ~np.isnan(self.value)

    @property
    def equal(self) -> bool:
        """Whether all heads attend exactly alike."""
        return bool((self.value[self.there] <= EQUAL).all())

    @property
    def above(self) -> NDArray[np.bool_] | None:
        """Mask of heads whose interval lies above the floor's; None without a floor."""
        if self.floor is None or self.floor_high is None:
            return None
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = self.low > np.fmax(self.floor_high, self.floor)
        return found

    @property
    def part(self) -> Floats | None:
        """Divergence of each head as a part of the distance from the floor, or 0, to the ceiling.

        The ceiling is the median over heads, since a single other head may be a near copy.
        """
        if self.ceiling is None:
            return None
        floor = 0.0 if self.floor is None else float(np.nanmedian(self.floor))
        distance = float(np.nanmedian(self.ceiling)) - floor
        return divide(self.value - floor, np.full(self.value.shape, max(distance, 0.0)))

    def layers(self) -> Floats:
        """Return quartiles of the heads of each layer; NaN without attention.

        *Shape:* ``(3, layer)``.
        """
        return by_layer(self.value)

    def changed(self) -> tuple[int, ...]:
        """Return the layers that changed most, in order; empty if all layers changed alike."""
        medians = self.layers()[1]
        if self.equal or np.isnan(medians).all():
            return ()
        most = float(np.nanmax(medians))
        found = [x for x in np.argsort(-medians, kind="stable") if medians[x] >= CHANGED * most]
        return () if len(found) == int((~np.isnan(medians)).sum()) else tuple(map(int, found))


def by_layer(values: Floats) -> Floats:
    """Return quartiles of the heads of each layer.

    *Shape:* ``(layer, head)`` to ``(3, layer)``.
    """
    found = np.full((len(QUARTILES), len(values)), np.nan)
    for layer, row in enumerate(values):
        if not np.isnan(row).all():
            found[:, layer] = np.nanpercentile(row, QUARTILES)
    return found


def drift_summary(found: HeadDifferences, view: SinkView = SinkView.RAW) -> DriftSummary | None:
    """Return the divergence of a stack; None if no attention was compared."""
    places = [found.column(PATTERN_DRIFT, str(view), x) for x in ("", ROUNDED, SHUFFLED)]
    column, floor, ceiling = places
    if column is None or np.isnan(found.value[..., column]).all():
        return None
    return DriftSummary(
        found.value[..., column],
        found.low[..., column],
        found.high[..., column],
        None if floor is None else found.value[..., floor],
        None if floor is None else found.high[..., floor],
        None if ceiling is None else found.value[..., ceiling],
    )


WEIGHT_DRIFT, OUTPUT_DRIFT = "weight_drift", "output_drift"
QUERY_KEY, VALUE_OUTPUT = "query_key", "value_output"


def rounded(label: str) -> str:
    """Return the label of a number's rounding floor."""
    return f"{label} {ROUNDED}".strip()


@dataclass(frozen=True, eq=False)
class ModelDrift:
    """Changes of weights and outputs of corresponding heads, by stack; empty if not compared.

    Attributes:
        weights: by label, change of the product of two weight matrices relative to its norm; NaN if
            the matrices were not found. *Shape:* ``(layer, head)``.
        outputs: sums over the tokens of each sentence. *Shape:* ``(sentence, layer, head, 1)``.
        missing: numbers that could not be compared, with reasons, in words.
        floor: drift of the first model from itself in bfloat16; None if it is not known.
    """

    weights: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)
    outputs: Mapping[str, ClusterSums] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    floor: "ModelDrift | None" = None

    def of(self, stack: str) -> Iterator[HeadDifferences]:
        """Yield the numbers of a stack, then their rounding floors."""
        yield from self._numbers(stack)
        if self.floor is not None:
            for each in self.floor.of(stack):
                (column,) = each.columns
                yield each.named((column._replace(label=rounded(column.label)),))

    def _numbers(self, stack: str) -> Iterator[HeadDifferences]:
        for label, values in self.weights.get(stack, {}).items():
            nothing = np.full((*values.shape, 1), np.nan)
            column = ComparedColumn(WEIGHT_DRIFT, "", label)
            sentences = np.zeros(nothing.shape, np.int64)
            numbers = (nothing, nothing, values[..., None], nothing, nothing, nothing)
            yield HeadDifferences((column,), *numbers, sentences)
        if stack in self.outputs:
            n, d = (np.asarray(part, np.float64) for part in self.outputs[stack])
            ratios = RatioSums.of(n, d, d, np.zeros(len(n), np.int64))
            found = Estimates.of(ratios, (0.0, 2.0))
            nothing = np.full(found.value.shape, np.nan)
            numbers = (nothing, nothing, found.value, found.low, found.high, nothing)
            column = ComparedColumn(OUTPUT_DRIFT, "", "")
            yield HeadDifferences((column,), *numbers, found.sentences)
