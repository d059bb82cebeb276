"""The token around which a head builds its pairs of high similarity.

Of the pairs for which a head writes nearly the same, the token that stands most often at either end
is the head's anchor; its share is that of all ends. If heads specialise, the heads of a layer have
different anchors. How many there would be by chance is taken from the same pairs with shuffled
labels: for each head and sentence the tokens change places among the positions that count, once, by
a seed.

High is a cosine of at least *0.9*, or a head's own *top 1 %* of pairs; see *distance of similar
tokens*. A head that writes the same everywhere has the most frequent token of the texts as its
anchor, which says nothing: compare view nosink, and *row similarity*. From a sample of sentences.
Anchors are no numbers: they stand on the page *Context* only.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AnchorMetric, Chart, Section
from headbook.terms import HIGH

if TYPE_CHECKING:
    import torch

    from headbook.measures.outputs import HeadOutputs

LABELS = ("top 1 %", "0.9")


def measure(heads: "HeadOutputs") -> "torch.Tensor | None":
    """Ends of high pairs at each token. *Shape:* ``(sentence, head, token, label)``."""
    return None if heads.outputs is None else heads.ends([HIGH.index(label) for label in LABELS])


METRIC = AnchorMetric(
    title="Anchor token",
    formula=r"\operatorname{argmax}_t \sum_{(i,j)\ \mathrm{high}} [t_i = t] + [t_j = t]",
    reference="Halevi et al. (2025), arXiv:2512.21956; thresholds are our own",
    bounds=lambda _: (0, 1),
    section=Section.WRITES,
    chart=Chart.TABLE,
    labels=LABELS,
    headline="0.9",
    measure=measure,
)
