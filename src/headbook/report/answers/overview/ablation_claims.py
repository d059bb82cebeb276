"""Claims of the overview on heads that were replaced together: a layer, and the sink heads."""

from collections.abc import Iterator

from headbook.report.ablation import SINK, TARGET_NAMES, main_target
from headbook.report.answers.overview.claim_parts import (
    OF_STACK,
    OverviewClaim,
    effect_parts,
    effect_text,
    estimate_parts,
    group_number,
    heads_at,
    sentences_text,
)
from headbook.report.answers.overview.numbers import LayerEffect, decisive_layer, sink_heads
from headbook.report.findings.finding import Link
from headbook.report.linked_rows import claim_number
from headbook.report.results import StackResults
from headbook.report.wording import capital, number_word
from headbook.schema import AblationTarget, Replacement
from headbook.study.ablation_tests import COSINE_TARGETS

LAYER_RATIO = "overview: layer"  # claim in the table of tests
MOVES = {  # target: what changes, and how a ratio of changes is read
    AblationTarget.EMBEDDING: ("the sentence vector moves", "far"),
    AblationTarget.STATE: ("the last states move", "far"),
    AblationTarget.KL: ("its predictions change", "much"),
    AblationTarget.LOSS: ("the loss rises", "much"),
    AblationTarget.MASKED_LOSS: ("the loss rises", "much"),
}


def ratio_key(found: LayerEffect, target: str) -> tuple[str, str, str]:
    """Return metric, view and label of the ratio of the effects of two layers."""
    return (target, str(Replacement.MEAN), f"layer {found.layer} / layer {found.next}")


def layer_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on the layer without which the output changes most."""
    found, ablation = decisive_layer(results), results.study.corpus_sums.ablation
    if found is None or ablation is None:
        return
    stack, target = results.stack.name, AblationTarget(main_target(ablation))
    moves, measure = MOVES[target]
    ratio = claim_number(
        f"{found.ratio.value:.1f}", LAYER_RATIO, stack, ratio_key(found, target), layer=found.layer
    )
    is_last = found.layer == results.stack.attention_layers[-1]
    direct = " The last layer writes straight into them." if target in COSINE_TARGETS else ""
    digits = 0 if found.ratio.value >= 2 else 1
    yield OverviewClaim(
        "layer",
        stack,
        (
            f"Without layer {found.layer}{OF_STACK[stack]}, {moves} ",
            ratio._replace(text=f"{found.ratio.value:.{digits}f} times"),
            f" as {measure} as without any other layer.",
        ),
        heads_at(results, [(found.layer, head) for head in range(results.stack.n_heads)]),
        (
            f"{capital(TARGET_NAMES[target])}: ",
            *effect_parts(stack, f"layer {found.layer}", target, found.effect),
            f" for all heads of layer {found.layer}, ",
            *effect_parts(stack, f"layer {found.next}", target, found.next_effect),
            f" for those of layer {found.next}, the next; ratio ",
            *estimate_parts(ratio, found.ratio, share=False),
            f". Each head is replaced by its mean output.{direct if is_last else ''}"
            f"{sentences_text(found.effect)} ",
            Link("All layers", "importance.html"),
        ),
    )


def sink_heads_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on the sink heads together, against random sets of heads."""
    found, ablation = sink_heads(results), results.study.corpus_sums.ablation
    if found is None or ablation is None:
        return
    stack, target = results.stack.name, main_target(ablation)
    compared, rank = ("less", found.sets + 2 - found.rank) if found.is_less else (
        "more", found.rank
    )  # fmt: skip
    yield OverviewClaim(
        "sink heads",
        stack,
        (
            f"Without the {number_word(len(found.heads))} sink heads{OF_STACK[stack]}, "
            f"{MOVES[AblationTarget(target)][0]} {compared} than without random heads: ",
            group_number(effect_text(found.effect.value), stack, SINK, target),
            ".",
        ),
        heads_at(results, found.heads),
        (
            *effect_parts(stack, SINK, target, found.effect),
            " without them; ",
            group_number(effect_text(found.low), stack, SINK, target),
            " to ",
            group_number(effect_text(found.high), stack, SINK, target),
            f" without {found.sets:,} random sets with as many heads in each layer: number {rank} "
            f"of {found.sets + 1:,}, counted from the {'least' if found.is_less else 'largest'} "
            f"change.{sentences_text(found.effect)} ",
            Link("All groups", "importance.html#groups"),
        ),
    )
