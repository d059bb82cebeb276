"""Mean distance from query to key, in tokens, weighted by attention.

Each attention weight counts the distance that it spans: 0 for attention to the token itself, 1 for
a neighbour. The mean over all pairs is weighted by attention, so long sentences and large weights
count more.

Distance grows with the length of the sentence even under uniform attention; the distance ratio
divides that effect out.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Ratio, Section
from headbook.metrics.examples import Example, identity, previous_token, to_token

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Distance-weighted and plain attention mass.

    *Shape:* ``(sentence, head)``; unit: tokens.
    """
    return Ratio(layer.distance_mass, layer.total, layer.frame.n_queries)


METRIC = AttentionMetric(
    title="Attention distance",
    question="How far do heads attend?",
    unit="tokens",
    formula=r"\bar D = \frac{\sum_{i,j} A_{ij}\,|i-j|}{\sum_{i,j} A_{ij}}",
    reference="Vig & Belinkov (2019), eq. 6, arXiv:1906.04284",
    bounds=lambda n: (0, n - 1),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    needs=frozenset({Need.ONE_TEXT}),
    measure=measure,
    examples={
        "each token looks at itself": (Example(identity(3)), 0.0),
        "each of four tokens looks one back, the first at itself": (
            Example(previous_token(4)),
            3 / 4,
        ),
        "all of four tokens look at the first": (Example(to_token(4, 0)), (0 + 1 + 2 + 3) / 4),
    },
)
