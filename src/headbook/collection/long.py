"""Texts for whose tables of all pairs of tokens there is too little memory.

They count in everything that is summed layer by layer over all texts. They have no page, are no
exemplars, and take no part in the sample unless all texts are long: then what needs tables of all
heads is not measured.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from headbook.inputs import Corpus
from headbook.metrics.base import AnchorMetric, ContextMetric, Metric, PairMetric, SampledMetric
from headbook.model.encode import Encoder
from headbook.model.passages import Passages
from headbook.passes.tables.headtable import MEDIANS
from headbook.study.gaps import Gap
from headbook.study.summaries.sums import CorpusSums

TABLES = (SampledMetric, ContextMetric, AnchorMetric, PairMetric)  # what needs such tables


@dataclass(frozen=True)
class Long:
    """The texts that are too long.

    Attributes:
        texts: their indices.
        most: tokens that a text may have.
        every: whether all texts are.
    """

    texts: frozenset[int] = frozenset()
    most: int = 0
    every: bool = False

    @classmethod
    def of(cls, sentences: Corpus | Passages, encoder: Encoder, most: int) -> "Long":
        """Find them; nothing is read where none can be."""
        if encoder.limit <= most:
            return cls(most=most)
        sizes = zip(sentences, encoder.lengths(sentences), strict=True)
        texts = frozenset(s.index for s, length in sizes if max(length.values()) > most)
        return cls(texts, most, len(texts) == len(sentences))

    def measured(self, metrics: Iterable[Metric]) -> Iterator[Metric]:
        """Those of some metrics that can be measured."""
        return (m for m in metrics if not self.every or not isinstance(m, TABLES))

    def within(self, indices: Iterable[int]) -> list[int]:
        """The texts that may be in a sample, in the order given."""
        return [index for index in indices if self.every or index not in self.texts]

    def smallest(self, corpus_sums: CorpusSums, size: int) -> frozenset[int]:
        """The sentences with the smallest hashes; long ones only if there are no others."""
        sample = next(iter(corpus_sums.heads.values())).sample
        known = sample.first(MEDIANS if self.texts else size).index.tolist()
        return frozenset(self.within(known)[:size] or [self.first_short])

    @property
    def first_short(self) -> int:
        """The index of the first text that is not long; there has to be one."""
        return next(index for index in count() if index not in self.texts)

    @property
    def why(self) -> str:
        """What a study does not have for them lacks memory."""
        number = len(self.texts)
        texts = "every text has" if self.every else f"{number:,} {_texts(number)}"
        return (
            f"{texts} more than {self.most:,} tokens, and the memory for maps of all heads is too "
            "small; --memory allows more"
        )

    def gaps(self, metrics: Iterable[Metric]) -> Iterator[Gap]:
        """What a study does not have for that.

        Args:
            metrics: all that were asked for.
        """
        if not self.texts:
            return
        why = self.why
        yield Gap("maps and pages of long texts", "", why)
        if self.every:
            yield from (Gap(m.title, "", why, m.id) for m in metrics if isinstance(m, TABLES))
        else:
            yield Gap("long texts in the sample", "", why)


def _texts(number: int) -> str:
    return "text has" if number == 1 else "texts have"
