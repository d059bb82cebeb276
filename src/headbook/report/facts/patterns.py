"""Facts about the diagonal, about outputs that are alike, and about sentences of a passage."""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.metrics import ids
from headbook.report.facts.fact import Fact
from headbook.report.facts.sinks import SINK_OUTPUT, largest_share, sink_heads
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import count_text
from headbook.results.sentence import NOTHING, Sentence, say
from headbook.schema import HeadKey, Place, SinkView
from headbook.study.manifest import MissingPart

SELF = HeadKey(ids.OFFSET_PROFILE, SinkView.RAW, "0")
OUTPUTS = HeadKey(ids.CONTEXT_SIMILARITY, SinkView.RAW, "all")
ROWS = HeadKey(ids.ROW_SIMILARITY, SinkView.RAW, "all")
ODDS = HeadKey(ids.SAME_SENTENCE_PREFERENCE, SinkView.RAW, "top 1 %")
MOSTLY = 0.5  # share of attention from which on a head attends mostly to one key
SPLITS = (SELECTION, HELD_OUT)
MAX_DIFFERENT_HEADS = 8  # heads that the page lists


def diagonal(results: StackResults) -> Fact:
    """Return whether any head lets a token attend mostly to itself; no text if not measured."""
    if not results.has_value(*SELF):
        return Fact("diagonal", holds=False)
    values = results.heads(*SELF).value
    n_mostly, n_known = int((values >= MOSTLY).sum()), int(np.isfinite(values).sum())
    text = "{n} of {heads} {let} a token attend mostly to itself; the largest share is {share}."
    if not n_mostly:
        text = "No head lets a token attend mostly to itself: the largest share is {share}."
    sentence = say(
        text,
        n=n_mostly, heads=count_text(n_known, "head"), let="lets" if n_mostly == 1 else "let",
        share=largest_share(results, SELF),
    )  # fmt: skip
    return Fact("diagonal", sentence, holds=bool(n_mostly))


def alike(results: StackResults) -> Fact:
    """Return whether a head's outputs for two tokens are more alike in the last layer."""
    if not results.has_value(*OUTPUTS):
        return Fact("alike", holds=False)
    numbers = [results.number(OUTPUTS, layer) for layer in results.stack.attention_layers]
    known = [n for n in numbers if n.known]
    first, last = known[0], known[-1]
    if first is last:
        start = "Only one layer was measured"
    elif first.high < last.low:
        start = "More so in the last layer than in the first"
    elif last.high < first.low:
        start = "Less so in the last layer than in the first"
    else:
        start = "No more in the last layer than in the first"
    text = say(
        "{start}: in layer {layer}, outputs of a head for two tokens of a sentence have a mean "
        "cosine of {cosine}.",
        start=start, layer=last.place("layer"), cosine=last,
    )  # fmt: skip
    return Fact("alike", text, holds=first.high < last.low)


def sink_masked_note(results: StackResults) -> Sentence:
    """Return the similarity of outputs with the sink masked, in the last layer; or nothing."""
    key = OUTPUTS._replace(view=SinkView.NOSINK)
    if not results.has_value(*key):
        return NOTHING
    numbers = [results.number(key, layer) for layer in results.stack.attention_layers]
    last = [n for n in numbers if n.known][-1]
    return say(
        "With {tokens} masked, the mean cosine of outputs in layer {layer} is {cosine}.",
        tokens=sink_tokens(results), layer=last.place("layer"), cosine=last,
    )  # fmt: skip


def own_sentence(results: StackResults) -> Fact:
    """Return in how many layers similar tokens are of one sentence more often.

    Pairs of tokens at the same distance are compared. The odds ratio, which has no interval, is
    above 1 on both halves of the passages.
    """
    if not results.has_value(*ODDS):
        return Fact("own_sentence", holds=False)
    with np.errstate(invalid="ignore"):
        above = [results.split(half, *ODDS, of="layers").value > 1 for half in SPLITS]
    n_above = int(np.logical_and(*above).sum())
    layers = count_text(int(np.isfinite(results.layers(*ODDS).value).sum()), "layer")
    start = f"Yes, in {n_above:,} of {layers} on both halves of the passages"
    if not n_above:
        start = f"Not clearly in any of {layers}"
    text = say(
        "{start}: tokens with nearly the same output share a sentence more often than other pairs "
        "at equal distance.",
        start=start,
    )
    return Fact("own_sentence", text, holds=bool(n_above))


def different_outputs(results: StackResults) -> list[Place]:
    """Return heads whose outputs are less alike than their rows, the largest difference first.

    Their intervals do not overlap.
    """
    if not (results.has_value(*ROWS) and results.has_value(*OUTPUTS)):
        return []
    rows, outputs = results.heads(*ROWS), results.heads(*OUTPUTS)
    places = [(int(layer), int(head)) for layer, head in np.argwhere(rows.low > outputs.high)]
    ranked = sorted(places, key=lambda place: outputs.value[place] - rows.value[place])
    return ranked[:MAX_DIFFERENT_HEADS]


def not_measured(results: StackResults) -> Iterator[str]:
    """Yield a sentence on each question that the study leaves open, with the option for it."""
    manifest = results.study.manifest
    if not results.has_value(*SINK_OUTPUT):
        part = f"What {sink_tokens(results)} contribute to outputs"
        yield f"{part}: --metrics {SINK_OUTPUT.metric} measures it if values can be read."
    if results.study.corpus_sums.ablation is None and sink_heads(results):
        yield "Whether sink heads are dead: --importance auto measures it."
    for key, question in ((SELF, "Why not the diagonal"), (OUTPUTS, "Whether words receive the "
                          "same")):  # fmt: skip
        if not results.has_value(*key) and not any(
            gap.key in {key.metric, MissingPart.OUTPUTS} and gap.stack == results.stack.name
            for gap in manifest.gaps
        ):
            yield f"{question}: --metrics {key.metric} measures it."
    for gap in manifest.gaps:
        if gap.stack == results.stack.name and gap.key in {
            MissingPart.OUTPUTS, MissingPart.PASSAGES, SELF.metric
        }:  # fmt: skip
            yield f"{gap.what}: {gap.why}."
