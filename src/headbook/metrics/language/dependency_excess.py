"""Attention along dependencies beyond what distance alone would give.

Most dependencies are short, so a head that attends to neighbouring words follows many of them
without any syntax. From the head's alignment with dependencies (share of attention between words of
which one is the other's head), the alignment of a map with one weight per distance is subtracted:
one for each distance up to 8 words in either direction, and one for all longer distances of a
direction. The weights have the highest likelihood, and each word gives as much attention as in the
head. They are fitted on one half of the sentences and measured on the other, and the other way
round, so that chance explains nothing.

Above 0: linked words are preferred to others that are as far away; below 0: avoided. A head that
attends by distance alone has 0, as has uniform attention if every word has one token. The excess is
a share of attention and supports no claim of a relation.

Attention between words, sink masked: to a word the sum over its subword tokens, from a word the
mean. Taken on a sample of the sentences. In a merged study each part has its own weights per
distance.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.attention_parts import OffsetCounts, expected_by_distance, fitted_offsets
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
from headbook.schema import SinkView

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from numpy.typing import NDArray

    from headbook.analysis.arrays import Floats
    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention

    Bools = NDArray[np.bool_]

REACH = 8  # words; all larger distances of a direction have one weight


def linked_pairs(scope: "ViewMask") -> "torch.Tensor":
    """Return the visible pairs of which one word is the other's head.

    *Shape:* ``(sentence, word, word)``.
    """
    to_head = scope.frame.queries.to_head
    return (to_head | to_head.mT) & scope.word_visible


def looking_words(scope: "ViewMask") -> "torch.Tensor":
    """Return the number of words that see a word; 0 without a tree. *Shape:* ``(sentence, 1)``."""
    n_words = scope.word_visible.any(-1).sum(-1, keepdim=True)
    return (n_words * scope.frame.queries.parsed).to(scope.frame.dtype)


def maps(layer: "LayerAttention") -> "Iterator[tuple[Floats, Bools, Floats]]":
    """Yield rows of attention that sum to 1, visible pairs and the mass of rows, by sentence.

    *Shape:* ``(head, word, word)``, ``(word, word)`` and ``(head, word)``; mass is 0 without a
    tree.
    """
    parsed = layer.frame.queries.parsed.squeeze(1).cpu().numpy()
    visible = layer.scope.word_visible.cpu().numpy()
    weights = layer.maps.by_word.double().cpu().numpy() * parsed[:, None, None, None]
    for rows, seen in zip(weights, visible, strict=True):
        n_words = int(np.flatnonzero(seen.any(0) | seen.any(1)).max(initial=-1)) + 1
        own, own_seen = rows[:, :n_words, :n_words], seen[:n_words, :n_words]
        mass = own.sum(-1)
        shares = np.divide(own, mass[..., None], out=np.zeros_like(own), where=mass[..., None] > 0)
        yield shares, own_seen, mass


def gather(layer: "LayerAttention") -> list[OffsetCounts]:
    """Return what the fit of one weight per distance needs of each sentence."""
    return [OffsetCounts.of(*parts, REACH) for parts in maps(layer)]


def fit(counts: list[OffsetCounts]) -> "Floats | None":
    """Return the log-weights by distance of each head; None without attention along a tree."""
    together = OffsetCounts.together(counts) if counts else None
    return fitted_offsets(together) if together is not None and together.mass.any() else None


def measure(layer: "LayerAttention", logs: "Floats | None" = None) -> "torch.Tensor":
    """Return attention on linked words beyond that by distance alone, and attention in all.

    *Shape:* ``(sentence, head, 2)``.

    Args:
        logs: weights by distance from `fit`, of all sentences or of each; NaN if a sentence cannot
            be measured. *Shape:* ``([sentence,] head, offset)``. None for even weights.
    """
    if logs is None:
        logs = np.zeros((layer.attention.shape[1], 2 * REACH + 1))
    linked = layer.scope.cached(linked_pairs).cpu().numpy()
    of_sentences = np.broadcast_to(logs, (len(linked), *logs.shape[-2:]))
    sums = np.zeros((*layer.attention.shape[:2], 2))
    for line, links, own_logs, (shares, seen, mass) in zip(
        sums, linked, of_sentences, maps(layer), strict=True
    ):
        if not np.isnan(own_logs).any():
            expected = expected_by_distance(own_logs, seen)
            # A row that sees no distance of the other half is compared with even weights.
            even = seen / np.maximum(seen.sum(1, keepdims=True), 1)
            expected = np.where(expected.any(-1, keepdims=True), expected, even)
            beyond = (shares - expected) * links[: len(seen), : len(seen)]
            line[:, 0] = (beyond.sum(-1) * mass).sum(-1)
            line[:, 1] = mass.sum(-1)
    return layer.attention.new_tensor(sums)


def finish(stats: "Floats", text_stats: "Floats") -> FinishedRatios:
    """Return attention beyond distance over all attention. *Shape:* ``(sentence, head, 1)``."""
    beyond, mass = stats[..., :1], stats[..., 1:2]
    return FinishedRatios(beyond, mass, np.where(mass > 0, text_stats[:, None, :1], 0.0))


METRIC = SampledMetric(
    title="Dependency alignment beyond distance",
    question="Does attention follow the parse beyond distance?",
    formula=r"\frac{\sum_{i,j} (A_{ij} - a_i E_{ij})\,\mathrm{dep}(i,j)}{\sum_{i,j} A_{ij}},\quad "
    r"a_i = \sum_j A_{ij},\quad E_{ij} \propto w_{j-i}",
    reference="Dependency alignment (Vig & Belinkov, 2019, eq. 4) minus that of a map with one "
    "weight per distance",
    bounds=lambda _: (-1, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.HEATMAP,
    views=(SinkView.NOSINK,),
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TREE}),
    notable=Notable.HIGH,
    measure=measure,
    sample_fit=SampleFit(gather, fit, crossed=True),
    sentence_statistics=looking_words,
    finish=finish,
    examples={
        "the second of three words looks at its head, the others look at themselves": (
            (
                Example(
                    ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)),
                    heads=(-1, 0, 0),
                ),
            ),
            # One back and the word itself have equal weights, all others none: the second word is
            # expected to give its head 1/2, and the third gives nothing to its own either way.
            (1 - 1 / 2) / 3,
        ),
        "all words look everywhere alike": (
            (Example(uniform(3), heads=(-1, 0, 0)),),
            0.0,
        ),
    },
)
