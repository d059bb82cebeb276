"""The token type whose pairs with other tokens receive nearly the same output most often.

A pair is high if its *similarity of head outputs* is in the top 1 % of the head's pairs of
different tokens. The lift of a token type is the share of its pairs that are high, over 1 %: 5
means that its pairs are high five times as often as those of all tokens. The anchor of a head is
the type with the highest lower end of the lift, two standard errors below it with texts as
clusters, among the types in at least 10 texts.

If heads specialise, the heads of a layer have different anchors. So each layer has the number of
different anchors whose lower end is above 1, and beside it the same number with the token types of
each text permuted, once and by a seed, as chance gives it.

Of a run of one and the same token only the first takes part. From a sample of the texts; merged
studies have none. Anchors are no numbers: pages have them, tables and files do not.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AnchorMetric, ChartKind, Section

if TYPE_CHECKING:
    import torch

    from headbook.attention.head_outputs import HeadOutputs

LABELS = ("top 1 %",)


def measure(heads: "HeadOutputs") -> "torch.Tensor | None":
    """Return the number of high pairs of different tokens of each token.

    *Shape:* ``(sentence, head, token, label)``.
    """
    return None if heads.outputs is None else heads.tensor(heads.cells.ends[..., 1:])


METRIC = AnchorMetric(
    title="Anchor token",
    question="Around which tokens do outputs of a head gather?",
    formula=r"\operatorname{argmax}_t \left(\frac{P((i,j)\ \mathrm{high} \mid t \in \{t_i, t_j\})}"
    r"{0.01} - 2\,\mathrm{s.e.}\right)",
    reference="Halevi et al. (2025), arXiv:2512.21956; thresholds are our own",
    bounds=lambda _: (0, 100),
    unit="times 1 %",
    section=Section.OUTPUTS,
    chart=ChartKind.TABLE,
    labels=LABELS,
    headline="top 1 %",
    measure=measure,
)
