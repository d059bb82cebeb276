"""Answers about the diagonal, about outputs that are alike, and about sentences of a passage."""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.metrics import ids
from headbook.report.answers.sinks import SINK_OUTPUT, largest_share, sink_heads
from headbook.report.families import sink_tokens
from headbook.report.findings.finding import Parts
from headbook.report.head_types import Place
from headbook.report.linked_rows import layer_row
from headbook.report.results import StackResults
from headbook.report.wording import count_text, number
from headbook.schema import HeadKey, SinkView
from headbook.study.manifest import MissingPart

SELF = HeadKey(ids.OFFSET_PROFILE, SinkView.RAW, "0")
OUTPUTS = HeadKey(ids.CONTEXT_SIMILARITY, SinkView.RAW, "all")
ROWS = HeadKey(ids.ROW_SIMILARITY, SinkView.RAW, "all")
ODDS = HeadKey(ids.SAME_SENTENCE_PREFERENCE, SinkView.RAW, "top 1 %")
MOSTLY = 0.5  # share of attention from which on a head attends mostly to one key
SPLITS = (SELECTION, HELD_OUT)
MAX_DIFFERENT_HEADS = 8  # heads that the page lists


def diagonal_answer(results: StackResults) -> Parts | None:
    """Return whether any head lets a token attend mostly to itself; None if not measured."""
    if not results.has_value(*SELF):
        return None
    values = results.heads(*SELF).value
    n_mostly, n_known = int((values >= MOSTLY).sum()), int(np.isfinite(values).sum())
    share = largest_share(results, SELF)
    if not n_mostly:
        start = "No head lets a token attend mostly to itself: the largest share is "
        return start, *share, "."
    verb = "lets" if n_mostly == 1 else "let"
    heads = f"{n_mostly:,} of {count_text(n_known, 'head')}"
    return f"{heads} {verb} a token attend mostly to itself; the largest share is ", *share, "."


def alike_answer(results: StackResults) -> Parts | None:
    """Return whether a head's outputs for two tokens are more alike in the last layer, or None."""
    if not results.has_value(*OUTPUTS):
        return None
    numbers = results.layers(*OUTPUTS)
    known = ~np.isnan(numbers.value)
    first, *_, last = (layer for layer in results.stack.attention_layers * 2 if known[layer])
    cosine = layer_row(results, OUTPUTS, last, number(numbers.value[last]))
    if first == last:
        start = "Only one layer was measured"
    elif numbers.high[first] < numbers.low[last]:
        start = "More so in the last layer than in the first"
    elif numbers.high[last] < numbers.low[first]:
        start = "Less so in the last layer than in the first"
    else:
        start = "No more in the last layer than in the first"
    what = f"in layer {last}, outputs of a head for two tokens of a sentence have a mean cosine of "
    return f"{start}: {what}", cosine, "."


def sink_masked_note(results: StackResults) -> Parts:
    """Return the similarity of outputs with the sink masked, in the last layer; empty without."""
    key = OUTPUTS._replace(view=SinkView.NOSINK)
    if not results.has_value(*key):
        return ()
    values = results.layers(*key).value
    layer = [each for each in results.stack.attention_layers if not np.isnan(values[each])][-1]
    value = layer_row(results, key, layer, number(float(values[layer])))
    start = f"With {sink_tokens(results)} masked, the mean cosine of outputs in layer {layer} is "
    return start, value, "."


def own_sentence_answer(results: StackResults) -> Parts | None:
    """Return in how many layers similar tokens are of one sentence more often, or None.

    Pairs of tokens at the same distance are compared. The odds ratio, which has no interval, is
    above 1 on both halves of the passages.
    """
    if not results.has_value(*ODDS):
        return None
    with np.errstate(invalid="ignore"):
        above = [results.split(half, *ODDS, of="layers").value > 1 for half in SPLITS]
    n_above = int(np.logical_and(*above).sum())
    layers = count_text(int(np.isfinite(results.layers(*ODDS).value).sum()), "layer")
    start = f"Yes, in {n_above:,} of {layers} on both halves of the passages"
    if not n_above:
        start = f"Not clearly in any of {layers}"
    return (f"{start}: tokens with nearly the same output share a sentence more often than other "
            "pairs at equal distance.",)  # fmt: skip


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
        yield "Whether sink heads are dead: --importance fast measures it."
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
