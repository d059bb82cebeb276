"""How often the strongest other word is the syntactic head or a dependent.

For each dependency relation, in two directions. *Dependent → head* (in files `to_head`): share of
words with this relation whose strongest other word is their head. *Head → dependent*
(`to_dependent`): share of words that are the strongest other word of their head. Attention to a
word is the sum over its subword tokens, from a word the mean; special tokens and, in causal
attention, the first position are never chosen, nor is the word itself. In causal attention only
earlier words can be keys, so only they count.

A head that always attends to the next noun is correct for many prepositions without any syntax. The
page on syntax therefore compares each head with the best surface rule on the same words (fixed
offsets; the next, previous or nearest word of a class, see `surface_rule`). A head has a strongest
word everywhere, so a rule that names no word takes the next one, at the end of the sentence the
previous one. Head and rule are chosen on one half of the sentences and compared on the other,
family-wise over heads, relations and directions. A relation is claimed if the head beats the rule
and, in the relation, attends to the right answer's part of speech more often than other words of
the same part of speech do. `relation_accuracy_far` leaves near words out. Uniform attention: a
random choice among all other visible words. Numbers do not compare across annotation schemes.
"""

from typing import TYPE_CHECKING

from headbook.attention.word_pairs import LABELS, relation_hits, relation_queries
from headbook.attention.word_pairs import relation_chance as even
from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, previous_token
from headbook.schema import SinkView

if TYPE_CHECKING:
    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention


def measure(layer: "LayerAttention") -> Ratio:
    """Words found and words asked for. *Shape:* ``(sentence, head, label)``."""
    questions = layer.scope.cached(relation_queries)
    words = questions.labels.sum(1, keepdim=True)
    return Ratio(layer.cached(relation_hits), words, labels=questions.given)


def chance(scope: "ViewMask") -> Ratio:
    """Return the expected ratios of a random other visible word.

    *Shape:* ``(sentence, 1, label)``.
    """
    questions = scope.cached(relation_queries)
    words = questions.labels.sum(1, keepdim=True)
    return Ratio(even(scope, questions.labels), words, labels=questions.given)


METRIC = AttentionMetric(
    title="Relation accuracy",
    question="How often does attention follow the grammar?",
    formula=r"\frac{|\{w : \operatorname{argmax}_{v \ne w} A_{wv} = \mathrm{head}(w)\}|}"
    r"{|\{w : \mathrm{rel}(w) = r\}|}",
    reference="Clark et al. (2019), section 4.2, arXiv:1906.04341",
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
        "each of three words looks one back, where its head stands": (
            Example(previous_token(3), heads=(-1, 0, 1), relations=("root", "obj", "nmod")),
            {"obj:to_head": 1.0, "nmod:to_head": 1.0, "obj:to_dependent": 0.0},
        ),
        "the root looks at one of its two objects": (
            Example(
                ((0.1, 0.2, 0.7), (0.5, 0.3, 0.2), (0.2, 0.6, 0.2)),
                heads=(-1, 0, 0),
                relations=("root", "obj", "obj"),
            ),
            {"obj:to_dependent": 1 / 2, "obj:to_head": 1 / 2},
        ),
    },
)
