"""Choose the heads that are ablated at each level, ablate them, and collect the results.

The fast level estimates the effects of all heads from gradients. It ablates the heads of largest
estimates, random heads as an audit of the estimates, each layer, and the sink heads beside random
sets with as many heads in each layer. The full level ablates every head, groups of heads beside
such random sets, pairs, and growing sets of heads in several orders. Orders and pairs are chosen by
exact effects on one half of the sentences and ablated on the other half.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add, or_

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
    HeadSets,
    matched_random_sets,
    n_dependent_sets,
    pair_sets,
    pruning_orders,
    single_head_sets,
)
from headbook.ablation.missed_tokens import TokenChanges, missed_tokens, texts_of, top_token_sums
from headbook.ablation.sample import PASSES, AblationCosts, AblationSample, measure_margins
from headbook.analysis.accumulators import SELECTION, RatioSums, split_of
from headbook.analysis.arrays import Floats, Ints
from headbook.errors import is_out_of_memory
from headbook.model.load import Model, word_embedding
from headbook.schema import AblationTarget, Replacement
from headbook.study.ablation import (
    AblationReason,
    AblationResults,
    AttributionKey,
    HeadSetKind,
    MissedToken,
)
from headbook.study.ablation_tables import GRADIENT
from headbook.study.ablation_tests import ATTRIBUTION, COSINES
from headbook.study.sentence_data import HeadName
from headbook.text.batch import Batch

FAST, FULL = "fast", "full"
FAST_PASSES = 40.0  # most forward passes over the sample for single heads at the fast level
# Random sets of a group: 100 at the full level, since another draw of 20 gave other verdicts.
RANDOM_SETS = {FAST: 20, FULL: 100}
# Replacements of random sets.
BANDED = {FAST: (Replacement.MEAN, Replacement.ZERO), FULL: tuple(Replacement)}
N_ABLATED_FAST = 20  # heads of largest estimates, and as many random heads
FULL_REPLACEMENTS = (
    Replacement.MEAN,
    Replacement.ZERO,
    Replacement.UNIFORM,
    Replacement.WITHOUT_SINK,
)
# Kinds of sets that are chosen on the selection half and ablated on the held-out half only.
HELD_OUT_KINDS = {HeadSetKind.ORDER, HeadSetKind.PAIR}

OUT_OF_MEMORY = "memory does not suffice for a backward pass over one sentence; see --max-length"

Steps = Callable[[int], None]


class NotEnoughMemory(Exception):  # noqa: N818 - pages print the message, the run goes on
    """Too little memory for a backward pass over one sentence."""


def parameters_of(model: Model) -> tuple[int, tuple[int, int]]:
    """Count the parameters of a network without its word embeddings.

    Returns:
        The count, and the shape ``(entry, width)`` of the word embeddings; (0, 0) if the model has
        no matrix of word embeddings.
    """
    weight = word_embedding(model.base_model)
    entries, width = (0, 0) if weight is None else weight.shape
    return max(1, model.network.num_parameters() - entries * width), (entries, width)


@dataclass(frozen=True, eq=False)
class AblationPlan:
    """Sets of heads to ablate at one level (``fast`` or ``full``) on one sample of sentences.

    Attributes:
        ablator: ablates heads of the model.
        costs: costs of ablating heads of the model.
        level: ``fast`` or ``full``.
        sample: sentences on which heads are ablated.
        seed: seed of random sets, orders and audited heads.
        groups: groups of heads that are ablated together.
        margin: margin of verdicts, in the unit of the target; None for the default.
        advanced: progress callback; its argument is the number of sets ablated on one batch.
    """

    ablator: HeadAblator
    costs: AblationCosts
    level: str
    sample: AblationSample
    seed: int
    groups: Sequence[HeadGroup] = ()
    margin: float | None = None
    advanced: Steps = field(default=lambda _: None)
    _small: list[Batch] = field(default_factory=list)  # batches whose backward pass fits

    @property
    def message(self) -> str:
        """Number of forward passes and sentences, as a message."""
        sentences = len(self.sample.content_hash)
        about = "at most" if self.level == FAST else "about"
        return (
            f"importance, {self.level}: {about} {np.ceil(self.passes):,.0f} forward passes over "
            f"{sentences:,} sentence{'s' * (sentences != 1)}"
        )

    @property
    def passes(self) -> float:
        """Number of forward passes over the sample; an upper bound at the fast level."""
        each = [self.costs.of([head]) for head in self.heads]
        together = PASSES + sum(
            self.costs.of(group.heads) * len(group.replacements) for group in self._with_random
        )
        if self.level == FAST:
            return together + min(
                self.costs.fixed + sum(sorted(each)[-2 * N_ABLATED_FAST :]), FAST_PASSES
            )
        dependent = n_dependent_sets(len(self.heads)) / 2  # on half of the sentences
        return self.costs.fixed + len(FULL_REPLACEMENTS) * sum(each) + together + dependent

    @property
    def steps(self) -> int:
        """Estimated number of sets times batches, for the progress bar."""
        most = (
            2 * N_ABLATED_FAST if self.level == FAST else len(self.heads) * len(FULL_REPLACEMENTS)
        )
        together = sum(len(group.replacements) for group in self._with_random)
        more = 0 if self.level == FAST else n_dependent_sets(len(self.heads))
        whole, reported = len(self.sample.batches), len(self.sample.reported)
        return (
            min(most, len(self.heads) * len(FULL_REPLACEMENTS)) + together
        ) * whole + more * reported

    @cached_property
    def heads(self) -> tuple[HeadName, ...]:
        """All heads of the model, sorted by stack, layer and number."""
        return self.ablator.head_names

    @cached_property
    def _means(self) -> MeanOutputs:
        return reduce(add, map(self.ablator.means, self.sample.batches), MeanOutputs())

    @cached_property
    def _with_random(self) -> list[HeadGroup]:
        """Groups of heads, each followed by its random sets."""
        found: list[HeadGroup] = []
        for group in self.groups:
            banded = tuple(r for r in group.replacements if r in BANDED[self.level])
            alike = matched_random_sets(group, self.heads, self.seed, RANDOM_SETS[self.level])
            found += [group, *(replace(each, replacements=banded) for each in alike)]
        return found

    def run(self) -> AblationResults:
        """Estimate the effects of all heads, and ablate the sets of heads of this level."""
        columns, estimates = self._estimates()
        table = _ResultTable(self.sample.content_hash)
        if self.level == FAST:
            chosen = self._chosen(columns, estimates)
            picked = [head for head, why in zip(self.heads, chosen, strict=True) if why]
            self._ablate(table, single_head_sets(picked, [Replacement.MEAN]))
        else:
            chosen = np.full(len(self.heads), int(AblationReason.SELECTED))
            self._ablate(table, single_head_sets(self.heads, FULL_REPLACEMENTS))
        self._ablate(table, reduce(or_, (group.sets for group in self._with_random), {}))
        if self.level == FULL:
            self._ablate(table, self._dependent_sets(table, columns, estimates))
        ablation = table.results(self.level, self.heads, chosen, columns, estimates)
        found = self._with_direct(ablation, table)
        text_hash, characters = self.sample.texts(self.ablator.functions.side)
        distance, rounding = measure_margins(self.ablator, self.sample.small)
        return replace(
            found,
            text_hash=text_hash,
            characters=characters,
            sentence_distance=distance,
            rounding=rounding,
            asked_margin=float("nan") if self.margin is None else self.margin,
        )

    def _chosen(self, columns: Sequence[AttributionKey], estimates: RatioSums) -> Ints:
        """Choose the heads that are ablated at the fast level.

        Returns:
            The `AblationReason` of each head. *Shape:* ``(head,)``.
        """
        value = estimates.value[:, self._ranking(columns)]
        first = np.argsort(-np.nan_to_num(value), kind="stable")
        found = np.zeros(len(self.heads), np.int64)
        budget = FAST_PASSES - self.costs.fixed
        for why, share in ((AblationReason.SELECTED, budget / 2), (AblationReason.AUDIT, budget)):
            rest = [place for place in first if not found[place]]
            if why is AblationReason.AUDIT:
                rest = [rest[k] for k in np.random.default_rng(self.seed).permutation(len(rest))]
            for place in rest[:N_ABLATED_FAST]:
                spent = sum(self.costs.of([self.heads[k]]) for k in np.flatnonzero(found))
                if spent + self.costs.of([self.heads[place]]) <= share:
                    found[place] = why
        return found

    def _ranking(self, columns: Sequence[AttributionKey]) -> int:
        """Return the column of the estimates by which heads are ranked."""
        return columns.index(AttributionKey(ATTRIBUTION, Replacement.MEAN, self._ranked, ""))

    @property
    def _ranked(self) -> AblationTarget:
        """Target by which heads are ranked."""
        targets = self.ablator.functions.targets
        return AblationTarget.KL if AblationTarget.KL in targets else targets[0]

    def _dependent_sets(
        self, table: "_ResultTable", columns: Sequence[AttributionKey], estimates: RatioSums
    ) -> HeadSets:
        """Return pruning orders and pairs, chosen by effects on the selection half."""
        if not self.sample.reported:
            return {}
        effect = table.selection_effects(self._ranked, Replacement.MEAN)
        loss = self.ablator.functions.targets[0]
        gradient = AttributionKey(GRADIENT, "", loss, "")
        position = columns.index(gradient) if gradient in columns else self._ranking(columns)
        slope = np.nan_to_num(estimates.split(SELECTION).value[:, position])
        named = {columns[position].metric: dict(zip(self.heads, slope, strict=True))}
        types = [group for group in self.groups if group.type]
        effects = dict(zip(self.heads, effect, strict=True))
        orders = pruning_orders(self.heads, effects, named, types, self.seed)
        return orders | pair_sets(self.heads, effect)

    def _estimates(self) -> tuple[tuple[AttributionKey, ...], RatioSums]:
        """Estimate the effects of all heads from gradients, batch by batch."""
        columns: tuple[AttributionKey, ...] = ()
        total: RatioSums | None = None
        for batch, found in self._gradients():
            columns, ratios = self._estimated(batch, found)
            total = ratios if total is None else total + ratios
        assert total is not None
        return columns, total

    def _with_direct(self, found: AblationResults, table: "_ResultTable") -> AblationResults:
        """Add direct effects of heads on logits; NaN if the model has no direct path."""
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
        for heads, changes in table.by_token:
            total[:, [self.heads.index(head) for head in heads]] = changes.logits
        return replace(
            found, direct=direct, top=top_token_sums(total, tokens, sentence, found.half)
        )

    def _rows(self, index: Ints) -> Ints:
        """Return the rows of sentences in the results.

        Args:
            index: places of the sentences in the input.
        """
        own, key = (
            np.concatenate([getattr(batch, name) for batch in self.sample.batches])
            for name in ("index", "content_hash")
        )
        rows = {int(own[k]): row for row, k in enumerate(np.argsort(key, kind="stable"))}
        return np.array([rows[int(each)] for each in index], dtype=np.int64)

    def _gradients(self) -> Iterator[tuple[Batch, GradientEstimates]]:
        """Yield gradient estimates batch by batch, halving batches after out-of-memory errors.

        Batches that fit are kept in ``_small``.

        Raises:
            NotEnoughMemory: if memory does not suffice for one sentence.
        """
        waiting = [*self.sample.small]
        self._small.clear()
        skipped = COSINES - {self._ranked}  # another cosine would double the backward passes
        while waiting:
            batch = waiting.pop(0)
            try:
                found = gradient_estimates(
                    self.ablator, batch, FULL_REPLACEMENTS, self._means, skipped
                )
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch.items) < 2:
                    raise NotEnoughMemory(OUT_OF_MEMORY) from error
                middle = len(batch.items) // 2
                parts = batch.items[:middle], batch.items[middle:]
                waiting[:0] = [self.sample.batch(part) for part in parts]
            else:
                self._small.append(batch)
                yield batch, found

    def _estimated(
        self, batch: Batch, found: GradientEstimates
    ) -> tuple[tuple[AttributionKey, ...], RatioSums]:
        """Return the columns of the estimates, and their sums over one batch."""
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
        for (target, replacement), estimate in found.estimates.items():
            tables[AttributionKey(ATTRIBUTION, replacement, target, "")] = estimate
        n = np.stack([*tables.values()], -1)
        d = np.stack([counts[AblationTarget(column.target)] for column in tables], -1)[:, None, :]
        d = np.broadcast_to(d, n.shape)
        return tuple(tables), RatioSums.of(n, d, d, batch.half)

    def _ablate(self, table: "_ResultTable", sets: HeadSets) -> None:
        """Ablate sets of heads, one set at a time, and add the results to a table."""
        for held_out in (False, True):
            batches = self.sample.reported if held_out else self.sample.batches
            for replacement in Replacement:
                some = {
                    each: heads for each, heads in sets.items()
                    if each.replacement == replacement
                    and (each.kind in HELD_OUT_KINDS) == held_out
                }  # fmt: skip
                if some:
                    effects = BatchEffects.merge([*self._effects(batches, some, replacement)])
                    table.add(some, effects)
                    heads, tokens = _of_single_heads(some, effects.tokens)
                    items = [item for batch in self.sample.batches for item in batch.items]
                    texts = texts_of(items, self.ablator.functions.side)
                    places = [self.heads.index(head) for head in heads]
                    table.missed += missed_tokens(tokens, places, texts)
                    if heads:
                        table.by_token.append((heads, tokens))

    def _effects(
        self, batches: Sequence[Batch], sets: HeadSets, replacement: Replacement
    ) -> Iterator[BatchEffects]:
        """Yield the effects of sets with one replacement on each batch, and report progress."""
        for batch in batches:
            yield self.ablator.effects(batch, [*sets.values()], replacement, self._means)
            self.advanced(len(sets))


def _of_single_heads(sets: HeadSets, changes: TokenChanges) -> tuple[list[HeadName], TokenChanges]:
    """Return the heads that were replaced alone by their mean, and their changes by token."""
    single = {
        column: heads[0] for column, (each, heads) in enumerate(sets.items())
        if each.kind is HeadSetKind.HEAD and each.replacement == Replacement.MEAN
    }  # fmt: skip
    columns = [*single]
    some = replace(changes, change=changes.change[:, columns], logits=changes.logits[:, columns])
    return [*single.values()], some


class _ResultTable:
    """Results of ablation, collected set by set.

    Attributes:
        missed: tokens at which the ablation of single heads changes the target most.
        by_token: heads that were replaced alone by their mean, with their changes by token.
    """

    def __init__(self, content_hash: NDArray[np.uint64]) -> None:
        self._content_hash = content_hash
        self._sets: HeadSets = {}
        self._changes: dict[AblationTarget, list[Floats]] = {}
        self._whole: BatchEffects | None = None
        self.missed: list[MissedToken] = []
        self.by_token: list[tuple[list[HeadName], TokenChanges]] = []

    def add(self, sets: HeadSets, effects: BatchEffects) -> None:
        """Add the effects of sets on all sentences, or on the held-out half."""
        there = np.isin(self._content_hash, effects.content_hash)
        if there.all():
            self._whole = effects
        self._sets |= sets
        for target, changes in effects.changes.items():
            found = np.full((len(self._content_hash), len(sets)), np.nan)
            found[there] = changes
            self._changes.setdefault(target, []).append(found)

    def selection_effects(self, target: AblationTarget, replacement: Replacement) -> Floats:
        """Return the summed changes of single heads on the selection half. *Shape:* ``(head,)``."""
        wanted = [
            index for index, each in enumerate(self._sets)
            if each.kind is HeadSetKind.HEAD and each.replacement == replacement
        ]  # fmt: skip
        changes = np.concatenate(self._changes[target], 1)[:, wanted]
        found: Floats = changes[split_of(self._content_hash) == SELECTION].sum(0)
        return found

    def results(
        self,
        level: str,
        heads: Sequence[HeadName],
        chosen: Ints,
        columns: tuple[AttributionKey, ...],
        estimates: RatioSums,
    ) -> AblationResults:
        """Return all collected results, with the estimates of all heads."""
        assert self._whole is not None
        place = {head: number for number, head in enumerate(heads)}
        members = np.zeros((len(self._sets), len(heads)), bool)
        for row, inside in enumerate(self._sets.values()):
            members[row, [place[head] for head in inside]] = True
        return AblationResults(
            level=level,
            heads=tuple(heads),
            chosen=chosen,
            content_hash=self._content_hash,
            counts={str(name): table for name, table in self._whole.counts.items()},
            unablated={str(name): table for name, table in self._whole.full.items()},
            sets=tuple(self._sets),
            members=members,
            changes={str(t): np.concatenate(change, 1) for t, change in self._changes.items()},
            direct=np.zeros((0, 0)),
            columns=tuple(AttributionKey(*map(str, column)) for column in columns),
            estimates=estimates,
            missed=tuple(self.missed),
        )
