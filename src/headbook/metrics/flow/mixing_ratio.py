"""Contribution of other tokens to an attention block's output, against the token's own.

The block's output for a token, residual included, is a sum over tokens: the contribution of each
other token (its value, weighted by attention, through the output projection, summed over heads),
and that of the token itself (its own weighted value, and the residual). The ratio compares the
norms of the two sums. 0: no mixing; 1/2: equal parts.

In post-norm models such as BERT both sums go through the norm that follows, with mean and divisor
of the whole. Pre-norm models such as GPT-2 and Llama have no norm there. A norm between block and
residual (Gemma) counts for the output of the block, and so does what stands between heads and
output projection: the token's own gate (Qwen3-Next) or a norm (BitNet). Biases of values go with
their tokens; those of the output projection and of the norm belong to no token and are left out.
The norms of the two sums can add up to more than that of the whole, where they cancel.

Taken in self-attention; the values of cross-attention all come from another text.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, FlowMetric, Need, Section
from headbook.schema import ResidualPoint

if TYPE_CHECKING:
    import torch

    from headbook.attention.flow import LayerFlow


def measure(flow: "LayerFlow") -> "torch.Tensor | None":
    """Share of what other tokens bring. *Shape:* ``(sentence, token)``."""
    return flow.mixing


METRIC = FlowMetric(
    title="Context-mixing ratio",
    question="How much does attention mix in from other tokens?",
    formula=r"\frac{\|\sum_{j \ne i} F(x_j \to i)\|}"
    r"{\|\sum_{j \ne i} F(x_j \to i)\| + \|F(x_i \to i) + x_i\|}",
    reference="Kobayashi et al. (2021), arXiv:2109.07152",
    bounds=lambda _: (0, 1),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    states=(ResidualPoint.MID,),
    needs=frozenset({Need.VALUES}),
)
