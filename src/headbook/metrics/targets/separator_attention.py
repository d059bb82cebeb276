"""Attention to special tokens between and around sentences, and to final punctuation.

Of the tokens that see one, the share of attention to each of four kinds of token: special tokens
that begin a text, such as `[CLS]` (*start*); separators such as `[SEP]` or `</s>` between sentences
of a passage (*inner separator*); the last separator of a text (*last separator*); and `.`, `!` and
`?` (*sentence end*). Papers call all of them separators. *By norm*: the same with each weight
multiplied by the norm of the key's value after the head's part of the output projection. A
separator may receive half of the attention and contribute little.

A token takes part in the numbers of the kinds that it sees; texts without a kind take no part in
its numbers. Only passages (`--pack`) and texts that hold separators themselves have inner ones. On
a sample of the sentences.
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

KINDS = ("start", "inner_separator", "last_separator", "sentence_end")
LABELS = (*KINDS, *(f"{kind}_by_norm" for kind in KINDS))


def kinds(frame: "BatchMask") -> "torch.Tensor":
    """Return the mask of keys of each kind. *Shape:* ``(sentence, key, kind)``."""
    keys = frame.keys
    start = keys.starts
    separator = keys.separator & ~start & keys.valid
    # As many separators up to each key as in the whole text: the last one, or a key behind it.
    last = separator & (separator.cumsum(1) == separator.sum(1, keepdim=True))
    table = frame.attention_mask.new_zeros((*keys.valid.shape, len(KINDS)))
    for number, kind in enumerate((start, separator & ~last, last, keys.stop)):
        table[..., number] = kind
    return (table & keys.valid.unsqueeze(-1)).to(frame.dtype)


def seeing(frame: "BatchMask") -> "torch.Tensor":
    """Return which queries count and see a key of each kind.

    *Shape:* ``(sentence, query, kind)``.
    """
    sees = frame.attention_mask.to(frame.dtype) @ frame.cached(kinds) > 0
    return (sees & frame.counted_queries.unsqueeze(-1)).to(frame.dtype)


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Mass on each kind, then the same by norm; all that counts; and the queries behind it.

    *Shape:* ``(sentence, head, 3 * label)``.
    """
    frame, norms, brought = layer.frame, layer.maps.value_norms, layer.maps.value_weighted_mass
    to, sees = frame.cached(kinds), frame.cached(seeing).unsqueeze(1)
    shape, n_kinds = (*layer.attention.shape[:2], 3, len(LABELS)), len(KINDS)
    found = layer.attention.new_zeros(shape)
    mass, total, queries = found.unbind(2)
    # Queries that see none of a kind give nothing to it.
    mass[..., :n_kinds], total[..., :n_kinds] = layer.received @ to, sees.sum(2)
    if norms is not None and brought is not None:
        mass[..., n_kinds:] = (layer.received * norms) @ to
        total[..., n_kinds:] = (brought.unsqueeze(2) @ sees).squeeze(2)
    queries[:] = sees.sum(2).repeat(1, 1, 2) * (total > 0)
    return found.flatten(2)


def finish(stats: "NDArray[np.float64]", _: "NDArray[np.float64]") -> FinishedRatios:
    """Return sums of each sentence as ratios."""
    return FinishedRatios(*(stats[..., k * len(LABELS) : (k + 1) * len(LABELS)] for k in range(3)))


METRIC = SampledMetric(
    title="Attention to separators",
    question="How much attention goes to separators?",
    formula=r"\frac{1}{N_c}\sum_{i\ \mathrm{sees\ a}\ c}\ \sum_{j\ \mathrm{is}\ c} A_{ij}, \qquad "
    r"\frac{\sum_{i,\ j\ \mathrm{is}\ c} \|A_{ij}\, v_j W_O\|}{\sum_{i,j} \|A_{ij}\, v_j W_O\|}",
    reference="Halevi et al. (2025), arXiv:2512.21956; Clark et al. (2019), section 3.2, "
    "arXiv:1906.04341; Kobayashi et al. (2020), arXiv:2004.10102",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="last_separator",
    views=(SinkView.RAW,),
    measure=measure,
    finish=finish,
    examples={
        "the separator gets half of the attention, and its value is a third as long": (
            Example(((0.5, 0.5), (0.5, 0.5)), special=(1,), separator=(1,), norms=(3.0, 1.0)),
            {"last_separator": 0.5, "last_separator_by_norm": 0.25},
        ),
        "a start, a word, a separator, another word, and the last separator": (
            Example(
                ((0.1, 0.2, 0.3, 0.0, 0.4),) * 5,
                special=(0, 2, 4),
                separator=(2, 4),
                norms=(1.0, 1.0, 1.0, 1.0, 0.0),
            ),
            {
                "start": 0.1,
                "inner_separator": 0.3,
                "last_separator": 0.4,
                "inner_separator_by_norm": 0.5,
                "last_separator_by_norm": 0.0,
            },
        ),
        "all look at the full stop": (
            Example(to_token(3, 2), stops=(2,), norms=(1.0, 1.0, 2.0)),
            {"sentence_end": 1.0, "sentence_end_by_norm": 1.0, "last_separator": float("nan")},
        ),
        "nothing is known of values": (
            Example(uniform(4), stops=(3,)),
            {"sentence_end": 1 / 4, "sentence_end_by_norm": float("nan")},
        ),
    },
)
