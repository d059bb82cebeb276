"""Relations, induced trees and split words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.trees import best_trees, equalised, gold_phrases, phrase_scores
from headbook.charts import Arc, Drawing, Figure, arc_diagram, bracket_diagram
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.page import Page, StackSection, gap_text
from headbook.pages.parts.relations import layer_figure, relation_table, verdict
from headbook.pages.parts.sentence_maps import text_data
from headbook.pages.parts.table import DASH, NumberCell, PageTable, Row, layer_table
from headbook.report.findings import HELD_OUT, SELECTION
from headbook.report.findings.finding import head_link
from headbook.report.relation_counts import VIEW
from headbook.report.relation_tests import RelationTests, tests_of_stack
from headbook.report.relations import best_head_of_relation
from headbook.report.results import StackResults, heads_by_value, study_of
from headbook.report.word_attention import (
    WordLink,
    n_words,
    tree_words,
    word_attention,
    word_links,
    word_names,
)
from headbook.report.wording import (
    DIRECTIONS,
    VIEWS,
    count_text,
    head_name,
    head_page,
    number,
    sentence_page,
)
from headbook.schema import SinkView, relation_of, universal_relation
from headbook.study.manifest import Manifest, MissingPart
from headbook.study.sentence_data import HeadName, StoredSentence, StoredText

PIECES, REST = ids.ATTENTION_TO, "rest_of_word"
TOP = 5  # heads of the table of pieces


@dataclass(frozen=True)
class Trees:
    """One kind of trees.

    Attributes:
        metric: its name in tables; ``title`` as pages call it.
        baselines: trees that no head made, by name.
        table: each layer's own tree, where there is one, and the head chosen on one half of the
            sentences, with its number on the other.
    """

    metric: str
    title: str
    baselines: tuple[tuple[str, NumberCell], ...]
    table: PageTable


@dataclass(frozen=True)
class Pieces:
    """Words that the tokenizer cuts.

    Attributes:
        words, split, share: all words, those of several pieces, and their share.
        view: of the numbers.
        heads: those that look most at the rest of the word; None where none has enough words.
        layers: heads together, by layer.
        compared: whether the study has the numbers of words by other rules.
    """

    words: str
    split: str
    share: str
    view: str
    heads: PageTable | None
    layers: PageTable
    compared: bool


SENSITIVITY = ids.PIECE_SENSITIVITY
KINDS = {
    ids.PHRASE_TREES: ("f1", "joint", ("right_branching", "left_branching", "balanced", "ceiling")),
    ids.DEPENDENCY_TREES: ("uas", "", ("chain",)),
}
CHOSEN = "Highest heads, chosen on one half of the sentences and reported on the other."
COUNTED = {"f1": "Bracket F1", "uas": "Undirected attachment score"}


def trees_of(results: StackResults) -> Iterator[Trees]:
    """The kinds of trees that the stack has numbers for, all from the reporting half."""
    for name, (own, joint, baselines) in KINDS.items():
        if not results.has_value(name, VIEW, own):
            continue
        metric, take = all_metrics()[name], partial(results.split, HELD_OUT, name, VIEW)
        first = results.stack.attention_layers[0]
        yield Trees(
            metric=name,
            title=metric.title,
            baselines=tuple(
                (label.replace("_", "-"), NumberCell.of(take(label).at(first, 0), metric))
                for label in baselines
            ),
            table=PageTable(
                ("Layer", *["all heads, mean attention"][: len(joint)], "best head", "its score"),
                tuple(_layers(results, name, own, joint)),
                COUNTED[own],
                "numbers trees",
            ),
        )


def best_head(
    results: StackResults, name: str, label: str, layer: int | None = None
) -> HeadName | None:
    """The head with the highest number on the choice half, of a layer or of all."""
    every = heads_by_value(results.split(SELECTION, name, VIEW, label).trusted)
    cells = (cell for cell in every if layer is None or cell[0] == layer)
    return next((HeadName(results.stack.name, *cell) for cell in cells), None)


def _layers(results: StackResults, name: str, own: str, joint: str) -> Iterator[Row]:
    metric, take = all_metrics()[name], partial(results.split, HELD_OUT, name, VIEW)
    for layer in results.stack.attention_layers:
        head = best_head(results, name, own, layer)
        together = [NumberCell.of(take(joint).at(layer, 0), metric)] if joint else []
        value = NumberCell.of(take(own).at(layer, head.head), metric) if head else DASH
        yield Row(f"L{layer}", (*together, head_link(head) if head else DASH, value))


def pieces_of(results: StackResults) -> Pieces | None:
    """What becomes of split words; None where no word is known or nothing was measured."""
    stack, view = results.stack, results.stack.default_view
    count = partial(results.study.manifest.count, stack.queries)
    if stack.crosses or not count("words") or not results.has_value(PIECES, view, REST):
        return None
    layers = results.layers(PIECES, view, REST)
    metric, heads = all_metrics()[PIECES], tuple(_piece_heads(results, view))
    return Pieces(
        words=f"{count('words'):,}",
        split=f"{count('split_words'):,}",
        share=number(count("split_words") / count("words"), share=True),
        view=VIEWS[view],
        heads=PageTable(("Head", "rest of word", "uniform attention"), heads, CHOSEN)
        if heads
        else None,
        layers=layer_table(
            stack.attention_layers,
            [("rest of word", layers, metric)],
            "All heads of a layer, all sentences.",
            "L",
        ),
        compared=SENSITIVITY in results.by_id,
    )


def _piece_heads(results: StackResults, view: SinkView) -> Iterator[Row]:
    """Chosen on one half of the sentences, reported on the other."""
    first, other = (results.split(half, PIECES, view, REST) for half in (SELECTION, HELD_OUT))
    even = results.split(HELD_OUT, PIECES, view, REST, of="uniform").value
    for layer, position in heads_by_value(first.trusted)[:TOP]:
        value = NumberCell.of(other.at(layer, position), all_metrics()[PIECES])
        head = HeadName(results.stack.name, layer, position)
        yield Row(head_link(head), (value, number(float(even[layer]), share=True)))


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
class SyntaxExample:
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


def example_of(results: StackResults, tests: RelationTests) -> SyntaxExample | None:
    """The example of a stack; None without a ranked relation or a listed sentence with a tree."""
    listed = list(_listed(results))
    if not tests.labels or not listed:
        return None
    clear = tests.claimed
    number = tests.best_label(clear if clear.any() else np.ones_like(clear))
    assert number is not None
    label, head = tests.labels[number], best_head_of_relation(tests, number, results.stack.name)
    seen = [(each, _links(each, head, label, results)) for each in listed]
    best, found = max(seen, key=lambda each: sum(link.found for link in each[1]))
    which = " among those that are claimed" if clear.any() else ""
    return SyntaxExample(
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
    q, k = (units[best.text.words.index(word)] for word in (link.query, link.key))
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
    return word_links(best.weights(head, causal=causal), best.text, label, causal=causal)


def _arcs(
    results: StackResults, best: _Listed, head: HeadName, found: Sequence[WordLink]
) -> Drawing:
    """The tree above the words, the head's attention below; what it finds is marked."""
    words = word_names(best.text)
    pairs = {frozenset(link[:2]) for link in found}
    tree = [
        Arc(above, word, None, frozenset((above, word)) in pairs, universal_relation(relation))
        for word, (above, relation) in enumerate(
            zip(best.text.heads[: len(words)], best.text.relations, strict=False)
        )
        if 0 <= above < len(words) and above != word
    ]
    weights = best.weights(head, causal=results.stack.causal)
    hits = {link[:2] for link in found if link.found}
    query = [
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
    return arc_diagram(f"syntax-{results.stack.name}-tree", caption, words, tree, query)


def _phrases(results: StackResults, best: _Listed) -> Phrases | None:
    """The tree of the best head over the sentence, and the phrases of the dependency tree."""
    head = best_head(results, ids.PHRASE_TREES, "f1") if results.has_value(*PHRASES) else None
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


METRICS = (ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR, *KINDS, ids.ATTENTION_TO)


@dataclass(frozen=True)
class Relations:
    """Relations that heads find.

    Attributes:
        behind: how many sentences stand behind the choice and the report, in words.
        verdict: how many relations have a head that beats the best surface rule.
        table: by margin.
        left_out: relations with too few words, in words; may be empty.
        figure: margins by layer; None without rows.
        example: a sentence; None where none can be shown.
    """

    behind: str
    verdict: str
    table: PageTable
    left_out: str
    figure: Figure | None
    example: SyntaxExample | None


@dataclass(frozen=True)
class SyntaxSection(StackSection):
    """One kind of attention.

    Attributes:
        relations: None where the study did not measure any.
        trees: phrase trees and dependency trees.
        pieces: None where no words are known.
    """

    relations: Relations | None
    trees: tuple[Trees, ...]
    pieces: Pieces | None


@dataclass(frozen=True, kw_only=True)
class SyntaxPage(Page):
    """Syntax in all stacks that look within one text.

    Attributes:
        sections: by stack; none without trees and words.
        remarks: what is missing, and why.
    """

    template: ClassVar[str] = "syntax.html"
    sections: tuple[SyntaxSection, ...]
    remarks: tuple[str, ...]


def syntax_page(results: Mapping[str, StackResults]) -> SyntaxPage:
    """The page of syntax."""
    manifest = study_of(results).manifest
    within = [r for r in results.values() if not r.stack.crosses]
    sections = [_section(r) for r in within]
    return SyntaxPage(
        path="syntax.html",
        title="Syntax: relations and trees",
        description=f"Which heads of {manifest.model.name} attend along dependency relations more "
        "often than the best surface rule, and trees induced from their attention.",
        sections=tuple(s for s in sections if s.relations or s.trees or s.pieces),
        remarks=tuple(dict.fromkeys(remark for r in within for remark in _remarks(manifest, r))),
    )


def _remarks(manifest: Manifest, results: StackResults) -> Iterator[str]:
    """Why something is missing: the texts have no trees, or nobody asked for the metric."""
    for gap in manifest.gaps:
        if gap.key == MissingPart.TREE and gap.stack == results.stack.name:
            yield gap_text(gap)
    lacking = [m for m in METRICS if m not in results.by_id]
    if lacking:
        yield f"{', '.join(lacking)} (not chosen with --metrics)"


def _section(results: StackResults) -> SyntaxSection:
    tests = results.cached(tests_of_stack)
    return SyntaxSection(
        stack=results.stack.name,
        relations=None if tests is None else _relations(results, tests),
        trees=tuple(trees_of(results)),
        pieces=pieces_of(results),
    )


def _relations(results: StackResults, tests: RelationTests) -> Relations:
    sample = results.study.corpus_sums.heads[results.stack.name].strongest_words
    assert sample is not None, "there are tests"
    second = int(sample.half.sum())
    first = len(sample.half) - second
    behind = (
        f"{count_text(first, 'sentence')} to choose, {count_text(second, 'sentence')} to report"
    )
    return Relations(
        behind=behind,
        verdict=verdict(tests),
        table=relation_table(results, tests, behind),
        left_out=_left_out(results, tests),
        figure=layer_figure(results, tests) if tests.labels else None,
        example=example_of(results, tests),
    )


def _left_out(results: StackResults, tests: RelationTests) -> str:
    """Relations that occur, but too seldom, by direction."""
    there = [
        x
        for x in results.labels(ids.RELATION_ACCURACY)
        if results.has_value(ids.RELATION_ACCURACY, VIEW, x)
    ]
    directions: dict[str, list[str]] = {}
    for relation, way in map(relation_of, (x for x in there if x not in tests.labels)):
        directions.setdefault(relation, []).append(DIRECTIONS[way])
    groups: dict[str, list[str]] = {}
    for relation, found in directions.items():
        name = "both directions" if len(found) == len(DIRECTIONS) else found[0]
        groups.setdefault(name, []).append(relation)
    return "; ".join(f"{name}: {', '.join(names)}" for name, names in groups.items())
