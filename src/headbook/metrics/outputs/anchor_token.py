"""The most frequent token of the pairs that receive nearly the same output from a head.

The anchor of a head is the token that is most often at either end of its pairs of high similarity;
its share is that of all ends. If heads specialise, the heads of a layer have different anchors.
The same count with the tokens of each sentence shuffled, once and by a seed, says how many differ
by chance.

High is a cosine of at least *0.9*, or a head's own *top 1 %* of pairs; see *distance of similar
tokens*. A head whose output is the same for every token has the most frequent token of the texts
as its anchor, which says nothing: compare the numbers with the sink masked, and *similarity of
attention rows*. From a sample of sentences. Anchors are no numbers: only the page *Head outputs*
has them.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AnchorMetric, ChartKind, Section
from headbook.schema import SIMILARITY_LABELS

if TYPE_CHECKING:
    import torch

    from headbook.attention.head_outputs import HeadOutputs

LABELS = ("top 1 %", "0.9")


def measure(heads: "HeadOutputs") -> "torch.Tensor | None":
    """Return the number of ends of similar pairs at each token.

    *Shape:* ``(sentence, head, token, label)``.
    """
    return (
        None
        if heads.outputs is None
        else heads.ends([SIMILARITY_LABELS.index(label) for label in LABELS])
    )


METRIC = AnchorMetric(
    title="Anchor token",
    question="Around which tokens do outputs of a head gather?",
    formula=r"\operatorname{argmax}_t \sum_{(i,j)\ \mathrm{high}} [t_i = t] + [t_j = t]",
    reference="Halevi et al. (2025), arXiv:2512.21956; thresholds are our own",
    bounds=lambda _: (0, 1),
    section=Section.OUTPUTS,
    chart=ChartKind.TABLE,
    labels=LABELS,
    headline="0.9",
    measure=measure,
)
