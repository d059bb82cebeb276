"""Results of ablation: changes of targets by ablating sets of heads, sentence by sentence.

`AblationResults` stores one array of changes for each target, with a row for each sentence and a
column for each set of heads. Readers use its methods: `select` finds sets, `ratios` sums changes
over sentences, and `frame` returns the changes of one target as a tidy table.

A tidy table of all targets is not stored. The arrays need less than half the memory and are faster
to sum.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, RatioSums, split_of
from headbook.analysis.arrays import Floats, Ints
from headbook.schema import AblationTarget, HeadName

Flags = NDArray[np.bool_]
HEAD_FIELDS = HeadName._fields  # columns of tables of heads: stack, layer and head

AUTO, FULL = "auto", "full"  # levels of --importance at which heads are ablated
OWN_MEANS = "each part replaced by its own means"  # of merged results, which are pooled
EFFECT_ORDER = "ablation_effect"  # name of the pruning order by ascending effect
REVERSED = "reversed"  # name of the pruning order by descending effect

# Least and largest possible change of targets that cannot be negative.
CHANGE_LIMITS: dict[str, tuple[float, float]] = {
    AblationTarget.KL: (0, np.inf),
    AblationTarget.STATE: (0, 2),
    AblationTarget.EMBEDDING: (0, 2),
}


def limits_of(target: str) -> tuple[float, float]:
    """Return the least and largest possible change of a target."""
    return CHANGE_LIMITS.get(target, (-np.inf, np.inf))


class HeadSetKind(StrEnum):
    """Reasons to ablate heads together."""

    HEAD = "head"
    """A single head."""
    GROUP = "group"
    """Heads with a common property, such as a family or a layer."""
    RANDOM = "random"
    """Random heads, with as many in each layer as a group."""
    ORDER = "order"
    """The first heads of a pruning order."""
    PAIR = "pair"
    """Two of the heads of largest effect."""


class HeadSet(NamedTuple):
    """A set of heads that are ablated together; `AblationResults.members` lists its heads.

    Attributes:
        kind: reason to ablate the heads together.
        stack: stack of the heads.
        name: name of a head, a group, an order or a pair.
        number: number of a random set from 0; of an order, the number of heads; else 0.
        replacement: a `headbook.schema.Replacement`.
    """

    kind: HeadSetKind
    stack: str
    name: str
    number: int
    replacement: str


class AttributionKey(NamedTuple):
    """Column of the estimates of all heads: metric, replacement, target and label."""

    metric: str
    replacement: str
    target: str
    label: str


class AblationReason(IntEnum):
    """Reasons to ablate a head alone."""

    NOT_ABLATED = 0
    """The head was not ablated alone."""
    SELECTED = 1
    """The estimate of the head is among the largest, or all heads were ablated."""
    AUDIT = 2
    """The head was drawn at random from the others, to check the estimates."""


class MissedToken(NamedTuple):
    """A token at which ablating one head changes the main target most, or by the median change.

    To ablate the head, its output is replaced by its mean. The tokens of a head are ranked by their
    change, the largest increase first; the tokens of the first ranks and of the median rank remain.

    Attributes:
        head: index into `AblationResults.heads`.
        rank: rank of the token among the head's tokens, 1 for the largest change.
        tokens: number of tokens that were ranked for the head.
        sentence: index of the sentence in the input, from 0.
        position: position of the token that the target is about, from 0.
        preceding, token, following: text before the token, of the token, and after the token.
        before: target of the unablated model at this token.
        change: change of the target at this token.
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
    """Changes of targets by ablating sets of heads, on a sample of sentences.

    Attributes:
        level: ``auto`` or ``full``.
        heads: all heads of the model.
        chosen: `AblationReason` of each head. *Shape:* ``(head,)``.
        content_hash: hashes of the sentences, ascending. *Shape:* ``(sentence,)``.
        counts: scored tokens of each sentence, by target. *Shape:* ``(sentence,)`` each.
        unablated: summed losses of the unablated model, by target. *Shape:* ``(sentence,)`` each.
        sets: sets of heads that were ablated.
        members: heads of each set. *Shape:* ``(set, head)``.
        changes: changes of each target, ablated minus unablated, summed over scored tokens. Orders
            and pairs have NaN on the selection half, on which they were chosen.
            *Shape:* ``(sentence, set)`` each.
        direct: change of the true tokens' centred logits by the residual path alone, if the head
            is replaced by its mean; NaN if not measured. *Shape:* ``(sentence, head)``.
        columns: keys of the last dimension of ``estimates``.
        estimates: estimates of all heads. *Shape:* ``(head, column)``.
        missed: tokens at which ablating a single head changes the first target most, by head and
            rank.
        top: sums over the 2 % of tokens of largest direct effect of each head: total change of the
            logit, direct change, and number of tokens; empty if not measured.
            *Shape:* ``(3, sentence, head)``.
        text_hash: hash of the text of each sentence; empty if unknown. *Shape:* ``(sentence,)``.
        characters: characters covered by the scored tokens of each sentence, equal for all
            tokenizers; empty if unknown. *Shape:* ``(sentence,)``.
        sentence_distance: mean distance (1 minus the cosine) in the unablated model between vectors
            of two sentences, or states of tokens of different sentences, by target.
        rounding: changes of each target if all weights are rounded to bfloat16, summed over scored
            tokens; empty if not measured. *Shape:* ``(sentence,)`` each.
        asked_margin: margin of verdicts set by ``--margin``, in the unit of the target; NaN if not
            set.
        facets: value of each row in metadata columns, by column; empty except for tasks.
        truth: scored observations of each row by their true label; empty except for labels.
            *Shape:* ``(sentence,)`` each.
        notes: sentences on texts that were left out, on the reading of columns, or on merging.
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
    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    truth: Mapping[str, Floats] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def half(self) -> Ints:
        """Half of the sample, 0 or 1, of each sentence. *Shape:* ``(sentence,)``."""
        return split_of(self.content_hash)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets, the main target first."""
        return tuple(self.changes)

    def select(self, kind: HeadSetKind, replacement: str = "") -> NDArray[np.intp]:
        """Return the indices of sets of one kind.

        Args:
            kind: kind of the sets.
            replacement: replacement of the sets; empty for all replacements.
        """
        return np.array(
            [
                index
                for index, head_set in enumerate(self.sets)
                if head_set.kind == kind and replacement in {"", head_set.replacement}
            ],
            dtype=np.intp,
        )

    def first_heads(self, sets: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the index into ``heads`` of the first head of each set."""
        first: NDArray[np.intp] = self.members[sets].argmax(1)
        return first

    def frame(self, target: str, sets: NDArray[np.intp]) -> pd.DataFrame:
        """Return changes of a target as a tidy table with a row for each set and sentence.

        Columns ``set, stack, layer, head, sentence, change, n_tokens``: ``set`` is an index into
        ``sets``, ``sentence`` into ``content_hash``; stack, layer and head are those of the first
        head of the set. Sentences on which a set was not ablated have no row.

        Args:
            target: target whose changes are returned.
            sets: indices of the sets.
        """
        heads = pd.DataFrame(
            [self.heads[k] for k in self.first_heads(sets)], columns=[*HEAD_FIELDS]
        )
        changes = self.changes[target][:, sets].T
        row, sentence = np.nonzero(~np.isnan(changes))
        return (
            heads.iloc[row]
            .reset_index(drop=True)
            .assign(
                set=sets[row],
                sentence=sentence,
                change=changes[row, sentence],
                n_tokens=self.counts[target][sentence],
            )
        )

    def ratios(self, target: str, sets: NDArray[np.intp]) -> RatioSums:
        """Return the changes of a target per scored token, summed over sentences.

        Args:
            target: target whose changes are summed.
            sets: indices of the sets.
        """
        return self.ratios_of(target, self.changes[target][:, sets])

    def ratios_of(self, target: str, changes: Floats) -> RatioSums:
        """Return other changes of a target per scored token, summed over sentences.

        Args:
            target: target whose scored tokens are counted.
            changes: changes of each sentence; NaN if not measured. *Shape:* ``(sentence, ...)``.
        """
        counts = self.counts[target].reshape(-1, *[1] * (changes.ndim - 1))
        counts = np.where(np.isnan(changes), 0, counts)
        return RatioSums.of(np.nan_to_num(changes), counts, counts, self.half)

    def loss(self, target: str, *, reported: bool = False) -> float:
        """Return the loss of the unablated model per token; NaN for targets that are no losses.

        Args:
            target: target whose loss is returned.
            reported: whether to use the held-out half of the sentences only.
        """
        if target not in self.unablated:
            return float("nan")
        counted = self.half == HELD_OUT if reported else np.ones(len(self.content_hash), bool)
        total = self.counts[target][counted].sum()
        return float(self.unablated[target][counted].sum() / total) if total else float("nan")

    def shifted(self, by: int) -> "AblationResults":
        """Return a copy whose sentence indices are increased by ``by``."""
        missed = tuple(token._replace(sentence=token.sentence + by) for token in self.missed)
        return replace(self, missed=missed)

    def __add__(self, other: "AblationResults") -> "AblationResults":
        """Merge the results of two samples, keeping the sets that were ablated on both.

        Mean outputs of heads remain those of each sample (`OWN_MEANS`). Distances between sentences
        are averaged, weighted by the number of sentences.
        """
        own_sets, other_sets = self._common_sets(other)
        hashes = np.concatenate([self.content_hash, other.content_hash])
        order = np.argsort(hashes, kind="stable")

        def merge(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
            merged: NDArray[Any] = np.concatenate([a, b])[order]
            return merged

        def merge_known(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
            return merge(a, b) if len(a) and len(b) else a[:0]

        def merge_targets(
            a: Mapping[str, Floats], b: Mapping[str, Floats]
        ) -> dict[str, NDArray[Any]]:
            return {target: merge(a[target], b[target]) for target in a}

        has_rounding = self.rounding.keys() == other.rounding.keys()
        return replace(
            self,
            # 0 unless the head was ablated alone in both samples; SELECTED wins over AUDIT.
            chosen=np.minimum(self.chosen, other.chosen),
            content_hash=hashes[order],
            counts=merge_targets(self.counts, other.counts),
            unablated=merge_targets(self.unablated, other.unablated),
            sets=tuple(self.sets[index] for index in own_sets),
            members=self.members[own_sets],
            changes={
                target: merge(changes[:, own_sets], other.changes[target][:, other_sets])
                for target, changes in self.changes.items()
            },
            direct=merge(self.direct, other.direct),
            estimates=self.estimates + other.estimates,
            top=np.zeros((3, 0, 0)),  # each sample has thresholds of its own
            text_hash=merge_known(self.text_hash, other.text_hash),
            characters=merge_known(self.characters, other.characters),
            sentence_distance=self._mean_distance(other),
            rounding=merge_targets(self.rounding, other.rounding) if has_rounding else {},
            missed=(),  # the ranks and the median of both samples together are unknown
            facets=self._merge_facets(other, order),
            truth={
                label: merge(
                    self.truth.get(label, np.zeros(len(self.content_hash))),
                    other.truth.get(label, np.zeros(len(other.content_hash))),
                )
                for label in dict.fromkeys([*self.truth, *other.truth])
            },
            notes=tuple(dict.fromkeys([*self.notes, *other.notes, f"Pooled: {OWN_MEANS}."])),
        )

    def _common_sets(self, other: "AblationResults") -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the indices, in both results, of the sets that were ablated on both samples.

        Growing sets remain if all sets of their order are equal, since a curve needs all its steps.
        """
        other_indices = {head_set: index for index, head_set in enumerate(other.sets)}
        common = []
        unequal_orders = set()
        for index, head_set in enumerate(self.sets):
            other_index = other_indices.get(head_set)
            if other_index is not None and np.array_equal(
                self.members[index], other.members[other_index]
            ):
                common.append((index, other_index))
            elif head_set.kind is HeadSetKind.ORDER:
                unequal_orders.add(head_set.name)
        common = [
            pair
            for pair in common
            if self.sets[pair[0]].kind is not HeadSetKind.ORDER
            or self.sets[pair[0]].name not in unequal_orders
        ]
        own_sets, other_sets = np.array(common, dtype=np.intp).reshape(-1, 2).T
        return own_sets, other_sets

    def _merge_facets(
        self, other: "AblationResults", order: NDArray[np.intp]
    ) -> dict[str, tuple[str, ...]]:
        """Return the metadata of both samples; a column that one sample lacks is empty there."""
        merged = {}
        for column in dict.fromkeys([*self.facets, *other.facets]):
            values = [
                value
                for part in (self, other)
                for value in part.facets.get(column, ("",) * len(part.content_hash))
            ]
            merged[column] = tuple(values[row] for row in order)
        return merged

    def _mean_distance(self, other: "AblationResults") -> dict[str, float]:
        """Return the distances between sentences, averaged over both samples by their sizes."""
        sizes = len(self.content_hash), len(other.content_hash)
        return {
            target: float(
                np.average(
                    [self.sentence_distance[target], other.sentence_distance[target]],
                    weights=sizes,
                )
            )
            for target in self.sentence_distance.keys() & other.sentence_distance.keys()
        }
