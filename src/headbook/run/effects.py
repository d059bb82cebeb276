"""Effects of chosen sets of heads on a model's own targets and on tasks, as rows of a table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headbook.ablation.ablator import BatchEffects, HeadAblator
from headbook.ablation.replacements import DonorOutputs, MeanOutputs
from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import Floats
from headbook.errors import ConfigError, warn
from headbook.model.architecture import AttentionPlace
from headbook.model.intervention import make_patchable
from headbook.model.logit_lens import LogitLens, make_logit_lens
from headbook.option_values import named_tasks
from headbook.progress import Progress
from headbook.run.circuits import own_targets
from headbook.run.prepare import Run
from headbook.run.tasks import PATCHING, CannotMeasure, TaskParts, chosen_tasks
from headbook.schema import HeadName, Replacement
from headbook.study.ablation.effect_tests import effect_interval
from headbook.text.batch import Batch

HeadSets = Sequence[tuple[HeadName, ...]]
NO_LIMITS = ""  # in place of the name of a target whose changes have limits


def ablated_tasks(run: Run) -> tuple[str, ...]:
    """Return the tasks whose targets are measured: those named, or those that a run would measure.

    Raises:
        ConfigError: a named task cannot be measured, or does not replace outputs of heads.
    """
    if PATCHING in named_tasks(run.config.task):
        raise ConfigError(
            f"--task: got '{run.config.task}', and '{PATCHING}' puts outputs of heads back instead "
            "of replacing them; expected label, preference or answer, auto or none"
        )
    return tuple(name for name in chosen_tasks(run) if name != PATCHING)


def effect_rows(
    run: Run,
    batches: Sequence[Batch],
    tasks: Sequence[str],
    sets: HeadSets,
    replacement: Replacement,
) -> Iterator[dict[str, Any]]:
    """Ablate sets of heads, and yield a row for each target and set.

    Args:
        run: the run.
        batches: sentences of the model's own targets.
        tasks: tasks that are measured, too, each on texts of its own.
        sets: heads of each set.
        replacement: replacement of the head outputs.
    """
    heads = make_patchable(run.model, run.architecture, batches[0])
    measured = _with_single_heads(sets)
    lens = make_logit_lens(run.model, run.architecture)
    own_functions = own_targets(run, heads, lens if isinstance(lens, LogitLens) else None)
    own = HeadAblator(heads, own_functions)
    effects = _measure(own, batches, measured, replacement, run.progress)
    yield from _rows(effects, measured, sets, replacement)
    for name in tasks:
        try:
            texts, functions, sample = TaskParts.of(run, name, heads)
        except CannotMeasure as error:
            warn(f"task {name} is not measured: {error}")
            continue
        for note in texts.notes:
            warn(f"task {name}: {note}")
        ablator = HeadAblator(heads, functions)
        effects = _measure(ablator, sample.batches, measured, replacement, run.progress)
        yield from _rows(effects, measured, sets, replacement)


def _with_single_heads(sets: HeadSets) -> HeadSets:
    """Return sets, each with a head once, followed by each head of several heads alone."""
    distinct = [tuple(dict.fromkeys(heads)) for heads in sets]
    singles = [(head,) for heads in distinct if len(heads) > 1 for head in heads]
    return [*dict.fromkeys([*distinct, *singles])]


def _measure(
    ablator: HeadAblator,
    batches: Sequence[Batch],
    sets: HeadSets,
    replacement: Replacement,
    progress: Progress,
) -> BatchEffects:
    """Ablate sets of heads, and return the changes of all targets over all batches."""
    means = sum(map(ablator.means, batches), start=MeanOutputs())
    donors = None
    if replacement is Replacement.RESAMPLE:
        places = {AttentionPlace(head.stack, head.layer) for heads in sets for head in heads}
        donors = DonorOutputs.of(ablator.heads, ablator.functions, batches, places)
    progress.stage("ablations", len(batches))
    effects = []
    for batch in batches:
        effects.append(ablator.effects(batch, sets, replacement, means, donors=donors))
        progress.advance(1, 0)
    return BatchEffects.merge(effects)


def _rows(
    effects: BatchEffects, measured: HeadSets, sets: HeadSets, replacement: Replacement
) -> Iterator[dict[str, Any]]:
    """Yield a row for each target and set of heads.

    Args:
        effects: effects of all measured sets.
        measured: measured sets, in the order of the effects.
        sets: sets that have a row.
        replacement: replacement of the head outputs.
    """
    column_of = {heads: column for column, heads in enumerate(measured)}
    columns = [column_of[tuple(dict.fromkeys(heads))] for heads in sets]
    for target, every_change in effects.changes.items():
        changes, counts = every_change[:, columns], effects.counts[target]
        observations = np.broadcast_to(counts[:, None], changes.shape)
        ratios = RatioSums.of(changes, observations, observations, effects.half)
        low, high = effect_interval(changes, counts, target)
        excess = _interactions(every_change, counts, [measured[column] for column in columns],
                               column_of)  # fmt: skip
        unablated = effects.full.get(target)
        for row, heads in enumerate(sets):
            yield {
                "heads": " ".join(f"{head.stack}-L{head.layer}-H{head.head}" for head in heads),
                "replacement": str(replacement),
                "target": str(target),
                "value": ratios.value[row],
                "low": low[row],
                "high": high[row],
                "full": np.nan if unablated is None else unablated.sum() / counts.sum(),
                "interaction": excess[0][row],
                "interaction_low": excess[1][row],
                "interaction_high": excess[2][row],
                "n_sentences": int(ratios.n_sentences[row]),
                "n_observations": int(ratios.n_observations[row]),
            }


def _interactions(
    changes: Floats,
    counts: Floats,
    sets: HeadSets,
    column_of: Mapping[tuple[HeadName, ...], int],
) -> Floats:
    """Return the effects of sets minus the sums of the effects of their heads, with intervals.

    Args:
        changes: changes by all measured sets. *Shape:* ``(sentence, measured set)``.
        counts: scored tokens. *Shape:* ``(sentence,)``.
        sets: sets whose interaction is returned.
        column_of: column of each measured set.

    Returns:
        Value and both ends, NaN for single heads. *Shape:* ``(3, set)``.
    """
    table = np.full((3, len(sets)), np.nan)
    several = [row for row, heads in enumerate(sets) if len(heads) > 1]
    if not several:
        return table
    differences = np.stack(
        [
            changes[:, column_of[sets[row]]]
            - changes[:, [column_of[head,] for head in sets[row]]].sum(1)
            for row in several
        ],
        1,
    )
    table[0, several] = differences.sum(0) / counts.sum()
    table[1:, several] = effect_interval(differences, counts, NO_LIMITS)
    return table
