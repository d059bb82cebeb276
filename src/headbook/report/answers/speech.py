"""Attention to and from words of each part of speech by layer, and the answer on these words."""

from collections.abc import Callable
from enum import StrEnum

import numpy as np

from headbook.analysis.accumulators import SELECTION, Estimates
from headbook.analysis.arrays import Floats
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.metrics import ids
from headbook.report.findings.finding import Parts
from headbook.report.head_types import TAG_VIEW
from headbook.report.linked_rows import LinkedNumber
from headbook.report.relations import TAG_NAMES
from headbook.report.results import StackResults
from headbook.report.wording import FEW_WORDS, capital, number
from headbook.schema import CONTENT, FUNCTION, Side, SinkView

RATIO, SHARE, GIVEN = ids.POS_RECEIVED_RATIO, ids.POS_RECEIVED, ids.POS_GIVEN
# One of the tables of `StackResults`, or half of one, by metric, view and label.
Table = Callable[[str, SinkView, str], Estimates]


class Direction(StrEnum):
    """Side of attention on which words are counted."""

    RECEIVED = "attention received"
    GIVEN = "attention given"


METRICS = {Direction.RECEIVED: (RATIO, SHARE), Direction.GIVEN: (GIVEN,)}
# Renormalised, every word would give as much.
VIEWS = {Direction.RECEIVED: TAG_VIEW, Direction.GIVEN: SinkView.NOSINK}


def side_of(results: StackResults, direction: Direction) -> Side:
    """Return the texts whose words are counted."""
    return results.stack.keys if direction is Direction.RECEIVED else results.stack.queries


def n_words_of_tag(results: StackResults, direction: Direction, tag: str) -> int:
    """Return the number of words of the corpus with a tag."""
    return results.study.manifest.count(side_of(results, direction), f"tag.{tag}")


def tags_of(results: StackResults, direction: Direction) -> list[str]:
    """Return the tags of the corpus that have numbers, the most frequent first."""
    tags = results.labels(METRICS[direction][0])
    words = {tag: n_words_of_tag(results, direction, tag) for tag in tags}
    known = [
        tag
        for tag in tags
        if words[tag]
        and all(results.has_value(m, VIEWS[direction], tag) for m in METRICS[direction])
    ]
    return sorted(known, key=lambda tag: -words[tag])


def frequent_tags(results: StackResults, direction: Direction) -> list[str]:
    """Return the tags of at least `FEW_WORDS` words, the most frequent first."""
    tags = tags_of(results, direction)
    return [tag for tag in tags if n_words_of_tag(results, direction, tag) >= FEW_WORDS]


def word_class(tag: str) -> str:
    """Return the class of words of a tag, as the palette names it."""
    if tag == "PUNCT":
        return "punctuation"
    return "content" if tag in CONTENT else "function" if tag in FUNCTION else "other"


def tag_name(tag: str) -> str:
    """Return the words of a tag as a plural; a tag outside Universal Dependencies by its code."""
    return TAG_NAMES.get(tag, f"words tagged {tag}")


def ratio_to_uniform(direction: Direction, table: Table, uniform: Table, tag: str) -> Estimates:
    """Return attention to words of a tag, or from them, over that under uniform attention.

    Of attention given, the share is divided by that under uniform attention in the layer. The two
    vary together from sentence to sentence, so that the interval, which takes the latter as given,
    is rather too wide.

    Args:
        table: numbers of heads or of layers. *Shape:* ``(layer, head)`` or ``(layer,)``.
        uniform: numbers under uniform attention. *Shape:* ``(layer,)``.
    """
    if direction is Direction.RECEIVED:
        return table(RATIO, VIEWS[direction], tag)
    given, chance = (part(GIVEN, VIEWS[direction], tag) for part in (table, uniform))
    expected = np.where(chance.value > 0, chance.value, np.nan)
    expected = expected.reshape(-1, *[1] * (given.value.ndim - 1))
    value, low, high = (part / expected for part in given[:3])
    return given._replace(value=value, low=low, high=high)


def layer_ratios(results: StackResults, direction: Direction, tag: str) -> Estimates:
    """Return the ratios of all heads of each layer together. *Shape:* ``(layer,)``."""
    return ratio_to_uniform(direction, results.layers, results.uniform, tag)


def head_ratios(results: StackResults, tag: str) -> Floats:
    """Return the ratios of attention received, by head. *Shape:* ``(layer, head)``."""
    return results.heads(RATIO, VIEWS[Direction.RECEIVED], tag).value


def best_head(results: StackResults, tag: str) -> tuple[int, int] | None:
    """Return the head with the highest ratio on the selection split; None with too few words."""
    numbers = results.split(SELECTION, RATIO, VIEWS[Direction.RECEIVED], tag)
    words = n_words_of_tag(results, Direction.RECEIVED, tag)
    # Many words may attend to the same few, which are too few in however many sentences.
    enough = np.minimum(numbers.events, words) >= FEW_WORDS
    values = np.where(enough, numbers.trusted, np.nan)
    if np.isnan(values).all():
        return None
    layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
    return int(layer), int(head)


def received_number(results: StackResults, tag: str, layer: int, text: str) -> LinkedNumber:
    """Return a printed ratio of attention received, linked to its row of the table of layers."""
    row = (
        ("stack", results.stack.name), ("layer", layer), ("metric", RATIO),
        ("view", str(VIEWS[Direction.RECEIVED])), ("label", tag),
    )  # fmt: skip
    return LinkedNumber(text, "layers", row)


def speech_answer(results: StackResults) -> Parts:
    """Return the sentence that answers which kinds of words receive attention.

    Of kinds and layers whose interval lies above 1, the one with the largest ratio on the selection
    split is named; the printed ratio is that of all sentences, as in the figure.
    """
    if not tags_of(results, Direction.RECEIVED):
        return ("Not measured here: the texts have no parts of speech.",)
    ranked = _ranked(results)
    if not ranked:
        return (f"Not known: no part of speech has {FEW_WORDS} words.",)
    for tag, layer in ranked:
        ratio = layer_ratios(results, Direction.RECEIVED, tag).at(layer)
        if ratio.low > 1 and ratio.effective >= MIN_EFFECTIVE:
            times = received_number(results, tag, layer, f"{number(ratio.value)} times")
            return (
                f"{capital(tag_name(tag))}{_place(results, layer)}: they receive ", times,
                " what uniform attention would give them.",
            )  # fmt: skip
    tag, layer = ranked[0]
    value = float(layer_ratios(results, Direction.RECEIVED, tag).value[layer])
    return (
        "No kind of word clearly receives more than uniform attention would give it; the most: ",
        received_number(results, tag, layer, f"{number(value)} times"),
        f" as much ({tag_name(tag)}{_place(results, layer)}).",
    )


def _ranked(results: StackResults) -> list[tuple[str, int]]:
    """Return frequent tags with a layer each, the largest ratio on the selection split first."""
    ranked: list[tuple[float, str, int]] = []
    for tag in frequent_tags(results, Direction.RECEIVED):
        view = VIEWS[Direction.RECEIVED]
        ratios = results.split(SELECTION, RATIO, view, tag, of="layers").value
        known = ~np.isnan(ratios) & ~np.isnan(layer_ratios(results, Direction.RECEIVED, tag).value)
        ranked += [(float(ratios[n]), tag, n) for n in np.flatnonzero(known).tolist()]
    return [(tag, layer) for _, tag, layer in sorted(ranked, key=lambda each: -each[0])]


def _place(results: StackResults, layer: int) -> str:
    """Return a layer as a phrase: ``, in the last layer``; empty if the stack has one layer."""
    stack, layers = results.stack.name, results.stack.attention_layers
    of_stack = {"self": "", "cross": " of cross-attention"}.get(stack, f" of the {stack}")
    if len(layers) == 1:
        return ""
    name = {layers[0]: "the first layer", layers[-1]: "the last layer"}.get(layer, f"layer {layer}")
    return f", in {name}{of_stack}"
