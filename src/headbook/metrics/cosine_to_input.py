"""How much of a token's original encoding its state still holds.

The cosine between a token's vector in a layer and the vector with which it entered layer 0 (word,
position and type embedding, after the embedding norm where the model has one). 1 means unchanged
in direction. It is taken twice in each layer: `mid`, where the attention block's output has been
added to the residual, and `out`, the layer's output. In stack `cross`, `mid` is the state after
cross-attention.

All vectors come from the model's own activations, never from a recomputation with its weights.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Chart, Section, TokenMetric

if TYPE_CHECKING:
    import torch

    from headbook.measures.tokenview import TokenView
    from headbook.terms import Space


def measure(view: "TokenView", _: "Space | None" = None) -> "torch.Tensor":
    """Cosine of each state to the input of its token. *Shape:* ``(state, sentence, token)``."""
    lengths = view.states.norm(dim=-1) * view.input.norm(dim=-1)
    products = (view.states * view.input).sum(-1)
    cosines: torch.Tensor = products / lengths.clamp_min(1e-30)
    return cosines


METRIC = TokenMetric(
    title="Cosine to the input",
    unit="cosine",
    formula=r"\cos(x^{(l)}_i,\ x^{\mathrm{input}}_i)",
    reference="The residual stream against its own start; "
    "compare Ethayarajh (2019), arXiv:1909.00512",
    bounds=lambda _: (-1, 1),
    section=Section.TRAVELS,
    chart=Chart.TRAJECTORY,
    measure=measure,
)
