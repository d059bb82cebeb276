"""One sentence's attention as pages show it before their scripts, and as these read it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.charts.base import images
from headbook.charts.base.ink import coarse, ink, ink_steps
from headbook.study.sentencedata import STEPS, StoredSentence, StoredText
from headbook.study.wordmaps import word_names
from headbook.terms import Stack

DIGITS = 4  # of lengths of values
MOST_BYTES = 2_000_000  # of a stack's maps in a sentence's data file


def exact(maps: NDArray[np.uint8] | None) -> bool:
    """Whether a sentence's page has the numbers of its maps, too."""
    return maps is not None and maps.size <= MOST_BYTES


def weight_picture(steps: NDArray[np.uint8]) -> str:
    """A map as an image address; colours run with the square root of the weight.

    Args:
        steps: weights in steps of 1/255. *Shape:* ``(query, key)``.
    """
    small = images.shrunk(steps, images.PREVIEW)
    return images.small(coarse(ink_steps(small / STEPS)), ink())


def attention_data(
    stack: Stack,
    sentence: StoredSentence,
    maps: NDArray[np.uint8],
    norms: NDArray[np.float32] | None,
) -> dict[str, Any]:
    """Maps of one sentence, with what views and words need.

    Args:
        maps: weights before any view, in steps of 1/255. *Shape:* ``(..., query, key)``.
        norms: length of each key's value after the head's part of W_O; None, or empty, where it is
            not known. *Shape:* ``(..., key)``.

    Returns:
        ``queries`` and ``keys`` (see `text_data`; the former only where they are another text),
        ``causal``, ``weights`` (bytes, row by row), ``norms`` (in the order of the maps).
    """
    found: dict[str, Any] = {
        "keys": text_data(sentence.texts[stack.keys]),
        "causal": stack.causal,
        "weights": maps.tobytes(),
        "norms": [] if norms is None else [float(f"{n:.{DIGITS}g}") for n in norms.ravel()],
    }
    if stack.crosses:
        found["queries"] = text_data(sentence.texts[stack.queries])
    return found


def text_data(text: StoredText) -> dict[str, Sequence[Any]]:
    """The tokens of a text, and its words: runs of tokens that pages can add up.

    Returns:
        ``pieces``; ``special`` (0 or 1); ``units``: the number of each token's word; ``names`` of
        those words, in the text's own letters. A token without a word is one by itself.
    """
    names = word_names(text)
    numbers: dict[int, int] = {}
    units: list[int] = []
    spelled: list[str] = []
    for index, (piece, word) in enumerate(zip(text.pieces, text.words, strict=True)):
        own = word if word >= 0 else -1 - index
        if own not in numbers:
            numbers[own] = len(numbers)
            spelled.append((names[word] if word >= 0 else "") or piece)
        units.append(numbers[own])
    return {
        "pieces": text.pieces,
        "special": [int(special) for special in text.special],
        "units": units,
        "names": spelled,
    }
