"""The layer without which the output changes most, for overview and importance."""

from headbook.analysis.accumulators import Estimate
from headbook.report.ablation import LAYER, LayerRatio
from headbook.results.fact import Tested
from headbook.results.number import Unit
from headbook.results.sentence import Sentence, say
from headbook.schema import LAYER_RATIO, AblationTarget, Replacement
from headbook.study.ablation.results import AblationResults
from headbook.study.ablation_tables import GROUP

CHANGES = {  # target: what changes; the evidence names the measure
    AblationTarget.EMBEDDING: "the sentence vector changes",
    AblationTarget.STATE: "the last states change",
    AblationTarget.KL: "predictions change",
    AblationTarget.LOSS: "the loss rises",
    AblationTarget.MASKED_LOSS: "the loss rises",
}
WRITTEN = {AblationTarget.EMBEDDING, AblationTarget.STATE}  # targets the last layer writes into
BY_CONSTRUCTION = "; partly by construction: the last layer writes straight into the output"
TIMES = Unit(" times", lambda ratio: f"{ratio:,.{0 if round(ratio, 1) >= 10 else 1}f}")


def ratio_test(ablation: AblationResults, stack: str, ratio: LayerRatio, target: str) -> Tested:
    """Return the row of the ratio of the two largest effects of whole layers of a stack."""
    value = Estimate(
        ratio.value, ratio.low, ratio.high, len(ablation.content_hash),
        float(ablation.counts[target].sum()),
    )  # fmt: skip
    return Tested(
        LAYER_RATIO, stack, f"{GROUP}_ratio", "",
        f"{LAYER}{ratio.first}/{Replacement.MEAN}/{target}", value, ratio.first,
        baseline=f"{LAYER}{ratio.second}", baseline_value=1.0, subtracted=False,
    )  # fmt: skip


def layer_sentence(tested: Tested, ratio: LayerRatio, where: str, *, is_last: bool) -> Sentence:
    """Return how many times as much the output changes without a layer as without the second one.

    If the last layer writes straight into what is compared, the sentence says that the ratio is
    partly by construction.

    Args:
        tested: row of the ratio.
        ratio: the layer, and the ratio of its effect to the second largest.
        where: the stack in words, after the number of the layer; empty for models with one.
        is_last: whether the layer is the last one, which writes straight into states.
    """
    target = AblationTarget(tested.label.rpartition("/")[2])
    return say(
        "Without layer {first}{where}, {changes} {times} as much as without layer {second} (second "
        "largest){note}.",
        first=ratio.first, where=where, changes=CHANGES.get(target, "the loss changes"),
        times=tested.number(TIMES), second=ratio.second,
        note=BY_CONSTRUCTION if is_last and target in WRITTEN else "",
    )  # fmt: skip
