"""How much of a token's input embedding its state retains.

The cosine between a token's vector in a layer and the vector with which it entered layer 0 (token,
position and type embedding, after the embedding norm if the model has one). 1: unchanged in
direction. It is taken twice in each layer: after attention (in files `mid`), where the attention
output has been added to the residual, and after the layer (`out`). In cross-attention, `mid` is
the state after cross-attention.

A few dimensions of a state can be so much larger than all others that they decide the cosine. The
mean over all tokens of text is therefore also given without the outlier dimensions of each state
(in files the class `no_outliers`, on the sample of `--vocabulary-sentences`): those whose mean over
all tokens of text lies more than 6 robust standard deviations from the median of all dimensions'
means (1.4826 times the median absolute deviation). The input lacks them, too.

All vectors are the model's own activations, never recomputed from its weights.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, Section, TokenMetric

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates
    from headbook.schema import EmbeddingSpace


def measure(tokens: "TokenStates", _: "EmbeddingSpace | None" = None) -> "torch.Tensor":
    """Cosine of each state to the input of its token. *Shape:* ``(state, sentence, token)``."""
    lengths = tokens.states.norm(dim=-1) * tokens.input.norm(dim=-1)
    products = (tokens.states * tokens.input).sum(-1)
    cosines: torch.Tensor = products / lengths.clamp_min(1e-30)
    return cosines


METRIC = TokenMetric(
    title="Cosine to the input embedding",
    question="How similar does a token stay to its embedding?",
    unit="cosine",
    formula=r"\cos(x^{(l)}_i,\ x^{\mathrm{input}}_i)",
    reference="The residual stream against its own start; "
    "compare Ethayarajh (2019), arXiv:1909.00512",
    bounds=lambda _: (-1, 1),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    without_outliers=True,
)
