"""Share of attention that goes from one region of a text to another, or stays in it.

The regions of a pair are its two texts. A value is the attention that the tokens of one region give
to those of another, over all their attention; tokens that see no token of the other region do not
count. The baseline is uniform attention over the keys that a token sees, so that a long region
receives more than a short one. For the tokens of one region, the shares of all regions, of tokens
outside regions and of special tokens add up to 1.
"""

from typing import TYPE_CHECKING

from headbook.attention.regions import by_region_pair, counted_queries
from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, identity, uniform
from headbook.schema import PAIR_REGIONS, REGION_PAIR, AnnotationScheme, SinkView

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention

OF_PAIRS = AnnotationScheme(regions=PAIR_REGIONS).region_pairs
BACK = REGION_PAIR.format(*PAIR_REGIONS[::-1])  # from the second text of a pair to the first


def measure(layer: "LayerAttention") -> Ratio:
    """Mass between regions, and mass of the queries. *Shape:* ``(sentence, head, pair)``."""
    between, mass = by_region_pair(layer.scope, layer.weights, layer.mass)
    return Ratio(between, mass, layer.scope.cached(counted_queries).unsqueeze(1))


METRIC = AttentionMetric(
    title="Attention between regions",
    question="How much attention goes from one part of a text to another?",
    formula=r"\frac{\sum_{i \in r}\sum_{j \in s} A_{ij}}{\sum_{i \in r}\sum_j A_{ij}}",
    reference="attention between segments, as in Clark et al. (2019), arXiv:1906.04341",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=OF_PAIRS,
    headline=BACK,
    named=lambda scheme: scheme.region_pairs,
    notable=Notable.HIGH,
    views=(SinkView.RENORM, SinkView.RAW, SinkView.NOSINK),
    needs=frozenset({Need.ONE_TEXT, Need.REGIONS}),
    measure=measure,
    examples={
        "two texts of one and two tokens, all tokens look everywhere alike": (
            Example(uniform(3), regions=(0, 1, 1)),
            {BACK: 1 / 3, "first text→second text": 2 / 3, "second text→second text": 2 / 3},
        ),
        "all tokens look at themselves": (
            Example(identity(3), regions=(0, 1, 1)),
            {BACK: 0.0, "first text→first text": 1.0},
        ),
    },
)
