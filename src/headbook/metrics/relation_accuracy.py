"""How often a head's strongest word is the one that grammar links.

For each dependency relation, two questions. *To head*: of the words with this relation, for how
many is the strongest other word their head? *To dependent*: for how many are they the strongest
other word of their head? Attention to a word is the sum over its pieces, from a word the mean;
special tokens and, in causal stacks, the first position are never chosen, nor is the word itself.
In a causal stack only the words that stand before can be looked at, so only they are asked for.

A head that always looks two words to the right finds many objects without knowing any grammar.
The page on syntax therefore sets each head beside the best fixed offset on the same words, and
`relation_accuracy_far` leaves near words out. Uniform attention is a choice among all other words
that are visible. Numbers do not compare across annotation schemes.
"""

from typing import TYPE_CHECKING

from headbook.measures.relations import LABELS, asked, hits
from headbook.measures.relations import chance as even
from headbook.metrics.base import Chart, Example, HeadMetric, Need, Ratio, Section
from headbook.metrics.examples import previous_token
from headbook.terms import View

if TYPE_CHECKING:
    from headbook.measures.frame import Scope
    from headbook.measures.layerview import LayerView


def measure(layer: "LayerView") -> Ratio:
    """Words found and words asked for. *Shape:* ``(sentence, head, label)``."""
    questions = layer.scope.once(asked)
    words = questions.labels.sum(1, keepdim=True)
    return Ratio(layer.once(hits), words, labels=questions.given)


def chance(scope: "Scope") -> Ratio:
    """The same for a look at any other visible word alike. *Shape:* ``(sentence, 1, label)``."""
    questions = scope.once(asked)
    words = questions.labels.sum(1, keepdim=True)
    return Ratio(even(scope, questions.labels), words, labels=questions.given)


METRIC = HeadMetric(
    title="Relations found",
    formula=r"\frac{|\{w : \operatorname{argmax}_{v \ne w} A_{wv} = \mathrm{head}(w)\}|}"
    r"{|\{w : \mathrm{rel}(w) = r\}|}",
    reference="Clark et al. (2019), section 4.2, arXiv:1906.04341",
    bounds=lambda _: (0, 1),
    section=Section.LANGUAGE,
    chart=Chart.LABELS,
    labels=LABELS,
    headline="obj:to_head",
    views=(View.NOSINK,),
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TREE}),
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
