"""How sure a head is of where to look.

The mean over tokens of the strongest attention weight. 1: every token looks at a single key. A head
that looks everywhere alike has 1 over the number of keys, so that short sentences give higher
values; read the value beside that of uniform attention.

Where the sink is removed, the strongest weight is taken among the other keys: in the view that does
not renormalise, a head that parks most of its attention is not confident. Where rows are
renormalised, those with over 90 % on the sink do not count, since what is left of them is noise.
Tokens that see no key but the sink count in the view of all keys only. Voita et al. leave out the
end-of-sentence token alone.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Chart, Example, HeadMetric, Ratio, Section
from headbook.metrics.examples import identity, uniform

if TYPE_CHECKING:
    from headbook.measures.layerview import LayerView


def measure(layer: "LayerView") -> Ratio:
    """Sum of the rows' strongest weights, and the number of rows.

    *Shape:* ``(sentence, head)``.
    """
    rows = layer.trusted
    return Ratio((layer.strongest.weight * rows).sum(-1), rows.sum(-1))


METRIC = HeadMetric(
    title="Confidence",
    formula=r"\frac{1}{N}\sum_i \max_j A_{ij}",
    reference="Voita et al. (2019), section 4, arXiv:1905.09418",
    bounds=lambda _: (0, 1),
    section=Section.LOOKS,
    chart=Chart.HEATMAP,
    measure=measure,
    examples={
        "each token looks at itself": (Example(identity(3)), 1.0),
        "all of four tokens look everywhere alike": (Example(uniform(4)), 1 / 4),
        "one token is sure, the other is not": (Example(((1.0, 0.0), (0.4, 0.6))), 0.8),
    },
)
