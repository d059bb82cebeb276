"""Similar head outputs for occurrences of the same token, against chance.

Pairs of the same token among the pairs of high *similarity of head outputs*, over their number if
high pairs were drawn from all pairs of their sentence. 1: no more than chance; 20: twenty times as
many. Sentences without a repeated token add nothing.

High means a head's own top 1 % or top 5 % of pairs, or a cosine of at least 0.9; see *distance of
similar tokens*. From a sample of sentences.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Need, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token
from headbook.schema import SIMILARITY_LABELS, IntervalRule

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """High pairs of the same token, and how many are expected.

    *Shape:* ``(sentence, head, label)``.
    """
    if heads.outputs is None:
        return Ratio(heads.nothing(len(SIMILARITY_LABELS)), heads.nothing(len(SIMILARITY_LABELS)))
    share, pairs = heads.mean_over_pairs(heads.same_token), heads.sums_over_similar()
    return Ratio(heads.sums_over_similar(heads.same_token), pairs * share, pairs * (share > 0))


METRIC = ContextMetric(
    title="Repetition lift",
    question="Do repeated tokens get similar outputs?",
    unit="times expected",
    formula=r"\frac{P(t_i = t_j \mid (i,j)\ \mathrm{high})}{P(t_i = t_j)}",
    reference="Halevi et al. (2025), arXiv:2512.21956; thresholds are our own",
    bounds=lambda n: (0, max(n * n / 2, 1)),
    section=Section.OUTPUTS,
    chart=ChartKind.LABELS,
    labels=SIMILARITY_LABELS,
    headline="top 1 %",
    spreads=dict.fromkeys(SIMILARITY_LABELS, IntervalRule.FEW),
    needs=frozenset({Need.OUTPUTS}),
    measure=measure,
    examples={
        "of three pairs the one of the same token is the only one that is alike": (
            Example(identity(3), ids=(5, 6, 5), values=((1.0, 0.0), (0.0, 1.0), (1.0, 0.0))),
            {"top 1 %": 3.0, "0.9": 3.0},
        ),
        "all tokens are alike, whatever they are": (
            Example(to_token(3, 0), ids=(5, 6, 5), values=((1.0,), (1.0,), (1.0,))),
            {"top 1 %": 1.0, "0.9": 1.0},
        ),
    },
)
