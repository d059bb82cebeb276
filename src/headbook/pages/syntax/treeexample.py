"""One sentence with its trees: the dependency tree over a head's attention, and phrases."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.phrases import best_trees, equalised, gold_phrases, phrase_scores
from headbook.charts import Arc, Drawing, arc_diagram, bracket_diagram
from headbook.metrics import ids
from headbook.pages.parts.ranked import place_of
from headbook.pages.syntax.treetables import VIEW, best_head
from headbook.pages.widgets.instance import text_data
from headbook.report.numbers.inference import RelationTests
from headbook.report.numbers.results import StackResults
from headbook.report.wording import DIRECTIONS, head_name, head_page, sentence_page
from headbook.study.sentencedata import HeadName, StoredSentence, StoredText
from headbook.study.wordmaps import WordLink, links, n_words, tree_words, word_attention, word_names
from headbook.terms import known_relation, relation_of

MOST_WORDS = 20  # of a sentence that fits a window
LEAST_WEIGHT = 0.1  # of an arc
LEAST_WORDS = 3  # of a sentence that has phrases
PHRASES = ids.PHRASE_TREES, VIEW, "f1"


@dataclass(frozen=True)
class Phrases:
    """The phrase tree of a head beside the phrases of the dependency tree.

    Attributes:
        head, href: the head and its page.
        drawing: the words between both trees.
        both, found, gold: brackets in both trees, of the head's, and of the dependency tree's.
    """

    head: str
    href: str
    drawing: Drawing
    both: int
    found: int
    gold: int


@dataclass(frozen=True)
class Example:
    """A sentence, a relation and a head.

    Attributes:
        rule: how they were chosen.
        sentence, sentence_href: number of the sentence, and its page with the head open.
        relation, direction: the label in two parts, as words.
        head, href: the head and its page.
        found, asked: how many of the words it finds there.
        drawing: the tree above the words, the head's attention below.
        phrases: None where the study has none.
    """

    rule: str
    sentence: int
    sentence_href: str
    relation: str
    direction: str
    head: str
    href: str
    found: int
    asked: int
    drawing: Drawing
    phrases: Phrases | None


class _Listed(NamedTuple):
    """A listed sentence with its text and its attention in one stack."""

    sentence: StoredSentence
    text: StoredText
    maps: NDArray[np.uint8]

    def weights(self, head: HeadName, *, causal: bool) -> NDArray[np.float64]:
        """One head's attention between words. *Shape:* ``(word, word)``."""
        return word_attention(self.maps[head.layer, head.head], self.text, causal=causal)


def example_of(results: StackResults, tests: RelationTests) -> Example | None:
    """The example of a stack; None without a ranked relation or a listed sentence with a tree."""
    listed = list(_listed(results))
    if not tests.labels or not listed:
        return None
    clear = tests.claimed
    number = tests.first(clear if clear.any() else np.ones_like(clear))
    assert number is not None
    label, head = tests.labels[number], place_of(tests, number, results.stack.name)
    seen = [(each, _links(each, head, label, results)) for each in listed]
    best, found = max(seen, key=lambda each: sum(link.found for link in each[1]))
    which = " among those that are claimed" if clear.any() else ""
    return Example(
        rule=f"the relation and direction with the largest difference on the choice half{which}, "
        "its best head, and "
        f"the listed sentence of at most {MOST_WORDS} words (else of any length) with the highest "
        "accuracy of that head; the first of equals.",
        sentence=best.sentence.number,
        sentence_href=_view(best, head, found),
        relation=relation_of(label)[0],
        direction=DIRECTIONS[relation_of(label)[1]],
        head=head_name(head),
        href=head_page(head),
        found=sum(link.found for link in found),
        asked=len(found),
        drawing=_arcs(results, best, head, found),
        phrases=_phrases(results, best),
    )


def _view(best: _Listed, head: HeadName, found: Sequence[WordLink]) -> str:
    """The sentence's page with the head open, words without the sink, at a word that it finds."""
    page = sentence_page(best.sentence.number)
    if not found:
        return page
    link = max(found, key=lambda each: each.found)
    units = text_data(best.text)["units"]
    q, k = (units[best.text.words.index(word)] for word in (link.looks, link.looked))
    state = f"view=nosink&units=words&at={head.stack}&heads={head.layer}.{head.head}"
    return f"{page}#{state}&q={q}&k={k}"


def _listed(results: StackResults) -> Iterator[_Listed]:
    """Listed sentences with a tree: those that fit a window or, where there is none, all."""
    sentence_data, stack = results.study.sentence_data, results.stack
    found = [
        _Listed(sentence, sentence.texts[stack.queries], sentence_data.maps[stack.name, index])
        for index, sentence in sentence_data.sentences.items()
        if sentence.listed and (stack.name, index) in sentence_data.maps
    ]
    found = [listed for listed in found if listed.text.heads]
    short = [listed for listed in found if n_words(listed.text) <= MOST_WORDS]
    yield from short or found


def _links(best: _Listed, head: HeadName, label: str, results: StackResults) -> list[WordLink]:
    causal = results.stack.causal
    return links(best.weights(head, causal=causal), best.text, label, causal=causal)


def _arcs(
    results: StackResults, best: _Listed, head: HeadName, found: Sequence[WordLink]
) -> Drawing:
    """The tree above the words, the head's attention below; what it finds is marked."""
    words = word_names(best.text)
    pairs = {frozenset(link[:2]) for link in found}
    tree = [
        Arc(above, word, None, frozenset((above, word)) in pairs, known_relation(relation))
        for word, (above, relation) in enumerate(
            zip(best.text.heads[: len(words)], best.text.relations, strict=False)
        )
        if 0 <= above < len(words) and above != word
    ]
    weights = best.weights(head, causal=results.stack.causal)
    hits = {link[:2] for link in found if link.found}
    looks = [
        Arc(a, b, float(weights[a, b]), (a, b) in hits)
        for a, b in np.argwhere(weights >= LEAST_WEIGHT).tolist()
        if a != b
    ]
    caption = (
        f"Sentence {best.sentence.number}. Above: its dependency tree, arrows from head to "
        f"dependent. Below: attention of head {head_name(head)}, arrows from query to key, as wide "
        f"as the weight (sink masked); weights under {LEAST_WEIGHT:.0%} and of words to themselves "
        "left out. Orange: the relation, and where the head attends along it."
    )
    return arc_diagram(f"syntax-{results.stack.name}-tree", caption, words, tree, looks)


def _phrases(results: StackResults, best: _Listed) -> Phrases | None:
    """The tree of the best head over the sentence, and the phrases of the dependency tree."""
    head = best_head(results, ids.PHRASE_TREES, "f1") if results.has(*PHRASES) else None
    places, heads = tree_words(best.text)
    if head is None or len(places) < LEAST_WORDS:
        return None
    weights = best.weights(head, causal=results.stack.causal)[np.ix_(places, places)]
    tree = best_trees(equalised(phrase_scores(weights)), late=True)
    pairs, gold = (
        [(a, b) for a, b in np.argwhere(x).tolist()] for x in (tree, gold_phrases(heads))
    )
    names = word_names(best.text)
    caption = (
        f"Sentence {best.sentence.number} without punctuation. Above: phrases of its dependency "
        f"tree. Below: the phrase tree induced from head {head_name(head)}. Thick and blue: "
        "brackets in both."
    )
    return Phrases(
        head=head_name(head),
        href=head_page(head),
        drawing=bracket_diagram(
            f"syntax-{results.stack.name}-phrases",
            caption,
            [names[place] for place in places],
            gold,
            pairs,
        ),
        both=len({*pairs} & {*gold}),
        found=len(pairs),
        gold=len(gold),
    )
