"""Facts about the diagonal, and what the page of attention patterns leaves open."""

from collections.abc import Iterator

import numpy as np

from headbook.metrics import ids
from headbook.report.facts.sinks import SINK_OUTPUT, largest_share, sink_heads
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import count_text
from headbook.results.fact import Fact
from headbook.results.sentence import say
from headbook.schema import HeadKey, SinkView

SELF = HeadKey(ids.OFFSET_PROFILE, SinkView.RAW, "0")
MOSTLY = 0.5  # share of attention from which on a head attends mostly to one key


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


def not_measured(results: StackResults) -> Iterator[str]:
    """Yield a sentence on each question that the study leaves open, with the option for it."""
    manifest = results.study.manifest
    if not results.has_value(*SINK_OUTPUT):
        part = f"What {sink_tokens(results)} contribute to outputs"
        yield f"{part}: --metrics {SINK_OUTPUT.metric} measures it if values can be read."
    if results.study.corpus_sums.ablation is None and sink_heads(results):
        yield "Whether sink heads are dead: --importance auto measures it."
    if not results.has_value(*SELF) and not any(
        gap.key == SELF.metric and gap.stack == results.stack.name for gap in manifest.gaps
    ):
        yield f"Why not the diagonal: --metrics {SELF.metric} measures it."
    for gap in manifest.gaps:
        if gap.stack == results.stack.name and gap.key == SELF.metric:
            yield f"{gap.what}: {gap.why}."
