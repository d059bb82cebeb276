"""Losses of the model without each head and each layer, for the bars of the overview."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headbook.report.ablation import change_unit, head_changes, main_target, unit_factor
from headbook.report.answers.overview.claim_parts import group_change
from headbook.report.answers.overview.numbers import estimate_of, layer_rows
from headbook.report.results import StackResults
from headbook.results.number import Number, RowAddress, Unit
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation.effect_tests import ATTRIBUTION
from headbook.study.ablation.results import HeadSetKind
from headbook.study.ablation_tables import EFFECT, EXACT
from headbook.study.study import Study

STEPS = 20  # lengths of bars
WITHOUT_HEAD = {  # target: what a bar shows
    AblationTarget.EMBEDDING: "how much the sentence vector changes without the head (1 − cosine)",
    AblationTarget.STATE: "how much the last states change without the head (1 − cosine)",
    AblationTarget.KL: "how much predictions change without the head (KL divergence)",
    AblationTarget.LOSS: "how much the loss of the next token rises without the head",
    AblationTarget.MASKED_LOSS: "how much the loss of masked tokens rises without it",
}
LOST = {  # target: what changes without a head, in labels
    AblationTarget.EMBEDDING: "the sentence vector changes by",
    AblationTarget.STATE: "the last states change by",
    AblationTarget.KL: "predictions change by",
    AblationTarget.LOSS: "the loss rises by",
    AblationTarget.MASKED_LOSS: "the loss rises by",
}


class HeadLoss(NamedTuple):
    """The loss of the model without one head.

    Attributes:
        value: change of the main target, in its unit; NaN if not known.
        exact: whether the head was replaced, or the change is estimated from slopes.
    """

    value: float
    exact: bool


class HeadLosses(NamedTuple):
    """The losses of the model without each head.

    Attributes:
        target: the main target.
        unit: unit of changes on pages.
        heads: loss without each head.
        largest: head of the largest loss.
    """

    target: AblationTarget
    unit: Unit
    heads: Mapping[HeadName, HeadLoss]
    largest: HeadName

    def step(self, head: HeadName) -> int:
        """Return the length of a head's bar in `STEPS`, by the square root; 0 for none."""
        return bar_step(self.heads[head].value, self.heads[self.largest].value)

    @property
    def most(self) -> Number:
        """The largest loss of a head."""
        value, exact = self.heads[self.largest]
        row = (
            *self.largest._asdict().items(),
            ("metric", EFFECT if exact else ATTRIBUTION),
            ("replacement", str(Replacement.MEAN)),
            ("target", str(self.target)),
        )
        return Number(value, self.unit, RowAddress("importance", row))


def bar_step(value: float, most: float) -> int:
    """Return the length of a bar in `STEPS`, by the square root; 0 for no loss."""
    if not (value > 0 and most > 0):
        return 0
    return max(1, round(STEPS * math.sqrt(min(value / most, 1))))


def layer_step(value: float, most: float) -> int:
    """Return the length of a layer's bar in `STEPS`, proportional to the loss; 0 for no loss."""
    if not (value > 0 and most > 0):
        return 0
    return max(1, round(STEPS * min(value / most, 1)))


def head_losses(study: Study) -> HeadLosses | None:
    """Return what the model loses without each head; None if it was not measured."""
    ablation = study.corpus_sums.ablation
    if ablation is None:
        return None
    rows, factor = head_changes(ablation), unit_factor(ablation)
    heads = {
        HeadName(row["stack"], int(row["layer"]), int(row["head"])): HeadLoss(
            row["value"] / factor, row["method"] == EXACT
        )
        for row in rows.to_dict("records")
    }
    known = [head for head, loss in heads.items() if not math.isnan(loss.value)]
    if not known:
        return None
    largest = max(known, key=lambda head: heads[head].value)
    return HeadLosses(AblationTarget(main_target(ablation)), change_unit(ablation), heads, largest)


class LayerLoss(NamedTuple):
    """The loss of the model without all heads of one layer.

    Attributes:
        effect: change of the main target.
        step: length of the bar in `STEPS`, which is proportional to the effect.
    """

    effect: Number
    step: int


def layer_losses(results: Mapping[str, StackResults]) -> dict[str, dict[int, LayerLoss]]:
    """Return what the model loses without each layer, by stack; empty if not measured.

    The lengths of bars have one scale for all stacks, so that bars show ratios of layers.
    """
    rows = {stack: layer_rows(of_stack) for stack, of_stack in results.items()}
    values = [row["value"] for of_stack in rows.values() for row in of_stack.values()]
    most = max(values, default=0.0)
    return {
        stack: {
            layer: LayerLoss(
                group_change(results[stack], row["group"], estimate_of(row)),
                layer_step(row["value"], most),
            )
            for layer, row in of_stack.items()
        }
        for stack, of_stack in rows.items()
        if of_stack
    }


def largest_layer_loss(layers: Mapping[str, Mapping[int, LayerLoss]]) -> Number | None:
    """Return the largest loss without a layer of any stack; None if not measured."""
    losses = [loss for of_stack in layers.values() for loss in of_stack.values()]
    return max((loss.effect for loss in losses), key=lambda n: n.value, default=None)


def unmeasured_losses(study: Study) -> Iterator[str]:
    """Yield the effects of ablation that were not measured, with the option that measures each."""
    ablation = study.corpus_sums.ablation
    if ablation is None:
        yield "what the model loses without a head (--importance auto adds bars)"
    elif not any(one.kind is HeadSetKind.GROUP for one in ablation.sets):
        yield "what it loses without a whole layer (--importance auto measures that, too)"
