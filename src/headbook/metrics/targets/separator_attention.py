"""Attention to separators, and to final punctuation.

Of the tokens that see one, the share of attention to separators, special tokens such as `[SEP]` or
`</s>` that close a sentence (*separator*), and the share to `.`, `!` and `?` (*sentence end*): two
different things that papers call sentence separators. *By norm*: the same with each weight
multiplied by the norm of the key's value after the head's part of the output projection. A
separator may receive half of the attention and contribute little.

The special token at the very end counts as a separator, too. Texts without such a token are left
out. On a sample of the sentences.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, FinishedRatios, SampledMetric, Section
from headbook.metrics.examples import Example, to_token, uniform
from headbook.schema import SinkView

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from headbook.attention.masks import BatchMask
    from headbook.attention.views import LayerAttention

LABELS = ("separator", "sentence_end", "separator_by_norm", "sentence_end_by_norm")


def kinds(frame: "BatchMask") -> "torch.Tensor":
    """Return the mask of separators, and of tokens that may end a sentence.

    *Shape:* ``(sentence, key, 2)``.
    """
    table = frame.attention_mask.new_zeros((*frame.keys.valid.shape, 2))
    table[..., 0], table[..., 1] = frame.keys.separator, frame.keys.stop
    return (table & frame.keys.valid.unsqueeze(-1)).to(frame.dtype)


def seeing(frame: "BatchMask") -> "torch.Tensor":
    """Return which queries count and see one of each. *Shape:* ``(sentence, query, 2)``."""
    sees = frame.attention_mask.to(frame.dtype) @ frame.cached(kinds) > 0
    return (sees & frame.counted_queries.unsqueeze(-1)).to(frame.dtype)


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Mass on each kind, then the same by norm; all that counts; and the queries behind it.

    *Shape:* ``(sentence, head, 3 * label)``.
    """
    frame, norms, brought = layer.frame, layer.maps.value_norms, layer.maps.value_weighted_mass
    to, sees = frame.cached(kinds), frame.cached(seeing).unsqueeze(1)
    shape = (*layer.attention.shape[:2], 3, len(LABELS))
    found = layer.attention.new_zeros(shape)
    mass, total, queries = found.unbind(2)
    # Queries that see none of a kind give nothing to it.
    mass[..., :2], total[..., :2] = layer.received @ to, sees.sum(2)
    if norms is not None and brought is not None:
        mass[..., 2:] = (layer.received * norms) @ to
        total[..., 2:] = (brought.unsqueeze(2) @ sees).squeeze(2)
    queries[:] = sees.sum(2).repeat(1, 1, 2) * (total > 0)
    return found.flatten(2)


def finish(stats: "NDArray[np.float64]", _: "NDArray[np.float64]") -> FinishedRatios:
    """Return sums of each sentence as ratios."""
    return FinishedRatios(*(stats[..., place : place + len(LABELS)] for place in (0, 4, 8)))


METRIC = SampledMetric(
    title="Attention to sentence ends",
    question="How much attention goes to the ends of sentences?",
    formula=r"\frac{1}{N_c}\sum_{i\ \mathrm{sees\ a}\ c}\ \sum_{j\ \mathrm{is}\ c} A_{ij}, \qquad "
    r"\frac{\sum_{i,\ j\ \mathrm{is}\ c} \|A_{ij}\, v_j W_O\|}{\sum_{i,j} \|A_{ij}\, v_j W_O\|}",
    reference="Halevi et al. (2025), arXiv:2512.21956; Clark et al. (2019), section 3.2, "
    "arXiv:1906.04341; Kobayashi et al. (2020), arXiv:2004.10102",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="separator",
    views=(SinkView.RAW,),
    measure=measure,
    finish=finish,
    examples={
        "the separator gets half of the attention, and its value is a third as long": (
            Example(((0.5, 0.5), (0.5, 0.5)), special=(1,), separator=(1,), norms=(3.0, 1.0)),
            {"separator": 0.5, "separator_by_norm": 0.25},
        ),
        "all look at the full stop": (
            Example(to_token(3, 2), stops=(2,), norms=(1.0, 1.0, 2.0)),
            {"sentence_end": 1.0, "sentence_end_by_norm": 1.0, "separator": float("nan")},
        ),
        "nothing is known of values": (
            Example(uniform(4), stops=(3,)),
            {"sentence_end": 1 / 4, "sentence_end_by_norm": float("nan")},
        ),
    },
)
