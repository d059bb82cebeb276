"""Dependency relations: the best relation and surface rule of each head, and their wording.

Relation, direction and rule are chosen on one half of the sentences and compared on the other, as
in `relation_tests`. Here each head has a relation and a rule of its own, so that intervals hold for
one head each; they are not corrected for the number of heads, as the tests of `relation_tests` are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate
from headbook.analysis.arrays import Ints
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.attention.surface_rules import NO_SELECTION
from headbook.metrics import ids
from headbook.report.relation_counts import (
    VIEW,
    best_rule,
    held_out_estimates,
)
from headbook.report.relation_tests import RelationTests
from headbook.report.results import StackResults
from headbook.schema import HeadName, relation_of
from headbook.study.sums.word_samples import StrongestWords

FAR = ids.RELATION_ACCURACY_FAR
MINUS = "−"


def best_head_of_relation(tests: RelationTests, label: int, stack: str) -> HeadName:
    """Return the best head of a label."""
    layer, head = map(int, tests.head[label])
    return HeadName(stack, layer, head)


def points_text(difference: float) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    return f"{100 * difference:+.1f}".replace("-", MINUS) if difference else "0.0"


MIN_RULE_AGREEMENT = 0.5  # share of words that a rule has to name to describe a head


class HeadRule(NamedTuple):
    """The surface rule that explains one head best, chosen on one half of the sentences.

    Attributes:
        rule: name of the rule, one of `StrongestWords.rules`.
        chosen: share of words, on the selection split, whose strongest word the rule names.
        agreement: share of words, on the held-out split, whose strongest word the rule names.
        mean: mean of ``agreement`` over all heads of the stack.
        margin: ``agreement`` minus ``mean``.
    """

    rule: str
    chosen: Estimate
    agreement: Estimate
    mean: Estimate
    margin: Estimate

    @property
    def names(self) -> bool:
        """Whether the rule names half of the head's strongest words, and more than for the mean."""
        has_enough = self.agreement.effective >= MIN_EFFECTIVE
        return bool(
            has_enough and self.agreement.value >= MIN_RULE_AGREEMENT and self.margin.low > 0
        )


def head_rules(results: StackResults) -> dict[tuple[int, int], HeadRule]:
    """Return the rule that explains each head best, by layer and number; empty without words."""
    words = results.study.corpus_sums.heads[results.stack.name].strongest_words
    labels = [
        label
        for label in results.labels(ids.SURFACE_RULE)
        if results.has_value(ids.SURFACE_RULE, VIEW, label)
    ]
    if results.stack.crosses or words is None or not labels:
        return {}
    return rules_of(words, ~np.isnan(results.heads(ids.SURFACE_RULE, VIEW, labels[0]).value))


def rules_of(
    strongest_words: StrongestWords, present: NDArray[np.bool_]
) -> dict[tuple[int, int], HeadRule]:
    """Choose a rule for each head on one half of the sentences, and report it on the other.

    Args:
        present: mask of the stack's heads. *Shape:* ``(layer, head)``.
    """
    halves = [strongest_words.of(half) for half in (SELECTION, HELD_OUT)]
    n_words = [
        np.bincount(half.sentence[half.has_others], minlength=len(half.lengths)) for half in halves
    ]
    if not all(counts.any() for counts in n_words):
        return {}
    named = [half.named() for half in halves]
    totals = np.stack([rule_hits(halves[SELECTION], word).sum(0) for word in named[SELECTION]], -1)
    best = np.apply_along_axis(best_rule, -1, totals)
    rules = {}
    for rule in np.unique(best[present]).tolist():
        selection, held_out = (
            rule_hits(half, rule_words[rule])
            for half, rule_words in zip(halves, named, strict=True)
        )
        mean_hits = held_out[:, present].mean(1)
        mean = held_out_estimates(mean_hits, n_words[HELD_OUT], (0, 1)).at()
        for layer, head in np.argwhere(present & (best == rule)).tolist():
            hits = held_out[:, layer, head]
            rules[layer, head] = HeadRule(
                strongest_words.rules[rule],
                held_out_estimates(selection[:, layer, head], n_words[SELECTION], (0, 1)).at(),
                held_out_estimates(hits, n_words[HELD_OUT], (0, 1)).at(),
                mean,
                held_out_estimates(hits - mean_hits, n_words[HELD_OUT], (-1, 1)).at(),
            )
    return rules


def rule_hits(strongest_words: StrongestWords, word: NDArray[np.int32]) -> Ints:
    """Count the words of each sentence whose strongest word a rule names.

    Args:
        word: the word that the rule names, negative for none. *Shape:* ``(word,)``.

    Returns:
        *Shape:* ``(sentence, layer, head)``.
    """
    starts = strongest_words.lengths.cumsum() - strongest_words.lengths
    wanted = np.where((word >= 0) & strongest_words.has_others, word, NO_SELECTION - 1)[
        :, None, None
    ]
    return np.add.reduceat(strongest_words.strongest == wanted, starts, dtype=np.int64)


class RelationNouns(NamedTuple):
    """Nouns for the two ends of a relation."""

    dependent: str
    head: str


ENDS = {
    "acl": RelationNouns("clausal modifier", "noun"),
    "acl:relcl": RelationNouns("relative clause", "noun"),
    "advcl": RelationNouns("adverbial clause", "verb"),
    "advmod": RelationNouns("adverb", "modified word"),
    "amod": RelationNouns("adjective", "noun"),
    "appos": RelationNouns("apposition", "noun"),
    "aux": RelationNouns("auxiliary", "verb"),
    "aux:pass": RelationNouns("passive auxiliary", "verb"),
    "case": RelationNouns("case marker", "noun"),
    "cc": RelationNouns("coordinating conjunction", "conjunct"),
    "ccomp": RelationNouns("clausal complement", "verb"),
    "clf": RelationNouns("classifier", "noun"),
    "compound": RelationNouns("compound part", "noun"),
    "compound:prt": RelationNouns("particle", "verb"),
    "conj": RelationNouns("conjunct", "first conjunct"),
    "cop": RelationNouns("copula", "predicate"),
    "csubj": RelationNouns("clausal subject", "verb"),
    "det": RelationNouns("determiner", "noun"),
    "discourse": RelationNouns("discourse element", "clause"),
    "expl": RelationNouns("expletive", "verb"),
    "fixed": RelationNouns("later word of a fixed expression", "first word"),
    "flat": RelationNouns("later part of a name", "first part"),
    "iobj": RelationNouns("indirect object", "verb"),
    "list": RelationNouns("list item", "first item"),
    "mark": RelationNouns("clause marker", "verb"),
    "nmod": RelationNouns("nominal modifier", "noun"),
    "nmod:poss": RelationNouns("possessor", "noun"),
    "nsubj": RelationNouns("subject", "verb"),
    "nsubj:pass": RelationNouns("passive subject", "verb"),
    "nummod": RelationNouns("numeral", "noun"),
    "obj": RelationNouns("direct object", "verb"),
    "obl": RelationNouns("oblique", "verb"),
    "parataxis": RelationNouns("parataxis", "clause"),
    "punct": RelationNouns("punctuation mark", "head word"),
    "vocative": RelationNouns("vocative", "verb"),
    "xcomp": RelationNouns("open complement", "verb"),
}

TAGS = {  # without punctuation, which is recognised without tags
    "ADJ": "adjectives",
    "ADP": "adpositions",
    "ADV": "adverbs",
    "AUX": "auxiliaries",
    "CCONJ": "coordinating conjunctions",
    "DET": "determiners",
    "INTJ": "interjections",
    "NOUN": "nouns",
    "NUM": "numerals",
    "PART": "particles",
    "PRON": "pronouns",
    "PROPN": "proper nouns",
    "SCONJ": "subordinating conjunctions",
    "SYM": "symbols",
    "VERB": "verbs",
    "X": "other words",
}
TAG_NAMES = {**TAGS, "PUNCT": "punctuation"}


class RelationEnds(NamedTuple):
    """Query and key of a relation in one direction, with their articles."""

    query: str
    key: str


def ends_of(label: str) -> RelationEnds:
    """Return query and key of a relation with its direction, as in ``obj:to_head``, in words."""
    relation, direction = relation_of(label)
    ends = ENDS.get(relation, RelationNouns(f"{relation} dependent", "head"))
    query, key = ends if direction == "to_head" else reversed(ends)
    article = "an" if query[0] in "aeio" else "a"  # a unit, an oblique
    return RelationEnds(f"{article} {query}", f"its {key}")


def arrow_words(label: str) -> str:
    """Return a relation as an arrow from query to key: ``direct object → its verb``."""
    relation_ends = ends_of(label)
    return f"{relation_ends.query.partition(' ')[2]} → {relation_ends.key}"


def relation_words(label: str) -> str:
    """Return a relation as a phrase: ``from a direct object to its verb (obj)``."""
    relation_ends = ends_of(label)
    return f"from {relation_ends.query} to {relation_ends.key} ({relation_of(label)[0]})"
