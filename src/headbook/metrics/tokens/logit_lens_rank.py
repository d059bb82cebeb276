"""Vocabulary tokens more probable than the true one, after each layer.

The logit lens applies the model's own final norm and language-model head to the output of each
layer. Vocabulary tokens with a strictly larger logit than the true token t are counted: the next
token in causal models and decoders, the token itself in masked models (which see it: the rank
tells how soon the token is restored, not how well it is guessed). 0: the true token comes first.
The last token of a causal text has no next one and no value.

Ranks span several orders of magnitude; averages are of log10(1 + rank).
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Averaged, ChartKind, Need, Section, TokenMetric
from headbook.schema import EmbeddingSpace, ResidualPoint

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates


def measure(tokens: "TokenStates", _: EmbeddingSpace | None) -> "torch.Tensor":
    """Rank of the true token. *Shape:* ``(state, sentence, token)``."""
    return tokens.readings.ranks


METRIC = TokenMetric(
    title="Logit lens: rank of the true token",
    question="How high does each layer rank the true token?",
    unit="vocabulary tokens more probable than the true token",
    formula=r"\#\{v : p^{(l)}_i(v) > p^{(l)}_i(t_i)\}",
    reference="nostalgebraist (2020); Belrose et al. (2023), arXiv:2303.08112",
    bounds=lambda _: (0, float("inf")),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    states=(ResidualPoint.POST,),
    needs=frozenset({Need.HEAD}),
    averaged=Averaged(lambda ranks: (1 + ranks).log10(), "log10(1 + rank)"),
)
