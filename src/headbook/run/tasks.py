"""Tasks of a run: which ones are measured, and on which texts.

A task that the input has columns for and that still cannot be measured has a gap in the manifest,
with the reason in one sentence.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from headbook.ablation import task_targets
from headbook.ablation.ablator import HeadAblator
from headbook.ablation.costs import costs_of
from headbook.ablation.importance import MAX_PASSES, AblationPlan, parameters_of
from headbook.ablation.patching import PatchingPlan
from headbook.ablation.sample import AblationSample, ablation_sample
from headbook.analysis.arrays import Floats
from headbook.errors import ConfigError, warn
from headbook.model.intervention import PatchableModel, layer_slots, make_patchable
from headbook.model.logit_lens import LogitLens, NoLogitLens, make_logit_lens
from headbook.model.weights import classifier_kind
from headbook.option_values import AUTO_TASKS, NO_TASKS, TASKS, named_tasks
from headbook.run import task_texts
from headbook.run.prepare import Run
from headbook.schema import TOKEN_CLASSIFIER, HeadName, Replacement
from headbook.study.ablation.results import AUTO, AblationResults, HeadSetKind
from headbook.study.groups import PAIR_COLUMN, value_of
from headbook.study.manifest import NotAvailable
from headbook.text.batch import Batch, token_hash
from headbook.text.tokens import TokenizedSentence

LABEL, PREFERENCE, ANSWER, PATCHING = TASKS
MIN_TEXTS = 2  # texts of a sample
# Problems in transformers' terms whose labels are not one class of several.
OTHER_PROBLEMS = {"regression", "multi_label_classification"}


class CannotMeasure(Exception):  # noqa: N818 - pages print the message, the run goes on
    """A task that cannot be measured; the message is the reason."""


@dataclass(frozen=True, eq=False)
class TaskPlan:
    """Heads and texts of a task that is going to be measured.

    Attributes:
        name: name of the task, which is that of its target.
        plan: sets of heads that are ablated, or heads that are patched.
        items: texts, pairs or prompts in the order of the rows of results.
        texts: texts of the task with the notes on them.
        columns: metadata columns that group texts.
        truth: observations of each row by their true label.
    """

    name: str
    plan: AblationPlan | PatchingPlan
    items: Sequence[TokenizedSentence]
    texts: task_texts.TaskTexts
    columns: Sequence[str]
    truth: Mapping[str, Floats] = field(default_factory=dict)

    def run(
        self, done: Mapping[str, AblationResults], advanced: Callable[[int], None]
    ) -> AblationResults:
        """Ablate heads, or patch those that change the results of `ANSWER` most.

        Args:
            done: results of the tasks before.
            advanced: progress callback; its argument is the number of sets done on one batch.

        Raises:
            CannotMeasure: heads are patched, and `ANSWER` was not measured.
            NotEnoughMemory: memory does not suffice for a backward pass over one text.
        """
        plan = replace(self.plan, advanced=advanced)
        if isinstance(plan, PatchingPlan):
            if ANSWER not in done:
                raise CannotMeasure(f"the task '{ANSWER}' was not measured")
            results = plan.run(_by_effect(done[ANSWER]))
        else:
            results = plan.run()
        facets = {
            column: tuple(value_of(item.sentence, column) for item in self.items)
            for column in self.columns
        }
        facets = {column: values for column, values in facets.items() if len({*values}) > 1}
        return replace(results, facets=facets, truth=self.truth, notes=self.texts.notes)


def _by_effect(task: AblationResults) -> list[HeadName]:
    """Return the heads that were ablated alone, the largest effect on the task first."""
    sets = task.select(HeadSetKind.HEAD, Replacement.MEAN)
    order = np.argsort(-task.ratios(task.targets[0], sets).value, kind="stable")
    return [task.heads[index] for index in task.first_heads(sets)[order]]


def chosen_tasks(run: Run) -> tuple[str, ...]:
    """Return the tasks of a run: those named, or those that it has columns and a head for.

    Raises:
        ConfigError: a named task lacks a column or a head, or no pair has the acceptable value.
    """
    config = run.config
    if config.task == NO_TASKS or config.importance == "off":
        return ()
    columns = filled_columns(run)
    names = {*(named_tasks(config.task) or TASKS)}
    if PATCHING in names:  # the heads that are patched are those of the answers
        names.add(ANSWER)
    tasks = []
    for name in (task for task in TASKS if task in names):
        missing = next(_missing(name, run, columns), "")
        if not missing:
            tasks.append(name)
        elif config.task != AUTO_TASKS:
            raise ConfigError(f"--task: got '{name}', which needs {missing}")
    if PREFERENCE in tasks and config.acceptable is not None:
        _check_acceptable(run, task_texts.acceptable_column(config, columns))
    if tasks:
        run.progress.message(f"tasks: {', '.join(tasks)}")
    if config.task != AUTO_TASKS:
        _check_named(run, tasks)
    return tuple(tasks)


def _check_named(run: Run, tasks: Sequence[str]) -> None:
    """Check named tasks on their texts, before hours of measuring.

    Raises:
        ConfigError: a task cannot be measured.
        ModelError: outputs of the model's heads cannot be replaced.
    """
    # With sentences of its own: what is parsed here in other groups does not stay for the run.
    trial = replace(run, sentences=replace(run.sentences))
    for name in tasks:
        try:
            texts = TEXTS[name](trial)
            batch = run.sentences.batch([*trial.sentences.reread([texts.items[0].sentence.index])])
            heads = make_patchable(run.model, run.architecture, batch)
            if name == LABEL:
                _check_head(run, _label_targets(run, texts), heads, batch)
        except CannotMeasure as error:
            raise ConfigError(
                f"--task: got '{run.config.task}', and the task '{name}' measures nothing: "
                f"{error}; expected texts and a model that go together, or another task"
            ) from None


def task_plans(
    run: Run, tasks: Sequence[str], own: AblationPlan
) -> tuple[list[TaskPlan], list[NotAvailable]]:
    """Return the plans of tasks, and the gaps of tasks that cannot be measured.

    Args:
        run: the run.
        tasks: names of the tasks, as from `chosen_tasks`.
        own: plan of the model's own targets, whose groups of heads are ablated for tasks, too.
    """
    plans, gaps = [], []
    for name in tasks:
        try:
            plans.append(_plan(run, name, own))
            for note in plans[-1].texts.notes:
                warn(f"task {name}: {note}")
        except CannotMeasure as error:
            gaps.append(NotAvailable(f"task {name}", "", str(error)))
            warn(f"task {name} is not measured: {error}")
    return plans, gaps


def filled_columns(run: Run) -> set[str]:
    """Return the metadata columns in which any sentence has a value."""
    columns: set[str] = set()
    for sentence in run.corpus:
        columns.update(name for name, value in sentence.metadata.items() if value.strip())
    return columns


def _missing(name: str, run: Run, columns: Collection[str]) -> Iterator[str]:
    """Yield the columns and the head that a task lacks, in words."""
    if run.config.pack is not None:
        yield "single sentences, which --pack joins"
    answers = (task_texts.ANSWER_COLUMN, task_texts.WRONG_COLUMN)
    needed = {
        LABEL: (task_texts.label_column(run.config, columns),),
        PREFERENCE: (PAIR_COLUMN, task_texts.acceptable_column(run.config, columns)),
        ANSWER: answers,
        PATCHING: (*answers, task_texts.CORRUPT_COLUMN),
    }
    yield from (
        f"a column '{column}' in the input" for column in needed[name] if column not in columns
    )
    if run.model.config.is_encoder_decoder:
        yield "a model that is not an encoder-decoder"
    if name == LABEL:
        if not classifier_kind(run.model.network):
            yield "a checkpoint with a classification head"
    elif isinstance(lens := make_logit_lens(run.model, run.architecture), NoLogitLens):
        yield f"a language-model head: {lens.why}"


def _check_acceptable(run: Run, column: str) -> None:
    """Raise an error if no sentence of a pair has the value of ``--acceptable``."""
    values = {value_of(s, column) for s in run.corpus if value_of(s, PAIR_COLUMN)} - {""}
    if not any(task_texts.is_acceptable(run.config, value) for value in values):
        expected = ", ".join(sorted(values)[: task_texts.MAX_NAMED_LABELS])
        raise ConfigError(
            f"--acceptable: got '{run.config.acceptable}', which no sentence of a pair has in "
            f"column '{column}'; expected one of {expected}"
        )


def _label_texts(run: Run) -> task_texts.TaskTexts:
    """Return the texts of the task `LABEL`."""
    config = run.model.config
    if config.num_labels < MIN_TEXTS or config.problem_type in OTHER_PROBLEMS:
        raise CannotMeasure("the classification head does not choose one of several labels")
    column = task_texts.label_column(run.config, filled_columns(run))
    return _checked(task_texts.labelled_texts(run, column), f"column '{column}'")


def _label_targets(run: Run, texts: task_texts.TaskTexts) -> task_targets.LabelTargets:
    """Return the targets of the task `LABEL`."""
    config, model = run.model.config, run.model
    causal = run.architecture.stacks["self"].causal
    if causal and config.pad_token_id is None:  # the head finds the last token before the padding
        config.pad_token_id = model.tokenizer.eos_token_id or 0
    by_token = classifier_kind(model.network) == TOKEN_CLASSIFIER
    slots = layer_slots(model, run.architecture)["self"]
    return task_targets.LabelTargets(model, slots, texts.data, by_token, causal)


def _check_head(
    run: Run, functions: task_targets.LabelTargets, heads: PatchableModel, batch: Batch
) -> None:
    """Check that the classification head depends on the states of the last layer alone."""
    if not task_targets.reads_last_layer(functions, heads, batch):
        kind = run.model.config.model_type
        raise CannotMeasure(f"the head of '{kind}' reads more than its last layer")


def _preference_texts(run: Run) -> task_texts.TaskTexts:
    """Return the texts of the task `PREFERENCE`."""
    if not run.architecture.padded:
        raise CannotMeasure("this model reads texts of equal length only, and pairs differ")
    if not _lens(run).causal and run.model.mask_id is None:
        raise CannotMeasure("the tokenizer has no mask token")
    return _checked(task_texts.minimal_pairs(run, filled_columns(run)), f"columns '{PAIR_COLUMN}'")


def _preference_targets(run: Run, texts: task_texts.TaskTexts) -> task_targets.PreferenceTargets:
    """Return the targets of the task `PREFERENCE`."""
    del texts
    lens = _lens(run)
    mask = None if lens.causal else run.model.mask_id
    return task_targets.PreferenceTargets(lens, mask)


def _answer_texts(run: Run) -> task_texts.TaskTexts:
    """Return the prompts of the task `ANSWER`."""
    columns = f"columns '{task_texts.ANSWER_COLUMN}' and '{task_texts.WRONG_COLUMN}'"
    return _checked(task_texts.prompts(run), columns)


def _answer_targets(run: Run, texts: task_texts.TaskTexts) -> task_targets.AnswerTargets:
    """Return the targets of the task `ANSWER`."""
    lens = _lens(run)
    mask = None if lens.causal else run.model.mask_id
    return task_targets.AnswerTargets(lens, texts.data, mask)


def _patching_texts(run: Run) -> task_texts.TaskTexts:
    """Return the prompts of the task `PATCHING`, each with its corrupt text."""
    texts = task_texts.corrupted(run, task_texts.prompts(run))
    return _checked(texts, f"column '{task_texts.CORRUPT_COLUMN}'")


TEXTS: dict[str, Callable[[Run], task_texts.TaskTexts]] = {
    LABEL: _label_texts,
    PREFERENCE: _preference_texts,
    ANSWER: _answer_texts,
    PATCHING: _patching_texts,
}
TARGETS: dict[str, Callable[[Run, task_texts.TaskTexts], task_targets.TaskTargets]] = {
    LABEL: _label_targets,
    PREFERENCE: _preference_targets,
    ANSWER: _answer_targets,
    PATCHING: _answer_targets,
}


class TaskParts(NamedTuple):
    """Texts of a task with its targets.

    Attributes:
        texts: the texts with the notes on them.
        functions: targets of the task.
        sample: the texts in batches.
    """

    texts: task_texts.TaskTexts
    functions: task_targets.TaskTargets
    sample: AblationSample

    @classmethod
    def of(cls, run: Run, name: str, heads: PatchableModel) -> Self:
        """Read the texts of a task.

        Args:
            run: the run.
            name: name of the task.
            heads: model whose head outputs can be replaced.

        Raises:
            CannotMeasure: the texts and the model do not go together.
        """
        texts = TEXTS[name](run)
        functions = TARGETS[name](run, texts)
        rows = 1
        if isinstance(functions, task_targets.PreferenceTargets):
            rows = _rows_of_pairs(texts, masked=functions.mask is not None)
        sample = _sample(run, texts.items, rows)
        if isinstance(functions, task_targets.LabelTargets):
            _check_head(run, functions, heads, sample.small[0])
        return cls(texts, functions, sample)


def _rows_of_pairs(texts: task_texts.TaskTexts, *, masked: bool) -> int:
    """Return the number of rows in which the model reads a pair."""
    if not masked:
        return 2
    sides = [text for item in texts.items for text in item.tokens.values()]
    return 2 * max(len(task_targets.masked_words(text)) for text in sides)


def _plan(run: Run, name: str, own: AblationPlan) -> TaskPlan:
    """Return the plan of a task."""
    heads = own.ablator.heads
    texts, functions, sample = TaskParts.of(run, name, heads)
    items = _in_order(sample.batches)
    truth = _truth(run, texts, items) if name == LABEL else {}
    plan: AblationPlan | PatchingPlan
    if isinstance(functions, task_targets.AnswerTargets) and name == PATCHING:
        plan = PatchingPlan(
            heads, functions, own.costs, own.level, sample.batches, own.heads,
            max_passes=MAX_PASSES if own.level == AUTO else math.inf,
        )  # fmt: skip
    else:
        plan = _ablation_plan(run, own, name, functions, sample)
    return TaskPlan(name, plan, items, texts, run.facets.columns, truth)


def _truth(
    run: Run, texts: task_texts.TaskTexts, items: Sequence[TokenizedSentence]
) -> dict[str, Floats]:
    """Return the number of observations of each text by their true label."""
    return {
        str(name): np.array(
            [float((texts.data[item.sentence.index] == int(number)).sum()) for item in items]
        )
        for number, name in run.model.config.id2label.items()
    }


def _checked(texts: task_texts.TaskTexts, columns: str) -> task_texts.TaskTexts:
    """Return the texts of a task if there are at least two.

    Raises:
        CannotMeasure: there are fewer; the message has the notes on those that were left out.
    """
    if len(texts.items) < MIN_TEXTS:
        why = "; ".join(texts.notes) or f"fewer than two texts with {columns}"
        raise CannotMeasure(why)
    return texts


def _lens(run: Run) -> LogitLens:
    """Return the language-model head of a run that has one."""
    lens = make_logit_lens(run.model, run.architecture)
    assert isinstance(lens, LogitLens)
    return lens


def _ablation_plan(
    run: Run,
    own: AblationPlan,
    name: str,
    functions: task_targets.TaskTargets,
    sample: AblationSample,
) -> AblationPlan:
    """Return the plan of a task with the groups of heads of the model's own targets."""
    ablator = HeadAblator(own.ablator.heads, functions)
    parameters, vocabulary = parameters_of(run.model)
    costs = costs_of(ablator, parameters, (0, 0) if name == LABEL else vocabulary)
    return AblationPlan(ablator, costs, own.level, sample, run.config.seed, own.groups, task=name)


def _sample(run: Run, items: Sequence[TokenizedSentence], rows: int = 1) -> AblationSample:
    """Return the texts of a task in batches; the model reads each of them in a number of rows."""
    budget = max(1, run.config.batch_tokens // rows)
    alike, shared_length = not run.architecture.padded, run.architecture.shared_length
    return ablation_sample(
        items, budget, run.sentences.batch, alike=alike, shared_length=shared_length
    )


def _in_order(batches: Sequence[Batch]) -> list[TokenizedSentence]:
    """Return the items of batches in the order of the rows of results."""
    items = [item for batch in batches for item in batch.items]
    hashes = np.array([token_hash(item) for item in items], np.uint64)
    return [items[row] for row in np.argsort(hashes, kind="stable")]
