"""Choose the heads that are ablated at each level, ablate them, and collect the results.

The fast level estimates the effects of all heads from gradients. It ablates the heads of largest
estimates, random heads as an audit of the estimates, each layer, and the sink heads beside random
sets with as many heads in each layer. The full level ablates every head, groups of heads beside
such random sets, pairs, and growing sets of heads in several orders. Orders and pairs are chosen by
exact effects on one half of the sentences and ablated on the other half.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from headbook.ablation.ablator import BatchEffects, HeadAblator
from headbook.ablation.attribution import (
    GradientEstimates,
    direct_effects_by_token,
    gradient_estimates,
)
from headbook.ablation.costs import AblationCosts
from headbook.ablation.head_sets import (
    HeadGroup,
    HeadSets,
    largest_sets,
    matched_random_sets,
    n_dependent_sets,
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
    AblationReason,
    AblationResults,
    AttributionKey,
    HeadSetKind,
)
from headbook.study.ablation_tables import GRADIENT
from headbook.text.batch import Batch

FAST, FULL = "fast", "full"
FAST_PASSES = 40.0  # most forward passes over the sample for single heads at the fast level
# Random sets of a group: 100 at the full level, since another draw of 20 gave other verdicts.
RANDOM_SETS = {FAST: 20, FULL: 100}
# Nouns for a row of the results of a task.
UNITS: dict[str, str] = {
    AblationTarget.LABEL: "text",
    AblationTarget.PREFERENCE: "pair",
    AblationTarget.ANSWER: "prompt",
}
# Replacements of random sets.
RANDOM_SET_REPLACEMENTS = {FAST: (Replacement.MEAN, Replacement.ZERO), FULL: tuple(Replacement)}
N_ABLATED_FAST = 20  # heads of largest estimates, and as many random heads
N_LARGEST = 10  # heads of largest effect on a task that the fast level ablates together
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
        task: name of the task whose target is measured; empty for the model's own targets. At the
            fast level, growing sets of the heads of largest effect are ablated for tasks, too.
        advanced: progress callback; its argument is the number of sets ablated on one batch.
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
    _small: list[Batch] = field(default_factory=list)  # batches whose backward pass fits

    @property
    def message(self) -> str:
        """Number of forward passes and sentences, as a message."""
        sentences = len(self.sample.content_hash)
        about = "at most" if self.level == FAST else "about"
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
        """Number of forward passes over the sample; an upper bound at the fast level."""
        head_costs = [self.costs.of([head]) for head in self.heads]
        group_costs = MARGIN_PASSES + sum(
            self.costs.of(group.heads) * len(group.replacements) for group in self._with_random
        )
        if self.level == FAST:
            return (
                group_costs
                + min(
                    self.costs.fixed + sum(sorted(head_costs)[-2 * N_ABLATED_FAST :]), FAST_PASSES
                )
                + self._n_largest / 2  # on half of the sentences
            )
        dependent = n_dependent_sets(len(self.heads)) / 2  # on half of the sentences
        return self.costs.fixed + len(FULL_REPLACEMENTS) * sum(head_costs) + group_costs + dependent

    @property
    def steps(self) -> int:
        """Estimated number of sets times batches, for the progress bar."""
        max_single_sets = (
            2 * N_ABLATED_FAST if self.level == FAST else len(self.heads) * len(FULL_REPLACEMENTS)
        )
        n_group_sets = sum(len(group.replacements) for group in self._with_random)
        n_later_sets = self._n_largest if self.level == FAST else n_dependent_sets(len(self.heads))
        n_batches, n_reported = len(self.sample.batches), len(self.sample.reported)
        return (
            min(max_single_sets, len(self.heads) * len(FULL_REPLACEMENTS)) + n_group_sets
        ) * n_batches + n_later_sets * n_reported

    @property
    def n_single(self) -> int:
        """Largest number of heads that are ablated alone."""
        n_heads = len(self.heads)
        return min(2 * N_ABLATED_FAST, n_heads) if self.level == FAST else n_heads

    @property
    def _n_largest(self) -> int:
        """Number of growing sets that the fast level ablates for tasks."""
        return min(N_LARGEST, len(self.heads)) if self.task else 0

    @cached_property
    def heads(self) -> tuple[HeadName, ...]:
        """All heads of the model, sorted by stack, layer and number."""
        return self.ablator.head_names

    @cached_property
    def _means(self) -> MeanOutputs:
        return sum(map(self.ablator.means, self.sample.batches), start=MeanOutputs())

    @cached_property
    def _with_random(self) -> list[HeadGroup]:
        """Groups of heads, each followed by its random sets."""
        groups: list[HeadGroup] = []
        for group in self.groups:
            replacements = tuple(
                replacement
                for replacement in group.replacements
                if replacement in RANDOM_SET_REPLACEMENTS[self.level]
            )
            random_groups = matched_random_sets(
                group, self.heads, self.seed, RANDOM_SETS[self.level]
            )
            groups.append(group)
            groups += [replace(drawn, replacements=replacements) for drawn in random_groups]
        return groups

    def run(self) -> AblationResults:
        """Estimate the effects of all heads, and ablate the sets of heads of this level."""
        columns, estimates = self._estimates()
        table = ResultTable(self.sample.content_hash)
        if self.level == FAST:
            chosen = self._chosen(columns, estimates)
            picked = [head for head, reason in zip(self.heads, chosen, strict=True) if reason]
            self._ablate(table, single_head_sets(picked, [Replacement.MEAN]))
            if self.task and self.sample.reported:
                effect = table.selection_effects(self._ranking_target, Replacement.MEAN)
                effects = dict(zip(picked, effect, strict=True))
                self._ablate(table, largest_sets(self.heads, effects, N_LARGEST))
        else:
            chosen = np.full(len(self.heads), int(AblationReason.SELECTED))
            self._ablate(table, single_head_sets(self.heads, FULL_REPLACEMENTS))
        group_sets: HeadSets = {}
        for group in self._with_random:
            group_sets |= group.sets
        self._ablate(table, group_sets)
        if self.level == FULL:
            self._ablate(table, self._dependent_sets(table, columns, estimates))
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

    def _chosen(self, columns: Sequence[AttributionKey], estimates: RatioSums) -> Ints:
        """Choose the heads that are ablated at the fast level.

        Returns:
            The `AblationReason` of each head. *Shape:* ``(head,)``.
        """
        estimates_of_heads = estimates.value[:, self._ranking_column(columns)]
        ranking = np.argsort(-np.nan_to_num(estimates_of_heads), kind="stable")
        reasons = np.zeros(len(self.heads), np.int64)
        budget = FAST_PASSES - self.costs.fixed
        for reason, max_passes in (
            (AblationReason.SELECTED, budget / 2),
            (AblationReason.AUDIT, budget),
        ):
            candidates = [head for head in ranking if not reasons[head]]
            if reason is AblationReason.AUDIT:
                candidates = [
                    candidates[index]
                    for index in np.random.default_rng(self.seed).permutation(len(candidates))
                ]
            for head in candidates[:N_ABLATED_FAST]:
                spent = sum(self.costs.of([self.heads[index]]) for index in np.flatnonzero(reasons))
                if spent + self.costs.of([self.heads[head]]) <= max_passes:
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

    def _dependent_sets(
        self, table: ResultTable, columns: Sequence[AttributionKey], estimates: RatioSums
    ) -> HeadSets:
        """Return pruning orders and pairs, chosen by effects on the selection half."""
        if not self.sample.reported:
            return {}
        effect = table.selection_effects(self._ranking_target, Replacement.MEAN)
        loss = self.ablator.functions.targets[0]
        gradient = AttributionKey(GRADIENT, "", loss, "")
        position = columns.index(gradient) if gradient in columns else self._ranking_column(columns)
        scores = np.nan_to_num(estimates.split(SELECTION).value[:, position])
        scores_by_name = {columns[position].metric: dict(zip(self.heads, scores, strict=True))}
        types = [group for group in self.groups if group.type]
        effects = dict(zip(self.heads, effect, strict=True))
        orders = pruning_orders(self.heads, effects, scores_by_name, types, self.seed)
        return orders | pair_sets(self.heads, effect)

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
        for batch in batches:
            yield self.ablator.effects(batch, [*sets.values()], replacement, self._means)
            self.advanced(len(sets))
