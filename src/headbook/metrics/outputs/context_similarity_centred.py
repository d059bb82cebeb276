"""Cosine of a head's outputs for two tokens, minus their mean over the sentence.

The same as *similarity of head outputs* after subtracting the mean over the sentence from each
vector, by distance alone. What is common to all outputs, such as the value of a separator that all
tokens attend to, drops out; the rest says which tokens a head groups. Over all pairs it lies near
0, since deviations from a mean cancel.

Tokens that do not differ from the mean, beyond rounding, have no direction and do not count; a
head with the same rows of attention for every query has no number. From a sample of sentences.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Need, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token
from headbook.schema import DISTANCES

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Similarities added up, and pairs. *Shape:* ``(sentence, head, label)``."""
    if heads.outputs is None:
        return Ratio(heads.nothing(len(DISTANCES)), heads.nothing(len(DISTANCES)))
    sums = heads.pooled(heads.centred * heads.pairs_away)
    return Ratio(sums, heads.pooled(heads.pairs_away))


METRIC = ContextMetric(
    title="Similarity of head outputs, centred",
    question="How alike are outputs beyond the sentence's mean?",
    variant_of="context_similarity",
    formula=r"\frac{\langle o_i - \bar o,\ o_j - \bar o \rangle}"
    r"{\|o_i - \bar o\|\,\|o_j - \bar o\|}, \qquad \bar o = \frac{1}{n} \sum_i o_i",
    reference="Halevi et al. (2025), arXiv:2512.21956, centred",
    bounds=lambda _: (-1, 1),
    section=Section.OUTPUTS,
    chart=ChartKind.DISTANCES,
    labels=DISTANCES,
    headline="all",
    needs=frozenset({Need.OUTPUTS}),
    measure=measure,
    examples={
        "two values around their mean point away from each other": (
            Example(identity(2), values=((3.0, 1.0), (1.0, 1.0))),
            {"all": -1.0, "1": -1.0},
        ),
        "the same is written everywhere, so that nothing is left": (
            Example(to_token(3, 0), values=((1.0, 2.0), (-1.0, 0.0), (0.0, 1.0))),
            {"all": float("nan")},
        ),
    },
)
