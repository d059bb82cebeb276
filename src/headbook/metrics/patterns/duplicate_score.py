"""Attention to the earlier occurrence of the same token, on repeated random tokens.

In 50 sequences of random tokens, each repeated once, every token of the second half has exactly
one earlier occurrence. The score is the mean attention to it. Random tokens have no meaning, so
nothing but the repetition can attract attention there.

The sequences are the same for every corpus; intervals are over sequences.
"""

from typing import TYPE_CHECKING

from headbook.attention.word_pairs import on_pairs, pairs_of, same_token
from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section, Source
from headbook.metrics.examples import Example, identity
from headbook.schema import SinkView

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Mass on earlier places of the same token, and queries that have one.

    *Shape:* ``(sentence, head)``.
    """
    return Ratio(*on_pairs(layer, same_token))


METRIC = AttentionMetric(
    title="Duplicate-token score",
    question="Which heads attend to earlier copies of a token?",
    formula=r"\frac{1}{S}\sum_{i \ge S} A_{i,\,i-S}",
    reference="Olsson et al. (2022), arXiv:2209.11895; TransformerLens head detector",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    views=(SinkView.RAW,),
    needs=frozenset({Need.ONE_TEXT}),
    source=Source.RANDOM,
    notable=Notable.HIGH,
    measure=measure,
    pairs=pairs_of(same_token),
    examples={
        "the second half looks at the first, token by token": (
            Example(
                ((1.0, 0, 0, 0), (1.0, 0, 0, 0), (1.0, 0, 0, 0), (0, 1.0, 0, 0)),
                ids=(7, 8, 7, 8),
            ),
            1.0,
        ),
        "each token looks at itself": (Example(identity(4), ids=(7, 8, 7, 8)), 0.0),
    },
)
