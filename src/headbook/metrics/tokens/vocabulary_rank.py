"""Vocabulary tokens nearer to a token's state than its own.

For each state all embeddings of the vocabulary are compared by cosine, and those strictly nearer
than the token's own are counted. 0: the token's own embedding is still the nearest.

- token + position embedding (in files `positional`): what the embedding block gives for a
  vocabulary token *at the token's own position* (token, position and type embedding, norm
  included). Only for models that add positions at their input.
- token embedding (in files `raw`): the token embedding alone.

Without the outlier dimensions of a state (in files the class `no_outliers`, as for
`cosine_to_input`), the embeddings of the vocabulary lack them, too.

Ranks span several orders of magnitude; averages are of log10(1 + rank).
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Averaged, ChartKind, Section, TokenMetric
from headbook.schema import EmbeddingSpace

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates


def measure(tokens: "TokenStates", space: EmbeddingSpace | None) -> "torch.Tensor":
    """Rank of each token's own encoding. *Shape:* ``(state, sentence, token)``."""
    assert space is not None
    return tokens.compared(space).ranks


METRIC = TokenMetric(
    title="Vocabulary rank",
    question="Is a token still nearest to its own embedding?",
    unit="vocabulary tokens nearer than the token's own",
    formula=r"\#\{v : \cos(x^{(l)}_i, e_{v,i}) > \cos(x^{(l)}_i, e_{w_i,i})\}",
    reference="After the exploration of RoBERTa by D. Avery (2024-25), recomputed from activations",
    bounds=lambda _: (0, float("inf")),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    without_outliers=True,
    spaces=(EmbeddingSpace.POSITIONAL, EmbeddingSpace.RAW),
    averaged=Averaged(lambda ranks: (1 + ranks).log10(), "log10(1 + rank)"),
)
