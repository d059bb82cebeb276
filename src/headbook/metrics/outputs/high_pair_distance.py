"""Distance of tokens with nearly the same head output, over that of all pairs.

The mean distance of pairs of high *similarity of head outputs*, over the mean distance of all
pairs; pairs have different tokens, and distances from 64 tokens on count as 64. 1: similarity does
not depend on distance. Below 1: near tokens are grouped, above 1: distant ones.

High means the head's own most similar pairs, *top 1 %* or *top 5 %*, or a cosine of at least *0.9*:
the threshold of the paper is not public, hence all three. The limits of the top shares and the mean
distance come from a pass of their own over the same sample; with more than 450,000 pairs, limits
come from every second, third or n-th pair of each sentence. Questions about sentences and distance
take the limits of pairs of different tokens, questions about repetition those of all pairs.
Similarities are compared to six decimals. Merged studies have no limits and no mean distance of
their own, so that these numbers are missing there. From a sample of sentences; no value with fewer
than 20 that have high pairs.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Need, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token
from headbook.schema import SIMILARITY_LABELS, IntervalRule

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Distances of high pairs over the mean distance, and high pairs.

    *Shape:* ``(sentence, head, label)``.
    """
    if heads.outputs is None:
        return Ratio(heads.nothing(len(SIMILARITY_LABELS)), heads.nothing(len(SIMILARITY_LABELS)))
    return Ratio(*heads.tensors(heads.cells.distances()))


METRIC = ContextMetric(
    title="Distance of similar tokens",
    question="How far apart are tokens with similar outputs?",
    unit="times expected",
    formula=r"\frac{\frac1H \sum_{(i,j)\ \mathrm{high}} |i-j|}{\frac1N \sum_{i<j} |i-j|}",
    reference="Halevi et al. (2025), arXiv:2512.21956; thresholds are our own",
    bounds=lambda n: (0, max(n / 2, 1)),
    section=Section.OUTPUTS,
    chart=ChartKind.LABELS,
    labels=SIMILARITY_LABELS,
    headline="top 1 %",
    spreads=dict.fromkeys(SIMILARITY_LABELS, IntervalRule.FEW),
    needs=frozenset({Need.OUTPUTS}),
    measure=measure,
    examples={
        "of three tokens the outer two are alike: 2 tokens, where pairs have 4/3 on average": (
            Example(identity(3), values=((1.0, 0.0), (0.0, 1.0), (1.0, 0.0))),
            {"top 1 %": 1.5, "0.9": 1.5},
        ),
        "all tokens are alike, so that all pairs are high": (
            Example(to_token(4, 0), values=((1.0,), (1.0,), (1.0,), (1.0,))),
            {"top 1 %": 1.0, "top 5 %": 1.0, "0.9": 1.0},
        ),
    },
)
