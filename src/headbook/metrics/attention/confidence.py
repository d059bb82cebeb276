"""Mean over tokens of the largest attention weight.

1: every token attends to a single key. Uniform attention has 1 over the number of keys, so short
sentences give higher values; compare with the value of uniform attention.

With the sink masked, the largest weight is taken among the other keys; without renormalising, a
head with most of its attention on the sink has a low value. In renormalised rows, those with over
90 % on the sink do not count. Tokens that see no key but the sink count with all keys only. Voita
et al. leave out the end-of-sentence token alone.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Ratio, Section
from headbook.metrics.examples import Example, identity, uniform

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Sum of the rows' strongest weights, and the number of rows.

    *Shape:* ``(sentence, head)``.
    """
    rows = layer.trusted_rows
    return Ratio((layer.strongest.weight * rows).sum(-1), rows.sum(-1))


METRIC = AttentionMetric(
    title="Mean maximum weight (confidence)",
    question="How much weight does the strongest key receive?",
    formula=r"\frac{1}{N}\sum_i \max_j A_{ij}",
    reference="Voita et al. (2019), section 4, arXiv:1905.09418",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    measure=measure,
    examples={
        "each token looks at itself": (Example(identity(3)), 1.0),
        "all of four tokens look everywhere alike": (Example(uniform(4)), 1 / 4),
        "one token is sure, the other is not": (Example(((1.0, 0.0), (0.4, 0.6))), 0.8),
    },
)
