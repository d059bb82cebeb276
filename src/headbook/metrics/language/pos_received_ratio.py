"""Attention received by words of each part of speech, over uniform attention.

2: twice as much as under equal weights on all visible keys. With the sink masked without
renormalising, each row of uniform attention has the mass of the measured row.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, to_token, uniform
from headbook.metrics.language.pos_received import on_tags, words_that_see
from headbook.schema import UPOS

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention


def expected(scope: "ViewMask") -> "torch.Tensor":
    """Share of each tag among the keys that a query sees, for words that count.

    *Shape:* ``(sentence, query, label)``.
    """
    share = scope.mask.squeeze(1) @ scope.frame.keys.tags
    share /= scope.n_visible.clamp(min=1).unsqueeze(-1)
    return share * scope.frame.word_weights.unsqueeze(-1)


def measure(layer: "LayerAttention") -> Ratio:
    """Mass on words of each tag, and what uniform rows of the same mass would give.

    *Shape:* ``(sentence, head, label)``.
    """
    chance = layer.mass @ layer.scope.cached(expected)
    return Ratio(layer.cached(on_tags), chance, layer.scope.cached(words_that_see))


METRIC = AttentionMetric(
    title="Attention received by parts of speech, ratio to uniform attention",
    question="Which parts of speech receive more than their share?",
    variant_of="pos_received",
    formula=r"\frac{\sum_{i,j} A_{ij}\,[\mathrm{pos}(j)=t]}"
    r"{\sum_{i,j} U_{ij}\,[\mathrm{pos}(j)=t]}, \qquad "
    r"U_{ij} = \frac{1}{k_i} \sum_{m} A_{im}",
    reference="Vig & Belinkov (2019), eq. 3, over its value for uniform attention",
    bounds=lambda n: (0, n),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=UPOS,
    named=lambda scheme: scheme.tags,
    headline="NOUN",
    needs=frozenset({Need.WORDS, Need.TAGS}),
    notable=Notable.HIGH,
    measure=measure,
    examples={
        "all of three words look at the noun": (
            Example(to_token(3, 1), tags=("DET", "NOUN", "VERB")),
            {"NOUN": 3.0, "DET": 0.0},
        ),
        "all words look everywhere alike": (
            Example(uniform(4), tags=("VERB", "VERB", "ADV", "NOUN")),
            {"VERB": 1.0, "ADV": 1.0},
        ),
    },
)
