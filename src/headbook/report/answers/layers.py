"""The sentence on the layer without which the output changes most, for overview and importance."""

from headbook.report.ablation import LayerRatio, layer_ratio_number
from headbook.report.findings.finding import Parts
from headbook.schema import AblationTarget

CHANGES = {  # target: what changes; the evidence names the measure
    AblationTarget.EMBEDDING: "the sentence vector changes",
    AblationTarget.STATE: "the last states change",
    AblationTarget.KL: "the predictions change",
    AblationTarget.LOSS: "the loss rises",
    AblationTarget.MASKED_LOSS: "the loss rises",
}
WRITTEN = {  # targets that the last layer writes into
    AblationTarget.EMBEDDING: "the sentence vector",
    AblationTarget.STATE: "the last states",
}


def layer_sentence(
    ratio: LayerRatio, stack: str, where: str, target: str, *, is_last: bool
) -> Parts:
    """Return how many times as much the output changes without a layer as without any other.

    Args:
        ratio: the layer, and the ratio of its effect to that of the next one.
        stack: stack of the layer.
        where: the stack in words, after the number of the layer; empty for models with one.
        target: target of the effects.
        is_last: whether the layer is the last one, which writes straight into states.
    """
    known = AblationTarget(target)
    last = ", the last" if is_last and not where and known in WRITTEN else ""
    return (
        f"Without layer {ratio.first}{where}{last}, {CHANGES.get(known, 'the loss changes')} ",
        layer_ratio_number(ratio, stack, target),
        " as much as without any other layer.",
    )


def by_construction(target: str, where: str, *, is_last: bool) -> str:
    """Return that a large effect of the last layer is partly by construction; else empty.

    Args:
        target: target of the effects.
        where: the stack in words; empty for models with one.
        is_last: whether the layer is the last one.
    """
    if not is_last or where or target not in WRITTEN:
        return ""
    written = WRITTEN[AblationTarget(target)]
    return (f" No later layer can make up for the last one, which writes {written} directly: its "
            "effect is partly by construction.")  # fmt: skip
