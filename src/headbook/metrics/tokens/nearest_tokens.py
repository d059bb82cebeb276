"""Vocabulary tokens nearest to a token's state.

The vocabulary tokens whose embeddings have the highest cosine to the state, layer by layer: ten,
and the token itself if it is among them. The number in the token tables is the cosine to the
nearest one; the tokens themselves are in `nearest.csv`, where the token itself and special tokens
are marked.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, Section, TokenMetric
from headbook.schema import EmbeddingSpace

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates


def measure(tokens: "TokenStates", space: EmbeddingSpace | None) -> "torch.Tensor":
    """Cosine to the nearest encoding. *Shape:* ``(state, sentence, token)``."""
    assert space is not None
    return tokens.compared(space).cosines[..., 0]


METRIC = TokenMetric(
    title="Nearest tokens",
    question="Which vocabulary tokens is a state nearest to?",
    unit="cosine",
    formula=r"\mathrm{top}_{10,\,v}\ \cos(x^{(l)}_i, e_{v,i})",
    reference="Original encodings as in the vocabulary rank",
    bounds=lambda _: (-1, 1),
    section=Section.STATES,
    chart=ChartKind.TABLE,
    measure=measure,
    spaces=(EmbeddingSpace.POSITIONAL, EmbeddingSpace.RAW),
)
