r"""How often the strongest other word is the one that a surface rule names.

A surface rule knows the order of words and their parts of speech, and no syntax:

- **offset:k**: the word k words behind (below 0) or ahead, from 1 to 5 words away;
- **next:C**, **previous:C**, **nearest:C**: the next, previous or nearest word of a class C, which
  is a part of speech, content words (`content`), nouns and pronouns (`NOUN_PRON_PROPN`), verbs and
  auxiliaries (`VERB_AUX`), or verbs, adjectives and nouns (`VERB_ADJ_NOUN`);
- **last:nouns**: the last word of the next run of nouns (NOUN, PROPN).

Share of all words that see another word; a word for which the rule names none counts as a
disagreement, and of two words at the same distance the right one is the nearest. (As a baseline of
relations, a rule takes a neighbour there, see `relation_accuracy`.) In causal attention rules name
earlier words only. Attention to a word is the sum over its subword tokens,
from a word the mean; special tokens and, in causal attention, the first position are never chosen,
nor is the word itself.

A head without a relation is named by the rule that explains it best, chosen on one half of the
sentences: if the rule agrees with its strongest word in at least half of the cases of the other
half, and more often than with that of the mean head. Uniform attention: a random choice among all
other visible words.
"""

from typing import TYPE_CHECKING

from headbook.attention.surface_rules import RULES, rule_agreements, rule_names, words_named
from headbook.attention.surface_rules import rule_chance as even
from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, previous_token
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention


def words(scope: "ViewMask") -> "torch.Tensor":
    """Return the number of tagged words that see another word. *Shape:* ``(sentence, 1, 1)``."""
    looking = (scope.cached(words_named).choices > 0).sum(1, keepdim=True)
    return looking.to(scope.frame.dtype).unsqueeze(-1)


def measure(layer: "LayerAttention") -> Ratio:
    """Words that agree, and words that see another. *Shape:* ``(sentence, head, label)``."""
    given = layer.scope.cached(words_named).given
    return Ratio(rule_agreements(layer), layer.scope.cached(words), labels=given)


def chance(scope: "ViewMask") -> Ratio:
    """Agreement of a random choice among other words. *Shape:* ``(sentence, 1, label)``."""
    return Ratio(even(scope), scope.cached(words), labels=scope.cached(words_named).given)


METRIC = AttentionMetric(
    title="Agreement with surface rules",
    question="Which simple rules do heads follow?",
    formula=r"\frac{|\{w : \operatorname{argmax}_{v \ne w} A_{wv} = \mathrm{rule}(w)\}|}"
    r"{|\{w\}|}",
    reference="Strongest word as in Clark et al. (2019), section 4.2, arXiv:1906.04341; rules of "
    "word order and part of speech",
    bounds=lambda _: (0, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=RULES,
    named=lambda scheme: rule_names(scheme.tags),
    headline="next:NOUN_PRON_PROPN",
    headline_compared=True,
    views=(SinkView.NOSINK,),
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TAGS}),
    notable=Notable.HIGH,
    measure=measure,
    chance=chance,
    examples={
        "each of four words looks one back": (
            Example(previous_token(4), tags=("DET", "NOUN", "VERB", "NOUN")),
            # The first word looks at itself, so it has no other strongest word.
            {"offset:-1": 3 / 4, "previous:NOUN": 1 / 4, "nearest:VERB": 1 / 4, "next:NOUN": 0.0},
        ),
        "each word looks at the last of the nouns behind it": (
            Example(
                (
                    (0.1, 0.2, 0.7, 0.0),
                    (0.1, 0.2, 0.6, 0.1),
                    (0.3, 0.1, 0.5, 0.1),
                    (0.4, 0.3, 0.2, 0.1),
                ),
                tags=("DET", "NOUN", "NOUN", "VERB"),
            ),
            {"last:nouns": 2 / 4, "next:NOUN": 1 / 4, "next:content": 1 / 4},
        ),
    },
)
