"""Entropy of attention rows, in nats.

The entropy of a row is 0 if all attention goes to one key, and ln k if it is spread evenly over k
keys. Values are averaged over tokens.

With the sink masked, rows no longer sum to 1, and the entropy is that of the remaining weights.
Renormalised rows are dropped if more than 90 % of the attention went to the sink: the rest is
mostly noise. Entropy grows with the number of keys; the normalised entropy divides that out.
"""

import math
from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Ratio, Section
from headbook.metrics.examples import Example, causal_uniform, identity, uniform

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Entropy summed over rows, and the number of rows.

    *Shape:* ``(sentence, head)``; unit: nats.
    """
    rows = layer.trusted_rows
    return Ratio((layer.entropy * rows).sum(-1), rows.sum(-1))


def bounds(n: float) -> tuple[float, float]:
    """0 to ln n; a row that lost mass to the sink can stand a little above ln 1 and ln 2."""
    return 0, max(math.log(n), 2 / math.e)


METRIC = AttentionMetric(
    title="Attention entropy",
    question="How evenly do heads attend, in nats?",
    variant_of="relative_entropy",
    unit="nats",
    formula=r"H = \frac{1}{N}\sum_i -\sum_j A_{ij} \ln A_{ij}",
    reference="Vig & Belinkov (2019), eq. 7 and footnote 4, arXiv:1906.04284",
    bounds=bounds,
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    measure=measure,
    examples={
        "each token looks at itself": (Example(identity(3)), 0.0),
        "all of five tokens look everywhere alike": (Example(uniform(5)), math.log(5)),
        "three tokens look back alike": (
            Example(causal_uniform(3)),
            (math.log(1) + math.log(2) + math.log(3)) / 3,
        ),
    },
)
