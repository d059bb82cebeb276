"""Share of a head's attention received by words of each part of speech.

Attention to a word is the sum over its subword tokens, attention from a word the mean. Special
tokens have no tag, so with all keys the shares sum to less than 1.

A frequent tag receives much attention from any head. Compare the value of uniform attention, or
the ratio of the two.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, to_token, uniform
from headbook.schema import UPOS

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention


def words_that_see(scope: "ViewMask") -> "torch.Tensor":
    """Return the number of queries that see a word of each tag.

    *Shape:* ``(sentence, 1, label)``.
    """
    seen = scope.mask.squeeze(1) @ scope.frame.keys.tags
    return (scope.frame.word_weights.unsqueeze(-1) * (seen > 0)).sum(1, keepdim=True)


def on_tags(layer: "LayerAttention") -> "torch.Tensor":
    """Mass from words on words of each tag. *Shape:* ``(sentence, head, label)``."""
    return layer.received_from_words @ layer.frame.keys.tags


def measure(layer: "LayerAttention") -> Ratio:
    """Mass on words of each tag, and all mass. *Shape:* ``(sentence, head, label)``."""
    total = (layer.total_from_words * layer.frame.keys.tagged).unsqueeze(-1)
    return Ratio(layer.cached(on_tags), total, layer.scope.cached(words_that_see))


METRIC = AttentionMetric(
    title="Attention received by parts of speech",
    question="Which parts of speech receive attention?",
    formula=r"P(t) = \frac{\sum_{i,j} A_{ij}\,[\mathrm{pos}(j)=t]}{\sum_{i,j} A_{ij}}",
    reference="Vig & Belinkov (2019), eq. 3, arXiv:1906.04284; "
    "word level after Clark et al. (2019)",
    bounds=lambda _: (0, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=UPOS,
    named=lambda scheme: scheme.tags,
    headline="NOUN",
    needs=frozenset({Need.WORDS, Need.TAGS}),
    notable=Notable.HIGH,
    measure=measure,
    examples={
        "all words look at the noun": (
            Example(to_token(3, 1), tags=("DET", "NOUN", "VERB")),
            {"NOUN": 1.0, "DET": 0.0},
        ),
        "two of four words are verbs": (
            Example(uniform(4), tags=("VERB", "VERB", "ADV", "NOUN")),
            {"VERB": 0.5, "ADV": 0.25, "X": 0.0},
        ),
    },
)
