"""Whether a head does more in a relation than prefer a class of words.

A head that always attends to nouns finds the head of many words, and one that always attends to
punctuation finds the punctuation of many clauses. So the class of the strongest word is compared
between the words of a relation and other words of the same part of speech.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import REPORT, Ratios
from headbook.analysis.arithmetic import Floats, Ints, divide
from headbook.attention.surfacerules import NOTHING
from headbook.report.numbers.results import Estimates
from headbook.study.summaries.strongestwords import StrongestWords

OTHERS = 30  # other words of the querying words' part of speech that a comparison needs


class Preference(NamedTuple):
    """How much more often a head prefers the right class of words in a relation than outside.

    Attributes:
        share: share of the querying words whose strongest word is of the right answer's part of
            speech. *Shape:* ``(label,)``.
        elsewhere: the same share of other words of the querying words' parts of speech, outside
            the relation; NaN without any. *Shape:* ``(label,)``.
        difference: ``share`` minus ``elsewhere``. *Shape:* ``(label,)``.
        others: number of those other words. *Shape:* ``(label,)``.
    """

    share: Floats
    elsewhere: Floats
    difference: Estimates
    others: Ints

    @classmethod
    def of(cls, parts: "Sequence[Compared]") -> "Preference":
        """Return the comparisons of several labels side by side."""
        sums = np.stack([p.sums.sums for p in parts], -1) if parts else Ratios.zero(0).sums
        return cls(
            np.array([part.share for part in parts]),
            np.array([part.elsewhere for part in parts]),
            Estimates.of(Ratios(sums), (-1.0, 1.0)),
            np.array([part.others for part in parts], np.int64),
        )

    @property
    def comparable(self) -> NDArray[np.bool_]:
        """Whether there are enough other words. *Shape:* ``(label,)``."""
        return self.others >= OTHERS

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Whether the difference lies above 0. *Shape:* ``(label,)``."""
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = self.comparable & (self.difference.low > 0)
        return found


class Compared(NamedTuple):
    """One head and one label; see `Preference`.

    Attributes:
        sums: of the difference. What a sentence adds is its influence on the difference, times the
            number of cases, so that sentences without a case add what their other words do.
    """

    share: float
    elsewhere: float
    sums: Ratios
    others: int


def preference(found: StrongestWords, label: int, head: tuple[int, int]) -> Compared:
    """Compare the class of a head's strongest words inside a relation and outside.

    For each pair of parts of speech, of a querying word and its right answer, the share of
    querying words whose strongest word is of the answer's part of speech, minus that share among
    other words of the querying word's part of speech; pairs weigh as many cases as they have.
    Cases of which no other words exist are left out.

    Args:
        found: sentences of the reporting half.
        label: place among the scheme's labels.
        head: layer and number.
    """
    cases, tag = found.cases(label), found.tag.astype(np.int64)
    strongest = found.strongest[:, *head].astype(np.int64)
    target = np.where(strongest == NOTHING, NOTHING, tag[found.first + strongest])
    outside = found.looks.copy()
    outside[found.querying(label)] = False
    n_tags = len(found.scheme.tags)
    others = np.bincount(tag[outside & (tag >= 0)], minlength=n_tags)
    known = (tag[cases.query] >= 0) & (tag[cases.key] >= 0)
    known[known] = others[tag[cases.query][known]] > 0
    query, key, sentence = (part[known] for part in (cases.query, cases.key, cases.sentence))
    asking, wanted = tag[query], tag[key]
    table = np.zeros((n_tags, n_tags))  # share of other words of a tag with a strongest word of one
    seen = outside & (tag >= 0) & (target >= 0)
    np.add.at(table, (tag[seen], target[seen]), 1)
    table = np.nan_to_num(divide(table, others[:, None]))
    inside = (target[query] == wanted).astype(np.float64)
    expected = table[asking, wanted]
    weight = np.zeros((n_tags, n_tags))
    np.add.at(weight, (asking, wanted), 1)
    n = np.zeros(len(found.lengths))
    d = np.zeros(len(found.lengths))
    np.add.at(n, sentence, inside - expected)
    np.add.at(d, sentence, 1)
    # Each other word moves the expectation of all cases of its tag.
    own = np.flatnonzero(outside & (tag >= 0))
    moved = np.where(target[own] >= 0, weight[tag[own], target[own]], 0.0)
    moved = divide(moved - (weight * table).sum(1)[tag[own]], others[tag[own]])
    np.subtract.at(n, found.sentence[own], moved)
    number = int(others[np.unique(asking)].sum())
    share, elsewhere = (float(x.mean()) if len(x) else np.nan for x in (inside, expected))
    sums = Ratios.of(n, d, d, np.full(len(n), REPORT))
    return Compared(share, elsewhere, sums, number)
