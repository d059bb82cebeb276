"""What the overview's search looks through, beside the list of heads."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from headbook.stored.shown import ShownSentence
from headbook.stored.study import Study
from headbook.views.heads import HeadsPage
from headbook.views.metric import MetricPage
from headbook.views.page import Page
from headbook.wording import sentence_file, visible

MOST_SENTENCES = 5000  # without an index, more would make typing slow
NAMED = 5  # sentences that a token leads to
MARKS = ("␣", "##")  # how vocabulary entries begin that stand in texts without it
# Pages that every study has, and what they hold.
ALWAYS = (
    ("Metrics", "metrics/index.html", "Definitions of all metrics, in groups."),
    ("Methods", "methods.html", "How every number is defined, counted and checked."),
    ("Data", "data.html", "Every number of this site as a file."),
    ("About", "about.html", "How to cite this site; versions and licences."),
)
# Universal dependency relations in words that readers know, for those who do not know the labels.
RELATION_WORDS = {
    "acl": "clause that describes a noun",
    "acl:relcl": "relative clause",
    "advcl": "adverbial clause",
    "advmod": "adverb, adverbial modifier",
    "amod": "adjective, adjectival modifier",
    "appos": "apposition",
    "aux": "auxiliary verb",
    "aux:pass": "passive auxiliary",
    "case": "preposition, case marker",
    "cc": "conjunction, and, or",
    "ccomp": "clausal complement, object clause",
    "compound": "compound noun",
    "compound:prt": "verb particle",
    "conj": "conjunct, coordination",
    "cop": "copula",
    "csubj": "clausal subject",
    "det": "determiner, article",
    "expl": "expletive",
    "fixed": "fixed expression",
    "flat": "name of several words",
    "iobj": "indirect object",
    "mark": "subordinating conjunction, marker",
    "nmod": "noun that modifies a noun",
    "nmod:poss": "possessive, genitive",
    "nsubj": "subject of a verb",
    "nsubj:pass": "passive subject",
    "nummod": "numeral, number",
    "obj": "direct object",
    "obl": "oblique, adjunct of a verb",
    "punct": "punctuation",
    "xcomp": "open complement, infinitive",
}


def find_data(study: Study, pages: Sequence[Page]) -> dict[str, Any]:
    """Everything that the search needs beside ``data/headlist.js``.

    Args:
        pages: those of metrics, and across metrics.

    Returns:
        ``questions``, ``metrics`` and ``pages``: title, address, more words; ``sentences``: number,
        address, text, other text; ``total``: how many sentences have a page; ``tokens``: see
        `_tokens`; ``relations``: words for labels.
    """
    chosen = study.portrait.listed
    searched = chosen[:MOST_SENTENCES]
    return {
        "questions": [*_questions(pages)],
        "metrics": [_line(page) for page in pages if isinstance(page, MetricPage)],
        "pages": [_line(page) for page in pages if not isinstance(page, MetricPage)]
        + [*map(list, ALWAYS)],
        "sentences": [_sentence(sentence) for sentence in searched],
        "total": len(chosen),
        "tokens": _tokens(study, searched),
        "relations": RELATION_WORDS,
    }


def _line(page: Page) -> list[str]:
    return [page.title, page.path, page.description]


def _questions(pages: Iterable[Page]) -> Iterator[list[str]]:
    """What the list of heads asks; each leads to all heads in the order that answers it."""
    for page in pages:
        for asked in page.questions if isinstance(page, HeadsPage) else ():
            answer = "; ".join(
                f"{each.head.text} {each.value} {each.interval}".strip() for each in asked.answers
            )
            yield [asked.text, f"{page.path}#{asked.view}", answer]


def _sentence(sentence: ShownSentence) -> list[Any]:
    texts = [visible(text.text) for text in sentence.texts.values()]
    return [sentence.number, f"sentences/{sentence_file(sentence.number)}.html", *texts]


def _tokens(study: Study, sentences: Iterable[ShownSentence]) -> list[list[Any]]:
    """Each piece of the sentences, and each type that only others have, in order of letters.

    Returns:
        By piece: its letters, how often it occurs in the sentences, in how many of them, the
        numbers of the first, and 1 where the page of tokens has it.
    """
    times: dict[str, int] = {}
    places: dict[str, dict[int, None]] = {}
    for sentence in sentences:
        for piece in chain.from_iterable(text.pieces for text in sentence.texts.values()):
            name = _bare(visible(piece))
            times[name] = times.get(name, 0) + 1
            places.setdefault(name, {})[sentence.number] = None
    types = {_bare(visible(name)) for sums in study.survey.types.values() for name in sums.names}
    return [
        [name, times.get(name, 0), len(found), [*islice(found, NAMED)], int(name in types)]
        for name in sorted({*times, *types} - {""})
        for found in (places.get(name, {}),)
    ]


def _bare(name: str) -> str:
    """A vocabulary entry as it stands in texts."""
    for mark in MARKS:
        if len(name) > len(mark):
            name = name.removeprefix(mark)
    return name.strip()
