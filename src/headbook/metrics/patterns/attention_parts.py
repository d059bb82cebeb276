"""What a head's preference depends on: distance, the key word, or the pair of query and key.

A head's departure from even attention (how far its rows are from giving the same to every key) is
divided into three parts that sum to 1:

- **distance**: explained by one weight per distance, shared by all sentences: the position of the
  key before or after the query decides.
- **key**: explained beyond that by one weight per key of the sentence: the same words, whatever
  the query.
- **pair**: the rest. Which word attends to which decides.

Weights per key are fitted on the queries at even positions and tested on those at odd ones, and the
other way round, so that chance explains nothing. *Key* is below 0, and *pair* above 1, where what
one query attends to says nothing about the next.

Rows count 1 over the logarithm of the number of their keys. Queries with fewer than two keys do not
count, nor, with the sink masked, rows with more than 90 % of their attention on it. Taken on a
sample of the sentences, of longer ones on the first 64 tokens. Across two texts there are no
distances: *key* and *pair* only. In a merged study each part has its own weights per distance.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.attention_parts import OffsetCounts, departure_sums, fitted_offsets
from headbook.metrics.base import ChartKind, FinishedRatios, SampledMetric, SampleFit, Section
from headbook.metrics.examples import Example, previous_token, uniform
from headbook.metrics.patterns.pattern import LONGEST
from headbook.schema import SinkView

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from numpy.typing import NDArray

    from headbook.analysis.arrays import Floats
    from headbook.attention.views import LayerAttention

    Bools = NDArray[np.bool_]

LABELS = ("distance", "key", "pair")
NOTHING = 1e-9  # departure of a row that rounding leaves of even attention


def maps(layer: "LayerAttention") -> "Iterator[tuple[Floats, Bools, Floats]]":
    """Yield attention, visible pairs and weights of rows of each sentence, of its first tokens."""
    kept = (layer.trusted_rows > 0) & (layer.mass > 0)
    shape = slice(None), slice(None), slice(LONGEST)
    attention = layer.weights[*shape, :LONGEST].double().cpu().numpy()
    visible = layer.scope.visible[:, :LONGEST, :LONGEST].cpu().numpy()
    for rows, seen, of_sentence in zip(attention, visible, kept.cpu().numpy(), strict=True):
        total, n_keys = rows.sum(-1, keepdims=True), seen.sum(1)
        counts = of_sentence[:, :LONGEST] & (n_keys > 1) & (total[..., 0] > 0)
        weights = np.where(counts, 1 / np.log(np.maximum(n_keys, 2)), 0.0)
        yield np.divide(rows, total, out=np.zeros_like(rows), where=total > 0), seen, weights


def gather(layer: "LayerAttention") -> "list[OffsetCounts]":
    """Return what the fit of one weight per offset needs of a batch; nothing across two texts."""
    return [] if layer.frame.stack.crosses else [OffsetCounts.of(*parts) for parts in maps(layer)]


def fit(counts: "list[OffsetCounts]") -> "Floats | None":
    """Return the log-weights by offset of each head; None without offsets."""
    return fitted_offsets(OffsetCounts.together(counts)) if counts else None


def measure(layer: "LayerAttention", logs: "Floats | None" = None) -> "torch.Tensor":
    """Return the departure, what distance and key explain, rows, and rows with offsets.

    *Shape:* ``(sentence, head, 5)``.

    Args:
        logs: weights by offset from `fit`; None to fit them to the batch.
    """
    if logs is None:
        logs = fit(gather(layer))
    sums = np.zeros((*layer.mass.shape[:2], 5))
    for line, parts in zip(sums, maps(layer), strict=True):
        line[:, :3] = departure_sums(*parts, logs)
        line[:, 3] = (parts[2] > 0).sum(1)
        line[:, 4] = 0 if logs is None else line[:, 3]
    return layer.attention.new_tensor(sums)


def finish(stats: "Floats", text_stats: "Floats") -> FinishedRatios:
    """Return the parts over the departure. *Shape:* ``(sentence, head, label)`` each."""
    departure, distance, key, rows, aligned = np.moveaxis(stats, -1, 0)
    known = departure > rows * NOTHING
    above = np.stack([distance, key, departure - distance - key], axis=-1)
    counted = np.stack([aligned, rows, rows], axis=-1) * known[..., None]
    below = np.where(counted > 0, departure[..., None], 0)
    return FinishedRatios(np.where(counted > 0, above, 0), below, counted)


METRIC = SampledMetric(
    title="Parts of attention",
    question="Does distance, the key or the pair decide attention?",
    formula=r"1 - \frac{\sum_i c_i\,\mathrm{KL}(A_i\,\|\,E_i)}{D},\quad "
    r"\frac{\sum_i c_i\,(\mathrm{KL}(A_i\,\|\,E_i) - \mathrm{KL}(A_i\,\|\,P_i))}{D},\quad "
    r"D = \sum_i c_i\,(\ln k_i - H(A_i)),\quad c_i = \frac{1}{\ln k_i}",
    reference="own; patterns of heads after Kovaleva et al. (2019), section 4, arXiv:1908.08593",
    bounds=lambda _: (-math.inf, math.inf),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="key",
    views=(SinkView.RAW, SinkView.RENORM),
    measure=measure,
    sample_fit=SampleFit(gather, fit),
    finish=finish,
    examples={
        "all of eight look everywhere alike": (
            Example(uniform(8)),
            {"distance": math.nan, "key": math.nan, "pair": math.nan},
        ),
        "all of eight but the special first token look one back": (
            Example(previous_token(8), special=(0,)),
            {"distance": 1.0, "key": 0.0, "pair": 0.0},
        ),
    },
)
