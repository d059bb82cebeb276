"""Divergence of attention, weights and outputs of corresponding heads.

Beside rounding and unrelated heads.

Taken on the sentences whose maps both studies keep and which both read as the same tokens: not on
targets that each model wrote for itself. *Floor:* the same of the first model and itself
in bfloat16, where such a study is given: what rounding alone does. *Ceiling:* the same of each head
of the first model and another head of its layer in the second, the next one: what heads that do
not correspond differ by.
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
SHUFFLED = "heads shuffled"  # labels of the same number for what it is compared with
ROUNDED = "bfloat16"
LIMITS = (0.0, log(2))


def head_drifts(sides: StudyPair, pair: StackPair) -> Iterator[HeadDifferences]:
    """Divergence of corresponding heads in all views, and the ceiling, for models of one shape."""
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
    """The same of the first model and itself with rounded weights.

    Args:
        sides: the two, as if they were different models.
    """
    for each in head_drifts(sides, pair):
        (column,) = each.columns
        if not column.label:
            yield each.named((column._replace(label=ROUNDED),))


def _drift(
    one: MappedSentence, other: MappedSentence, pair: StackPair, view: SinkView, shift: int
) -> DivergenceSums:
    """Of one sentence; of heads that do not correspond, where they are shifted."""
    mine, theirs = token_rows(one, pair.a, view), token_rows(other, pair.b, view)
    if shift:
        numbers = np.arange(len(theirs.weights)).reshape(-1, pair.b.n_heads)
        order = np.roll(numbers, -shift, 1).reshape(-1)
        theirs = type(theirs)(theirs.weights[order], theirs.counted[order])
    return attention_divergence(mine, theirs)


def _numbers(
    column: ComparedColumn, found: list[DivergenceSums], pair: StackPair
) -> HeadDifferences:
    """Means over queries with intervals clustered by sentence, of heads that there are."""
    shape = (len(found), pair.a.n_layers, pair.a.n_heads, 1)
    n, d = (np.stack(parts).reshape(shape) for parts in zip(*found, strict=True))
    there = np.zeros((pair.a.n_layers, 1, 1), bool)
    there[[*pair.a.attention_layers]] = True
    d = np.where(there, d, 0)
    numbers = Estimates.of(RatioSums.of(n, d, d, np.zeros(len(n), np.int64)), LIMITS)
    nothing: Floats = np.full(shape[1:], np.nan)
    values = numbers.value, numbers.low, numbers.high
    return HeadDifferences((column,), nothing, nothing, *values, nothing, numbers.sentences)


EQUAL = 1e-12  # nats: what is left of equal rows is rounding
CHANGED = 0.5  # part of the largest median of a layer from which on a layer is among the changed
QUARTILES = (25, 50, 75)


@dataclass(frozen=True, eq=False)
class DriftSummary:
    """Divergence of the heads of one stack, with all keys. *Shape* of all: ``(layer, head)``.

    Attributes:
        value, low, high: how far each head is from the one of its number, in nats, with its 95 %
            interval; NaN where there is no head.
        floor: of the first model and itself in bfloat16; None where that was not measured.
        floor_high: upper ends of its intervals.
        ceiling: of each head and another one of its layer; None in layers of one head.
    """

    value: Floats
    low: Floats
    high: Floats
    floor: Floats | None
    floor_high: Floats | None
    ceiling: Floats | None

    @property
    def there(self) -> NDArray[np.bool_]:
        """Which heads have a number."""
        return ~np.isnan(self.value)

    @property
    def equal(self) -> bool:
        """Whether all heads attend exactly alike."""
        return bool((self.value[self.there] <= EQUAL).all())

    @property
    def above(self) -> NDArray[np.bool_] | None:
        """Heads whose interval lies above that of rounding; None where rounding is not known."""
        if self.floor is None or self.floor_high is None:
            return None
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = self.low > np.fmax(self.floor_high, self.floor)
        return found

    @property
    def part(self) -> Floats | None:
        """How much of the way from rounding, or 0, to other heads each head has gone.

        The way is that of the median head, since a single other head may be a near copy.
        """
        if self.ceiling is None:
            return None
        floor = 0.0 if self.floor is None else float(np.nanmedian(self.floor))
        way = float(np.nanmedian(self.ceiling)) - floor
        return divide(self.value - floor, np.full(self.value.shape, max(way, 0.0)))

    def layers(self) -> Floats:
        """Quartiles of the heads of each layer; NaN without attention. *Shape:* ``(3, layer)``."""
        return by_layer(self.value)

    def changed(self) -> tuple[int, ...]:
        """Layers that changed most, the most first: none where all are alike or equal."""
        medians = self.layers()[1]
        if self.equal or np.isnan(medians).all():
            return ()
        most = float(np.nanmax(medians))
        found = [x for x in np.argsort(-medians, kind="stable") if medians[x] >= CHANGED * most]
        return () if len(found) == int((~np.isnan(medians)).sum()) else tuple(map(int, found))


def by_layer(values: Floats) -> Floats:
    """Quartiles of the heads of each layer. *Shape:* ``(layer, head)`` to ``(3, layer)``."""
    found = np.full((len(QUARTILES), len(values)), np.nan)
    for layer, row in enumerate(values):
        if not np.isnan(row).all():
            found[:, layer] = np.nanpercentile(row, QUARTILES)
    return found


def drift_summary(found: HeadDifferences, view: SinkView = SinkView.RAW) -> DriftSummary | None:
    """What is known of a stack; None where no attention was compared."""
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
    """The label of the same number for what rounding alone does."""
    return f"{label} {ROUNDED}".strip()


@dataclass(frozen=True, eq=False)
class ModelDrift:
    """Numbers of corresponding heads, by stack; empty where nobody asked for them.

    Attributes:
        weights: by label, change of the product of two weight matrices as part of its length; NaN
            where they were not found. *Shape:* ``(layer, head)``.
        outputs: sums over the tokens of each sentence. *Shape:* ``(sentence, layer, head, 1)``.
        missing: what could not be compared, and why, in words.
        floor: the same of the first model and itself in bfloat16; None where that is not known.
    """

    weights: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)
    outputs: Mapping[str, ClusterSums] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    floor: "ModelDrift | None" = None

    def of(self, stack: str) -> Iterator[HeadDifferences]:
        """The numbers of a stack, and those of rounding."""
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
