"""Sentences that have a page in both studies, and how far each pair of heads is apart in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arithmetic import Floats
from headbook.comparison.pairs import Both, PairedStack
from headbook.comparison.sides import Sides
from headbook.study.mapsample import MappedSentence
from headbook.study.sentencedata import STEPS, StoredSentence
from headbook.study.study import Study


@dataclass(frozen=True, eq=False)
class ListedSentence:
    """A sentence of two models.

    Attributes:
        a, b: as each study has stored it.
        drift: mean divergence of every pair of heads, in nats, by kind of attention; kinds whose
            maps are not there, or cannot be compared in this sentence, are missing. *Shape:*
            ``(pair,)``, NaN where no query counts.
        coarse: whether that is of maps in steps of 1/255.
    """

    a: StoredSentence
    b: StoredSentence
    drift: Mapping[str, Floats]
    coarse: bool

    @property
    def mean(self) -> float:
        """Mean divergence over all pairs; NaN where there is none."""
        every = [each[~np.isnan(each)] for each in self.drift.values()]
        values = np.concatenate(every) if every else np.zeros(0)
        return float(values.mean()) if len(values) else float("nan")


def listed_sentences(sides: Sides, stacks: Sequence[PairedStack]) -> tuple[ListedSentence, ...]:
    """The sentences that both studies list, in their order."""
    theirs = {each.index: each for each in sides.b.sentence_data.listed}
    found = []
    for one in sides.a.sentence_data.listed:
        if one.index not in theirs:
            continue
        both, coarse = maps_of(sides, one.index)
        drift = {each.stack.name: each.apart(both) for each in stacks if each.can_compare(both)}
        found.append(ListedSentence(one, theirs[one.index], drift, coarse))
    return tuple(found)


def maps_of(sides: Sides, index: int) -> tuple[Both, bool]:
    """The maps of a listed sentence in both studies, and whether they are in steps of 1/255.

    Kinds of attention without maps are missing in them.
    """
    halves = [_mapped(study, index) for study in (sides.a, sides.b)]
    if halves[0] is not None and halves[1] is not None:
        return (halves[0], halves[1]), False
    return (_coarse(sides.a, index), _coarse(sides.b, index)), True


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
