"""Rank of the other content words among the words that a head moves the sentence vector to.

The control of *rank of the attended word in the sentence vector*: the median rank of all other
content words of the same twelve sentences, with an interval by bootstrap over the sentences. If it
is as low as the rank of the attended word, the vector moves to the topic of the sentence and not to
the word that the head attends to.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import ChartKind, CircuitMetric, Notable, Section

if TYPE_CHECKING:
    from headbook.analysis.arrays import Floats


def measure(ranks: "Floats") -> float:
    """Return the median of the ranks of the words that are not attended to most."""
    return float(np.median(ranks))


METRIC = CircuitMetric(
    title="Control: other content words",
    unit="ranks",
    question="Does it move to any word, or to the attended one?",
    variant_of="towards_rank",
    formula=r"\operatorname{median}_{x,\,w' \ne w}\ "
    r"\mathrm{rank}_{w'}\,\cos(s - s'_{lh},\ v_{w'} - \bar v)",
    reference="Headbook",
    bounds=lambda _: (1, math.inf),
    section=Section.CIRCUITS,
    chart=ChartKind.HEATMAP,
    notable=Notable.LOW,  # a low rank says that the head moves the vector to any word
    measure=measure,
)
