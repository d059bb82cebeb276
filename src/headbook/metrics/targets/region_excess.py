"""Attention from one region of a text to another beyond what distance alone explains.

A head that attends to nearby tokens crosses the border of two regions, too. So each row is compared
with the row that one weight per distance gives: of each offset up to 32 tokens, and of octaves
beyond (33 to 64, 65 to 128, ...). The weights are those of maximum likelihood on one half of the
sample, and the other half is measured. The value is the share of attention that goes from one
region to the other minus the expected share: 0 for uniform attention and for every head whose
weights depend on distance alone, at any length of texts; above 0 for a head that seeks the other
region. Rows with the sink left out and renormalised; rows with more than 90 % on the sink are left
out.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.attention_parts import OffsetCounts, fitted_offsets
from headbook.attention.regions import by_region_pair, counted_queries
from headbook.metrics.base import (
    ChartKind,
    FinishedRatios,
    Need,
    Notable,
    SampledMetric,
    SampleFit,
    Section,
)
from headbook.metrics.examples import Example, uniform
from headbook.metrics.targets.region_attention import BACK, OF_PAIRS
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch

    from headbook.analysis.arrays import Floats
    from headbook.attention.views import LayerAttention

REACH = 32  # tokens to either side with a weight of their own
N_OCTAVES = 12  # beyond, to either side; the last one is open
N_DISTANCES = 2 * (REACH + N_OCTAVES) + 1
TINY = float(np.finfo(np.float32).tiny)
NOT_SEEN = np.inf  # log-weight of distances that no pair of the other half has


def distances(weights: "torch.Tensor") -> "torch.Tensor":
    """Return the number of the distance of each query and key. *Shape:* ``(query, key)``."""
    places = weights.new_ones(weights.shape[-1]).cumsum(0).long()
    offset = places[None, :] - places[:, None]
    length = offset.abs().clamp_min(1)
    octave = (length.double().log2().ceil().long() - 5).clamp(0, N_OCTAVES)  # 0: up to 32 tokens
    return offset.clamp(-REACH, REACH) + offset.sign() * octave + REACH + N_OCTAVES


def gather(layer: "LayerAttention") -> list[OffsetCounts]:
    """Return what the fit of one weight per distance needs of each sentence."""
    weights = (layer.weights * layer.trusted_rows.unsqueeze(-1)).double()
    number = distances(weights)
    mass = weights.new_zeros((*weights.shape[:2], N_DISTANCES))
    mass.index_add_(2, number.flatten(), weights.flatten(2))
    seen = layer.scope.visible.double()  # (sentence, query, key)
    keys_at = seen.new_zeros((*seen.shape[:2], N_DISTANCES))
    keys_at.scatter_add_(2, number.expand_as(seen), seen)
    parts = zip(*(each.cpu().numpy() for each in (keys_at, weights.sum(-1), mass)), strict=True)
    counts = []
    for keys, rows, on_distances in parts:
        used = keys.any(-1)
        counts.append(OffsetCounts(keys[used], rows[:, used], on_distances))
    return counts


def fit(counts: list[OffsetCounts]) -> "Floats | None":
    """Return the log-weights by distance of each head; None without attention.

    *Shape:* ``(head, distance)``; `NOT_SEEN` for distances that no pair has.
    """
    together = OffsetCounts.together(counts) if counts else None
    if together is None or not together.mass.any():
        return None
    return np.where(together.keys_at.any(0), fitted_offsets(together), NOT_SEEN)


def expected_weights(layer: "LayerAttention", logs: "Floats | None") -> "torch.Tensor":
    """Return the weights that distance alone gives. *Shape:* ``(sentence, head, query, key)``.

    A pair at a distance that the other half lacks is expected as it is. A row that sees no distance
    with attention is compared with even weights.

    Args:
        layer: attention of one layer in one view.
        logs: log-weights from `fit`. *Shape:* ``([sentence,] head, distance)``; None: even weights.
    """
    weights, visible = layer.weights, layer.scope.mask
    if logs is None:
        logs = np.zeros((weights.shape[1], N_DISTANCES))
    of_pairs = weights.new_tensor(logs)
    of_pairs = of_pairs.expand(len(weights), weights.shape[1], -1)
    of_pairs = of_pairs[..., distances(weights)]
    as_it_is = of_pairs.isposinf() * visible
    strength = of_pairs.nan_to_num(posinf=-np.inf).exp() * visible
    others = visible * (1 - as_it_is)
    strength = strength.where(strength.sum(-1, keepdim=True) > 0, others)
    left = (weights * others).sum(-1, keepdim=True)
    shares = strength / strength.sum(-1, keepdim=True).clamp_min(TINY)
    return left * shares + weights * as_it_is


def measure(layer: "LayerAttention", logs: "Floats | None" = None) -> "torch.Tensor":
    """Return attention between regions beyond that by distance, and the mass of queries.

    *Shape:* ``(sentence, head, 2 * pair)``.

    Args:
        layer: attention of one layer in one view.
        logs: log-weights by distance from `fit`, of all sentences or of each; NaN if a sentence
            cannot be measured. *Shape:* ``([sentence,] head, distance)``. None for even weights.
    """
    rows = layer.trusted_rows
    beyond = (layer.weights - expected_weights(layer, logs)) * rows.unsqueeze(-1)
    parts = by_region_pair(layer.scope, beyond * layer.scope.mask, layer.mass * rows)
    sums = beyond.new_zeros((*beyond.shape[:2], 2, parts[0].shape[-1]))
    sums[:, :, 0], sums[:, :, 1] = parts
    sums = sums.flatten(2)
    if logs is None:
        return sums
    known = sums.new_tensor(~np.isnan(logs).any(-1)).bool()
    return sums.where(known.expand(sums.shape[:2]).unsqueeze(-1), 0.0)


def finish(stats: "Floats", text_stats: "Floats") -> FinishedRatios:
    """Return attention beyond distance over all attention. *Shape:* ``(sentence, head, pair)``."""
    n_pairs = stats.shape[-1] // 2
    beyond, mass = stats[..., :n_pairs], stats[..., n_pairs:]
    events = np.where(mass > 0, text_stats[:, None, :n_pairs], 0.0)
    return FinishedRatios(beyond, mass, events)


METRIC = SampledMetric(
    title="Attention between regions beyond distance",
    question="Which heads seek another part of the text?",
    formula=r"\frac{\sum_{i \in r}\sum_{j \in s} (A_{ij} - a_i E_{ij})}"
    r"{\sum_{i \in r}\sum_j A_{ij}},\quad a_i = \sum_j A_{ij},\quad E_{ij} \propto w_{j-i}",
    reference="attention between regions minus that of a map with one weight per distance",
    bounds=lambda _: (-1, 1),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=OF_PAIRS,
    headline=BACK,
    named=lambda scheme: scheme.region_pairs,
    has_unbounded_shares=True,
    notable=Notable.HIGH,
    views=(SinkView.RENORM,),
    needs=frozenset({Need.ONE_TEXT, Need.REGIONS}),
    measure=measure,
    sample_fit=SampleFit(gather, fit, crossed=True),
    sentence_statistics=counted_queries,
    finish=finish,
    examples={
        "of two texts of two tokens, the pair alone attends from the second token to the first": (
            (
                Example(((1, 0), (1, 0)), regions=(0, 1)),
                Example(((1, 0), (0, 1)), regions=(0, 0)),
            ),
            # By distance alone, second tokens attend to both alike, and first ones to themselves.
            {
                BACK: 1 - 1 / 2,
                "first text→first text": 0.0,
                "second text→second text": 0 - 1 / 2,
            },
        ),
        "all tokens look everywhere alike": (
            (Example(uniform(4), regions=(0, 1, 1, 1)),),
            {BACK: 0.0},
        ),
    },
)
