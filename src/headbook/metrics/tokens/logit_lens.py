"""Predictions of the model if it stopped after a layer.

The model's own final norm and language-model head are applied to the output of each layer: the ten
vocabulary tokens with the largest logits, beside the rank and probability of the true token and
the divergence from the final prediction. The number in the token tables is the probability of the
first of the ten; the tokens themselves are in `nearest.csv`, space `logits`.

Only for checkpoints with a language-model head. Everything between the last layer and the logits
(norm, head, biases, scaling) is the model's own code, run on the state as if it had left the last
layer. Heads are trained on the last layer alone: earlier predictions may be poor because the state
is not yet in their basis.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, Need, Section, TokenMetric
from headbook.schema import EmbeddingSpace, ResidualPoint

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates


def measure(tokens: "TokenStates", _: EmbeddingSpace | None) -> "torch.Tensor":
    """Probability of the most probable entry. *Shape:* ``(state, sentence, token)``."""
    return tokens.readings.shares[..., 0]


METRIC = TokenMetric(
    title="Logit lens",
    question="What would each layer predict?",
    formula=r"\mathrm{top}_{10,\,v}\ p^{(l)}_i(v), \quad p^{(l)}_i = "
    r"\mathrm{softmax}(\mathrm{head}(\mathrm{norm}(x^{(l)}_i)))",
    reference="nostalgebraist (2020); Belrose et al. (2023), arXiv:2303.08112",
    bounds=lambda _: (0, 1),
    section=Section.STATES,
    chart=ChartKind.TABLE,
    measure=measure,
    states=(ResidualPoint.POST,),
    needs=frozenset({Need.HEAD}),
)
