"""How much more alike head outputs are for the same token than for different ones.

The mean *similarity of head outputs* of pairs of the same token, minus that of pairs of different
tokens at equal distance in the same text. At each distance the difference has the weight
n₁n₂ / (n₁ + n₂) of its numbers of pairs; distances from 64 tokens on count as one. 0: outputs do
not depend on which token attends; 0.2: cosines are 0.2 higher for the same token.

Of a run of one and the same token, such as a row of signs, only the first takes part. From a
sample of the texts; no value with fewer than 20 texts that have pairs of both kinds.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Need, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token
from headbook.schema import IntervalRule

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Differences of similarities by weight, and the weights. *Shape:* ``(sentence, head)``."""
    if heads.outputs is None:
        return Ratio(heads.nothing(1), heads.nothing(1))
    same, different = heads.cells.by_token()
    return Ratio(*heads.tensors(same.excess(different)))


METRIC = ContextMetric(
    title="Repetition excess",
    question="Are outputs more alike for the same token?",
    unit="cosine",
    formula=r"\frac{\sum_{x,d} w_{xd}\,(\bar S^{=}_{xd} - \bar S^{\ne}_{xd})}"
    r"{\sum_{x,d} w_{xd}}, \qquad w_{xd} = \frac{n^{=}_{xd}\, n^{\ne}_{xd}}"
    r"{n^{=}_{xd} + n^{\ne}_{xd}}",
    reference="Halevi et al. (2025), arXiv:2512.21956; at equal distance, our own",
    bounds=lambda _: (-2, 2),
    section=Section.OUTPUTS,
    chart=ChartKind.HEATMAP,
    spreads={"": IntervalRule.COMPARED},
    needs=frozenset({Need.OUTPUTS}),
    measure=measure,
    examples={
        "two tokens apart, the pair of the same token has a cosine of 0.6, the other one 0": (
            Example(
                identity(4),
                ids=(5, 6, 5, 7),
                values=((1.0, 0.0), (0.0, 1.0), (0.6, 0.8), (1.0, 0.0)),
            ),
            0.6,
        ),
        "all outputs are alike": (
            Example(to_token(4, 0), ids=(5, 6, 5, 7), values=((1.0,), (1.0,), (1.0,), (1.0,))),
            0.0,
        ),
        "a run of one token, of which the first alone takes part": (
            Example(identity(3), ids=(5, 5, 5), values=((1.0,), (1.0,), (1.0,))),
            float("nan"),
        ),
    },
)
