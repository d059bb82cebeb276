"""What heads are needed for: which of them are taken away, and what becomes of the answer.

The *fast* level estimates all heads from slopes and takes few away: those whose estimates are
largest, and others at random, which show what estimates miss; besides, each layer, and the sink
heads beside random sets with as many heads in each layer. The *full* level takes away every head,
groups of them beside random sets with as many heads in each layer, pairs, and ever more heads
in several orders. What is chosen by exact numbers is chosen on one half of the sentences and taken
away on the other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from headbook.ablation.ablator import BatchEffects, HeadAblator, MeanOutputs
from headbook.ablation.attribution import (
    GradientEstimates,
    direct_effects_by_token,
    gradient_estimates,
)
from headbook.ablation.head_sets import (
    HeadGroup,
    Removed,
    matched_random_sets,
    n_dependent_sets,
    pair_sets,
    pruning_orders,
    single_head_sets,
)
from headbook.ablation.missed_tokens import TokenChanges, missed_tokens, texts_of, top_token_sums
from headbook.ablation.sample import PASSES, AblationCosts, AblationSample, measure_margins
from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import Floats, Ints
from headbook.errors import is_out_of_memory
from headbook.model.load import Model, word_embedding
from headbook.schema import AblationTarget, Replacement
from headbook.study.ablation import (
    AblationReason,
    AblationResults,
    AttributionKey,
    HeadPlace,
    HeadSetKind,
    MissedToken,
)
from headbook.study.ablation_tests import ATTRIBUTION
from headbook.study.sentence_data import HeadName
from headbook.text.batch import Batch

FAST, FULL = "fast", "full"
FAST_PASSES = 40.0  # forward passes over the sample that the fast level may take for single heads
RANDOM_SETS = {FAST: 20, FULL: 100}  # beside a group; another draw of 20 gave other verdicts
BANDED = {FAST: (Replacement.MEAN, Replacement.ZERO), FULL: tuple(Replacement)}  # by random sets
N_ABLATED_FAST = 20  # heads of largest estimates, and as many at random
FULL_REPLACEMENTS = (
    Replacement.MEAN,
    Replacement.ZERO,
    Replacement.UNIFORM,
    Replacement.WITHOUT_SINK,
)
COSINES = {AblationTarget.STATE, AblationTarget.EMBEDDING}
GRADIENT = "gradient_importance"
REPORTED = {HeadSetKind.ORDER, HeadSetKind.PAIR}  # kinds that were chosen on the other half

ROOMLESS = "memory does not suffice for a backward pass over one sentence; see --max-length"

Steps = Callable[[int], None]


class NotEnoughMemory(Exception):  # noqa: N818 - it is said on the pages, nothing ends
    """Memory does not suffice for slopes."""


def parameters_of(model: Model) -> tuple[int, tuple[int, int]]:
    """Count the parameters of a network without its word embeddings, and the shape of these.

    The shape is ``(entry, width)``, and (0, 0) if there is no matrix of word embeddings.
    """
    weight = word_embedding(model.base_model)
    entries, width = (0, 0) if weight is None else weight.shape
    return max(1, model.network.num_parameters() - entries * width), (entries, width)


@dataclass(frozen=True, eq=False)
class AblationPlan:
    """One level, on one sample.

    Attributes:
        groups: heads that are taken away together.
        margin: of verdicts, in the target's unit; None for the default.
        advanced: told how many sets have been taken away from how many batches.
    """

    ablator: HeadAblator
    costs: AblationCosts
    level: str
    sample: AblationSample
    seed: int
    groups: Sequence[HeadGroup] = ()
    margin: float | None = None
    advanced: Steps = field(default=lambda _: None)
    _small: list[Batch] = field(default_factory=list)  # batches for which memory suffices

    @property
    def message(self) -> str:
        """What it takes, in words."""
        sentences = len(self.sample.content_hash)
        about = "at most" if self.level == FAST else "about"
        return (
            f"importance, {self.level}: {about} {np.ceil(self.passes):,.0f} forward passes over "
            f"{sentences:,} sentence{'s' * (sentences != 1)}"
        )

    @property
    def passes(self) -> float:
        """Forward passes that it takes, or may take."""
        each = [self.costs.of([head]) for head in self.heads]
        together = PASSES + sum(
            self.costs.of(group.heads) * len(group.replacements) for group in self._with_random
        )
        if self.level == FAST:
            return together + min(
                self.costs.fixed + sum(sorted(each)[-2 * N_ABLATED_FAST :]), FAST_PASSES
            )
        return self.costs.fixed + len(FULL_REPLACEMENTS) * sum(each) + together + self._n_later / 2

    @property
    def steps(self) -> int:
        """Sets of heads times batches, about."""
        most = (
            2 * N_ABLATED_FAST if self.level == FAST else len(self.heads) * len(FULL_REPLACEMENTS)
        )
        together = sum(len(group.replacements) for group in self._with_random)
        more = 0 if self.level == FAST else self._n_later
        whole, reported = len(self.sample.batches), len(self.sample.reported)
        return (
            min(most, len(self.heads) * len(FULL_REPLACEMENTS)) + together
        ) * whole + more * reported

    @property
    def _n_later(self) -> int:
        """Sets that follow from those before, about."""
        return n_dependent_sets(len(self.heads))

    @cached_property
    def heads(self) -> tuple[HeadName, ...]:
        """All heads, by stack, layer and number."""
        stacks = self.ablator.heads.architecture.stacks
        places = sorted((call.stack, call.layer) for call in self.ablator.heads.architecture.calls)
        return tuple(HeadName(*p, head) for p in places for head in range(stacks[p[0]].n_heads))

    @cached_property
    def _means(self) -> MeanOutputs:
        return reduce(add, map(self.ablator.means, self.sample.batches), MeanOutputs())

    @cached_property
    def _with_random(self) -> list[HeadGroup]:
        """Groups, and random sets like them."""
        found: list[HeadGroup] = []
        for group in self.groups:
            banded = tuple(r for r in group.replacements if r in BANDED[self.level])
            alike = matched_random_sets(group, self.heads, self.seed, RANDOM_SETS[self.level])
            found += [group, *(replace(each, replacements=banded) for each in alike)]
        return found

    def run(self) -> AblationResults:
        """Take heads away."""
        columns, estimates = self._estimates()
        table = _ResultTable(self.sample.content_hash)
        if self.level == FAST:
            chosen = self._chosen(columns, estimates)
            picked = [head for head, why in zip(self.heads, chosen, strict=True) if why]
            self._take(table, single_head_sets(picked, [Replacement.MEAN]))
        else:
            chosen = np.full(len(self.heads), int(AblationReason.FIRST))
            self._take(table, single_head_sets(self.heads, FULL_REPLACEMENTS))
        self._take(table, [removed for group in self._with_random for removed in group.removed()])
        if self.level == FULL:
            self._take(table, self._later(table, columns, estimates))
        ablation = table.results(self.level, self.heads, chosen, columns, estimates)
        found = self._with_direct(ablation, table)
        texts = self.sample.texts(self.ablator.functions.side)
        apart, rounding = measure_margins(self.ablator, self.sample.small)
        return replace(
            found,
            text_hash=texts[0],
            characters=texts[1],
            sentence_distance=apart,
            rounding=rounding,
            asked_margin=float("nan") if self.margin is None else self.margin,
        )

    def _chosen(self, columns: Sequence[AttributionKey], estimates: RatioSums) -> Ints:
        """Which heads are taken away at the fast level; see `AblationReason`."""
        value = estimates.value[:, self._ranking(columns)]
        first = np.argsort(-np.nan_to_num(value), kind="stable")
        found = np.zeros(len(self.heads), np.int64)
        budget = FAST_PASSES - self.costs.fixed
        for why, share in ((AblationReason.FIRST, budget / 2), (AblationReason.AUDIT, budget)):
            rest = [place for place in first if not found[place]]
            if why is AblationReason.AUDIT:
                rest = [rest[k] for k in np.random.default_rng(self.seed).permutation(len(rest))]
            for place in rest[:N_ABLATED_FAST]:
                spent = sum(self.costs.of([self.heads[k]]) for k in np.flatnonzero(found))
                if spent + self.costs.of([self.heads[place]]) <= share:
                    found[place] = why
        return found

    def _ranking(self, columns: Sequence[AttributionKey]) -> int:
        """The place of the estimates that heads are ranked by."""
        return columns.index(AttributionKey(ATTRIBUTION, Replacement.MEAN, self._ranked, ""))

    @property
    def _ranked(self) -> AblationTarget:
        """The target that heads are ranked by."""
        targets = self.ablator.functions.targets
        return AblationTarget.KL if AblationTarget.KL in targets else targets[0]

    @property
    def _unestimated(self) -> set[AblationTarget]:
        """Targets without estimates, each of which would take as many backward passes again."""
        return COSINES - {self._ranked}

    def _later(
        self, table: "_ResultTable", columns: Sequence[AttributionKey], estimates: RatioSums
    ) -> list[Removed]:
        """Orders and pairs, from what the first half of the sentences says."""
        if not self.sample.reported:
            return []
        effect = table.first_half(self._ranked, Replacement.MEAN)
        loss = self.ablator.functions.targets[0]
        gradient = AttributionKey(GRADIENT, "", loss, "")
        position = columns.index(gradient) if gradient in columns else self._ranking(columns)
        slope = np.nan_to_num(estimates.split(0).value[:, position])
        named = {columns[position].metric: dict(zip(self.heads, slope, strict=True))}
        types = [group for group in self.groups if group.type]
        return [
            *pruning_orders(
                self.heads, dict(zip(self.heads, effect, strict=True)), named, types, self.seed
            ),
            *pair_sets(self.heads, effect),
        ]

    def _estimates(self) -> tuple[tuple[AttributionKey, ...], RatioSums]:
        """All heads, from slopes."""
        columns: tuple[AttributionKey, ...] = ()
        total: RatioSums | None = None
        for batch, found in self._slopes():
            columns, ratios = self._estimated(batch, found)
            total = ratios if total is None else total + ratios
        assert total is not None
        return columns, total

    def _with_direct(self, found: AblationResults, table: "_ResultTable") -> AblationResults:
        """With what heads say to the logits themselves; NaN where that is not known."""
        shape = len(found.content_hash), len(self.heads)
        if not self.costs.direct:
            return replace(found, direct=np.full(shape, np.nan))
        mean, functions = Replacement.MEAN, self.ablator.functions
        parts = [direct_effects_by_token(self.ablator, b, mean, self._means) for b in self._small]
        places = [(b.index, functions.scored(b).cpu().numpy().T) for b in self._small]
        index = np.concatenate([own[row] for own, (row, _) in places])
        position = np.concatenate([named for _, (_, named) in places])
        order = np.lexsort([position, index])
        tokens, sentence = np.concatenate(parts)[order], self._rows(index[order])
        direct = np.zeros(shape)
        np.add.at(direct, sentence, tokens)
        total = np.full(tokens.shape, np.nan)
        for heads, changes in table.replaced:
            total[:, [self.heads.index(head) for head in heads]] = changes.logits
        return replace(
            found, direct=direct, top=top_token_sums(total, tokens, sentence, found.half)
        )

    def _rows(self, index: Ints) -> Ints:
        """Where sentences stand in tables, by their places in the input."""
        own, key = (
            np.concatenate([getattr(batch, name) for batch in self.sample.batches])
            for name in ("index", "content_hash")
        )
        rows = {int(own[k]): row for row, k in enumerate(np.argsort(key, kind="stable"))}
        return np.array([rows[int(each)] for each in index], dtype=np.int64)

    def _slopes(self) -> Iterator[tuple[Batch, GradientEstimates]]:
        """Batch by batch, smaller ones where memory does not suffice; `_small` keeps them.

        Raises:
            NoRoom: not even for one sentence.
        """
        waiting = [*self.sample.small]
        self._small.clear()
        while waiting:
            batch = waiting.pop(0)
            try:
                found = gradient_estimates(
                    self.ablator, batch, FULL_REPLACEMENTS, self._means, self._unestimated
                )
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch.items) < 2:
                    raise NotEnoughMemory(ROOMLESS) from error
                middle = len(batch.items) // 2
                parts = batch.items[:middle], batch.items[middle:]
                waiting[:0] = [self.sample.batch(part) for part in parts]
            else:
                self._small.append(batch)
                yield batch, found

    def _estimated(
        self, batch: Batch, found: GradientEstimates
    ) -> tuple[tuple[AttributionKey, ...], RatioSums]:
        functions = self.ablator.functions
        counts = dict(
            zip(functions.targets, functions.n_scored(batch).double().cpu().numpy(), strict=True)
        )
        loss = functions.targets[0]
        tables: dict[AttributionKey, Floats] = {}
        if found.gradient:
            by_sentence = found.gradient["sentence"]
            tables[AttributionKey(GRADIENT, "", loss, "")] = np.abs(by_sentence)
            tables[AttributionKey(GRADIENT, "", loss, "per_token")] = found.gradient["token"]
            tables[AttributionKey(GRADIENT, "", loss, "signed")] = -by_sentence
        for (target, replacement), reported in found.estimates.items():
            tables[AttributionKey(ATTRIBUTION, replacement, target, "")] = reported
        n = np.stack([*tables.values()], -1)
        d = np.stack([counts[AblationTarget(column.target)] for column in tables], -1)[:, None, :]
        d = np.broadcast_to(d, n.shape)
        return tuple(tables), RatioSums.of(n, d, d, batch.half)

    def _take(self, table: "_ResultTable", sets: Sequence[Removed]) -> None:
        """Take sets of heads away, each from the whole model."""
        for reported in (False, True):
            batches = self.sample.reported if reported else self.sample.batches
            for replacement in Replacement:
                some = [
                    each for each in sets
                    if each.set.replacement == replacement
                    and (each.set.kind in REPORTED) == reported
                ]  # fmt: skip
                if some:
                    effects = BatchEffects.merge([*self._effects(batches, some, replacement)])
                    table.add(some, effects)
                    heads, tokens = _of_singles(some, effects.tokens)
                    table.missed += self._missed(heads, tokens)
                    if heads:
                        table.replaced.append((heads, tokens))

    def _missed(self, heads: Sequence[HeadName], changes: TokenChanges) -> Iterator[MissedToken]:
        """The tokens at which single heads are missed."""
        items = [item for batch in self.sample.batches for item in batch.items]
        texts = texts_of(items, self.ablator.functions.side)
        return missed_tokens(changes, [self.heads.index(head) for head in heads], texts)

    def _effects(
        self, batches: Sequence[Batch], sets: Sequence[Removed], replacement: Replacement
    ) -> Iterator[BatchEffects]:
        for batch in batches:
            heads = [each.heads for each in sets]
            yield self.ablator.effects(batch, heads, replacement, self._means)
            self.advanced(len(sets))


def _of_singles(
    sets: Sequence[Removed], changes: TokenChanges
) -> tuple[list[HeadName], TokenChanges]:
    """Single heads whose mean stands in their place, and what changes at tokens."""
    columns = [
        column for column, (what, _) in enumerate(sets)
        if what.kind is HeadSetKind.HEAD and what.replacement == Replacement.MEAN
    ]  # fmt: skip
    heads = [sets[column].heads[0] for column in columns]
    some = replace(changes, change=changes.change[:, columns], logits=changes.logits[:, columns])
    return heads, some


class _ResultTable:
    """Filled with sets, one below the other."""

    def __init__(self, content_hash: NDArray[np.uint64]) -> None:
        self._content_hash = content_hash
        self._sets: list[Removed] = []
        self._changes: dict[AblationTarget, list[Floats]] = {}
        self._whole: BatchEffects | None = None
        self.missed: list[MissedToken] = []
        self.replaced: list[tuple[list[HeadName], TokenChanges]] = []  # by their mean, singly

    def add(self, sets: Sequence[Removed], effects: BatchEffects) -> None:
        """Take in sets, of all sentences or of the second half."""
        there = np.isin(self._content_hash, effects.content_hash)
        if there.all():
            self._whole = effects
        self._sets += sets
        for target, changes in effects.changes.items():
            found = np.full((len(self._content_hash), len(sets)), np.nan)
            found[there] = changes
            self._changes.setdefault(target, []).append(found)

    def first_half(self, target: AblationTarget, replacement: Replacement) -> Floats:
        """The sums of single heads on the first half of the sentences. *Shape:* ``(head,)``."""
        wanted = [
            index for index, (removed_set, _) in enumerate(self._sets)
            if removed_set.kind is HeadSetKind.HEAD and removed_set.replacement == replacement
        ]  # fmt: skip
        changes = np.concatenate(self._changes[target], 1)[:, wanted]
        found: Floats = changes[(self._content_hash & np.uint64(1)) == 0].sum(0)
        return found

    def results(
        self,
        level: str,
        heads: Sequence[HeadName],
        chosen: Ints,
        columns: tuple[AttributionKey, ...],
        estimates: RatioSums,
    ) -> AblationResults:
        """All of it."""
        assert self._whole is not None
        place = {head: number for number, head in enumerate(heads)}
        members = np.zeros((len(self._sets), len(heads)), bool)
        for row, (_, inside) in enumerate(self._sets):
            members[row, [place[head] for head in inside]] = True
        return AblationResults(
            level=level,
            heads=tuple(HeadPlace(*head) for head in heads),
            chosen=chosen,
            content_hash=self._content_hash,
            counts={str(name): table for name, table in self._whole.counts.items()},
            unablated={str(name): table for name, table in self._whole.full.items()},
            sets=tuple(each.set for each in self._sets),
            members=members,
            changes={str(t): np.concatenate(change, 1) for t, change in self._changes.items()},
            direct=np.zeros((0, 0)),
            columns=tuple(AttributionKey(*map(str, column)) for column in columns),
            estimates=estimates,
            missed=tuple(self.missed),
        )
