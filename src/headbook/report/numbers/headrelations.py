"""The relation that each head finds best, and whether a fixed offset finds as much.

Relation, direction and offset are chosen on one half of the sentences and compared on the other,
as in `inference`. Here each head has a relation of its own, so the intervals hold for one head
each; they are not corrected for the number of heads, as the tests of `inference` are.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import CHOICE, REPORT
from headbook.analysis.arithmetic import Floats, Ints, divide
from headbook.analysis.intervals import FEW
from headbook.attention.relations import OFFSETS
from headbook.report.numbers.inference import best_places, effective_sentences, reported
from headbook.report.numbers.results import Estimate, Estimates
from headbook.study.summaries.sums import RelationHits


class HeadRelation(NamedTuple):
    """What one head finds best.

    Attributes:
        label: relation and direction, one of `headbook.terms.Scheme.labels`.
        offset: the best fixed offset for it, in words from who looks.
        accuracy: share of the words that the head finds.
        at_offset: share of the same words that the offset finds.
        margin: difference of the two.
    """

    label: str
    offset: int
    accuracy: Estimate
    at_offset: Estimate
    margin: Estimate


@dataclass(frozen=True, eq=False)
class HeadRelations:
    """What every head of a stack finds best; numbers of the reporting half.

    Attributes:
        labels: relation and direction of each place.
        label: places in them. *Shape:* ``(layer, head)``.
        offset: the best fixed offset of every label. *Shape:* ``(label,)``.
        present: which heads there are. *Shape:* ``(layer, head)``.
        accuracy, at_offset, margin: see `HeadRelation`. *Shape:* ``(layer, head)``.
    """

    labels: tuple[str, ...]
    label: Ints
    offset: Ints
    present: NDArray[np.bool_]
    accuracy: Estimates
    at_offset: Estimates
    margin: Estimates

    def at(self, layer: int, head: int) -> HeadRelation | None:
        """What one head finds best; None where there is no such head."""
        if not self.present[layer, head]:
            return None
        label = int(self.label[layer, head])
        numbers = (
            estimates.at(layer, head) for estimates in (self.accuracy, self.at_offset, self.margin)
        )
        return HeadRelation(self.labels[label], int(self.offset[label]), *numbers)


def head_relations(
    found: RelationHits, present: NDArray[np.bool_], uniform: Floats
) -> HeadRelations | None:
    """The relation that each head finds most above uniform attention.

    Relations and directions take part whose words stand in at least `FEW` effective sentences of
    each half; None where none does.

    Args:
        present: which heads there are. *Shape:* ``(layer, head)``.
        uniform: what uniform attention finds; NaN where it is not known. *Shape:*
            ``(layer, label)``.
    """
    choice, report = found.hits.half == CHOICE, found.hits.half == REPORT
    asked = found.asked.payload
    words = asked[..., 0]
    behind = [effective_sentences(words[half]) for half in (choice, report)]
    enough = np.min(behind, axis=0) >= FEW
    if not enough.any():
        return None
    hits = found.hits.payload[choice].sum(0, dtype=np.float64)
    gain = divide(hits, words[choice].sum(0, dtype=np.int64)) - np.nan_to_num(uniform)[:, None]
    label = np.where(enough, gain, -np.inf).argmax(-1)
    place = best_places(asked[choice][..., 1:].sum(0, dtype=np.int64))
    by_head = np.take_along_axis(found.hits.payload[report], label[None, ..., None], 3)[..., 0]
    by_offset = np.take_along_axis(asked[report], 1 + place[None, :, None], 2)[..., 0][:, label]
    below = words[report][:, label]
    return HeadRelations(
        found.labels,
        label,
        np.array(OFFSETS)[place],
        present,
        reported(by_head, below, (0, 1)),
        reported(by_offset, below, (0, 1)),
        reported(by_head.astype(np.float64) - by_offset, below, (-1, 1)),
    )
