"""Sentences that both studies have stored, and how far each pair of heads is apart in them.

Each study lists the sentences that its own heads chose, so that two lists of a large corpus share
few. What both list stands here, and what both keep the maps of, which their texts alone decide.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arithmetic import Floats
from headbook.comparison.pairs import Both, PairedStack
from headbook.comparison.sides import Sides
from headbook.study.mapsample import MappedSentence
from headbook.study.sentencedata import STEPS, StoredSentence
from headbook.study.study import Study

Stored = tuple[StoredSentence, StoredSentence]


@dataclass(frozen=True, eq=False)
class ListedSentence:
    """A sentence of two models.

    Attributes:
        a, b: as each study has stored it.
        drift: mean divergence of every pair of heads, in nats, by kind of attention; kinds whose
            maps are not there, or cannot be compared in this sentence, are missing. *Shape:*
            ``(pair,)``, NaN where no query counts.
        coarse: whether that is of maps in steps of 1/255.
        followed: whether both studies list it, so that the paths of its tokens are there.
    """

    a: StoredSentence
    b: StoredSentence
    drift: Mapping[str, Floats]
    coarse: bool
    followed: bool = True

    @property
    def mean(self) -> float:
        """Mean divergence over all pairs; NaN where there is none."""
        every = [each[~np.isnan(each)] for each in self.drift.values()]
        values = np.concatenate(every) if every else np.zeros(0)
        return float(values.mean()) if len(values) else float("nan")


def listed_sentences(sides: Sides, stacks: Sequence[PairedStack]) -> tuple[ListedSentence, ...]:
    """The sentences that both studies list or keep the maps of, in the first one's order."""
    both_list = {pair[0].index: pair for pair in _both_list(sides)}
    both_map = {pair[0].index: pair for pair in _both_map(sides)}
    found = []
    for index, pair in sorted({**both_map, **both_list}.items()):
        maps, coarse = maps_of(sides, pair)
        drift = {each.stack.name: each.apart(maps) for each in stacks if each.can_compare(maps)}
        found.append(ListedSentence(*pair, drift, coarse, followed=index in both_list))
    return tuple(found)


def _both_list(sides: Sides) -> Iterator[Stored]:
    """What both list, by what was read; of equal sentences the first with the first."""
    theirs = defaultdict[tuple[str, ...], list[StoredSentence]](list)
    for each in sides.b.sentence_data.listed:
        theirs[_read(each)].append(each)
    for each in sides.a.sentence_data.listed:
        if theirs[_read(each)]:
            yield each, theirs[_read(each)].pop(0)


def _read(sentence: StoredSentence) -> tuple[str, ...]:
    """The texts of a sentence, but none that a model wrote; its number where there is no text."""
    texts = tuple(text.text for text in sentence.texts.values() if not text.generated)
    return texts if any(texts) else (str(sentence.number),)


def _both_map(sides: Sides) -> Iterator[Stored]:
    """What both keep the maps of."""
    for one, other in sides.mapped():
        yield _stored(sides.a, one), _stored(sides.b, other)


def _stored(study: Study, mapped: MappedSentence) -> StoredSentence:
    known = study.sentence_data.sentences.get(mapped.index)
    return known or StoredSentence(mapped.index, "", {}, mapped.texts, listed=False)


def maps_of(sides: Sides, pair: Stored) -> tuple[Both, bool]:
    """The maps of a sentence in both studies, and whether they are in steps of 1/255.

    Kinds of attention without maps are missing in them.
    """
    numbers = pair[0].index, pair[1].index
    one, other = _mapped(sides.a, numbers[0]), _mapped(sides.b, numbers[1])
    if one is not None and other is not None:
        return (one, other), False
    return (_coarse(sides.a, numbers[0]), _coarse(sides.b, numbers[1])), True


def _mapped(study: Study, index: int) -> MappedSentence | None:
    kept = study.map_sample.sentences.values()
    return next((each for each in kept if each.index == index), None)


def _coarse(study: Study, index: int) -> MappedSentence:
    data = study.sentence_data
    maps = {
        stack: (cells / STEPS).astype(np.float16)
        for (stack, at), cells in data.maps.items()
        if at == index
    }
    return MappedSentence(index, data.sentences[index].texts, {}, maps)
