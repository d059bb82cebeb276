"""Dependency relations in words: who attends to whom. Names of the Universal Dependencies."""

from typing import NamedTuple

from headbook.terms import relation_of


class Ends(NamedTuple):
    """What stands at the two ends of a relation."""

    dependent: str
    head: str


ENDS = {
    "acl": Ends("clausal modifier", "noun"),
    "acl:relcl": Ends("relative clause", "noun"),
    "advcl": Ends("adverbial clause", "verb"),
    "advmod": Ends("adverb", "modified word"),
    "amod": Ends("adjective", "noun"),
    "appos": Ends("apposition", "noun"),
    "aux": Ends("auxiliary", "verb"),
    "aux:pass": Ends("passive auxiliary", "verb"),
    "case": Ends("case marker", "noun"),
    "cc": Ends("coordinating conjunction", "conjunct"),
    "ccomp": Ends("clausal complement", "verb"),
    "clf": Ends("classifier", "noun"),
    "compound": Ends("compound part", "noun"),
    "compound:prt": Ends("particle", "verb"),
    "conj": Ends("conjunct", "first conjunct"),
    "cop": Ends("copula", "predicate"),
    "csubj": Ends("clausal subject", "verb"),
    "det": Ends("determiner", "noun"),
    "discourse": Ends("discourse element", "clause"),
    "expl": Ends("expletive", "verb"),
    "fixed": Ends("later word of a fixed expression", "first word"),
    "flat": Ends("later part of a name", "first part"),
    "iobj": Ends("indirect object", "verb"),
    "list": Ends("list item", "first item"),
    "mark": Ends("clause marker", "verb"),
    "nmod": Ends("nominal modifier", "noun"),
    "nmod:poss": Ends("possessor", "noun"),
    "nsubj": Ends("subject", "verb"),
    "nsubj:pass": Ends("passive subject", "verb"),
    "nummod": Ends("numeral", "noun"),
    "obj": Ends("direct object", "verb"),
    "obl": Ends("oblique", "verb"),
    "parataxis": Ends("parataxis", "clause"),
    "punct": Ends("punctuation mark", "head word"),
    "vocative": Ends("vocative", "verb"),
    "xcomp": Ends("open complement", "verb"),
}

TAGS = {  # without punctuation, which is known without tags
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
    """A relation with its direction, ``obj:to_head``, in words: from whom, to whom."""
    relation, direction = relation_of(label)
    ends = ENDS.get(relation, Ends(f"{relation} dependent", "head"))
    query, key = ends if direction == "to_head" else reversed(ends)
    article = "an" if query[0] in "aeio" else "a"  # a unit, an oblique
    return RelationEnds(f"{article} {query}", f"its {key}")


def relation_words(label: str) -> str:
    """The same as a phrase: ``from a direct object to its verb (obj)``."""
    relation_ends = ends_of(label)
    return f"from {relation_ends.query} to {relation_ends.key} ({relation_of(label)[0]})"
