"""How alike what a head writes for two tokens is, beside what it writes for all of them.

The same as *context similarity* after the mean over the sentence has been taken away from each
vector. What a head writes everywhere, such as the value of a separator that all tokens look at,
counts no more; what is left says which tokens the head puts together. Over all pairs it lies near
0, since deviations from a mean cancel each other.

Tokens that do not differ from the mean, by more than rounding, have no direction and do not count;
a head with the same rows of attention everywhere has no number at all. From a sample of sentences.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Chart, ContextMetric, Example, Need, Ratio, Section
from headbook.metrics.examples import identity, to_token
from headbook.terms import DISTANCES

if TYPE_CHECKING:
    from headbook.measures.outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Similarities added up, and pairs. *Shape:* ``(sentence, head, label)``."""
    if heads.outputs is None:
        return Ratio(heads.nothing(len(DISTANCES)), heads.nothing(len(DISTANCES)))
    sums = heads.pooled(heads.centred * heads.pairs_away)
    return Ratio(sums, heads.pooled(heads.pairs_away))


METRIC = ContextMetric(
    title="Context similarity, centred",
    formula=r"\frac{\langle o_i - \bar o,\ o_j - \bar o \rangle}"
    r"{\|o_i - \bar o\|\,\|o_j - \bar o\|}, \qquad \bar o = \frac{1}{n} \sum_i o_i",
    reference="Halevi et al. (2025), arXiv:2512.21956, centred",
    bounds=lambda _: (-1, 1),
    section=Section.WRITES,
    chart=Chart.DISTANCES,
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
