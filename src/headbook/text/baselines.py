"""What a model is compared with: its twin without training, and its texts without word order."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from headbook.inputs import NO_HEAD, Sentence, Word
from headbook.terms import Baseline, Twin
from headbook.text.annotate import split_words


def twins(baseline: str, seeds: int) -> Iterator[Twin]:
    """Everything that an option asks for, in order.

    Args:
        baseline: kinds separated by commas, or ``none``.
        seeds: how many untrained twins; words are shuffled once.
    """
    for kind in Baseline:
        if kind in baseline.split(","):
            for seed in range(seeds if kind is Baseline.UNTRAINED else 1):
                yield Twin(kind, seed)


def shuffled(sentence: Sentence, seed: int) -> Sentence:
    """The same words in random order, with their tags, heads and relations.

    The order depends on the seed and the text alone. Words are set apart by single spaces, as long
    as the text has spaces at all.
    """
    words = sentence.words if sentence.words is not None else split_words(sentence.text)
    text, order = _mixed(sentence.text, words, seed)
    place = {old: new for new, old in enumerate(order)}
    between, at, moved = len(_gap(sentence.text)), 0, []
    for old in order:
        word = words[old]
        end = at + word.end - word.start
        moved.append(replace(word, start=at, end=end, head=place.get(word.head, NO_HEAD)))
        at = end + between
    target = sentence.target
    if target is not None:
        target = _mixed(target, split_words(target), seed)[0]
    # Mixed across the sentences of a passage, too, whose ends are then nowhere.
    return replace(sentence, text=text, words=tuple(moved), target=target, parts=())


def _mixed(text: str, words: tuple[Word, ...], seed: int) -> tuple[str, list[int]]:
    """The text with its words in random order, and that order."""
    digest = blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(8, "little")).digest()
    drawn = np.random.default_rng(int.from_bytes(digest, "big")).permutation(len(words))
    order = [int(place) for place in drawn]
    return _gap(text).join(text[words[i].start : words[i].end] for i in order) or text, order


def _gap(text: str) -> str:
    return " " if any(map(str.isspace, text)) else ""
