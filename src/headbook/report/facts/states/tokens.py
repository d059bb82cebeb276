"""Facts about words that stand in several sentences: how much of their neighbourhood they keep.

Two occurrences of a word are compared by the ten vocabulary tokens nearest to their states, without
the token itself, and by the cosine of their states.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.metrics import ids
from headbook.report.facts.states.geometry import ANY_TWO, space_number
from headbook.report.results import StackResults
from headbook.report.token_neighbours import (
    WORD_CLASS_NAMES,
    Cell,
    RecurringWord,
    SharedNeighbours,
    shared_neighbours,
)
from headbook.report.wording import count_text
from headbook.results.fact import Fact, Tested
from headbook.results.number import PLAIN, Number, RowAddress, Unit
from headbook.results.sentence import Sentence, listed, say
from headbook.study.sums.state_geometry import StateColumn

SHARED = "shared nearest vocabulary tokens"  # claim
DIFFERENT = "two different words"  # baseline
YES, PARTLY = 8.0, 4.0  # of ten shared tokens
MIN_RATIO = 2.0  # to the baseline, below which words are not measurably the same
MIN_SHARED = 5  # of ten nearest tokens: two uses of a word that share fewer differ
MAX_NAMED = 3  # words that a sentence names
NAMING = {"NOUN", "PROPN", "VERB", "ADJ"}  # parts of speech whose uses are compared first
ONE_WORD = {"all": "a word", "punctuation": "a punctuation mark"}
# Number of shared tokens, with one decimal.
TOKENS = Unit("", lambda value: f"{value:.1f}")
SAME_WORD = StateColumn(ids.SELF_SIMILARITY, "raw")
SAME_WORD_ADJUSTED = StateColumn(ids.SELF_SIMILARITY, "adjusted")


def is_measured(results: StackResults) -> bool:
    """Check whether a study has paths of vocabulary tokens, or nearest tokens of words."""
    types = results.study.corpus_sums.types.get(results.stack.name)
    return bool(types and len(types.ids)) or shared_neighbours(results) is not None


def one_word(kind: str) -> str:
    """Return a word of a class: ``a content word``."""
    return ONE_WORD.get(kind, f"a {WORD_CLASS_NAMES[kind].removesuffix('s')}")


def shared_tokens(results: StackResults) -> Fact:
    """Return how many nearest tokens two occurrences of a word share, by class and layer."""
    evidence = tuple(_shared_tokens(results))
    return Fact("shared_tokens", evidence=evidence, holds=bool(evidence))


def _shared_tokens(results: StackResults) -> Iterator[Tested]:
    neighbours = shared_neighbours(results)
    for kind, means in neighbours.means.items() if neighbours else ():
        assert neighbours is not None
        for layer in range(results.stack.n_layers):
            yield Tested(
                SHARED, results.stack.name, ids.NEAREST_TOKENS, "", kind, means.at(layer), layer,
                baseline=DIFFERENT, baseline_value=neighbours.different.item(layer),
            )  # fmt: skip


def shared_numbers(results: StackResults, kind: str) -> list[Number]:
    """Return how many tokens two occurrences of a word of a class share, by layer."""
    evidence = results.cached(shared_tokens).evidence
    return [tested.number(TOKENS) for tested in evidence if tested.label == kind]


def different_numbers(results: StackResults, kind: str) -> list[Number]:
    """Return how many tokens two different words share, from the rows of a class, by layer."""
    evidence = results.cached(shared_tokens).evidence
    return [
        Number(tested.baseline_value, TOKENS, tested.row)
        for tested in evidence
        if tested.label == kind
    ]


def main_class(neighbours: SharedNeighbours) -> str:
    """Return the class of words that answers the question: content words, if any recurs."""
    classes = ("content", "function", "all", "punctuation")
    return next(kind for kind in classes if kind in neighbours.means)


def same_word(results: StackResults) -> Fact:
    """Return whether a word stays the same in every sentence, by the state after all layers.

    Words that share hardly more than different words are not told from them in that layer; then the
    fact says up to which layer they are.
    """
    neighbours = shared_neighbours(results)
    if neighbours is None:
        text = say("Not known here: no nearest vocabulary tokens of a word in two sentences.")
        return Fact("same_word", text, holds=False)
    kind = main_class(neighbours)
    numbers, different = shared_numbers(results, kind), different_numbers(results, kind)
    one = one_word(kind)
    if not numbers[-1].known:
        text = say("Not known: two occurrences of {one} have no nearest tokens.", one=one)
        return Fact("same_word", text, holds=False)
    if numbers[-1].value < MIN_RATIO * different[-1].value:
        return Fact("same_word", _until(one, numbers, different), holds=False)
    mean = numbers[-1].value
    verdict = "Yes" if mean >= YES else "Partly" if mean >= PARTLY else "No"
    text = say(
        "{verdict}: after the last layer, two occurrences of {one} {verb} {n} of their ten nearest "
        "other vocabulary tokens{compared}.",
        verdict=verdict, one=one, verb="still share" if mean >= PARTLY else "share", n=numbers[-1],
        compared=_beside_function_words(neighbours, kind),
    )  # fmt: skip
    return Fact("same_word", text, holds=mean >= PARTLY)


def last_layer_apart(numbers: list[Number], different: list[Number]) -> int | None:
    """Return the last layer up to which uses share `MIN_RATIO` times what different words share."""
    is_more = [n.value >= MIN_RATIO * d.value for n, d in zip(numbers, different, strict=True)]
    return (is_more.index(False) if False in is_more else len(is_more)) - 1 if is_more[0] else None


def _until(one: str, numbers: list[Number], different: list[Number]) -> Sentence:
    """Return up to which layer two occurrences of a word share more than different words."""
    layer = last_layer_apart(numbers, different)
    if layer is None:
        return say(
            "Not by neighbours: after the last layer, two occurrences of {one} share {n} of their "
            "ten nearest other vocabulary tokens, different words {different}.",
            one=one, n=numbers[-1], different=different[-1],
        )  # fmt: skip
    return say(
        "Up to layer {layer}: two occurrences of {one} share {n} of ten nearest other tokens "
        "there, different words {different}; after the last layer {last} and {last_different}.",
        layer=layer, one=one, n=numbers[layer], different=different[layer], last=numbers[-1],
        last_different=different[-1],
    )  # fmt: skip


def _beside_function_words(neighbours: SharedNeighbours, kind: str) -> str:
    """Return how many tokens function words share beside content words, by intervals."""
    if kind != "content" or "function" not in neighbours.means:
        return ""
    one, other = (neighbours.means[name].at(-1) for name in ("function", "content"))
    if one.high < other.low:
        compared = "less than half as many" if one.value < other.value / 2 else "fewer"
    else:
        compared = "more" if one.low > other.high else "about as many"
    return f"; of a function word {compared}"


def same_word_by_cosine(results: StackResults) -> Fact:
    """Return whether the states of a token in two sentences are nearer than those of any two.

    It holds if the interval of the difference of both cosines, a jackknife over sentences, lies
    above 0 after the last layer.
    """
    last = results.stack.n_layers
    same, apart, any_two = (
        space_number(results, column, last) for column in (SAME_WORD, SAME_WORD_ADJUSTED, ANY_TWO)
    )
    if same is None or any_two is None or not same.known or not any_two.known:
        return Fact("same_word_by_cosine", holds=False)
    holds = apart is not None and apart.low > 0
    clear = "By cosine, yes" if holds else "By cosine, not clearly"
    text = say(
        "{clear}: after the last layer, states of one vocabulary token in two sentences have a "
        "mean cosine of {same}, those of any two tokens {any_two}.",
        clear=clear, same=same, any_two=any_two,
    )  # fmt: skip
    return Fact("same_word_by_cosine", text, holds=holds)


class UseCosine(NamedTuple):
    """Cosine of the states of two uses of a word after a layer.

    Attributes:
        cosine: the cosine.
        different_words: mean cosine of the first uses of every two different words.
    """

    cosine: Number
    different_words: Number


def use_cosines(results: StackResults, one: Cell, other: Cell) -> list[UseCosine]:
    """Return the cosines of two uses of a word by layer; empty if they were not measured."""
    return results.cached(_use_cosines).get((min(one, other), max(one, other)), [])


def _use_cosines(results: StackResults) -> Mapping[tuple[Cell, Cell], list[UseCosine]]:
    """Return the cosines of every two uses of a word, by the places of both."""
    table = results.study.uses
    table = table[table["stack"] == results.stack.name].sort_values("layer", kind="stable")
    cosines: dict[tuple[Cell, Cell], list[UseCosine]] = {}
    names = ("sentence", "position", "other_sentence", "other_position", "layer")
    columns = (table[name].tolist() for name in (*names, "cosine", "different_words"))
    for *place, cosine, different in zip(*columns, strict=True):
        key = (("stack", results.stack.name), *zip(names, place, strict=True))
        row = RowAddress("uses", key)
        sentence, position, other_sentence, other_position, _ = place
        uses = (sentence, position), (other_sentence, other_position)
        numbers = UseCosine(Number(cosine, PLAIN, row), Number(different, PLAIN, row))
        cosines.setdefault(uses, []).append(numbers)
    return cosines


def differ_from(shared: NDArray[np.int64]) -> int | None:
    """Return the layer from which on two uses share fewer than `MIN_SHARED` tokens; None if none.

    Args:
        shared: number of tokens that two uses share. *Shape:* ``(layer,)``.
    """
    alike = np.flatnonzero(shared >= MIN_SHARED)
    first = int(alike[-1]) + 1 if len(alike) else 0
    return first if first < len(shared) else None


def compared_words(neighbours: SharedNeighbours) -> list[RecurringWord]:
    """Return the words whose uses are compared, those that share the fewest tokens first.

    Words of the main class. Adverbs and numerals take part only if no noun, verb or adjective
    recurs.
    """
    kind = main_class(neighbours)
    words = [
        word
        for word in neighbours.words
        if word.kind == kind and word.text.isalpha() and not math.isnan(word.shared[-1])
    ]
    words = [word for word in words if word.tag in NAMING] or words
    return sorted(words, key=lambda word: (word.shared[-1], -len(word.cells), word.text))


def different_uses(results: StackResults) -> Fact:
    """Return which words have uses that differ after the last layer, and from which layer on."""
    neighbours = shared_neighbours(results)
    words = compared_words(neighbours) if neighbours else []
    if neighbours is None or not words:
        return Fact("different_uses", holds=False)
    layers = {
        word.text: layer
        for word in words
        if (layer := differ_from(neighbours.shared(*neighbours.least_similar(word)))) is not None
    }
    if not layers:
        text = say(
            "None of {n}: the two least similar uses share {least} or more of ten nearest tokens.",
            n=_count(words), least=MIN_SHARED,
        )  # fmt: skip
        return Fact("different_uses", text, holds=False)
    named = sorted(layers, key=lambda name: (layers[name], name))[:MAX_NAMED]
    more = len(layers) - len(named)
    text = say(
        "Of {n}, {differ} {verb} uses that differ in the end: {named}.",
        differ=len(layers), n=_count(words), verb="has" if len(layers) == 1 else "have",
        named=listed([*(f"“{name}” from layer {layers[name]}" for name in named),
                      *([f"{more} more"] if more else [])]),
    )  # fmt: skip
    return Fact("different_uses", text)


def _count(words: list[RecurringWord]) -> str:
    return count_text(len(words), "recurring word")
