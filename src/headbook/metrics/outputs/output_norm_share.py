"""Share of a head in the output norm of its layer's attention block.

The norm of what a head adds to a token, over the norms of all heads of its layer: weights times
values, through the head's part of the output projection. Twelve equal heads have 1/12 each; a head
far below contributes little, whatever it attends to. Averaged over the tokens that count.

With the sink masked, the contribution of the sink is left out for every head. Outputs of heads may
have opposite directions, so their norms can add up to more than the norm of the block's output.
The heads of a layer together have 1 over their number, by definition. Taken on a sample of the
sentences. Uniform attention has no values and therefore no number.
"""

import math
from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, FinishedRatios, Need, Notable, SampledMetric, Section
from headbook.metrics.examples import Example, identity, uniform
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch

    from headbook.analysis.arrays import Floats
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Shares added up over tokens, and how many tokens. *Shape:* ``(sentence, head, 2)``."""
    call, weights = layer.maps.call, layer.weights
    found = weights.new_zeros((*weights.shape[:2], 2))
    if call.value is None or call.projection is None:
        return found
    value = call.value.to(weights)
    outputs = weights @ value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
    lengths = call.projection.value_norms(call.gated(outputs.transpose(1, 2)).transpose(1, 2))
    total = lengths.sum(1, keepdim=True)
    there = (total > 0) & (layer.frame.rows > 0)
    found[..., 0] = (lengths / total.masked_fill(~there, 1) * there).sum(-1)
    found[..., 1] = there.sum(-1)
    return found


def finish(stats: "Floats", _: "Floats") -> FinishedRatios:
    """Return the mean over tokens. *Shape:* ``(sentence, head, 1)`` each."""
    return FinishedRatios.over_last(stats)


METRIC = SampledMetric(
    title="Share of the layer's output norm",
    question="Which heads write most?",
    formula=r"\frac1n \sum_i \frac{\|\sum_j A^h_{ij} v^h_j W_O^h\|}"
    r"{\sum_{h'} \|\sum_j A^{h'}_{ij} v^{h'}_j W_O^{h'}\|}",
    reference="Kobayashi et al. (2020), arXiv:2004.10102",
    bounds=lambda _: (0, 1),
    section=Section.CONTRIBUTIONS,
    chart=ChartKind.HEATMAP,
    views=(SinkView.RAW, SinkView.NOSINK),
    needs=frozenset({Need.VALUES}),
    has_layer_value=False,
    notable=Notable.HIGH,
    measure=measure,
    finish=finish,
    examples={
        "a head alone puts out everything": (Example(uniform(3), norms=(1.0, 0.0, 2.0)), 1.0),
        "values that are nothing leave nothing to share": (
            Example(identity(3), norms=(0.0, 0.0, 0.0)),
            math.nan,
        ),
        "nothing is known of the values": (Example(uniform(3)), math.nan),
    },
)
