"""Divergence of attention, weights and outputs between corresponding heads, with floor and ceiling.

The divergence is computed on sentences whose maps both studies store and which both models read as
the same tokens: not on targets that each model generated itself. *Floor:* the divergence of the
first model from itself in bfloat16, if such a study is given: the effect of rounding alone.
*Ceiling:* the divergence of each head of the first model from the next head of its layer in the
second: the difference of heads that do not correspond.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan, log

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import Estimates, RatioSums
from headbook.analysis.arrays import Floats, divide
from headbook.analysis.attention_divergence import DivergenceSums, attention_divergence
from headbook.analysis.paired import ClusterSums
from headbook.comparison.differences import ComparedColumn, HeadDifferences, LayerDifferences
from headbook.comparison.matching import token_rows
from headbook.comparison.study_pair import StackPair, StudyPair, same_ids
from headbook.results.formats import MISSING, THIN
from headbook.schema import SinkView
from headbook.study.sentence_data import MappedSentence

PATTERN_DRIFT = "pattern_drift"
CEILING_LABEL = "heads shuffled"  # label of divergences from another head of the layer
FLOOR_LABEL = "bfloat16"  # label of divergences by rounding alone
DIVERGENCE_LIMITS = (0.0, log(2))  # bounds of the Jensen-Shannon divergence, in nats
LEAST_PRINTED = 1e-4  # nats; a smaller divergence is printed as below it


def divergence_text(value: float) -> str:
    """Return a divergence in nats as text: two decimals, or two significant digits below 0.1."""
    if isnan(value):
        return MISSING
    if value == 0:
        return "0"
    if value < LEAST_PRINTED:
        return f"<{THIN}{LEAST_PRINTED:.4f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def nats_interval(low: float, high: float) -> str:
    """Return the interval of a divergence as text; empty without an interval."""
    if isnan(low) or isnan(high):
        return ""
    return f"[{divergence_text(low)}, {divergence_text(high)}]"


def head_drifts(sides: StudyPair, pair: StackPair) -> Iterator[HeadDifferences]:
    """Yield the divergence of corresponding heads in all views, and the ceiling."""
    sides_read = {pair.a.queries, pair.a.keys}
    sentences = [(a, b) for a, b in sides.mapped() if same_ids(a, b, sides_read)]
    if not sentences:
        return
    for label, shift in (("", 0), (CEILING_LABEL, 1)):
        if shift and pair.a.n_heads == 1:
            continue
        for view in SinkView:
            sums = [_divergence_sums(a, b, pair, view, shift) for a, b in sentences]
            yield _mean_over_queries(ComparedColumn(PATTERN_DRIFT, str(view), label), sums, pair)


def rounding_drift(sides: StudyPair, pair: StackPair) -> Iterator[HeadDifferences]:
    """Yield the divergence of the first model from itself with rounded weights.

    Args:
        sides: the first model with exact and with rounded weights.
    """
    for drift in head_drifts(sides, pair):
        (column,) = drift.columns
        if not column.label:
            yield drift.named((column._replace(label=FLOOR_LABEL),))


def _divergence_sums(
    a: MappedSentence, b: MappedSentence, pair: StackPair, view: SinkView, shift: int
) -> DivergenceSums:
    """Return the divergence sums of one sentence.

    Args:
        shift: number of heads by which the second model's heads are shifted in their layer.
    """
    rows_a, rows_b = token_rows(a, pair.a, view), token_rows(b, pair.b, view)
    if shift:
        head_indices = np.arange(len(rows_b.weights)).reshape(-1, pair.b.n_heads)
        order = np.roll(head_indices, -shift, 1).reshape(-1)
        rows_b = type(rows_b)(rows_b.weights[order], rows_b.counted[order])
    return attention_divergence(rows_a, rows_b)


def _mean_over_queries(
    column: ComparedColumn, sums: list[DivergenceSums], pair: StackPair
) -> HeadDifferences:
    """Return means over queries, with intervals clustered by sentence."""
    shape = (len(sums), pair.a.n_layers, pair.a.n_heads, 1)
    n, d = (np.stack(parts).reshape(shape) for parts in zip(*sums, strict=True))
    has_attention = np.zeros((pair.a.n_layers, 1, 1), bool)
    has_attention[[*pair.a.attention_layers]] = True
    d = np.where(has_attention, d, 0)
    estimates = Estimates.of(RatioSums.of(n, d, d, np.zeros(len(n), np.int64)), DIVERGENCE_LIMITS)
    unknown: Floats = np.full(shape[1:], np.nan)
    values = estimates.value, estimates.low, estimates.high
    return HeadDifferences(
        (column,), unknown, unknown, *values, unknown, unknown, estimates.sentences
    )


MAX_EQUAL_DRIFT = 1e-12  # nats; equal rows differ by no more, because of rounding
CHANGED_SHARE = 0.5  # a layer counts as changed from this share of the largest median on
QUARTILES = (25, 50, 75)  # percentiles


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
        return bool((self.value[self.there] <= MAX_EQUAL_DRIFT).all())

    @property
    def above(self) -> NDArray[np.bool_] | None:
        """Mask of heads whose interval lies above the floor's; None without a floor."""
        if self.floor is None or self.floor_high is None:
            return None
        with np.errstate(invalid="ignore"):
            mask: NDArray[np.bool_] = self.low > np.fmax(self.floor_high, self.floor)
        return mask

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
        largest = float(np.nanmax(medians))
        layers = [
            layer
            for layer in np.argsort(-medians, kind="stable")
            if medians[layer] >= CHANGED_SHARE * largest
        ]
        return () if len(layers) == int((~np.isnan(medians)).sum()) else tuple(map(int, layers))


def by_layer(values: Floats) -> Floats:
    """Return quartiles of the heads of each layer.

    *Shape:* ``(layer, head)`` to ``(3, layer)``.
    """
    quartiles = np.full((len(QUARTILES), len(values)), np.nan)
    for layer, row in enumerate(values):
        if not np.isnan(row).all():
            quartiles[:, layer] = np.nanpercentile(row, QUARTILES)
    return quartiles


def drift_summary(
    differences: HeadDifferences, view: SinkView = SinkView.RAW
) -> DriftSummary | None:
    """Return the divergence of a stack; None if no attention was compared."""
    indices = [
        differences.column(PATTERN_DRIFT, str(view), label)
        for label in ("", FLOOR_LABEL, CEILING_LABEL)
    ]
    column, floor, ceiling = indices
    if column is None or np.isnan(differences.value[..., column]).all():
        return None
    return DriftSummary(
        differences.value[..., column],
        differences.low[..., column],
        differences.high[..., column],
        None if floor is None else differences.value[..., floor],
        None if floor is None else differences.high[..., floor],
        None if ceiling is None else differences.value[..., ceiling],
    )


def with_equal_heads(value: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of divergences; the divergence itself for equal heads.

    In a head that attends exactly alike in both models nothing varies, so that its interval says
    how few sentences there are and nothing of the head.
    """
    with np.errstate(invalid="ignore"):
        equal = value <= MAX_EQUAL_DRIFT
    return np.where(equal, value, low), np.where(equal, value, high)


def layer_drift(differences: HeadDifferences) -> LayerDifferences | None:
    """Return the mean divergence over the heads of each layer, all keys, and its rounding floor.

    Each end of an interval is the mean of the ends of the heads' intervals, which is wide enough
    however heads vary together.

    Returns:
        None if no attention was compared.
    """
    labels = ("", FLOOR_LABEL)
    found = [differences.column(PATTERN_DRIFT, str(SinkView.RAW), label) for label in labels]
    indices = [index for index in found if index is not None]
    if found[0] is None:
        return None
    value, low, high = (
        part[..., indices] for part in (differences.value, differences.low, differences.high)
    )
    low, high = (bounds.mean(1) for bounds in with_equal_heads(value, low, high))
    value = value.mean(1)
    unknown: Floats = np.full(value.shape, np.nan)
    columns = tuple(differences.columns[index] for index in indices)
    sentences = differences.sentences[..., indices].min(1)
    return LayerDifferences(
        columns, unknown, unknown, value, low, high, unknown, unknown, sentences
    )


WEIGHT_DRIFT, OUTPUT_DRIFT = "weight_drift", "output_drift"
QUERY_KEY, VALUE_OUTPUT = "query_key", "value_output"


def rounded(label: str) -> str:
    """Return the label of a number's rounding floor."""
    return f"{label} {FLOOR_LABEL}".strip()


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
        yield from self._own_differences(stack)
        if self.floor is not None:
            for drift in self.floor.of(stack):
                (column,) = drift.columns
                yield drift.named((column._replace(label=rounded(column.label)),))

    def _own_differences(self, stack: str) -> Iterator[HeadDifferences]:
        """Yield the drift of weights by label, then the drift of outputs, without floors."""
        for label, values in self.weights.get(stack, {}).items():
            unknown = np.full((*values.shape, 1), np.nan)
            column = ComparedColumn(WEIGHT_DRIFT, "", label)
            sentences = np.zeros(unknown.shape, np.int64)
            drift = values[..., None]
            numbers = (unknown, unknown, drift, unknown, unknown, unknown, unknown)
            yield HeadDifferences((column,), *numbers, sentences)
        if stack in self.outputs:
            n, d = (np.asarray(part, np.float64) for part in self.outputs[stack])
            ratios = RatioSums.of(n, d, d, np.zeros(len(n), np.int64))
            estimates = Estimates.of(ratios, (0.0, 2.0))
            unknown = np.full(estimates.value.shape, np.nan)
            ends = estimates.low, estimates.high
            numbers = (unknown, unknown, estimates.value, *ends, unknown, unknown)
            column = ComparedColumn(OUTPUT_DRIFT, "", "")
            yield HeadDifferences((column,), *numbers, estimates.sentences)
