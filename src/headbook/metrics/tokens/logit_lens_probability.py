"""Probability of the true token after each layer.

The logit lens applies the model's own final norm and language-model head to the output of each
layer. The number is the probability of the true token t: the next token in causal models and
decoders, the token itself in masked models. After the last layer it is the model's own
probability. The last token of a causal text has no next one and no value.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, Need, Section, TokenMetric
from headbook.schema import EmbeddingSpace, ResidualPoint

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates


def measure(tokens: "TokenStates", _: EmbeddingSpace | None) -> "torch.Tensor":
    """Probability of the true token. *Shape:* ``(state, sentence, token)``."""
    return tokens.readings.probabilities


METRIC = TokenMetric(
    title="Logit lens: probability of the true token",
    question="How likely does each layer find the true token?",
    formula=r"p^{(l)}_i(t_i)",
    reference="nostalgebraist (2020); Belrose et al. (2023), arXiv:2303.08112",
    bounds=lambda _: (0, 1),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    states=(ResidualPoint.POST,),
    needs=frozenset({Need.HEAD}),
)
