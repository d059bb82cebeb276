"""Adds to a study what the model loses without its heads."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headbook.collection.run import Run
from headbook.errors import ModelError
from headbook.model.intervention import intervened
from headbook.model.vocabulary.judges import judge_of
from headbook.model.vocabulary.lens import Lens, read_lens
from headbook.passes.ablation.effects import Ablator
from headbook.passes.ablation.importance import (
    FAST,
    Importance,
    NoRoom,
    Sample,
    costs_of,
    parameters_of,
)
from headbook.report.numbers.headgroups import head_groups, layers_and_sinks
from headbook.report.numbers.results import results
from headbook.study.gaps import Gap
from headbook.study.study import Study
from headbook.study.summaries.removals import Removals
from headbook.study.summaries.sums import CorpusSums
from headbook.text.batch import Batch, by_budget, content_hash
from headbook.text.tokens import Encoded

OFF, STAGE = "off", "importance"
ROOM = 3  # times the memory of a pass that slopes need
FINE = 16  # batches for each that a pass has room for: copies of short ones fill it, not padding
TRIED = 2  # sentences on which it is tried whether passes can begin at later layers
MISSING = "importance of heads"


def with_importance(run: Run, study: Study) -> Study:
    """Take heads away, as the options ask for; the study without that where it cannot be done."""
    if run.config.importance == OFF:
        return study
    removals, manifest = None, study.manifest
    taken_up: Callable[[], CorpusSums] = lambda: study.corpus_sums  # noqa: E731
    try:
        importance = _importance(run, study)
        run.progress.say(importance.message)
        taken_up = run.put_by(study.corpus_sums)
        study = replace(study, corpus_sums=CorpusSums())
        removals = run.stage(Removals, "importance", importance.removals)
    except (ModelError, NoRoom) as error:
        gap = Gap(MISSING, "", str(error))
        manifest = replace(manifest, gaps=(*manifest.gaps, gap))
    return replace(study, manifest=manifest, corpus_sums=replace(taken_up(), removals=removals))


def _importance(run: Run, study: Study) -> Importance:
    """What is to be done.

    Raises:
        ModelError: heads of this model cannot be replaced.
        NoRoom: slopes need maps of all heads at once, and every text is too long for these.
    """
    if run.long.every:
        raise NoRoom(run.long.why)
    smallest = run.long.smallest(study.corpus_sums, run.config.importance_sentences)
    items = [*run.texts.again(smallest)]
    sample = sample_of(
        items, run.config.batch_tokens, run.texts.batch, alike=not run.architecture.padded
    )
    heads = intervened(run.model, run.architecture, run.texts.batch(sample.small[0].items[:TRIED]))
    lens = read_lens(run.model, run.architecture)
    judge = judge_of(
        lens if isinstance(lens, Lens) else None,
        run.architecture.stacks[heads.read].queries,
        run.model.tokenizer.mask_token_id,
        logits=True,
        pooling=run.model.pooling,
    )
    ablator, level = Ablator(heads, judge), run.config.importance
    groups = head_groups(results(study))
    if level == FAST:
        groups = layers_and_sinks(groups)
    costs = costs_of(ablator, *parameters_of(run.model))
    importance = Importance(
        ablator, costs, level, sample, run.config.seed, tuple(groups), run.config.margin
    )
    run.progress.stage(STAGE, importance.steps)
    return replace(importance, advanced=lambda steps: run.progress.advance(steps, 0))


def sample_of(
    items: Sequence[Encoded],
    budget: int,
    batch: Callable[[Sequence[Encoded]], Batch],
    *,
    alike: bool,
) -> Sample:
    """Sentences in the batches that taking heads away needs, whatever their order was.

    Args:
        budget: tokens of a batch.
        batch: makes one.
        alike: whether it may hold sentences of one length only.
    """
    items = sorted(items, key=content_hash)
    reported = [item for item in items if content_hash(item) & 1]

    def batches(some: Sequence[Encoded], tokens: int) -> list[Batch]:
        return [batch(group) for group in by_budget(some, tokens, alike=alike)]

    small, fine = (max(1, budget // parts) for parts in (ROOM, FINE))
    return Sample(batches(items, fine), batches(reported, fine), batches(items, small), batch)
