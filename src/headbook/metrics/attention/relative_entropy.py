"""Entropy of attention rows, from 0 (one key) to 1 (all keys equally).

Each row's entropy is divided by its maximum, the logarithm of the number of visible keys. Tokens
that see a single key are left out. It is comparable between short and long sentences, and between
the first and the last tokens of a causal model.
"""

import math
from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Ratio, Section
from headbook.metrics.examples import Example, identity, uniform

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Relative entropy summed over rows with a choice, and their number.

    *Shape:* ``(sentence, head)``.
    """
    keys = layer.scope.n_visible[:, None, :]
    rows = layer.trusted_rows * (keys > 1)
    most = keys.clamp(min=2).log()
    return Ratio((layer.entropy / most * rows).sum(-1), rows.sum(-1))


METRIC = AttentionMetric(
    title="Normalised entropy",
    question="How evenly do heads attend?",
    formula=r"\frac{1}{N}\sum_i \frac{-\sum_j A_{ij} \ln A_{ij}}{\ln k_i}",
    reference="Attention entropy over its maximum for the number of visible keys",
    # Two keys left by the sink can hold p, q with p + q < 1 and -p ln p - q ln q > ln 2.
    bounds=lambda _: (0, 2 / (math.e * math.log(2))),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    measure=measure,
    examples={
        "each token looks at itself": (Example(identity(3)), 0.0),
        "all tokens look everywhere alike": (Example(uniform(5)), 1.0),
        "two of four keys share the attention": (
            Example(((0.5, 0.5, 0.0, 0.0),) * 4),
            math.log(2) / math.log(4),
        ),
    },
)
