"""Mean cosine of a head's outputs for two tokens of different texts.

The baseline of *similarity of head outputs*, which compares tokens of one text. Both high: the head
writes one vector, whatever the text. High within a text and low here: the tokens of a text receive
the same vector, but each text has its own. Near 0 here: outputs of unrelated tokens point in no
common direction.

All pairs of tokens of different texts of the sample count: the sum of all unit vectors, squared,
minus the same of each text. The same tokens take part as in similarity of head outputs: no special
tokens, and the first token alone of a run of one token. The interval is that of a mean over pairs
of texts, of which each text is in many (Hoeffding 1948). In a merged study, texts are compared with
those of their own part. With one text there is no number.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.arrays import divide
from headbook.metrics.base import (
    ChartKind,
    FinishedRatios,
    Need,
    SampledMetric,
    SampleFit,
    Section,
)
from headbook.metrics.examples import Example, identity, to_token
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch

    from headbook.analysis.arrays import Floats
    from headbook.attention.views import LayerAttention


def unit_sums(layer: "LayerAttention") -> "torch.Tensor | None":
    """Return the summed unit vectors of the outputs for each text, and last their number.

    *Shape:* ``(sentence, head, width + 1)``, in float64; None if values are not available.
    """
    from headbook.attention.head_outputs import HeadOutputs  # noqa: PLC0415 - with torch

    heads = HeadOutputs(layer)
    if heads.outputs is None:
        return None
    counted, outputs = heads.has_output.double(), heads.outputs.double()
    lengths = outputs.norm(dim=-1)
    weights = counted / lengths.masked_fill(counted == 0, 1)
    summed = (weights.unsqueeze(-2) @ outputs).squeeze(-2)
    sums: torch.Tensor = summed.new_empty((*summed.shape[:-1], summed.shape[-1] + 1))
    sums[..., :-1], sums[..., -1] = summed, counted.sum(-1)
    return sums


def gather(layer: "LayerAttention") -> "list[Floats]":
    """Return the sums of all texts of a batch; nothing without values."""
    sums = unit_sums(layer)
    return [] if sums is None else [sums.sum(0).cpu().numpy()]


def fit(sums: "list[Floats]") -> "Floats | None":
    """Return the sums of the whole sample. *Shape:* ``(head, width + 1)``; None without values."""
    return np.sum(sums, 0) if sums else None


def measure(layer: "LayerAttention", total: "Floats | None" = None) -> "torch.Tensor":
    """Return cosines with tokens of all other texts, added up, the number of pairs, and tokens.

    *Shape:* ``(sentence, head, 3)``.

    Args:
        total: sums of the whole sample from `fit`; None for those of the batch.
    """
    sums = unit_sums(layer)
    if sums is None:
        return layer.attention.new_zeros((*layer.attention.shape[:2], 3))
    others = (sums.sum(0) if total is None else sums.new_tensor(total)) - sums
    statistics = sums.new_empty((*sums.shape[:2], 3))
    statistics[..., 0] = (sums * others)[..., :-1].sum(-1)
    statistics[..., 1] = sums[..., -1] * others[..., -1]
    statistics[..., 2] = sums[..., -1]
    return statistics.to(layer.attention)


def finish(stats: "Floats", _: "Floats") -> FinishedRatios:
    """Return the mean cosine over all pairs. *Shape:* ``(sentence, head, 1)`` each.

    A text is one side of all pairs that it adds, and the other side of as many pairs that other
    texts add. So a numerator differs from the mean by twice as much as the cosines of its text.
    """
    cosines, pairs, tokens = np.moveaxis(stats[..., None], -2, 0)
    mean = np.nan_to_num(divide(cosines.sum(0), pairs.sum(0)))
    return FinishedRatios(2 * cosines - mean * pairs, pairs, np.where(pairs > 0, tokens, 0))


METRIC = SampledMetric(
    title="Anisotropy of head outputs",
    question="Does a head write the same in every text?",
    unit="cosine",
    formula=r"\frac{\sum_{i,j:\, x(i) \ne x(j)} \langle u_i, u_j \rangle}"
    r"{|\{(i, j): x(i) \ne x(j)\}|}, \qquad u_i = \frac{o_i}{\|o_i\|}",
    reference="Anisotropy (Ethayarajh, 2019, section 4.1, arXiv:1909.00512) of head outputs "
    "(Halevi et al., 2025, arXiv:2512.21956)",
    bounds=lambda _: (-1, 1),
    section=Section.OUTPUTS,
    chart=ChartKind.HEATMAP,
    views=(SinkView.RAW, SinkView.NOSINK),
    needs=frozenset({Need.OUTPUTS}),
    measure=measure,
    sample_fit=SampleFit(gather, fit),
    finish=finish,
    examples={
        "the same vector for every token of two texts": (
            (
                Example(to_token(3, 0), values=((1.0, 2.0), (-1.0, 0.0), (0.0, 1.0))),
                Example(to_token(2, 1), values=((3.0, 0.0), (2.0, 4.0))),
            ),
            1.0,
        ),
        "one vector for each of two texts, at right angles": (
            (
                Example(to_token(3, 0), values=((1.0, 0.0), (0.0, 1.0), (0.0, 1.0))),
                Example(to_token(2, 0), values=((0.0, 1.0), (1.0, 0.0))),
            ),
            0.0,
        ),
        "of six pairs three have the same vector": (
            (
                Example(identity(3), values=((1.0, 0.0), (0.0, 1.0), (0.0, 2.0))),
                Example(identity(2), values=((5.0, 0.0), (0.0, 1.0))),
            ),
            3 / 6,
        ),
        "a text alone": ((Example(identity(2), values=((1.0, 0.0), (0.0, 1.0))),), math.nan),
    },
)
