"""Results of a stack from attention maps, by the metrics themselves."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from chosen_results import Fake, fake_results, half_of
from headbook.analysis.accumulators import RatioSums
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.report.results import StackResults
from headbook.schema import HeadKey, Side, SinkView
from headbook.study.corpus_sums import HeadTable
from headbook.study.sentence_data import SentenceData
from headbook.study.study import Study
from layers import Marks, views_of
from metric_values import parts

METRICS = (
    "sink_share", "type_shares", "relative_entropy", "attention_parts", "pos_received",
    "variability",
)  # fmt: skip
NOTHING = {HeadKey("sink_share", SinkView.RAW, ""): Fake([[0.0]])}


class Mapped(NamedTuple):
    """One sentence, or a pair of texts.

    Attributes:
        maps: attention of all heads. *Shape:* ``(head, query, key)``.
        keys: the other text in cross-attention.
    """

    maps: torch.Tensor
    queries: Marks
    keys: Marks | None = None


def results_of_maps(sentences: Sequence[Mapped], *, causal: bool = False) -> StackResults:
    """Return the results of one layer, as a study of these sentences has them."""
    numbers = _sums(sentences, causal=causal)
    at_chance = _sums(
        [s._replace(maps=even(s.maps, causal=causal)) for s in sentences], causal=causal
    )
    columns = tuple(numbers)
    table = HeadTable(
        columns,
        RatioSums(np.stack([numbers[key].sums for key in columns], -1)[:, :, None]),
        RatioSums(np.stack([numbers[key].sums.sum(-1) for key in columns], -1)[:, :, None]),
        RatioSums(np.stack([at_chance[key].sums[..., 0] for key in columns], -1)[:, :, None]),
    )
    crosses = sentences[0].keys is not None
    found = fake_results(NOTHING, causal=causal, sentences=len(sentences))
    corpus_sums = found.study.corpus_sums
    heads = {"self": replace(corpus_sums.heads["self"], table=table)}
    # The buckets of the numbers that were replaced are those of another table.
    corpus_sums = replace(corpus_sums, heads=heads, buckets={})
    study = Study(found.study.manifest, corpus_sums, SentenceData(), {})
    keys = Side.TARGET if crosses else found.stack.keys
    stack = replace(found.stack, n_heads=len(sentences[0].maps), keys=keys)
    return StackResults(study, stack)


def _sums(sentences: Sequence[Mapped], *, causal: bool) -> dict[HeadKey, RatioSums]:
    """Return the sums of every metric, view and label over heads. *Shape:* ``(head,)`` each."""
    views = [views_of(*sentence, causal=causal) for sentence in sentences]
    split, found = half_of(len(sentences)), {}
    for name in METRICS:
        metric = all_metrics()[name]
        assert isinstance(metric, HeadMetric)
        for view in metric.views:
            n, d, events = (
                part.double().numpy() for part in parts(metric, [each[view] for each in views])
            )
            for place, label in enumerate(metric.labels):
                key = HeadKey(name, view, label)
                found[key] = RatioSums.of(n[..., place], d[..., place], events[..., place], split)
    return found


def even(maps: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Return uniform attention over the keys that queries see, of one head."""
    seen = torch.ones(maps.shape[1:])
    seen = seen.tril() if causal else seen
    return (seen / seen.sum(-1, keepdim=True))[None]
