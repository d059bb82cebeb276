"""Share of attention to special tokens; in causal attention, also to the first position.

Attention weights sum to 1, so a head with nothing to add must attend somewhere: in encoders often
to special tokens, in causal models to the first position (attention sink). Numbers with the sink
masked leave this share out.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token, uniform
from headbook.schema import SinkView

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Mass on the sink, and the number of queries.

    *Shape:* ``(sentence, head)``.
    """
    return Ratio(layer.sink_mass.sum(-1), layer.frame.n_queries)


METRIC = AttentionMetric(
    title="Attention to the sink",
    question="How much attention goes to the sink?",
    formula=r"\frac{1}{N}\sum_i \sum_{j\ \mathrm{in\ sink}} A_{ij}",
    reference="Xiao et al. (2023), arXiv:2309.17453; Clark et al. (2019), arXiv:1906.04341",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    measure=measure,
    views=(SinkView.RAW,),
    examples={
        "nobody looks at the special token": (Example(identity(4), special=(0,)), 0.0),
        "everybody looks at the special token": (Example(to_token(4, 0), special=(0,)), 1.0),
        "two of four tokens are special": (Example(uniform(4), special=(0, 3)), 0.5),
    },
)
