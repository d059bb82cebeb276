"""Share of nearest vocabulary tokens in common with another token.

The share of the 100 vocabulary tokens nearest to a token's state that are also among the 100
nearest to another token of the same sentence, in the same layer. It is what the neighbour overlap
from layer to layer must exceed: vocabulary tokens that are near to many states (hubs) stay near.
The other token is not special, and as many places further on as the sum of the sentence's token
ids says: at random, but the same in every run. A sentence of one token has no value.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, Section, TokenMetric
from headbook.schema import EmbeddingSpace

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates


def measure(tokens: "TokenStates", space: EmbeddingSpace | None) -> "torch.Tensor":
    """Share of neighbours in common. *Shape:* ``(state, sentence, token)``."""
    assert space is not None
    return tokens.shared(space)


METRIC = TokenMetric(
    title="Neighbours shared with another token",
    question="How many nearest tokens do two tokens share?",
    variant_of="neighbour_overlap",
    formula=r"\frac{|N_{100}(x^{(l)}_i) \cap N_{100}(x^{(l)}_j)|}{100}",
    reference="Hubness: Radovanović et al. (2010), Journal of Machine Learning Research 11",
    bounds=lambda _: (0, 1),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    spaces=(EmbeddingSpace.POSITIONAL, EmbeddingSpace.RAW),
    beside=("neighbour_overlap_chance",),
)
