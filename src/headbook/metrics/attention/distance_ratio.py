"""Attention distance over that of uniform attention.

1: as far as uniform attention over the same keys. Below 1: nearer; above 1: farther. Unlike the
distance in tokens it is comparable between short and long sentences, and between layers with
different windows.

With the sink masked without renormalising, each row of uniform attention has the mass of the
measured row, so that both sides of the ratio have the same weight.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token, uniform

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention


def mean_distance(scope: "ViewMask") -> "torch.Tensor":
    """Mean distance of the keys that each query sees.

    *Shape:* ``(sentence, 1, query)``; 0 where a query sees none.
    """
    reach = (scope.mask * scope.frame.offset.abs()).sum(-1)
    return reach / scope.n_visible.clamp(min=1)[:, None, :]


def measure(layer: "LayerAttention") -> Ratio:
    """Distance-weighted mass of the head and of a uniform head with the same rows' mass.

    *Shape:* ``(sentence, head)``.
    """
    even = (layer.mass * layer.scope.cached(mean_distance)).sum(-1)
    return Ratio(layer.distance_mass, even, layer.frame.n_queries)


METRIC = AttentionMetric(
    title="Distance ratio",
    question="How far do heads attend, next to uniform attention?",
    variant_of="attention_distance",
    formula=r"\frac{\sum_{i,j} A_{ij}\,|i-j|}{\sum_{i,j} U_{ij}\,|i-j|}, \qquad "
    r"U_{ij} = \frac{1}{k_i} \sum_{m} A_{im}",
    reference="Attention distance (Vig & Belinkov, 2019) over its value for uniform attention",
    bounds=lambda n: (0, n),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    needs=frozenset({Need.ONE_TEXT}),
    measure=measure,
    examples={
        "each token looks at itself": (Example(identity(3)), 0.0),
        "all tokens look everywhere alike": (Example(uniform(5)), 1.0),
        "all of three tokens look at the first": (
            Example(to_token(3, 0)),
            (0 + 1 + 2) / (1 + 2 / 3 + 1),
        ),
    },
)
