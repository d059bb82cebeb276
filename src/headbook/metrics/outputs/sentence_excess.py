"""How much more alike head outputs are within a sentence than across sentences.

In passages of several sentences, tokens of one sentence are near each other, and near tokens get
similar outputs anyway. So the mean *similarity of head outputs* of pairs within one sentence is
compared with that of pairs of two sentences, at equal distance in the same passage. At each
distance the difference has the weight n₁n₂ / (n₁ + n₂) of its numbers of pairs; distances from 64
tokens on count as one. 0: outputs do not depend on where sentences end; 0.05: cosines are 0.05
higher within a sentence.

Pairs have different tokens, since repetition has a number of its own, *repetition excess*. From a
sample of the passages that `--pack` makes; no value with fewer than 20 passages that have pairs of
both kinds.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Need, Ratio, Section
from headbook.metrics.examples import Example, identity
from headbook.schema import IntervalRule

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Differences of similarities by weight, and the weights. *Shape:* ``(sentence, head)``."""
    if heads.outputs is None or not heads.joined.any():
        return Ratio(heads.nothing(1), heads.nothing(1))
    within, across = heads.cells.by_sentence()
    return Ratio(*heads.tensors(within.excess(across)))


METRIC = ContextMetric(
    title="Sentence excess",
    question="Are outputs more alike within a sentence?",
    unit="cosine",
    formula=r"\frac{\sum_{x,d} w_{xd}\,(\bar S^{\mathrm{in}}_{xd} - \bar S^{\mathrm{out}}_{xd})}"
    r"{\sum_{x,d} w_{xd}}, \qquad w_{xd} = \frac{n^{\mathrm{in}}_{xd}\, n^{\mathrm{out}}_{xd}}"
    r"{n^{\mathrm{in}}_{xd} + n^{\mathrm{out}}_{xd}}",
    reference="Halevi et al. (2025), arXiv:2512.21956; at equal distance, our own",
    bounds=lambda _: (-2, 2),
    section=Section.OUTPUTS,
    chart=ChartKind.HEATMAP,
    spreads={"": IntervalRule.COMPARED},
    needs=frozenset({Need.OUTPUTS, Need.PASSAGES}),
    measure=measure,
    examples={
        "of neighbours, one of two pairs within a sentence is alike, the one across is not": (
            Example(
                identity(4),
                values=((1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 0.0)),
                sentences=(0, 0, 1, 1),
            ),
            1 / 2,
        ),
        "a text of one sentence": (
            Example(identity(3), values=((1.0, 0.0), (0.0, 1.0), (1.0, 0.0))),
            float("nan"),
        ),
    },
)
