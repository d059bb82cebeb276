"""Classes of single tokens, and shares of tokens nearest to their own vocabulary token.

The averages of token metrics by class are in the table `words`. The share of tokens whose
`vocabulary_rank` is 0 cannot be computed from an average rank, so it is computed from the tokens of
sentences with a page.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimates, RatioSums
from headbook.metrics import ids
from headbook.report.results import StackResults
from headbook.report.wording import first_option
from headbook.schema import CONTENT, FUNCTION, EmbeddingSpace, IntervalRule, ResidualPoint
from headbook.study.sentence_data import StoredText

WORD_CLASSES = ("content", "function", "punctuation", "special")
WORD_CLASS_NAMES = {
    "all": "all tokens",
    "content": "content words",
    "function": "function words",
    "punctuation": "punctuation",
    "special": "special tokens",
    "other": "other tokens",
}
Cell = tuple[int, int]  # number of a sentence, and position of a token in it


class OwnTokens(NamedTuple):
    """Shares of tokens that are nearest to their own vocabulary token.

    Attributes:
        space: encoding of the vocabulary that states are compared with.
        shares: share by layer for each class of tokens; ``all`` has no special tokens. *Shape:*
            ``(layer,)`` each.
        sentences: number of sentences whose tokens are counted.
    """

    space: EmbeddingSpace
    shares: Mapping[str, Estimates]
    sentences: int


def class_of_tag(tag: str) -> str:
    """Return the class of words of a part of speech; ``other`` for symbols and unknown tags."""
    if tag in CONTENT:
        return "content"
    if tag in FUNCTION:
        return "function"
    return "punctuation" if tag == "PUNCT" else "other"


def token_classes(results: StackResults) -> Mapping[Cell, str]:
    """Return the class of each token of a stack's queries in the sentences with a page."""
    return results.cached(_token_classes)


def _token_classes(results: StackResults) -> Mapping[Cell, str]:
    side = results.stack.queries
    return {
        (sentence.number, position): kind
        for sentence in results.study.sentence_data.sentences.values()
        if side in sentence.texts
        for position, kind in enumerate(_classes_of(sentence.texts[side]))
    }


def _classes_of(text: StoredText) -> list[str]:
    return [
        "special" if special else class_of_tag(tag)
        for special, tag in zip(text.special, text.tags, strict=True)
    ]


def own_tokens(results: StackResults) -> OwnTokens | None:
    """Return the shares of tokens nearest to their own vocabulary token; None if not measured."""
    return results.cached(_own_tokens)


def _own_tokens(results: StackResults) -> OwnTokens | None:
    stack, tokens = results.stack, results.study.tokens
    rows = tokens[
        (tokens["metric"] == ids.VOCABULARY_RANK)
        & (tokens["stack"] == stack.name)
        & (tokens["state"] == str(ResidualPoint.POST))
        & tokens["value"].notna()
    ]
    space = first_option(rows["space"], EmbeddingSpace)
    rows = rows[rows["space"] == space]
    if rows.empty:
        return None
    classes = token_classes(results)
    cells = zip(rows["sentence"].tolist(), rows["position"].tolist(), strict=True)
    kinds = np.array([classes[cell] for cell in cells])
    sentences, sentence = np.unique(rows["sentence"], return_inverse=True)
    layer, own = rows["layer"].to_numpy(int), rows["value"].to_numpy() == 0
    shares = {}
    for name in ("all", *WORD_CLASSES):
        of_class = kinds != "special" if name == "all" else kinds == name
        if of_class.any():
            places = sentence[of_class], layer[of_class]
            found, counted = np.zeros((2, len(sentences), stack.n_layers))
            np.add.at(found, places, own[of_class])
            np.add.at(counted, places, 1.0)
            sums = RatioSums.of(found, counted, counted, np.zeros(len(sentences), np.int64))
            shares[name] = Estimates.of(sums, (0.0, 1.0), IntervalRule.CLASSES)
    return OwnTokens(EmbeddingSpace(space), shares, len(sentences))
