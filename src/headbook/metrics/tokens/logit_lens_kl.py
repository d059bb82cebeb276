"""Divergence of the prediction after each layer from the final one.

The logit lens applies the model's own final norm and language-model head to the output of each
layer. The number is the Kullback–Leibler divergence of the model's final distribution over the
vocabulary from the one after this layer, in nats. 0 after the last layer, by definition.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, Need, Section, TokenMetric
from headbook.schema import EmbeddingSpace, ResidualPoint

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates


def measure(tokens: "TokenStates", _: EmbeddingSpace | None) -> "torch.Tensor":
    """Divergence from the last layer. *Shape:* ``(state, sentence, token)``."""
    return tokens.readings.divergences


METRIC = TokenMetric(
    title="Logit lens: divergence from the final distribution",
    question="How far is each layer from the final prediction?",
    unit="nats",
    formula=r"\mathrm{KL}(p^{(L)}_i \,\|\, p^{(l)}_i)",
    reference="nostalgebraist (2020); Belrose et al. (2023), arXiv:2303.08112",
    bounds=lambda _: (0, float("inf")),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    states=(ResidualPoint.POST,),
    needs=frozenset({Need.HEAD}),
)
