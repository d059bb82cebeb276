"""Similar head outputs for occurrences of the same token, beyond what distance explains.

The odds that a pair of high *similarity of head outputs* is one of the same token, over the odds
of other pairs of the same text and the same distance, after Mantel and Haenszel. 1: no difference;
20: twenty times the odds. Texts without a repeated token add nothing, and of a run of one and the
same token only the first takes part. Distances from 64 tokens on count as one.

High means a head's own top 1 % or top 5 % of all pairs, or a cosine of at least 0.9; see *distance
of similar tokens*. *Repetition excess* answers the same question without a threshold. From a
sample of the texts; no value with fewer than 20 texts that have high pairs and others of both
kinds. A text with denominator 0 still adds its numerator.
"""

import math
from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Need, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token
from headbook.schema import SIMILARITY_LABELS, IntervalRule

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Mantel and Haenszel's two sums over distances. *Shape:* ``(sentence, head, label)``."""
    if heads.outputs is None:
        return Ratio(heads.nothing(len(SIMILARITY_LABELS)), heads.nothing(len(SIMILARITY_LABELS)))
    same, different = heads.cells.by_token()
    return Ratio(*heads.tensors(same.odds(different)))


METRIC = ContextMetric(
    title="Repetition lift",
    question="Do repeated tokens get similar outputs?",
    unit="odds ratio",
    formula=r"\frac{\sum_{x,d} a_{xd}\, d_{xd} / n_{xd}}{\sum_{x,d} b_{xd}\, c_{xd} / n_{xd}}",
    reference="Mantel & Haenszel (1959), doi:10.1093/jnci/22.4.719; Halevi et al. (2025), "
    "arXiv:2512.21956; thresholds are our own",
    bounds=lambda _: (0, math.inf),
    section=Section.OUTPUTS,
    chart=ChartKind.LABELS,
    labels=SIMILARITY_LABELS,
    headline="top 1 %",
    spreads=dict.fromkeys(SIMILARITY_LABELS, IntervalRule.FEW),
    needs=frozenset({Need.OUTPUTS}),
    measure=measure,
    examples={
        # Two tokens apart: 1 of 2 pairs of the same token is alike, and 1 of 3 other pairs.
        "pairs of the same token are alike twice as often, by odds": (
            Example(
                identity(7),
                ids=(5, 6, 5, 6, 7, 8, 9),
                values=(
                    (1.0, 0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0, 0.0),
                    (0.0, 0.0, 1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0, 0.0),
                    (0.0, 0.0, 0.0, 0.0, 1.0),
                ),
            ),
            {"0.9": 2.0},
        ),
        "all pairs are high, so that there is nothing to compare with": (
            Example(to_token(3, 0), ids=(5, 6, 5), values=((1.0,), (1.0,), (1.0,))),
            {"top 1 %": math.nan, "0.9": math.nan},
        ),
    },
)  # fmt: skip
