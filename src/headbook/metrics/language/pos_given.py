"""Share of a head's attention given by words of each part of speech.

Sink masked: how much of the attention to words comes from nouns, from verbs and so on. Attention
from a word is the mean over its subword tokens, so every word counts once. Special tokens are left
out as queries.

Only with the sink masked: otherwise each row has the mass 1, and the value would be the tag's own
share of the words, whatever the head does. Here a word counts less the more it attends to the
sink. Compare uniform attention, which gives that share, except for its attention to the sink.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, uniform
from headbook.schema import UPOS, SinkView

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import BatchMask
    from headbook.attention.views import LayerAttention


def attending_words(frame: "BatchMask") -> "torch.Tensor":
    """Return the number of queries of each tag. *Shape:* ``(sentence, 1, label)``."""
    return frame.word_weights.unsqueeze(1) @ frame.queries.tags


def measure(layer: "LayerAttention") -> Ratio:
    """Mass from words of each tag, and all mass. *Shape:* ``(sentence, head, label)``."""
    frame = layer.frame
    given = (layer.mass * frame.word_weights.unsqueeze(1)) @ frame.queries.tags
    total = (layer.total_from_words * frame.queries.tagged).unsqueeze(-1)
    return Ratio(given, total, frame.cached(attending_words))


METRIC = AttentionMetric(
    title="Attention given by parts of speech",
    question="Which parts of speech give attention?",
    formula=r"P(t) = \frac{\sum_{i,j} A_{ij}\,[\mathrm{pos}(i)=t]}{\sum_{i,j} A_{ij}}",
    reference="Vig & Belinkov (2019), eq. 3, for queries instead of keys, arXiv:1906.04284; "
    "word level after Clark et al. (2019)",
    bounds=lambda _: (0, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=UPOS,
    named=lambda scheme: scheme.tags,
    headline="NOUN",
    views=(SinkView.NOSINK,),
    needs=frozenset({Need.WORDS, Need.TAGS}),
    notable=Notable.HIGH,
    measure=measure,
    examples={
        "the noun parks half of its attention on the sink, the verb nothing": (
            Example(
                ((1.0, 0.0, 0.0), (0.5, 0.25, 0.25), (0.0, 0.0, 1.0)),
                tags=("", "NOUN", "VERB"),
                special=(0,),
            ),
            {"NOUN": 1 / 3, "VERB": 2 / 3, "X": 0.0},
        ),
        "only the noun looks at words": (
            Example(
                ((1.0, 0.0, 0.0), (0.0, 0.5, 0.5), (1.0, 0.0, 0.0)),
                tags=("", "NOUN", "VERB"),
                special=(0,),
            ),
            {"NOUN": 1.0, "VERB": 0.0},
        ),
        "without a sink a tag gives as much as it has words": (
            Example(uniform(4), tags=("VERB", "VERB", "ADV", "NOUN")),
            {"VERB": 0.5, "ADV": 0.25, "NOUN": 0.25},
        ),
    },
)
