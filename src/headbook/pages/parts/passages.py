"""Ends of sentences in a passage, beside the ends that rules propose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from headbook.pages.parts.text import Token, running_text
from headbook.report.facts.outputs import best_layer
from headbook.report.results import StackResults
from headbook.results.formats import percent
from headbook.schema import HEAD_RULES, SEGMENTATION_RULES
from headbook.study.sentence_data import StoredText

TITLES = {
    "similarity": "Similarity of head outputs",
    "attention": "Attention to ., ! and ?",
    "punctuation": "Every . ! ?",
    "even": "Even distances",
}


@dataclass(frozen=True)
class ProposedEnds:
    """A passage as one rule divides it into sentences.

    Attributes:
        rule: name of the rule, with the layer of a rule that reads attention.
        pieces: text of the passage in runs of tokens, with the kind of the end of each: ``right``,
            ``wrong`` or ``missed``; empty for the end of the passage.
        right, wrong, missed: numbers of ends of each kind.
    """

    rule: str
    pieces: tuple[tuple[tuple[Token, ...], str], ...]
    right: int
    wrong: int
    missed: int


def proposals(
    results: StackResults, text: StoredText, marks: NDArray[np.uint8] | None
) -> tuple[ProposedEnds, ...]:
    """Return a passage as each rule divides it; empty for a single sentence.

    Args:
        marks: as in `headbook.study.sentence_data.SentenceData.ends`.
    """
    if marks is None or len(text.parts) < 2:
        return ()
    tokens = running_text(text)
    return tuple(_proposals(results, marks, true_ends(results, text), tokens))


def true_ends(results: StackResults, text: StoredText) -> set[int]:
    """Return the positions of the last tokens of all sentences of a passage but the last."""
    counted = [i for i, special in enumerate(text.special) if not special]
    if results.stack.causal:
        counted = [i for i in counted if i > 0]
    return {a for a, b in pairwise(counted) if _part(text, a) != _part(text, b)}


def _proposals(
    results: StackResults, marks: NDArray[np.uint8], true: set[int], tokens: Sequence[Token]
) -> Iterator[ProposedEnds]:
    for number, rule in enumerate(SEGMENTATION_RULES):
        layer = results.stack.attention_layers[0]
        title = TITLES[rule]
        if rule in HEAD_RULES:
            layer, f1 = best_layer(results, rule)
            title = f"{title}, layer {layer} (F1 {percent(f1.value)} over all passages)"
        proposed = {int(place) for place in np.flatnonzero(marks[layer, number])}
        yield ProposedEnds(
            title,
            tuple(_pieces(tokens, proposed, true)),
            len(proposed & true),
            len(proposed - true),
            len(true - proposed),
        )


def _part(text: StoredText, token: int) -> int:
    """Return the number of sentences of a passage that begin at or before a token."""
    return sum(text.spans[token][0] >= start for start, _ in text.parts)


def _pieces(
    tokens: Sequence[Token], proposed: set[int], true: set[int]
) -> Iterator[tuple[tuple[Token, ...], str]]:
    """Yield the text, cut at every end and at every proposed end."""
    piece: list[Token] = []
    for token in tokens:
        piece.append(token)
        position = token.position
        if position in proposed | true:
            yield tuple(piece), _kind(proposed=position in proposed, true=position in true)
            piece = []
    if piece:
        yield tuple(piece), ""


def _kind(*, proposed: bool, true: bool) -> str:
    return "missed" if not proposed else "right" if true else "wrong"
