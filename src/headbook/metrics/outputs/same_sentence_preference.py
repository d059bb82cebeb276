"""Similar head outputs within a sentence, beyond what distance explains.

In passages of several sentences, tokens of one sentence are near each other, so a head that groups
neighbours prefers its own sentence for that reason alone. Here pairs are compared with pairs of
the same passage and the same distance: the odds that a pair of high *similarity of head outputs*
lies within one sentence, over the odds of other pairs, after Mantel and Haenszel. 1: no
difference; 2: twice the odds. Distances from 64 tokens on count as one.

Pairs have different tokens. High means the top 1 % or top 5 % of a head's pairs of different
tokens, or a cosine of at least 0.9; see *distance of similar tokens*. *Sentence excess* answers
the same question without a threshold. From a sample of the passages that `--pack` makes; no value
with fewer than 20 passages that have high pairs and others of both kinds. A passage with
denominator 0 still adds its numerator.
"""

import math
from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Need, Ratio, Section
from headbook.metrics.examples import Example, identity
from headbook.schema import SIMILARITY_LABELS, IntervalRule

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Mantel and Haenszel's two sums over distances. *Shape:* ``(sentence, head, label)``."""
    if heads.outputs is None or not heads.joined.any():
        return Ratio(heads.nothing(len(SIMILARITY_LABELS)), heads.nothing(len(SIMILARITY_LABELS)))
    within, across = heads.cells.by_sentence()
    return Ratio(*heads.tensors(within.odds(across)))


METRIC = ContextMetric(
    title="Same-sentence preference",
    question="Do similar outputs stay inside a sentence?",
    unit="odds ratio",
    formula=r"\frac{\sum_{x,d} a_{xd}\, d_{xd} / n_{xd}}{\sum_{x,d} b_{xd}\, c_{xd} / n_{xd}}",
    reference="Mantel & Haenszel (1959), doi:10.1093/jnci/22.4.719; Halevi et al. (2025), "
    "arXiv:2512.21956",
    bounds=lambda _: (0, math.inf),
    section=Section.OUTPUTS,
    chart=ChartKind.LABELS,
    labels=SIMILARITY_LABELS,
    headline="top 1 %",
    spreads=dict.fromkeys(SIMILARITY_LABELS, IntervalRule.FEW),
    needs=frozenset({Need.OUTPUTS, Need.PASSAGES}),
    measure=measure,
    examples={
        # Of neighbours 2 of 3 pairs within a sentence are alike, 1 of 2 across; others: none.
        "neighbours of one sentence are alike twice as often, by odds": (
            Example(
                identity(6),
                values=(*[(1.0, 0.0, 0.0)] * 2, *[(0.0, 1.0, 0.0)] * 2, *[(0.0, 0.0, 1.0)] * 2),
                sentences=(0, 0, 0, 0, 1, 2),
            ),
            {"0.9": 2.0},
        ),
        "a text of one sentence": (
            Example(identity(3), values=((1.0, 0.0), (0.0, 1.0), (1.0, 0.0))),
            {"0.9": math.nan},
        ),
    },
)
