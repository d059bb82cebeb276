"""Parts of the claims of the overview: a claim, its numbers with rows, and its words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headbook.analysis.accumulators import Estimate
from headbook.report.ablation import change_unit, main_target
from headbook.report.results import StackResults
from headbook.report.wording import count_text
from headbook.results.formats import head_page
from headbook.results.number import Number, RowAddress
from headbook.results.sentence import Link, Sentence, say
from headbook.schema import AttentionStack, HeadName, Place, Replacement, heads_of
from headbook.study.ablation_tables import GROUP

OF_STACK = {
    "self": "",
    "encoder": " of the encoder",
    "decoder": " of the decoder",
    "cross": " of cross-attention",
}


OF_HEADS = {stack: "" if stack == "self" else f"{stack} " for stack in OF_STACK}
OF_HEADS["cross"] = "cross-attention "


@dataclass(frozen=True)
class OverviewClaim:
    """A claim of the overview.

    Attributes:
        kind: name of its rule.
        stack: stack of its heads.
        sentence: the claim, at most 18 words with one number.
        heads: heads that it is about.
        evidence: interval, baseline, sentences and test.
    """

    kind: str
    stack: str
    sentence: Sentence
    heads: frozenset[HeadName]
    evidence: Sentence


def heads_at(results: StackResults, places: Iterable[Place]) -> frozenset[HeadName]:
    """Return the names of heads of a stack."""
    return frozenset(HeadName(results.stack.name, *place) for place in places)


def places_of(stack: AttentionStack) -> list[Place]:
    """Return layer and number of all heads of a stack."""
    return [(head.layer, head.head) for head in heads_of(stack)]


def short_link(head: HeadName) -> Link:
    """Return a link to a head's page, without the stack, which the sentence names."""
    return Link(f"L{head.layer}·H{head.head}", head_page(head))


def layers_text(results: StackResults, layers: Sequence[int]) -> str:
    """Return layers in words, with the stack if the model has several: ``layers 1–5``.

    Args:
        layers: neighbouring layers with attention, in order.
    """
    where = OF_STACK[results.stack.name]
    if len(layers) == 1:
        return f"layer {layers[0]}{where}"
    if tuple(layers) == tuple(results.stack.attention_layers):
        return f"all layers{where}"
    return f"layers {layers[0]}–{layers[-1]}{where}"


def texts_behind(results: StackResults, estimate: Estimate) -> Sentence:
    """Return the number of sentences or passages behind a number, as a sentence of its own."""
    texts = count_text(estimate.sentences, results.study.manifest.text_noun)
    return say("{texts}.", texts=texts)


def group_change(results: StackResults, group: str, change: Estimate) -> Number:
    """Return the change without the heads of a group, replaced by their means, with its row."""
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None, "changes were measured"
    key = (
        ("stack", results.stack.name),
        ("group", group),
        ("metric", GROUP),
        ("replacement", str(Replacement.MEAN)),
        ("target", str(main_target(ablation))),
    )
    return Number.of(change, change_unit(ablation), RowAddress("head_groups", key))
