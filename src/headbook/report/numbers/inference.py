"""Which heads find a relation more often than a fixed offset does, tested over all heads at once.

For each relation and direction, the best head and the best offset are chosen on one half of the
sentences and compared on the other, word for word on the same words. Sentences are the clusters.

*Null hypothesis* of the test: in each sentence, the differences between what the heads find and
what the offsets find, all heads and all labels together, are as likely as the same with the
opposite sign. So the signs of whole sentences are flipped at random, and the largest statistic
among all heads and labels is noted each time. A head's p is the share of flips whose largest
statistic reaches the head's own: family-wise over all heads and labels, not only the chosen ones
(Westfall & Young 1993; Nichols & Holmes 2002, doi:10.1002/hbm.1058).

*Limits.* The statistic of each head alone needs symmetry about 0, which is more than a mean of 0; a
head that wins often by a little and loses seldom by much is not symmetric. Sentences count as
independent, though those of one document may not be; equal ones are flipped together. A small p
says that a head beats the best fixed offset on this corpus; it does not say that the model uses
the head for it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import CHOICE, REPORT, Ratios
from headbook.analysis.arithmetic import Floats, Ints, divide
from headbook.analysis.flips import LEVEL, family_wise
from headbook.analysis.intervals import FEW
from headbook.attention.relations import OFFSETS
from headbook.report.numbers.results import Estimates
from headbook.study.summaries.sums import RelationHits


def supported(p: Floats, margin: Estimates) -> NDArray[np.bool_]:
    """What every page takes as shown: family-wise p below `LEVEL`, and an interval above 0.

    The one rule of the site. All else is drawn hollow and written grey.

    Args:
        p: family-wise; NaN where there was no test.
        margin: what is tested, of the same shape.
    """
    with np.errstate(invalid="ignore"):
        found: NDArray[np.bool_] = (p < LEVEL) & (margin.low > 0) & (margin.effective >= FEW)
    return found


@dataclass(frozen=True, eq=False)
class RelationTests:
    """Labels with enough words, each with its best head and its best fixed offset.

    Attributes:
        labels: relation and direction, as in `headbook.terms.Scheme.labels`.
        head: layer and number of the best head. *Shape:* ``(label, 2)``.
        offset: the best offset, in words from who looks. *Shape:* ``(label,)``.
        accuracy: share of the words that the head finds; ``events`` are the words asked for.
            *Shape:* ``(label,)``.
        at_offset: share of the same words that the offset finds; the same shape.
        margin: difference of the two; the same shape.
        p: family-wise p of the head; NaN with fewer than two sentences. *Shape:* ``(label,)``.
        every: the same of every head and label; NaN where there is no head. *Shape:*
            ``(layer, head, label)``.
        layer_head: the best head of each layer, chosen likewise. *Shape:* ``(layer, label)``.
        layer_margin: its margin; NaN in layers without attention. *Shape:* ``(layer, label)``.
        family: how many heads and labels the p hold for.
    """

    labels: tuple[str, ...]
    head: Ints
    offset: Ints
    accuracy: Estimates
    at_offset: Estimates
    margin: Estimates
    p: Floats
    every: Floats
    layer_head: Ints
    layer_margin: Estimates
    family: int

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Whether the best head beats the best offset. *Shape:* ``(label,)``."""
        return supported(self.p, self.margin)

    @property
    def layer_supported(self) -> NDArray[np.bool_]:
        """The same of the best head of each layer. *Shape:* ``(layer, label)``."""
        p = np.take_along_axis(self.every, self.layer_head[:, None], 1)[:, 0]
        return supported(p, self.layer_margin)

    def beats(self, label: str, place: tuple[int, int]) -> bool:
        """Whether a head, by layer and number, is the best one of a label and supported."""
        return any(
            name == label and (int(layer), int(head)) == place and bool(sure)
            for name, (layer, head), sure in zip(
                self.labels, self.head, self.supported, strict=True
            )
        )


def relation_tests(found: RelationHits, present: NDArray[np.bool_]) -> RelationTests:
    """Choose heads and offsets on one half of the sentences, compare them on the other.

    Labels take part whose words in the reporting half stand in at least `FEW` effective sentences,
    and any in the other.

    Args:
        present: which heads there are. *Shape:* ``(layer, head)``.
    """
    choice = _choose(found, present)
    half = found.hits.half == REPORT
    hits = found.hits.payload[half][..., choice.labels].astype(np.float32)
    asked = found.asked.payload[half][:, choice.labels].astype(np.float32)
    each = np.arange(len(choice.labels))
    by_offset, words = asked[:, each, 1 + choice.offset], asked[..., 0]
    ahead = hits - by_offset[:, None, None]
    best = choice.head[:, 0], choice.head[:, 1], each
    margin = reported(ahead[:, *best], words, (-1.0, 1.0))
    every = family_wise(ahead, present, found.hits.content_hash[half])
    every = np.where(margin.sentences >= 2, every, np.nan)
    of_layers = np.take_along_axis(ahead, choice.layer_head[None, :, None], 2)[:, :, 0]
    return RelationTests(
        labels=tuple(found.labels[label] for label in choice.labels),
        head=choice.head,
        offset=np.array(OFFSETS)[choice.offset],
        accuracy=reported(hits[:, *best], words, (0.0, 1.0)),
        at_offset=reported(by_offset, words, (0.0, 1.0)),
        margin=margin,
        p=every[best],
        every=every,
        layer_head=choice.layer_head,
        layer_margin=_where(present, reported(of_layers, words[:, None], (-1.0, 1.0))),
        family=int(present.sum()) * len(choice.labels),
    )


class _Choice(NamedTuple):
    """What the choice half says: labels, best heads and best offsets as places."""

    labels: Ints
    head: Ints
    layer_head: Ints
    offset: Ints


def _choose(found: RelationHits, present: NDArray[np.bool_]) -> _Choice:
    half = found.hits.half
    words = found.asked.payload[..., 0]
    enough = effective_sentences(words[half == REPORT]) >= FEW
    labels = np.flatnonzero(enough & words[half == CHOICE].any(0))
    hits = found.hits.payload[half == CHOICE][..., labels].sum(0, dtype=np.int64)
    at_offsets = found.asked.payload[half == CHOICE][:, labels, 1:].sum(0, dtype=np.int64)
    hits = np.where(present[..., None], hits, -1)  # heads that are not there come last
    best = hits.reshape(present.size, len(labels)).argmax(0)
    head = np.stack(np.divmod(best, present.shape[1]), -1)
    return _Choice(labels, head, hits.argmax(1), best_places(at_offsets))


def effective_sentences(words: NDArray[np.generic]) -> Floats:
    """As many sentences with the same number of words would tell as much; 0 without any.

    Args:
        words: in each sentence. *Shape:* ``(sentence, ...)``.
    """
    words = words.astype(np.float64)
    return np.nan_to_num(divide(words.sum(0) ** 2, (words**2).sum(0)))


def best_offsets(found: RelationHits) -> tuple[Ints, Floats]:
    """The offset that finds most words of each label, and the share that it finds.

    Over all sentences, labels as in `headbook.terms.Scheme.labels`.

    Returns:
        Offsets in words from who looks, and shares, NaN without words. *Shape:* ``(label,)`` both.
    """
    counts = found.asked.payload.sum(0, dtype=np.float64)
    words, hits = counts[:, 0], counts[:, 1:].max(-1)
    return np.array(OFFSETS)[best_places(counts[:, 1:])], divide(hits, words)


def best_places(counts: NDArray[np.generic]) -> Ints:
    """The place of the largest count among `OFFSETS`, of equals the nearest.

    A direction and its mirror image, whose counts are the same the other way round, get the same
    answer.

    Args:
        counts: what each offset finds. *Shape:* ``(..., offset)``.
    """
    order = np.argsort(np.abs(OFFSETS), kind="stable")
    found: Ints = order[counts[..., order].argmax(-1)]
    return found


def reported(
    n: NDArray[np.generic], words: NDArray[np.generic], limits: tuple[float, float]
) -> Estimates:
    """Ratios of sums over the sentences of the reporting half, with intervals.

    Args:
        n: what is counted. *Shape:* ``(sentence, …)``.
        words: of how many; broadcast to the shape of ``n``.
        limits: least and largest possible ratio.
    """
    d = np.broadcast_to(words, n.shape).astype(np.float64)
    ratios = Ratios.of(n.astype(np.float64), d, d, np.full(len(n), REPORT))
    return Estimates.of(ratios, limits)


def _where(present: NDArray[np.bool_], numbers: Estimates) -> Estimates:
    """Numbers of layers that have heads, NaN in the others."""
    there = np.any(present, axis=1, keepdims=True)
    value, low, high = (np.where(there, part, np.nan) for part in numbers[:3])
    return numbers._replace(value=value, low=low, high=high)
