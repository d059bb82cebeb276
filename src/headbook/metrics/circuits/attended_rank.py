"""Rank of the attended token among all tokens that a head's output promotes.

For each of the head's twelve strongest sentences of the sample: the largest attention weight, off
the sink and the token itself, leads from a query to a key. The head's output at the query, minus
its mean over the other half of the sentences, raises some logits and lowers others; the token of
the key has a rank among all tokens of the vocabulary by this contribution, 1 for the most promoted
one. The number is the median rank over the sentences.

- **in top 10**: number of sentences in which the attended token is among the ten most promoted.
- **in bottom 10**: number of sentences in which it is among the ten most suppressed.

Near 1, a head *promotes the token that it attends to* (a mover head); near the size of the
vocabulary, it *suppresses* it. In between, the head writes something else. Contributions are
direct: from the head through the residual stream to the logits, with the scale of the final norm
held constant. Queries are ordinary tokens after the first position and, in masked language models,
masked tokens.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import ChartKind, CircuitMetric, Notable, Section

if TYPE_CHECKING:
    from headbook.analysis.arrays import Ints

N_EXTREME = 10  # ranks that count as top or bottom
LABELS = MEDIAN, TOP, BOTTOM = "", f"in top {N_EXTREME}", f"in bottom {N_EXTREME}"


def measure(ranks: "Ints", n_tokens: int) -> dict[str, float]:
    """Return the median of ranks from 1, and the numbers of first and last ranks."""
    return {
        MEDIAN: float(np.median(ranks)),
        TOP: float((ranks <= N_EXTREME).sum()),
        BOTTOM: float((ranks > n_tokens - N_EXTREME).sum()),
    }


METRIC = CircuitMetric(
    title="Rank of the attended token",
    unit="ranks",
    question="Which heads promote the token that they attend to?",
    formula=r"\operatorname{median}_{x}\ "
    r"\mathrm{rank}_{t_j}\!\left[\frac{(z_i - \bar z)\,W_O W_U}{\sigma_i}\right],"
    r"\quad (i, j) = \operatorname{argmax} A",
    reference="Elhage et al. (2021); Wang et al. (2022), arXiv:2211.00593",
    bounds=lambda _: (0, math.inf),
    section=Section.CIRCUITS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    notable=Notable.HIGH,
    low_labels=frozenset({MEDIAN}),
    measure=measure,
)
