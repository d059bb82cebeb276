"""How alike the rows of attention of two tokens are, by their distance.

The cosine of two rows of weights: 1 where two tokens look at the same tokens to the same parts. It
stands beside *context similarity*: what a head writes for two tokens is the same wherever their
rows are the same, whatever the tokens mean. A head in which both numbers are high looks alike from
everywhere; one whose similarity is high with rows that differ brings the same content from
different places.

Of two rows in a causal model the later one sees more. From the same sample of sentences as context
similarity.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import Chart, ContextMetric, Example, Ratio, Section
from headbook.metrics.examples import identity, to_token
from headbook.terms import DISTANCES

if TYPE_CHECKING:
    from headbook.measures.outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Cosines of rows added up, and pairs. *Shape:* ``(sentence, head, label)``."""
    sums = heads.pooled(heads.row_similarity * heads.pairs_of_rows)
    return Ratio(sums, heads.pooled(heads.pairs_of_rows))


METRIC = ContextMetric(
    title="Row similarity",
    formula=r"\frac{\sum_m A_{im} A_{jm}}{\|A_i\|\,\|A_j\|}",
    reference="control beside Halevi et al. (2025), arXiv:2512.21956",
    bounds=lambda _: (0, 1),
    section=Section.WRITES,
    chart=Chart.DISTANCES,
    labels=DISTANCES,
    headline="all",
    measure=measure,
    examples={
        "all tokens look at the same one": (Example(to_token(3, 0)), {"all": 1.0, "2": 1.0}),
        "each token looks at itself": (Example(identity(3)), {"all": 0.0, "1": 0.0}),
        "half of what two of them look at is shared": (
            Example(((0.5, 0.5, 0.0), (0.0, 0.5, 0.5), (0.5, 0.5, 0.0))),
            {"all": 2 / 3, "1": 1 / 2, "2": 1.0},
        ),
    },
)
