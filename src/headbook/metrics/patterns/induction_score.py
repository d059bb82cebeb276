"""Attention to the token after the earlier occurrence, on repeated random tokens.

In 50 sequences of random tokens, each repeated once, an induction head predicts the second half:
after *A B … A* it attends to *B*. The score is the mean attention of tokens of the second half to
the token after their earlier occurrence. Random tokens have no meaning, so nothing but the
repetition can attract attention there.

Causal attention only. The sequences are the same for every corpus; intervals are over sequences.
"""

from typing import TYPE_CHECKING

from headbook.attention.word_pairs import after_same_token, on_pairs, pairs_of
from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section, Source
from headbook.metrics.examples import Example, identity
from headbook.schema import SinkView

if TYPE_CHECKING:
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Mass on tokens after earlier places of the same token, and queries that have one.

    *Shape:* ``(sentence, head)``.
    """
    return Ratio(*on_pairs(layer, after_same_token))


METRIC = AttentionMetric(
    title="Induction score",
    question="Which heads attend to what followed last time?",
    formula=r"\frac{1}{S}\sum_{i \ge S} A_{i,\,i+1-S}",
    reference="Olsson et al. (2022), arXiv:2209.11895; TransformerLens head detector",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    views=(SinkView.RAW,),
    needs=frozenset({Need.ONE_TEXT, Need.CAUSAL}),
    source=Source.RANDOM,
    notable=Notable.HIGH,
    measure=measure,
    pairs=pairs_of(after_same_token),
    examples={
        "each token of the second half looks at the one after its twin": (
            Example(
                ((1.0, 0, 0, 0), (1.0, 0, 0, 0), (0, 1.0, 0, 0), (0, 0, 1.0, 0)),
                ids=(7, 8, 7, 8),
            ),
            1.0,
        ),
        "each token looks at itself": (Example(identity(4), ids=(7, 8, 7, 8)), 0.0),
    },
)
