"""How much attention depends on content rather than position.

For the first ten tokens of every sentence, each weight is compared with the mean weight of the
same pair of positions over all sentences. 0: the same positions in every sentence, position only.
1: no two sentences agree, content only.

Taken on a sample of the sentences, since the mean has to be known first. A pair of positions takes
part if the query counts and sees the key.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import ChartKind, FinishedRatios, Need, SampledMetric, Section
from headbook.metrics.examples import Example, identity, previous_token, to_token

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention

FIRST = 10  # Vig & Belinkov, footnote 3


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Weights between the first tokens. *Shape:* ``(sentence, head, FIRST * FIRST)``."""
    return _square(layer.weights)


def about(scope: "ViewMask") -> "torch.Tensor":
    """Return the mask of visible pairs of the first tokens.

    *Shape:* ``(sentence, FIRST * FIRST)``.
    """
    return _square(scope.mask).squeeze(1)


def _square(maps: "torch.Tensor") -> "torch.Tensor":
    found = maps.new_zeros((*maps.shape[:2], FIRST, FIRST))
    corner = maps[..., :FIRST, :FIRST]
    found[..., : corner.shape[2], : corner.shape[3]] = corner
    return found.flatten(2)


def finish(weights: "NDArray[np.float64]", there: "NDArray[np.float64]") -> FinishedRatios:
    """Deviation from the mean over twice the mass. *Shape:* ``(sentence, head, 1)`` each."""
    mean = weights.sum(0) / np.maximum(there.sum(0), 1)
    deviation = (abs(weights - mean) * there[:, None]).sum(-1, keepdims=True)
    queries = there.reshape(len(there), FIRST, FIRST).any(-1).sum(-1)[:, None, None]
    mass = weights.sum(-1, keepdims=True)
    return FinishedRatios(deviation, 2 * mass, np.broadcast_to(queries, mass.shape))


METRIC = SampledMetric(
    title="Attention variability",
    question="Does attention follow content or position?",
    formula=r"\frac{\sum_x \sum_{i,j \le 10} |A_{ij}(x) - \bar A_{ij}|}"
    r"{2 \sum_x \sum_{i,j \le 10} A_{ij}(x)}",
    reference="Vig & Belinkov (2019), eq. 5, arXiv:1906.04284",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    needs=frozenset({Need.ONE_TEXT}),
    measure=measure,
    sentence_statistics=about,
    finish=finish,
    compares_sentences=True,
    examples={
        "two sentences in which each token looks one back": (
            (Example(previous_token(4)), Example(previous_token(4))),
            0.0,
        ),
        "in one of two sentences all look at the first token, in the other at the last": (
            (Example(to_token(3, 0)), Example(to_token(3, 2))),
            # Each weight of 1 and each of the 0 opposite are 1/2 from their mean.
            (2 * 3 * 2 * 0.5) / (2 * 6),
        ),
        "a sentence of one token agrees with itself": ((Example(identity(1)),), 0.0),
    },
)
