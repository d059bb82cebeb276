"""Share of the sink in a head's value-weighted norm ‖αvW_O‖.

*Attention to the sink* again, with each weight multiplied by the norm of the key's value vector
after the head's part of the output projection. Values of sink keys are often short: a head can
give 80 % of its attention to special tokens while they contribute a few per cent of its output
norm.

Values include their bias, as the model computes them. A norm has no direction: vectors of several
keys may cancel. Where a gate or a norm stands before W_O, it counts as it is for the token that
attends, a norm with the divisor of the whole. Uniform attention has no values and therefore no
number. Models whose values or output projection are out of reach have no number here.
"""

import math
from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Ratio, Section
from headbook.metrics.examples import Example, identity, uniform
from headbook.schema import SinkView

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Norm-weighted mass on the sink, and in all. *Shape:* ``(sentence, head)``."""
    norms, queries = layer.maps.value_norms, layer.frame.n_queries
    if norms is None:
        nothing = queries.new_zeros(queries.shape)
        return Ratio(nothing, nothing, nothing)
    moved = layer.received * norms
    total = moved.sum(-1)
    return Ratio((moved * layer.frame.sink.unsqueeze(1)).sum(-1), total, queries * (total > 0))


METRIC = AttentionMetric(
    title="Value-weighted norm from the sink",
    question="How much of a head's output comes from the sink?",
    formula=r"\frac{\sum_i \sum_{j\ \mathrm{in\ sink}} \|A_{ij}\, v_j W_O\|}"
    r"{\sum_{i,j} \|A_{ij}\, v_j W_O\|}",
    reference="Kobayashi et al. (2020), arXiv:2004.10102; Xiao et al. (2023), arXiv:2309.17453",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    views=(SinkView.RAW,),
    needs=frozenset({Need.VALUES}),
    measure=measure,
    examples={
        "the sink gets half of the attention, and its values are a third as long": (
            Example(((0.5, 0.5), (0.5, 0.5)), special=(0,), norms=(1.0, 3.0)),
            0.25,
        ),
        "values of the same length leave the share of the mass": (
            Example(uniform(4), special=(0, 3), norms=(2.0, 2.0, 2.0, 2.0)),
            0.5,
        ),
        "the sink's values are nothing": (
            Example(uniform(3), special=(0,), norms=(0.0, 1.0, 2.0)),
            0.0,
        ),
        "nothing is known of the values": (Example(identity(3), special=(0,)), math.nan),
    },
)
