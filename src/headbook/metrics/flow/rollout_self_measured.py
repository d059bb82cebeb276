"""Share of a token's own input in its state, by measured context-mixing ratios.

Attention rollout with a measured share instead of one half: the *context-mixing ratio* of token
and layer is distributed by attention, averaged over heads, and the rest is the token as it was.
After the first layer the share is therefore 1 minus the context-mixing ratio.

How much is mixed in is measured by norms of vectors, from which tokens by attention alone;
feed-forward layers are ignored. In a decoder with cross-attention, the other text is left out.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, FlowMetric, Need, Section
from headbook.schema import ResidualPoint, RolloutKind

if TYPE_CHECKING:
    import torch

    from headbook.attention.flow import LayerFlow


def measure(flow: "LayerFlow") -> "torch.Tensor | None":
    """Share of each token's own input. *Shape:* ``(sentence, token)``."""
    return flow.own(RolloutKind.MEASURED)


METRIC = FlowMetric(
    title="Attention rollout with measured ratios: own input",
    question="How much of its own input does a token keep, measured?",
    variant_of="rollout_self",
    formula=r"\tilde A^{(l)}_{ii},\quad \tilde A^{(l)}_{i\cdot} = "
    r"\left(r^{(l)}_i\, \frac{\bar A^{(l)}_{i\cdot} - \bar A^{(l)}_{ii} I_{i\cdot}}"
    r"{1 - \bar A^{(l)}_{ii}} + (1 - r^{(l)}_i)\, I_{i\cdot}\right) \tilde A^{(l-1)}",
    reference="Abnar & Zuidema (2020), arXiv:2005.00928, with the ratios r of "
    "Kobayashi et al. (2021), arXiv:2109.07152",
    bounds=lambda _: (0, 1),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    states=(ResidualPoint.POST,),
    needs=frozenset({Need.VALUES}),
)
