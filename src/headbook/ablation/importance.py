"""Choose the heads that are ablated at each level, ablate them, and collect the results.

The auto level ablates every head, each layer, the sink heads beside random sets with as many heads
in each layer, and growing sets of the heads of least effect beside random orders. If single heads
take more passes than `MAX_PASSES`, the heads of largest estimates are ablated and as many others,
which audit the estimates of the rest. The full level ablates every head with several replacements,
groups of heads beside random sets, pairs, and growing sets of heads in finer steps and more orders.
Orders and pairs are chosen by effects on one half of the sentences and ablated on the other half.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from headbook.ablation.ablator import BatchEffects, HeadAblator, PassObserver
from headbook.ablation.attribution import (
    GradientEstimates,
    direct_effects_by_token,
    gradient_estimates,
)
from headbook.ablation.costs import AblationCosts
from headbook.ablation.head_sets import (
    HeadGroup,
    HeadSets,
    groups_with_random,
    largest_sets,
    least_sets,
    n_dependent_sets,
    n_least_sets,
    pair_sets,
    pruning_orders,
    single_head_sets,
)
from headbook.ablation.margins import MARGIN_PASSES, measure_margins
from headbook.ablation.missed_tokens import missed_tokens, texts_of, top_token_sums
from headbook.ablation.replacements import MeanOutputs
from headbook.ablation.result_table import ResultTable, changes_of_single_heads
from headbook.ablation.sample import AblationSample
from headbook.analysis.accumulators import SELECTION, RatioSums
from headbook.analysis.arrays import Floats, Ints
from headbook.errors import is_out_of_memory
from headbook.model.load import Model, word_embedding
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation.effect_tests import ATTRIBUTION, COSINE_TARGETS
from headbook.study.ablation.results import (
    AUTO,
    FULL,
    AblationReason,
    AblationResults,
    AttributionKey,
    HeadSetKind,
)
from headbook.study.ablation_tables import GRADIENT
from headbook.text.batch import Batch

MAX_PASSES = 200.0  # most forward passes over the sample for single heads at the auto level
# Random sets of a group: 100 at the full level, since another draw of 20 gave other verdicts.
RANDOM_SETS = {AUTO: 20, FULL: 100}
# Nouns for a row of the results of a task.
UNITS: dict[str, str] = {
    AblationTarget.LABEL: "text",
    AblationTarget.PREFERENCE: "pair",
    AblationTarget.ANSWER: "prompt",
}
# Replacements of random sets.
RANDOM_SET_REPLACEMENTS = {AUTO: (Replacement.MEAN, Replacement.ZERO), FULL: tuple(Replacement)}
N_LARGEST = 10  # heads of largest effect on a task that the auto level ablates together
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
    """Sets of heads to ablate at one level (``auto`` or ``full``) on one sample of sentences.

    Attributes:
        ablator: ablates heads of the model.
        costs: costs of ablating heads of the model.
        level: ``auto`` or ``full``.
        sample: sentences on which heads are ablated.
        seed: seed of random sets and orders, and of hashes that choose audited heads.
        groups: groups of heads that are ablated together.
        margin: margin of verdicts, in the unit of the target; None for the default.
        task: name of the task whose target is measured; empty for the model's own targets. At the
            auto level, growing sets of the heads of largest effect are ablated for tasks, and no
            heads of least effect.
        advanced: progress callback; its argument is the number of sets ablated on one batch.
        observe: receives the final states without each single head, replaced by its mean.
    """

    ablator: HeadAblator
    costs: AblationCosts
    level: str
    sample: AblationSample
    seed: int
    groups: Sequence[HeadGroup] = ()
    margin: float | None = None
    task: str = ""
    advanced: Steps = field(default=lambda _: None)
    observe: PassObserver | None = None
    _small: list[Batch] = field(default_factory=list)  # batches whose backward pass fits

    @property
    def message(self) -> str:
        """Number of forward passes and sentences, as a message."""
        sentences = len(self.sample.content_hash)
        about = "at most" if self.level == AUTO else "about"
        name = f"task {self.task}" if self.task else "importance"
        return (
            f"{name}, {self.level}: {about} {np.ceil(self.passes):,.0f} forward passes over "
            f"{sentences:,} {self.unit}{'s' * (sentences != 1)}"
        )

    @property
    def unit(self) -> str:
        """Noun for a row of the results."""
        return UNITS.get(self.task, "sentence")

    @property
    def passes(self) -> float:
        """Number of forward passes over the sample; an upper bound at the auto level."""
        single = len(self._single_replacements) * sum(self.costs.of([h]) for h in self.heads)
        if self.level == AUTO:
            single = min(single, MAX_PASSES)
        groups = sum(
            self.costs.of(group.heads) * len(group.replacements) for group in self._with_random
        )
        # Unablated states are computed anew for each kind of sets and each replacement.
        unablated = len(self._single_replacements) + len(
            {each for group in self._with_random for each in group.replacements}
        )
        dependent = (self._n_dependent + 1) / 2  # on half of the sentences
        return self.costs.fixed + MARGIN_PASSES + unablated + single + groups + dependent

    @property
    def steps(self) -> int:
        """Largest number of sets times batches, for the progress bar."""
        n_single = len(self._single_replacements) * self.n_single
        n_group_sets = sum(len(group.replacements) for group in self._with_random)
        n_batches, n_reported = len(self.sample.batches), len(self.sample.reported)
        return (n_single + n_group_sets) * n_batches + self._n_dependent * n_reported

    @cached_property
    def n_single(self) -> int:
        """Largest number of heads that are ablated alone."""
        return self.costs.n_single(self.heads, MAX_PASSES if self.level == AUTO else math.inf)

    @property
    def _single_replacements(self) -> tuple[Replacement, ...]:
        """Replacements with which single heads are ablated."""
        return FULL_REPLACEMENTS if self.level == FULL else (Replacement.MEAN,)

    @property
    def _n_dependent(self) -> int:
        """Largest number of sets that are chosen on one half of the sentences."""
        n_heads = len(self.heads)
        if self.level == FULL:
            return n_dependent_sets(n_heads)
        return min(N_LARGEST, n_heads) if self.task else n_least_sets(n_heads)

    @cached_property
    def heads(self) -> tuple[HeadName, ...]:
        """All heads of the model, sorted by stack, layer and number."""
        return self.ablator.head_names

    @cached_property
    def _means(self) -> MeanOutputs:
        return sum(map(self.ablator.means, self.sample.batches), start=MeanOutputs())

    @cached_property
    def _with_random(self) -> list[HeadGroup]:
        """Groups of heads with as many random sets as they have, before effects are known."""
        return self._groups_with_random(None)

    def _groups_with_random(self, effect: Mapping[HeadName, float] | None) -> list[HeadGroup]:
        """Return the groups of heads, each followed by its random sets.

        Args:
            effect: effect of each head alone; None before it is known.
        """
        return groups_with_random(
            self.groups, self.heads, effect, seed=self.seed, sets=RANDOM_SETS[self.level],
            replacements=RANDOM_SET_REPLACEMENTS[self.level],
        )  # fmt: skip

    def run(self) -> AblationResults:
        """Estimate the effects of all heads, and ablate the sets of heads of this level."""
        columns, estimates = self._estimates()
        table = ResultTable(self.sample.content_hash)
        chosen = self._chosen(estimates.value[:, self._ranking_column(columns)])
        picked = [head for head, reason in zip(self.heads, chosen, strict=True) if reason]
        self._ablate(table, single_head_sets(picked, self._single_replacements))
        group_sets: HeadSets = {}
        effect = self._single_effects(table, picked, columns, estimates)
        for group in self._groups_with_random(effect):
            group_sets |= group.sets
        self._ablate(table, group_sets)
        if self.sample.reported:
            self._ablate(table, self._dependent_sets(effect, picked, columns, estimates))
        ablation = table.results(self.level, self.heads, chosen, columns, estimates)
        results = self._with_direct(ablation, table)
        text_hash, characters = self.sample.texts(self.ablator.functions.side)
        distance, rounding = measure_margins(self.ablator, self.sample.small)
        return replace(
            results,
            text_hash=text_hash,
            characters=characters,
            sentence_distance=distance,
            rounding=rounding,
            asked_margin=float("nan") if self.margin is None else self.margin,
        )

    def _chosen(self, estimates: Floats) -> Ints:
        """Choose the heads that are ablated alone: all, or as many as `MAX_PASSES` allows.

        Args:
            estimates: estimated effect of each head. *Shape:* ``(head,)``.

        Returns:
            The `AblationReason` of each head. *Shape:* ``(head,)``.
        """
        if self.n_single == len(self.heads):
            return np.full(len(self.heads), int(AblationReason.SELECTED))
        costs = np.array([self.costs.of([head]) for head in self.heads])
        hashes = [_head_hash(head, self.seed) for head in self.heads]
        reasons = np.zeros(len(self.heads), np.int64)
        for reason, ranking, max_passes in (
            (AblationReason.SELECTED, np.argsort(-np.nan_to_num(estimates), kind="stable"), 0.5),
            (AblationReason.AUDIT, sorted(range(len(hashes)), key=hashes.__getitem__), 1.0),
        ):
            n_selected = int((reasons > 0).sum()) or len(self.heads)  # as many others at most
            for head in [head for head in ranking if not reasons[head]]:
                within = costs[reasons > 0].sum() + costs[head] <= max_passes * MAX_PASSES
                if within and (reasons == reason).sum() < n_selected:
                    reasons[head] = reason
        return reasons

    def _ranking_column(self, columns: Sequence[AttributionKey]) -> int:
        """Return the column of the estimates by which heads are ranked."""
        return columns.index(
            AttributionKey(ATTRIBUTION, Replacement.MEAN, self._ranking_target, "")
        )

    @property
    def _ranking_target(self) -> AblationTarget:
        """Target by which heads are ranked."""
        targets = self.ablator.functions.targets
        return AblationTarget.KL if AblationTarget.KL in targets else targets[0]

    def _single_effects(
        self,
        table: ResultTable,
        picked: Sequence[HeadName],
        columns: Sequence[AttributionKey],
        estimates: RatioSums,
    ) -> dict[HeadName, float]:
        """Return the effect of each head alone on the selection half, estimated if not exact.

        Args:
            table: effects of single heads.
            picked: heads that were ablated alone.
            columns: columns of the estimates.
            estimates: estimated effects of all heads.
        """
        exact = table.selection_effects(self._ranking_target, Replacement.MEAN)
        ranked = np.nan_to_num(estimates.split(SELECTION).value)[:, self._ranking_column(columns)]
        effects = dict(zip(self.heads, ranked.tolist(), strict=True))
        return effects | dict(zip(picked, exact.tolist(), strict=True))

    def _dependent_sets(
        self,
        effect: Mapping[HeadName, float],
        picked: Sequence[HeadName],
        columns: Sequence[AttributionKey],
        estimates: RatioSums,
    ) -> HeadSets:
        """Return growing sets of heads and pairs, chosen by effects on the selection half.

        Args:
            effect: effect of each head alone, from `_single_effects`.
            picked, columns, estimates: as in `_single_effects`.
        """
        if self.level == AUTO and self.task:
            return largest_sets({head: effect[head] for head in picked}, N_LARGEST)
        if self.level == AUTO:
            return least_sets(self.heads, effect, self.seed)
        gradient = AttributionKey(GRADIENT, "", self.ablator.functions.targets[0], "")
        position = columns.index(gradient) if gradient in columns else self._ranking_column(columns)
        first_half = np.nan_to_num(estimates.split(SELECTION).value)[:, position]
        scores = {columns[position].metric: dict(zip(self.heads, first_half, strict=True))}
        families = [group for group in self.groups if group.is_family]
        orders = pruning_orders(self.heads, effect, scores, families, self.seed)
        return orders | pair_sets(self.heads, np.array([effect[head] for head in self.heads]))

    def _estimates(self) -> tuple[tuple[AttributionKey, ...], RatioSums]:
        """Estimate the effects of all heads from gradients, batch by batch."""
        columns: tuple[AttributionKey, ...] = ()
        total: RatioSums | None = None
        for batch, gradients in self._gradients():
            columns, ratios = self._estimated(batch, gradients)
            total = ratios if total is None else total + ratios
        assert total is not None
        return columns, total

    def _with_direct(self, results: AblationResults, table: ResultTable) -> AblationResults:
        """Add direct effects of heads on logits; NaN if the model has no direct path."""
        shape = len(results.content_hash), len(self.heads)
        if not self.costs.direct:
            return replace(results, direct=np.full(shape, np.nan))
        mean, functions = Replacement.MEAN, self.ablator.functions
        parts = [
            direct_effects_by_token(self.ablator, batch, mean, self._means) for batch in self._small
        ]
        scored = [(batch.index, functions.scored(batch).cpu().numpy().T) for batch in self._small]
        index = np.concatenate([indices[row] for indices, (row, _) in scored])
        position = np.concatenate([positions for _, (_, positions) in scored])
        order = np.lexsort([position, index])
        tokens, sentence = np.concatenate(parts)[order], self._rows(index[order])
        direct = np.zeros(shape)
        np.add.at(direct, sentence, tokens)
        total = np.full(tokens.shape, np.nan)
        for heads, changes in table.by_token:
            total[:, [self.heads.index(head) for head in heads]] = changes.logits
        return replace(
            results, direct=direct, top=top_token_sums(total, tokens, sentence, results.half)
        )

    def _rows(self, index: Ints) -> Ints:
        """Return the rows of sentences in the results.

        Args:
            index: places of the sentences in the input.
        """
        indices, hashes = (
            np.concatenate([getattr(batch, name) for batch in self.sample.batches])
            for name in ("index", "content_hash")
        )
        rows = {
            int(indices[position]): row
            for row, position in enumerate(np.argsort(hashes, kind="stable"))
        }
        return np.array([rows[int(input_index)] for input_index in index], dtype=np.int64)

    def _gradients(self) -> Iterator[tuple[Batch, GradientEstimates]]:
        """Yield gradient estimates batch by batch, halving batches after out-of-memory errors.

        Batches that fit are kept in ``_small``.

        Raises:
            NotEnoughMemory: if memory does not suffice for one sentence.
        """
        pending = [*self.sample.small]
        self._small.clear()
        skipped = COSINE_TARGETS - {
            self._ranking_target
        }  # another cosine would double the backward passes
        while pending:
            batch = pending.pop(0)
            try:
                estimates = gradient_estimates(
                    self.ablator, batch, FULL_REPLACEMENTS, self._means, skipped
                )
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch.items) < 2:
                    raise NotEnoughMemory(OUT_OF_MEMORY) from error
                middle = len(batch.items) // 2
                parts = batch.items[:middle], batch.items[middle:]
                pending[:0] = [self.sample.batch(part) for part in parts]
            else:
                self._small.append(batch)
                yield batch, estimates

    def _estimated(
        self, batch: Batch, gradients: GradientEstimates
    ) -> tuple[tuple[AttributionKey, ...], RatioSums]:
        """Return the columns of the estimates, and their sums over one batch."""
        functions = self.ablator.functions
        counts = dict(
            zip(functions.targets, functions.n_scored(batch).double().cpu().numpy(), strict=True)
        )
        loss = functions.targets[0]
        tables: dict[AttributionKey, Floats] = {}
        if gradients.gradient:
            by_sentence = gradients.gradient["sentence"]
            tables[AttributionKey(GRADIENT, "", loss, "")] = np.abs(by_sentence)
            tables[AttributionKey(GRADIENT, "", loss, "per_token")] = gradients.gradient["token"]
            tables[AttributionKey(GRADIENT, "", loss, "signed")] = -by_sentence
        for (target, replacement), estimate in gradients.estimates.items():
            tables[AttributionKey(ATTRIBUTION, replacement, target, "")] = estimate
        numerators = np.stack([*tables.values()], -1)
        n_scored = np.stack([counts[AblationTarget(column.target)] for column in tables], -1)
        denominators = np.broadcast_to(n_scored[:, None, :], numerators.shape)
        return tuple(tables), RatioSums.of(numerators, denominators, denominators, batch.half)

    def _ablate(self, table: ResultTable, sets: HeadSets) -> None:
        """Ablate sets of heads, one set at a time, and add the results to a table."""
        for held_out in (False, True):
            batches = self.sample.reported if held_out else self.sample.batches
            for replacement in Replacement:
                selected = {
                    head_set: heads for head_set, heads in sets.items()
                    if head_set.replacement == replacement
                    and (head_set.kind in HELD_OUT_KINDS) == held_out
                }  # fmt: skip
                if selected:
                    effects = BatchEffects.merge([*self._effects(batches, selected, replacement)])
                    table.add(selected, effects)
                    heads, tokens = changes_of_single_heads(selected, effects.tokens)
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
        single = [head_set.kind is HeadSetKind.HEAD for head_set in sets]
        observe = self.observe if replacement is Replacement.MEAN and all(single) else None
        for batch in batches:
            yield self.ablator.effects(
                batch, [*sets.values()], replacement, self._means, observe=observe
            )
            self.advanced(len(sets))


def _head_hash(head: HeadName, seed: int) -> bytes:
    """Return a hash of a head, by which audited heads are chosen in every study alike."""
    return hashlib.blake2b(repr((seed, *head)).encode(), digest_size=8).digest()
