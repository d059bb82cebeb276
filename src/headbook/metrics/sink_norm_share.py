"""How much of what a head moves comes from the sink.

The share of the sink again, with each weight multiplied by the length of what it brings: the key's
value vector after the head's part of the output projection. A head that parks its attention takes
next to nothing from there, because the sink's values are short. A *sink share* of 80 % with a few
per cent here says: parked, not used.

Values are taken with their bias, as the model computes them. A length is not a direction: vectors
from several keys may cancel each other. Uniform attention has no values, so that there is nothing
to compare with. Models whose values or output projection are out of reach have no number here.
"""

import math
from typing import TYPE_CHECKING

from headbook.metrics.base import Chart, Example, HeadMetric, Need, Ratio, Section
from headbook.metrics.examples import identity, uniform
from headbook.terms import View

if TYPE_CHECKING:
    from headbook.measures.layerview import LayerView


def measure(layer: "LayerView") -> Ratio:
    """Norm-weighted mass on the sink, and in all. *Shape:* ``(sentence, head)``."""
    norms, queries = layer.maps.value_norms, layer.frame.n_queries
    if norms is None:
        nothing = queries.new_zeros(queries.shape)
        return Ratio(nothing, nothing, nothing)
    moved = layer.received * norms
    total = moved.sum(-1)
    return Ratio((moved * layer.frame.sink.unsqueeze(1)).sum(-1), total, queries * (total > 0))


METRIC = HeadMetric(
    title="Sink share by norm",
    formula=r"\frac{\sum_i \sum_{j\ \mathrm{in\ sink}} \|A_{ij}\, v_j W_O\|}"
    r"{\sum_{i,j} \|A_{ij}\, v_j W_O\|}",
    reference="Kobayashi et al. (2020), arXiv:2004.10102; Xiao et al. (2023), arXiv:2309.17453",
    bounds=lambda _: (0, 1),
    section=Section.LOOKS,
    chart=Chart.HEATMAP,
    views=(View.RAW,),
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
