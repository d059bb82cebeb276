"""Share of attention at each offset from query to key.

Offset: key position minus query position. Negative offsets are earlier keys, positive ones later
keys, 0 is the token itself. Offsets beyond 32 are pooled into the ends. One sharp peak: position
decides; a flat profile: something else does.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, identity, previous_token

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention

REACH = 32
LABELS = tuple(str(offset) for offset in range(-REACH, REACH + 1))


def measure(layer: "LayerAttention") -> Ratio:
    """Mass at each offset, and all mass. *Shape:* ``(sentence, head, label)``."""
    sums = layer.by_offset
    n = (sums.shape[-1] + 1) // 2
    reach = min(n - 1, REACH)
    found = sums[..., n - 1 - reach : n + reach].clone()
    found[..., 0] += sums[..., : n - 1 - reach].sum(-1)
    found[..., -1] += sums[..., n + reach :].sum(-1)
    given = range(REACH - reach, REACH + reach + 1)
    return Ratio(found, layer.total.unsqueeze(-1), layer.frame.n_queries, given)


METRIC = AttentionMetric(
    title="Offset profile",
    question="At which distances do heads attend?",
    formula=r"P(\delta) = \frac{\sum_{i} A_{i,\,i+\delta}}{\sum_{i,j} A_{ij}}",
    reference="Attention mass by relative position; compare Vig & Belinkov (2019), section 5",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.PROFILE,
    labels=LABELS,
    headline="-1",
    needs=frozenset({Need.ONE_TEXT}),
    notable=Notable.HIGH,
    measure=measure,
    examples={
        "each token looks at itself": (Example(identity(3)), {"0": 1.0, "-1": 0.0}),
        "each of four tokens looks one back": (
            Example(previous_token(4)),
            {"-1": 3 / 4, "0": 1 / 4, "1": 0.0},
        ),
    },
)
