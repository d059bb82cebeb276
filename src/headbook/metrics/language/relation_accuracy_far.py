"""Relation accuracy for words at least three words from their head.

The same as `relation_accuracy` at a distance. Most dependents are next to their head, where
attention to neighbours is enough; at a distance it is not. Uniform attention: a random choice
among all other visible words.
"""

import math
from typing import TYPE_CHECKING

from headbook.attention.word_pairs import LABELS, far_hits, relation_queries
from headbook.attention.word_pairs import relation_chance as even
from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, identity, previous_token
from headbook.schema import SinkView

if TYPE_CHECKING:
    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Words found and words asked for. *Shape:* ``(sentence, head, label)``."""
    questions = layer.scope.cached(relation_queries)
    words = questions.far.sum(1, keepdim=True)
    return Ratio(far_hits(layer), words, labels=questions.given)


def chance(scope: "ViewMask") -> Ratio:
    """Return the expected ratios of a random other visible word.

    *Shape:* ``(sentence, 1, label)``.
    """
    questions = scope.cached(relation_queries)
    words = questions.far.sum(1, keepdim=True)
    return Ratio(even(scope, questions.far), words, labels=questions.given)


METRIC = AttentionMetric(
    title="Relation accuracy at distance ≥ 3",
    question="How often does attention follow distant relations?",
    variant_of="relation_accuracy",
    formula=r"\frac{|\{w : \operatorname{argmax}_{v \ne w} A_{wv} = \mathrm{head}(w)\}|}"
    r"{|\{w : |w - \mathrm{head}(w)| \ge 3\}|}",
    reference="Clark et al. (2019), section 4.2, arXiv:1906.04341; at distance 3 or more",
    bounds=lambda _: (0, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=LABELS,
    named=lambda scheme: scheme.labels,
    headline="obj:to_head",
    views=(SinkView.NOSINK,),
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TREE}),
    notable=Notable.HIGH,
    measure=measure,
    chance=chance,
    examples={
        "the last of four words looks at its head, the first": (
            Example(
                (*identity(4)[:3], (1.0, 0.0, 0.0, 0.0)),
                heads=(-1, 0, 1, 0),
                relations=("root", "det", "det", "obj"),
            ),
            {"obj:to_head": 1.0, "obj:to_dependent": 0.0},
        ),
        "near words are not asked for": (
            Example(previous_token(3), heads=(-1, 0, 1), relations=("root", "obj", "nmod")),
            {"obj:to_head": math.nan, "nmod:to_head": math.nan},
        ),
    },
)
