"""How much of what an attention block puts out comes from other tokens.

The block's output for a token, residual included, is a sum over tokens: what each other token
brings (its value, weighted by attention, through the output projection, all heads together), and
what the token keeps (its own value, weighted in the same way, and the residual). The ratio
compares the lengths of the two sums. 0: nothing moves between tokens; 1/2: as much comes in as is
kept.

In post-norm models such as BERT both sums go through the norm that follows, with mean and divisor
of the whole. Pre-norm models such as GPT-2 and Llama have no norm there. A norm between block and
residual (Gemma) counts for what the block puts out. Biases of values go with their tokens; those of
the output projection and of the norm belong to no token and are left out. Two sums can have
lengths that add up to more than the whole, where they cancel each other.

Taken in self-attention; the values of cross-attention all come from another text.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Chart, FlowMetric, Need, Section
from headbook.terms import State

if TYPE_CHECKING:
    import torch

    from headbook.measures.flow import FlowView


def measure(view: "FlowView") -> "torch.Tensor | None":
    """Share of what other tokens bring. *Shape:* ``(sentence, token)``."""
    return view.mixing


METRIC = FlowMetric(
    title="Mixing ratio",
    formula=r"\frac{\|\sum_{j \ne i} F(x_j \to i)\|}"
    r"{\|\sum_{j \ne i} F(x_j \to i)\| + \|F(x_i \to i) + x_i\|}",
    reference="Kobayashi et al. (2021), arXiv:2109.07152",
    bounds=lambda _: (0, 1),
    section=Section.TRAVELS,
    chart=Chart.TRAJECTORY,
    measure=measure,
    states=(State.MID,),
    needs=frozenset({Need.VALUES}),
)
