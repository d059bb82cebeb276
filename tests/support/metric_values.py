"""Values of a metric on attention made by hand."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from hypothesis import strategies as st

from headbook.analysis.accumulators import HashSample
from headbook.attention.head_outputs import HeadOutputs
from headbook.attention.surface_rules import linked_cells, mass_by_cell, pairs_in_cells
from headbook.attention.views import LayerAttention
from headbook.metrics import (
    all_metrics,
    head_metrics,
)
from headbook.metrics.base import (
    AttentionMetric,
    ContextMetric,
    FinishedRatios,
    HeadMetric,
    SampledMetric,
)
from headbook.schema import UPOS
from headbook.study.word_samples import PairCells
from layers import Marks

METRICS = all_metrics()

HEADS = {metric.id: metric for metric in head_metrics(METRICS.values())}

EXAMPLES = {
    f"{name}: {description}": (metric, *example)
    for name, metric in HEADS.items()
    for description, example in metric.examples.items()
}

T = TypeVar("T")


def values(metric: HeadMetric, layers: Sequence[LayerAttention]) -> torch.Tensor:
    """Value of each head and label, from sentences one by one; NaN where there is none."""
    n, d, _ = parts(metric, layers)
    n, d = (torch.where(d > 0, part, 0).sum(0) for part in (n, d))
    return torch.where(d > 0, n / d, torch.nan)


def parts(metric: HeadMetric, layers: Sequence[LayerAttention]) -> list[torch.Tensor]:
    """Numerators, denominators and events; *Shape:* ``(sentence, head, label)`` each."""
    if isinstance(metric, SampledMetric):
        return [torch.from_numpy(np.array(part)) for part in finished(metric, layers)]
    return [torch.cat([whole(metric, layer, place) for layer in layers]) for place in (0, 1, 2)]


def whole(metric: HeadMetric, layer: LayerAttention, place: int) -> torch.Tensor:
    """Numerators, denominators or events of one sentence, for all labels."""
    if isinstance(metric, ContextMetric):
        ratio = metric.measure(HeadOutputs(layer))
    else:
        assert isinstance(metric, AttentionMetric)
        ratio = metric.measure(layer)
    events = ratio.denominator if ratio.events is None else ratio.events
    part = (ratio.numerator, ratio.denominator, events)[place]
    part = part if part.ndim == 3 else part[..., None]
    shape = (1, layer.attention.shape[1], len(metric.labels))
    if ratio.labels is None or (place > 0 and part.shape[2] == 1):
        return part.expand(shape)
    every = part.new_zeros(shape)
    every[..., list(ratio.labels)] = part.expand(*shape[:2], -1)
    return every


def finished(metric: SampledMetric, layers: Sequence[LayerAttention]) -> FinishedRatios:
    """A sampled metric of some sentences."""
    stats = np.concatenate([metric.measure(layer).numpy() for layer in layers]).astype(float)
    if metric.expected_at is not None:  # as if all of these sentences were of the choice half
        every, place = np.ones(1, bool), np.arange(len(layers))
        links = np.concatenate([linked_cells(layer.scope) for layer in layers])
        cells = PairCells(
            np.sum([mass_by_cell(layer, every) for layer in layers], 0)[None],
            np.sum([pairs_in_cells(layer.scope, every) for layer in layers], 0)[None],
            HashSample(len(place), place.astype(np.uint64), place, links[:, None]),
        )
        stats[..., metric.expected_at] = cells.expected(0)
    reported = [np.zeros((1, 0)) for _ in layers]
    if metric.sentence_statistics is not None:
        reported = [metric.sentence_statistics(layer.scope).numpy() for layer in layers]
    return metric.finish(stats, np.concatenate(reported))


class Layer(NamedTuple):
    """A random layer over one sentence, or across two."""

    weights: torch.Tensor
    queries: Marks
    keys: Marks | None
    causal: bool


@st.composite
def marks(draw: st.DrawFn) -> Marks:
    """A short text with words of one or more pieces, tags, heads and special tokens; values."""
    n = draw(st.integers(1, 6))
    some = st.lists(st.integers(0, n - 1), max_size=2)
    vectors = st.lists(st.tuples(*[st.floats(-9, 9)] * 2), min_size=n, max_size=n)
    special = draw(some)
    steps = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    numbers = np.cumsum([0, *steps[1:]])
    word = [-1 if i in special else int(numbers[i]) for i in range(n)]
    n_words = max(word) + 1

    def each_word(values: st.SearchStrategy[T]) -> list[T]:
        return draw(st.lists(values, min_size=n_words, max_size=n_words))

    return Marks(
        n,
        ids=draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        special=special,
        separator=special[:1],
        punctuation=draw(some),
        word=word,
        tags=each_word(st.sampled_from(UPOS)),
        heads=each_word(st.integers(-1, n_words - 1)),
        rarest=draw(st.integers(-1, n_words - 1)),
        norms=draw(st.just([]) | st.lists(st.floats(0, 9), min_size=n, max_size=n)),
        values=draw(st.just([]) | vectors),
        stops=draw(some),
        sentences=draw(st.just([]) | st.just(numbers.tolist())),
    )


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Attention of one head, from uniform to a single key a row."""
    queries = draw(marks())
    keys = draw(st.none() | marks())
    causal = keys is None and draw(st.booleans())
    m = (keys or queries).n
    row = st.lists(st.floats(-1, 1), min_size=m, max_size=m)
    scores = torch.tensor(draw(st.lists(row, min_size=queries.n, max_size=queries.n)))
    scores = scores.double() * draw(st.sampled_from([0, 1, 10, 1000]))
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    return Layer(scores.softmax(-1)[None], queries, keys, causal)
