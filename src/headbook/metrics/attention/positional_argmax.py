"""Share of queries whose largest weight is at each offset.

Offset: key position minus query position, from five back to five ahead. A head with 90 % or more
at one offset is a *positional head* (Voita et al. 2019). The shares need not sum to 1, since the
strongest key may be further away. Among equal weights the first counts.

In causal models the first two tokens do not count: they have hardly a choice. With the sink
masked, the strongest of the other keys counts, however weak; rows without weight on any of them do
not count. The baseline chooses one of the visible keys at random.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, identity, previous_token, to_token
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import BatchMask, ViewMask
    from headbook.attention.views import LayerAttention

REACH = 5
CAUSAL_START = 2  # the first position that counts in causal stacks
LABELS = tuple(str(offset) for offset in range(-REACH, REACH + 1))


def counted(frame: "BatchMask") -> "torch.Tensor":
    """1 for queries that count here, else 0. *Shape:* ``(sentence, 1, query)``."""
    rows = frame.rows.clone()
    if frame.stack.causal:
        rows[..., :CAUSAL_START] = 0
    return rows


def measure(layer: "LayerAttention") -> Ratio:
    """Rows whose strongest key is at each offset, and all rows.

    *Shape:* ``(sentence, head, label)``.
    """
    weight, key = layer.strongest
    rows = layer.frame.cached(counted) * (weight > 0)
    queries = key.new_tensor(range(key.shape[-1]))
    # Everything further away than the labels reach falls into a column of its own at either end.
    place = (key - queries).clamp_(-REACH - 1, REACH + 1).add_(REACH + 1)
    found = rows.new_zeros((*rows.shape[:2], len(LABELS) + 2)).scatter_add_(-1, place, rows)
    return Ratio(found[..., 1:-1], rows.sum(-1, keepdim=True))


def chance(scope: "ViewMask") -> Ratio:
    """Return the expected ratios of a head that picks a visible key at random.

    *Shape:* ``(sentence, 1, label)``.
    """
    rows = scope.frame.cached(counted).squeeze(1) * (scope.n_visible > 0)
    each = rows / scope.n_visible.clamp(min=1)
    found = rows.new_zeros((len(rows), 1, len(LABELS)))
    for index, label in enumerate(LABELS):
        found[:, 0, index] = (each * scope.sees_at(int(label))).sum(-1)
    return Ratio(found, rows.sum(-1)[:, None, None])


METRIC = AttentionMetric(
    title="Offset of the largest weight",
    question="Which heads attend at a fixed distance?",
    formula=r"P(\delta) = \frac{1}{N}\sum_i [\operatorname{argmax}_j A_{ij} = i + \delta]",
    reference="Voita et al. (2019), section 5.1, arXiv:1905.09418",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="-1",
    needs=frozenset({Need.ONE_TEXT}),
    views=(SinkView.RAW, SinkView.NOSINK),
    notable=Notable.HIGH,
    measure=measure,
    chance=chance,
    examples={
        "each token looks at itself": (Example(identity(3)), {"0": 1.0, "-1": 0.0}),
        "each of four tokens looks one back, the first at itself": (
            Example(previous_token(4)),
            {"-1": 3 / 4, "0": 1 / 4, "1": 0.0},
        ),
        "all of eight tokens look at the last": (
            Example(to_token(8, 7)),
            {"0": 1 / 8, "5": 1 / 8, "-1": 0.0},
        ),
        "of equal weights the first is the strongest": (
            Example(((0.4, 0.4, 0.2), (0.0, 0.5, 0.5), (0.0, 0.2, 0.8))),
            {"0": 1.0},
        ),
    },
)
