"""Rank of the attended word among the words that a head moves the sentence vector to.

For sentence encoders, which have no output vocabulary. The output of the head is replaced by its
mean; s - s' is the change of the sentence vector. It is compared by cosine with the vectors of up
to 25,000 single words, each a text of its own, all of unit length and minus the mean of the words.
For the twelve sentences that the head moves most: the rank of the content word that the head
attends to most, 1 if the vector moves to this word more than to any other. The number is the
median rank; its interval is a bootstrap over the sentences.

A change without relation to the word has a median near half of the number of words. *Control:
other content words* has the ranks of the other content words of the same sentences: a head *writes
a word into the sentence vector* only if these are not ranked high, too. The change is a total
effect, through all later layers. Words that the vocabulary does not have as one token, and without
annotation words under three letters, have no rank.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import ChartKind, CircuitMetric, Notable, Section

if TYPE_CHECKING:
    from headbook.analysis.arrays import Floats


def measure(ranks: "Floats") -> float:
    """Return the median of the ranks of the words that are attended to most."""
    return float(np.median(ranks))


METRIC = CircuitMetric(
    title="Rank of the attended word in the sentence vector",
    unit="ranks",
    question="Which heads move the sentence vector to their word?",
    formula=r"\operatorname{median}_{x}\ \mathrm{rank}_{w}\,\cos(s - s'_{lh},\ v_w - \bar v)",
    reference="Headbook",
    bounds=lambda _: (1, math.inf),
    section=Section.CIRCUITS,
    chart=ChartKind.HEATMAP,
    notable=Notable.LOW,
    measure=measure,
)
