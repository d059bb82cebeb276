"""What two loaded models say of each other beyond their studies: weights, and outputs of heads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from headbook.analysis.accumulators import Ratios
from headbook.analysis.arithmetic import Floats
from headbook.analysis.paired import ClusterSums
from headbook.comparison.drift import ROUNDED
from headbook.comparison.headdifferences import HeadDifferences
from headbook.comparison.modeldifferences import ComparedColumn
from headbook.report.numbers.results import Estimates

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
            ratios = Ratios.of(n, d, d, np.zeros(len(n), np.int64))
            found = Estimates.of(ratios, (0.0, 2.0))
            nothing = np.full(found.value.shape, np.nan)
            numbers = (nothing, nothing, found.value, found.low, found.high, nothing)
            column = ComparedColumn(OUTPUT_DRIFT, "", "")
            yield HeadDifferences((column,), *numbers, found.sentences)
