"""The sentence on the layer without which the output changes most, for overview and importance."""

from headbook.report.ablation import LayerRatio, layer_ratio_number
from headbook.report.findings.finding import Parts
from headbook.schema import AblationTarget

CHANGES = {  # target: what changes; the evidence names the measure
    AblationTarget.EMBEDDING: "the sentence vector changes",
    AblationTarget.STATE: "the last states change",
    AblationTarget.KL: "predictions change",
    AblationTarget.LOSS: "the loss rises",
    AblationTarget.MASKED_LOSS: "the loss rises",
}
WRITTEN = {AblationTarget.EMBEDDING, AblationTarget.STATE}  # targets the last layer writes into
BY_CONSTRUCTION = "; partly by construction: the last layer writes straight into the output"


def layer_sentence(
    ratio: LayerRatio, stack: str, where: str, target: str, *, is_last: bool
) -> Parts:
    """Return how many times as much the output changes without a layer as without the second one.

    If the last layer writes straight into what is compared, the sentence says that the ratio is
    partly by construction.

    Args:
        ratio: the layer, and the ratio of its effect to the second largest.
        stack: stack of the layer.
        where: the stack in words, after the number of the layer; empty for models with one.
        target: target of the effects.
        is_last: whether the layer is the last one, which writes straight into states.
    """
    known = AblationTarget(target)
    return (
        f"Without layer {ratio.first}{where}, {CHANGES.get(known, 'the loss changes')} ",
        layer_ratio_number(ratio, stack, target),
        f" as much as without layer {ratio.second} (second largest)"
        f"{BY_CONSTRUCTION if is_last and known in WRITTEN else ''}.",
    )
