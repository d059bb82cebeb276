"""Share of a token's own input in its state, if each layer keeps one half.

Attention rollout takes a state as a mixture of inputs: in each layer one half is the state before,
the other half is distributed by attention, averaged over heads. The product over all layers up to
this one gives the composition of each state; the value is the share of the token's own input.

The half is an assumption: if *context-mixing ratios* are far below 1/2, tokens keep more of
themselves; see the same share with *measured* ratios. Rollout ignores norms and directions of
values, and feed-forward layers. In a decoder with cross-attention, the other text is left out.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, FlowMetric, Section
from headbook.schema import ResidualPoint, RolloutKind

if TYPE_CHECKING:
    import torch

    from headbook.attention.flow import LayerFlow


def measure(flow: "LayerFlow") -> "torch.Tensor | None":
    """Share of each token's own input. *Shape:* ``(sentence, token)``."""
    return flow.own(RolloutKind.HALF)


METRIC = FlowMetric(
    title="Attention rollout: own input",
    question="How much of its own input does a token keep?",
    formula=r"\tilde A^{(l)}_{ii},\quad \tilde A^{(l)} = "
    r"(\tfrac12 \bar A^{(l)} + \tfrac12 I)\, \tilde A^{(l-1)},\quad \tilde A^{(-1)} = I",
    reference="Abnar & Zuidema (2020), arXiv:2005.00928",
    bounds=lambda _: (0, 1),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    states=(ResidualPoint.POST,),
)
