"""How many other words are nearer to a token's state than the token's own word.

For each state all original encodings of the vocabulary are compared by cosine, and those strictly
nearer than the token's own are counted. 0 means that the token's own encoding is still the
nearest.

- `positional`: the encoding of an entry is what the embedding block would give it *at the token's
  own position* (word, position and type embedding, norm included). Only for models that add
  positions at their input.
- `raw`: the word embedding alone.

Ranks span several orders of magnitude; averages are of log10(1 + rank).
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Averaged, Chart, Section, TokenMetric
from headbook.terms import Space

if TYPE_CHECKING:
    import torch

    from headbook.measures.tokenview import TokenView


def measure(view: "TokenView", space: Space | None) -> "torch.Tensor":
    """Rank of each token's own encoding. *Shape:* ``(state, sentence, token)``."""
    assert space is not None
    return view.compared(space).ranks


METRIC = TokenMetric(
    title="Vocabulary rank",
    unit="entries nearer than the token's own",
    formula=r"\#\{v : \cos(x^{(l)}_i, e_{v,i}) > \cos(x^{(l)}_i, e_{w_i,i})\}",
    reference="After the exploration of RoBERTa by D. Avery (2024-25), recomputed from activations",
    bounds=lambda _: (0, float("inf")),
    section=Section.TRAVELS,
    chart=Chart.TRAJECTORY,
    measure=measure,
    spaces=(Space.POSITIONAL, Space.RAW),
    averaged=Averaged(lambda ranks: (1 + ranks).log10(), "log10(1 + rank)"),
)
