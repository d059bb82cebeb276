"""Expected overlap of two random sets of vocabulary tokens.

Of 100 vocabulary tokens, the share expected among 100 others drawn at random from a vocabulary of
V: 100 / V, the same for every token, state and layer. A baseline of the neighbour overlap; in
vocabularies of at most 100 it is 1, and overlaps say nothing.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, Section, TokenMetric
from headbook.schema import EmbeddingSpace

if TYPE_CHECKING:
    import torch

    from headbook.attention.token_states import TokenStates


def measure(tokens: "TokenStates", _: EmbeddingSpace | None) -> "torch.Tensor":
    """Return the share by chance, the same at every token.

    *Shape:* ``(state, sentence, token)``.
    """
    return tokens.chance()


METRIC = TokenMetric(
    title="Neighbours shared by chance",
    question="How many nearest tokens would stay by chance?",
    variant_of="neighbour_overlap",
    formula=r"\frac{100}{V}",
    reference="Expected overlap of two independent sets",
    bounds=lambda _: (0, 1),
    section=Section.STATES,
    chart=ChartKind.TRAJECTORY,
    measure=measure,
    spaces=(EmbeddingSpace.RAW,),
    constant=True,
)
