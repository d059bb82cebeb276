"""Cosine of the attention rows of two tokens, by their distance.

1: two tokens attend to the same keys in the same proportions. A control of *similarity of head
outputs*: outputs are the same wherever rows are the same, whatever the tokens mean. Both high: the
same keys for every query; similar outputs from different rows: the same content from different
places.

Of two rows in a causal model the later one sees more keys. From the same sample of sentences as
similarity of head outputs.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token
from headbook.schema import DISTANCES

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Cosines of rows added up, and pairs. *Shape:* ``(sentence, head, label)``."""
    sums = heads.pooled(heads.row_similarity * heads.pairs_of_rows)
    return Ratio(sums, heads.pooled(heads.pairs_of_rows))


METRIC = ContextMetric(
    title="Similarity of attention rows",
    unit="cosine",
    question="Do all words attend to the same keys?",
    formula=r"\frac{\sum_m A_{im} A_{jm}}{\|A_i\|\,\|A_j\|}",
    reference="control beside Halevi et al. (2025), arXiv:2512.21956",
    bounds=lambda _: (0, 1),
    section=Section.OUTPUTS,
    chart=ChartKind.DISTANCES,
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
