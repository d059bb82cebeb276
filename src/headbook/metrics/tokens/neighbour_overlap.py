"""Share of a token's nearest vocabulary tokens that a layer keeps.

The 100 vocabulary tokens whose embeddings are nearest to a token's state are compared with the 100
nearest one layer earlier (the same kind of state; before layer 0: the input). 1: the neighbourhood
is unchanged; 0: it is replaced.

Without outlier dimensions (in files the class `no_outliers`, as for `cosine_to_input`), each of the
two states lacks its own ones.

Two baselines. *Another token*: the share of the 100 that another token of the same sentence,
chosen at random, has among its own 100 in the same layer. Some vocabulary tokens are near to
everything (hubs), and only what exceeds this share is the token's own. *By chance*: the share of
100 random vocabulary tokens, 100 / V for a vocabulary of V.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, Section, TokenMetric
from headbook.schema import EmbeddingSpace

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates


def measure(tokens: "TokenStates", space: EmbeddingSpace | None) -> "torch.Tensor":
    """Share of neighbours that stayed. *Shape:* ``(state, sentence, token)``."""
    assert space is not None
    return tokens.kept(space)


METRIC = TokenMetric(
    title="Neighbour overlap",
    question="How many nearest tokens stay from layer to layer?",
    formula=r"\frac{|N_{100}(x^{(l)}_i) \cap N_{100}(x^{(l-1)}_i)|}{100}",
    reference="After the exploration of RoBERTa by D. Avery (2024-25), recomputed from activations",
    bounds=lambda _: (0, 1),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    without_outliers=True,
    spaces=(EmbeddingSpace.POSITIONAL, EmbeddingSpace.RAW),
    beside=("neighbour_overlap_random", "neighbour_overlap_chance"),
)
