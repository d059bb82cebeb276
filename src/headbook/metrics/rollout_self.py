"""How much of a token's state is still its own input, if each layer keeps one half.

Attention rollout takes a state to be a mixture of the inputs: in each layer one half of it is what
it was before, the other half is shared out by attention, averaged over heads. Multiplied through
all layers up to this one, the mixture tells what each state is made of; this is the share of the
token's own input.

The half is an assumption: where *mixing ratios* are far below 1/2, tokens keep more of themselves
than this says; see the same share with *measured* ratios. Rollout knows neither the lengths nor
the directions of values, and no feed-forward layer. In a decoder that also looks at another text,
what comes from there is left out.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Chart, FlowMetric, Section
from headbook.terms import Rollout, State

if TYPE_CHECKING:
    import torch

    from headbook.measures.flow import FlowView


def measure(view: "FlowView") -> "torch.Tensor | None":
    """Share of each token's own input. *Shape:* ``(sentence, token)``."""
    return view.own(Rollout.HALF)


METRIC = FlowMetric(
    title="Own input by rollout",
    formula=r"\tilde A^{(l)}_{ii},\quad \tilde A^{(l)} = "
    r"(\tfrac12 \bar A^{(l)} + \tfrac12 I)\, \tilde A^{(l-1)},\quad \tilde A^{(-1)} = I",
    reference="Abnar & Zuidema (2020), arXiv:2005.00928",
    bounds=lambda _: (0, 1),
    section=Section.TRAVELS,
    chart=Chart.TRAJECTORY,
    measure=measure,
    states=(State.OUT,),
)
