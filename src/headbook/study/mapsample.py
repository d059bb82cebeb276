"""Attention maps of a few sentences, by which two models are compared. No torch.

Which sentences these are follows from their texts alone, so that studies of the same sentences keep
the same ones, whatever their models are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Ints
from headbook.study.sentencedata import StoredText
from headbook.terms import Side

SENTENCES = 64  # that are kept at most
MOST_BYTES = 1 << 26  # of all maps together


@dataclass(frozen=True, eq=False)
class MappedSentence:
    """A sentence whose maps are kept.

    Attributes:
        index: its place in the input.
        texts, ids: each side's text, and its tokens' vocabulary entries.
        maps: attention before any view, by stack. *Shape:* ``(layer, head, query, key)``, in half
            precision.
    """

    index: int
    texts: Mapping[Side, StoredText]
    ids: Mapping[Side, Ints]
    maps: Mapping[str, NDArray[np.float16]]


@dataclass(frozen=True, eq=False)
class MapSample:
    """The sentences with the smallest hashes, as far as there is room.

    Attributes:
        sentences: by the hash of their texts, ascending.
    """

    sentences: Mapping[int, MappedSentence] = field(default_factory=dict)

    def __add__(self, other: "MapSample") -> "MapSample":
        both = {**other.sentences, **self.sentences}
        return MapSample({key: both[key] for key in sorted(both)[:SENTENCES]})

    def shifted(self, by: int) -> "MapSample":
        """The same for sentences that come ``by`` places later."""
        return MapSample(
            {
                key: MappedSentence(each.index + by, each.texts, each.ids, each.maps)
                for key, each in self.sentences.items()
            }
        )
