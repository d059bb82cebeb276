"""How alike what a head writes for two tokens is, by their distance.

For each token a head writes the mean of the values it looks at, weighted by its attention; this is
taken before the output projection, where every head has a vector of its own. The similarity of two
tokens is the cosine of their vectors: 1 where the head writes the same for both. Label *all* is the
mean over all pairs of a sentence, the others over pairs so many tokens apart.

A head whose rows of attention are all the same writes the same for every token: high similarity
says nothing then. *Row similarity* shows where that is so, and view nosink takes the sink's keys
out of the sum and compares what is left. Lengths do not count, so that renormalised rows would give
the same. Special tokens have no part in it.

From a sample of sentences. Uniform attention has no values, so that there is nothing to compare
with.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Chart, ContextMetric, Example, Need, Ratio, Section
from headbook.metrics.examples import identity, to_token
from headbook.terms import DISTANCES

if TYPE_CHECKING:
    from headbook.measures.outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Similarities added up, and pairs. *Shape:* ``(sentence, head, label)``."""
    if heads.similarity is None:
        return Ratio(heads.nothing(len(DISTANCES)), heads.nothing(len(DISTANCES)))
    return Ratio(heads.pooled(heads.similarity * heads.pairs), heads.pooled(heads.pairs))


METRIC = ContextMetric(
    title="Context similarity",
    formula=r"S_{ij} = \frac{\langle o_i, o_j \rangle}{\|o_i\|\,\|o_j\|}, \qquad "
    r"o_i = \sum_m A_{im}\, v_m",
    reference="Halevi et al. (2025), arXiv:2512.21956; its details are not public, so that this is "
    "an operational definition",
    bounds=lambda _: (-1, 1),
    section=Section.WRITES,
    chart=Chart.DISTANCES,
    labels=DISTANCES,
    headline="all",
    needs=frozenset({Need.OUTPUTS}),
    measure=measure,
    examples={
        "each token looks at itself: the similarity is that of the values": (
            Example(identity(3), values=((1.0, 0.0), (1.0, 0.0), (0.0, 1.0))),
            {"all": 1 / 3, "1": 1 / 2, "2": 0.0},
        ),
        "all look at one token, so that the same is written everywhere": (
            Example(to_token(3, 0), values=((1.0, 2.0), (-1.0, 0.0), (0.0, 1.0))),
            {"all": 1.0, "1": 1.0, "2": 1.0},
        ),
    },
)
