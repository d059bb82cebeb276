"""What a model's answer loses without heads, sentence by sentence. No torch; a study stores it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import RatioSums, split_of
from headbook.analysis.arrays import Floats, Ints
from headbook.study.sentence_data import HeadName

Flags = NDArray[np.bool_]


class HeadSetKind(StrEnum):
    """Why heads were taken away together."""

    HEAD = "head"
    """One alone."""
    GROUP = "group"
    """All that have something in common."""
    RANDOM = "random"
    """Others, as many in each layer as a group has."""
    ORDER = "order"
    """The first of an order."""
    PAIR = "pair"
    """Two of those whose loss is largest."""


class HeadSet(NamedTuple):
    """Heads that were taken away together; which ones is told by `AblationResults.members`.

    Attributes:
        name: of a group or an order.
        number: of a random set from 0; of an order, how many heads.
        replacement: what stood in their place, as in `headbook.schema.Replacement`.
    """

    kind: HeadSetKind
    stack: str
    name: str
    number: int
    replacement: str


class AttributionKey(NamedTuple):
    """What one estimate of a head is."""

    metric: str
    replacement: str
    target: str
    label: str


class AblationReason(IntEnum):
    """Why a head was taken away by itself."""

    NOT = 0
    FIRST = 1
    """Its estimate is among the largest, or all heads were."""
    AUDIT = 2
    """At random among the others, to see what estimates miss."""


class MissedToken(NamedTuple):
    """A token at which the first target changes much, or as much as in the middle.

    Attributes:
        head: its place in `AblationResults.heads`; the mean stands in its place.
        rank: from 1, the largest change first.
        tokens: how many were ranked.
        sentence: its place in the input, from 0.
        position: of the token that the target is about, from 0.
        preceding, token, following: the text.
        before: the target in the whole model.
        change: of it.
    """

    head: int
    rank: int
    tokens: int
    sentence: int
    position: int
    preceding: str
    token: str
    following: str
    before: float
    change: float


@dataclass(frozen=True, eq=False)
class AblationResults:
    """Changes of targets where sets of heads are taken away, on a sample of sentences.

    Attributes:
        level: ``fast`` or ``full``, as asked for.
        heads: all heads.
        chosen: of each head, a `AblationReason`. *Shape:* ``(head,)``.
        content_hash: hashes of the sentences, ascending. *Shape:* ``(sentence,)``.
        counts: by target, scored tokens. *Shape:* ``(sentence,)`` each.
        unablated: by target, sums of the losses of the whole model; likewise.
        sets: what was taken away. Orders and pairs, which were chosen on one half of the sentences,
            have NaN on that half.
        members: which heads. *Shape:* ``(set, head)``.
        changes: by target, sums over scored tokens. *Shape:* ``(sentence, set)`` each.
        direct: change of the true tokens' centred logits by the residual path alone, with the mean
            in a head's place; NaN where it is not known. *Shape:* ``(sentence, head)``.
        text_hash, characters: of each sentence, the hash of its text, and how many characters the
            tokens stand for that losses are of; the same for every tokenizer. Empty where not
            known.
        top: sums over each head's 2 % of tokens of largest direct effect: total and direct change
            of the logit, and how many tokens; empty where that is not known. *Shape:*
            ``(3, sentence, head)``.
        columns: what the last dimension of ``estimates`` holds.
        estimates: *Shape:* ``(head, column)``.
        missed: by head and rank, tokens at which a head that was taken away by itself is missed.
        sentence_distance: by target that is a cosine, the mean distance (1 minus the cosine)
            between two sentences' vectors, or between states of tokens of different sentences, in
            the whole model.
        rounding: by target, changes if all weights are rounded to bfloat16, sums over scored
            tokens as in ``changes``; empty where that was not measured. *Shape:* ``(sentence,)``
            each.
        asked_margin: the margin of verdicts that ``--margin`` sets, in the target's unit; NaN
            without.
    """

    level: str
    heads: tuple[HeadName, ...]
    chosen: Ints
    content_hash: NDArray[np.uint64]
    counts: Mapping[str, Floats]
    unablated: Mapping[str, Floats]
    sets: tuple[HeadSet, ...]
    members: Flags
    changes: Mapping[str, Floats]
    direct: Floats
    columns: tuple[AttributionKey, ...]
    estimates: RatioSums
    missed: tuple[MissedToken, ...] = ()
    top: Floats = field(default_factory=lambda: np.zeros((3, 0, 0)))
    text_hash: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    characters: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    sentence_distance: Mapping[str, float] = field(default_factory=dict)
    rounding: Mapping[str, Floats] = field(default_factory=dict)
    asked_margin: float = float("nan")

    @property
    def half(self) -> Ints:
        """The half that each sentence belongs to."""
        return split_of(self.content_hash)

    @property
    def targets(self) -> tuple[str, ...]:
        """What of the answer changes."""
        return tuple(self.changes)

    def ratios(self, target: str, places: NDArray[np.intp]) -> RatioSums:
        """Change of a target per scored token, for some sets."""
        changes = self.changes[target][:, places]
        counts = np.broadcast_to(self.counts[target][:, None], changes.shape)
        counts = np.where(np.isnan(changes), 0, counts)
        return RatioSums.of(np.nan_to_num(changes), counts, counts, self.half)

    def loss(self, target: str, *, reported: bool = False) -> float:
        """The target of the whole model per token; NaN for those that it has none of.

        Args:
            reported: of the second half of the sentences alone.
        """
        if target not in self.unablated:
            return float("nan")
        kept = self.half == 1 if reported else np.ones(len(self.content_hash), bool)
        total = self.counts[target][kept].sum()
        return float(self.unablated[target][kept].sum() / total) if total else float("nan")

    def shifted(self, by: int) -> "AblationResults":
        """The same for sentences that come ``by`` places later."""
        missed = tuple(each._replace(sentence=each.sentence + by) for each in self.missed)
        return replace(self, missed=missed)

    def __add__(self, other: "AblationResults") -> "AblationResults":
        """Of the sentences of both, with the sets that both have taken away.

        Means that stood in place of heads remain those of each part; so do mean distances between
        sentences, of which the result has the mean, weighted by sentences.
        """
        theirs = {each: index for index, each in enumerate(other.sets)}
        same = [
            (mine, theirs[each])
            for mine, each in enumerate(self.sets)
            if each in theirs and (self.members[mine] == other.members[theirs[each]]).all()
        ]
        places = np.array(same, dtype=np.intp).reshape(-1, 2).T
        order = np.argsort(np.concatenate([self.content_hash, other.content_hash]), kind="stable")

        def joined(one: Mapping[str, Floats], another: Mapping[str, Floats]) -> dict[str, Floats]:
            return {name: np.concatenate([one[name], another[name]])[order] for name in one}

        one, another = (
            {target: table[:, kept] for target, table in ablation.changes.items()}
            for ablation, kept in zip((self, other), places, strict=True)
        )
        both = np.minimum(self.chosen, other.chosen) > 0
        tops = self.top, other.top
        known = all(top.size for top in tops)
        sizes = len(self.content_hash), len(other.content_hash)
        rounded = self.rounding.keys() == other.rounding.keys()
        return replace(
            self,
            chosen=np.where(both, np.minimum(self.chosen, other.chosen), 0),
            content_hash=np.concatenate([self.content_hash, other.content_hash])[order],
            counts=joined(self.counts, other.counts),
            unablated=joined(self.unablated, other.unablated),
            sets=tuple(self.sets[place] for place in places[0]),
            members=self.members[places[0]],
            changes=joined(one, another),
            direct=np.concatenate([self.direct, other.direct])[order],
            estimates=self.estimates + other.estimates,
            top=np.concatenate(tops, 1)[:, order] if known else np.zeros((3, 0, 0)),
            text_hash=_of_both(self.text_hash, other.text_hash, order),
            characters=_of_both(self.characters, other.characters, order),
            sentence_distance={
                target: float(
                    np.average(
                        [self.sentence_distance[target], other.sentence_distance[target]],
                        weights=sizes,
                    )
                )
                for target in self.sentence_distance.keys() & other.sentence_distance.keys()
            },
            rounding=joined(self.rounding, other.rounding) if rounded else {},
            missed=(),  # which token is in the middle of both is not known
        )


def _of_both(one: NDArray[Any], other: NDArray[Any], order: Ints) -> NDArray[Any]:
    """What is known of the sentences of two parts; nothing where one does not know."""
    known = bool(len(one) and len(other))
    return np.concatenate([one, other])[order] if known else one[:0]
