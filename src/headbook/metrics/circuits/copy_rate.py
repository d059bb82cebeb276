r"""How often a head raises a token that it reads above nearly all other tokens.

For each token type, the share of types whose own token is among the five largest of all logits
that the head adds when it reads this type alone. What it reads is the residual stream after layer
0 of the token alone, behind the start token if the model has one. Up to 1,000 types count, the most
frequent of the corpus that have a letter or a digit; the interval is over types (Wilson).

By chance a rate is 5 over the size of the vocabulary, far below 1 %: a rate of a few per cent is a
few words. Pages say that a head copies from 10 %, if `copying_score` lies above its band.
`copy_rate_negative` is the same with the sign of the output turned.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import ChartKind, CircuitMetric, Notable, Section

if TYPE_CHECKING:
    from headbook.analysis.arrays import Floats

N_BEST = 5  # largest logits among which a copied token is


def measure(larger: "Floats") -> "Floats":
    """Return the share of types with fewer than five larger logits than their own, or NaN.

    Args:
        larger: number of tokens with a larger logit than the type itself. *Shape:* ``(..., type)``.
    """
    if not larger.shape[-1]:
        return np.full(larger.shape[:-1], np.nan)
    rate: Floats = (larger < N_BEST).mean(-1)
    return rate


METRIC = CircuitMetric(
    title="Copy rate",
    question="Which heads raise the tokens that they read?",
    formula=r"\frac1{|T|} \sum_{t \in T} \left[\, t \in \mathrm{top}_5"
    r"\left(E'_t W_V W_O W_U\right) \right]",
    reference="Wang et al. (2022), appendix A, arXiv:2211.00593",
    bounds=lambda _: (0, 1),
    section=Section.CIRCUITS,
    chart=ChartKind.HEATMAP,
    notable=Notable.HIGH,
    measure=measure,
)
