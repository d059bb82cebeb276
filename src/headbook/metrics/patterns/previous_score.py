"""Attention to the previous token, on repeated random tokens.

The mean attention to the previous token in 50 sequences of random tokens, each repeated once. A
high score is due to position alone: there is no word, phrase or grammar. Compare `attention_to`,
label *previous*, on real sentences.

Causal attention only. The sequences are the same for every corpus; intervals are over sequences.
"""

from typing import TYPE_CHECKING

from headbook.attention.word_pairs import on_pairs, pairs_of, previous_token_pairs
from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section, Source
from headbook.metrics.examples import Example, identity, previous_token
from headbook.schema import SinkView

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Mass on the previous token, and queries that have one. *Shape:* ``(sentence, head)``."""
    return Ratio(*on_pairs(layer, previous_token_pairs))


METRIC = AttentionMetric(
    title="Previous-token score",
    question="Which heads attend to the previous token?",
    formula=r"\frac{1}{N}\sum_{i \ge 1} A_{i,\,i-1}",
    reference="Olsson et al. (2022), arXiv:2209.11895; TransformerLens head detector",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    views=(SinkView.RAW,),
    needs=frozenset({Need.ONE_TEXT, Need.CAUSAL}),
    source=Source.RANDOM,
    notable=Notable.HIGH,
    measure=measure,
    pairs=pairs_of(previous_token_pairs),
    examples={
        "each token looks one back": (Example(previous_token(4)), 1.0),
        "each token looks at itself": (Example(identity(4)), 0.0),
    },
)
