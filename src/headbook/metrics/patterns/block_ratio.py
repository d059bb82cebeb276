"""Attention to the query's own sentence, over that of uniform attention.

For texts of several sentences. 1: sentence boundaries make no difference. Two sentences of the
same length allow 2 at most, three 3.

Sentences end at separator tokens, such as `[SEP]`, which belong to the sentence that they close;
other special tokens belong to the sentence around them. Texts without a separator in the middle
are left out, and no other sign of a sentence's end counts. As for the *pattern* of a head, special
tokens are kept as keys and as queries, tokens that see a single key do not count, and the texts
are a sample.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.pattern_fits import block_sums
from headbook.metrics.base import ChartKind, FinishedRatios, Need, SampledMetric, Section
from headbook.metrics.examples import Example, uniform
from headbook.metrics.patterns.pattern import sentences
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.analysis.arrays import Floats, Ints
    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention

    Bools = NDArray[np.bool_]


def segments(separator: "Bools", special: "Bools") -> "Ints":
    """Return the number of the sentence of each token. *Shape:* ``(token,)`` each.

    A new one begins with the first ordinary token after a separator that closes something.
    """
    found = np.zeros(len(special), dtype=np.int64)
    number, anything, closed = 0, False, False
    for index, (ends, extra) in enumerate(zip(separator, special, strict=True)):
        if not extra:
            number, anything, closed = number + closed, True, False
        found[index] = number
        closed = closed or (bool(ends) and anything)
    return found


def by_sentence(scope: "ViewMask") -> "list[Ints]":
    """Return the sentence number of each token, for each text of a batch."""
    keys = scope.frame.keys
    flags = [each.cpu().numpy() for each in (keys.separator, keys.special)]
    cut = [columns for _, columns, _ in scope.cached(sentences)]
    return [segments(a[c], b[c]) for a, b, c in zip(*flags, cut, strict=True)]


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Mass inside the own sentence, and rows. *Shape:* ``(text, head, 2)``."""
    maps = layer.attention.double().cpu().numpy()
    found = np.zeros((*maps.shape[:2], 2))
    texts = zip(layer.scope.cached(sentences), layer.scope.cached(by_sentence), strict=True)
    for line, own, ((rows, columns, seen), numbers) in zip(found, maps, texts, strict=True):
        if numbers[-1] > 0:
            line[:, 0] = block_sums(own[:, rows, columns], seen, numbers)[0]
            line[:, 1] = (seen.sum(1) > 1).sum()
    return layer.attention.new_tensor(found)


def about(scope: "ViewMask") -> "torch.Tensor":
    """Return the expected mass inside the own sentence under uniform attention.

    *Shape:* ``(text, 1)``.
    """
    texts = zip(scope.cached(sentences), scope.cached(by_sentence), strict=True)
    text_stats = [
        block_sums(seen[None].astype(np.float64), seen, n)[1] for (_, _, seen), n in texts
    ]
    return scope.mask.new_tensor(text_stats).unsqueeze(-1)


def finish(stats: "Floats", text_stats: "Floats") -> FinishedRatios:
    """Mass over expectation. *Shape:* ``(text, head, 1)`` each."""
    rows = stats[..., 1:]
    return FinishedRatios(stats[..., :1], text_stats[:, None, :1] * (rows > 0), rows)


METRIC = SampledMetric(
    title="Block ratio",
    question="Does attention stay inside its own sentence?",
    formula=r"\frac{\sum_i \sum_{j\ \mathrm{in\ the\ sentence\ of}\ i} A_{ij}}"
    r"{\sum_i n_i / k_i},\quad n_i\ \mathrm{of\ its}\ k_i\ \mathrm{keys\ in\ the\ same\ sentence}",
    reference="after Kovaleva et al. (2019), section 4, arXiv:1908.08593",
    bounds=lambda n: (0, n),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    views=(SinkView.RAW,),
    needs=frozenset({Need.ONE_TEXT}),
    measure=measure,
    sentence_statistics=about,
    finish=finish,
    examples={
        "two sentences of two tokens, each looking at itself": (
            Example(
                ((0.5, 0.5, 0, 0), (0.5, 0.5, 0, 0), (0, 0, 0.5, 0.5), (0, 0, 0, 1)),
                special=(1, 3),
                separator=(1, 3),
            ),
            2.0,
        ),
        "even attention does not see where sentences end": (
            Example(uniform(6), special=(0, 2, 5), separator=(2, 5)),
            1.0,
        ),
        "one sentence": (Example(uniform(3), special=(2,), separator=(2,)), math.nan),
    },
)
