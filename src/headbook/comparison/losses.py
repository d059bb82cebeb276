"""How well two models predict the same texts, whatever tokens they cut them into."""

from dataclasses import dataclass
from math import log

import numpy as np

from headbook.analysis.arithmetic import Ints
from headbook.analysis.paired import ClusterSums, Differences, differences
from headbook.comparison.sides import Sides
from headbook.study.summaries.removals import Removals
from headbook.terms import Target


@dataclass(frozen=True, eq=False)
class Losses:
    """Loss of both models on the sentences on which both were asked what they need heads for.

    Attributes:
        bits: per character of the text that is predicted; comparable between tokenizers.
        nats: per token.
        sentences: how many.
    """

    bits: Differences
    nats: Differences
    sentences: int


def losses(sides: Sides) -> Losses | None:
    """Both models' losses; None where one of them predicts no text from left to right."""
    parts = [study.corpus_sums.removals for study in (sides.a, sides.b)]
    known = [part for part in parts if part and Target.LOSS in part.full and len(part.text_hash)]
    if len(known) < len(parts):
        return None
    _, *rows = np.intersect1d(known[0].text_hash, known[1].text_hash, return_indices=True)
    if not len(rows[0]):
        return None
    sums = [_sums(part, row) for part, row in zip(known, rows, strict=True)]
    bits, nats = (differences(one, other) for one, other in zip(*sums, strict=True))
    return Losses(bits, nats, len(rows[0]))


def _sums(part: Removals, rows: Ints) -> tuple[ClusterSums, ClusterSums]:
    """Bits with characters, and nats with tokens, of each sentence."""
    loss = part.full[Target.LOSS][rows]
    characters = part.characters[rows].astype(np.float64)
    return (
        ClusterSums(np.where(characters > 0, loss, 0) / log(2), characters),
        ClusterSums(loss, part.counts[Target.LOSS][rows]),
    )
