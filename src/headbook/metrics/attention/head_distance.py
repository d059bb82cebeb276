"""How different the attention of two heads is for the same queries.

The rows of both heads for one query are two distributions over the same keys. Their Jensen–Shannon
divergence is 0 if they are the same and ln 2, 0.69 nats, if no key receives weight from both. The
value of a pair is the mean over queries. Every two heads of an attention type are compared, across
layers, too.

Heads with the same sink are similar for that reason alone; with the sink masked and renormalised
it is gone. Rows with more than 90 % on the sink are dropped then, and a query counts for two heads
only if both rows are kept, so each pair has its own number of rows.

Clark et al. add divergences over tokens, and their code mixes a little uniform attention into each
row first. Here it is the mean over tokens, of the rows as computed. Taken on a sample of the
sentences.

In attention types of more than 144 heads only similar pairs are compared: for each head, whatever
is done to the sink, the six others at the smallest squared Hellinger distance, 1 minus the mean
over queries of the sum of the square roots of products of weights (Bhattacharyya's affinity). Of
all pairs that is one matrix product. It is 0 and 1 where the divergence is 0 and ln 2, and nearly
the same number for similar pairs. Groups, order and matrix of similar heads use it there for pairs
that were not compared, and pages say so.
"""

from math import log
from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, PairMetric, Section
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch

BLOCK = 2**19  # weights that are mixed at a time
LEAST = 1e-37  # stands for a weight of 0 under a logarithm; any number format holds it


def measure(rows: "torch.Tensor", trusted: "torch.Tensor") -> "torch.Tensor":
    """Divergence of every two heads, added over the rows that count in both."""
    n_heads, n_rows, n_keys = rows.shape
    # With m = (p + q) / 2, the divergence is H(m) - (H(p) + H(q)) / 2.
    halves, own = rows / 2, _negentropy(rows) / 2
    found = rows.new_zeros(n_heads, n_heads)
    for head in range(n_heads - 1):
        step = max(1, BLOCK // ((n_heads - 1 - head) * n_keys))
        for start in range(0, n_rows, step):
            part = slice(start, start + step)
            mixed = _negentropy(halves[head + 1 :, part] + halves[head, part])
            apart = own[head + 1 :, part] + own[head, part] - mixed
            # Rounding must not leave less than nothing.
            apart = apart.clamp_(0, log(2)) * trusted[head + 1 :, part] * trusted[head, part]
            found[head, head + 1 :] += apart.sum(-1)
    return found + found.mT


def some(
    rows: "torch.Tensor", trusted: "torch.Tensor", one: "torch.Tensor", other: "torch.Tensor"
) -> "torch.Tensor":
    """Return the summed divergence of chosen pairs of heads. *Shape:* ``(pair,)``."""
    n_keys, own = rows.shape[2], _negentropy(rows)
    found = rows.new_zeros(len(one))
    step = max(1, BLOCK // max(1, rows.shape[1] * n_keys))
    for start in range(0, len(one), step):
        part = slice(start, start + step)
        p, q = one[part], other[part]
        apart = (own[p] + own[q]) / 2 - _negentropy((rows[p] + rows[q]) / 2)
        apart = apart.clamp_(0, log(2)) * trusted[p] * trusted[q]
        found[part] = apart.sum(-1)
    return found


def alike(rows: "torch.Tensor", trusted: "torch.Tensor") -> "torch.Tensor":
    """Bhattacharyya's affinity of every two heads, added over the rows that count in both."""
    roots = (rows.clamp_min(0).sqrt() * trusted.unsqueeze(-1)).flatten(1)
    return roots @ roots.mT


def _negentropy(weights: "torch.Tensor") -> "torch.Tensor":
    """Sum of A ln A over keys."""
    return weights.clamp_min(LEAST).log_().mul_(weights).sum(-1)


METRIC = PairMetric(
    title="Jensen–Shannon divergence of two heads",
    question="How differently do two heads attend?",
    unit="nats",
    formula=r"\frac{1}{|R|} \sum_{i \in R} \left[ H\left(\frac{A_i + B_i}{2}\right)"
    r" - \frac{H(A_i) + H(B_i)}{2} \right]",
    reference="Clark et al. (2019), section 6, arXiv:1906.04341",
    bounds=lambda _: (0, log(2)),
    section=Section.PATTERNS,
    chart=ChartKind.PAIRS,
    measure=measure,
    measure_pairs=some,
    similarity=alike,
    views=(SinkView.RAW, SinkView.RENORM),
)
