"""Reduction of checkpoints' studies to steps, and the metrics that are followed over steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate, Estimates
from headbook.analysis.arrays import Floats, Ints
from headbook.comparison.study_pair import StackPair, check_same_sentences, same_vocabulary
from headbook.errors import StudyError
from headbook.metrics import ids
from headbook.metrics.base import Source
from headbook.report.facts.functions import (
    FunctionFamily,
    HeadFunction,
    families_of,
    functions_of,
)
from headbook.report.relations import relation_words
from headbook.report.results import StackResults, stack_results
from headbook.report.sink import sink_words
from headbook.report.thresholds import HALF, SCORE, UNTESTED, Threshold
from headbook.schema import AblationTarget, AttentionStack, HeadKey, HeadName, SinkView
from headbook.study.corpus_sums import CorpusSums
from headbook.study.manifest import Manifest
from headbook.study.sentence_data import SentenceData
from headbook.study.study import Study


class CheckpointMetric(NamedTuple):
    """A metric of every head that is followed over steps.

    Attributes:
        metric, label: id and label as in files.
        name: name on pages; ``{sink}`` stands for the tokens that are the sink.
        does: description of a head with a high value; empty if the metric describes no function.
        threshold: limit of the function that the metric decides: of a score, or of a share that is
            corrected for chance; NaN if a test decides, or no function has this metric.
    """

    metric: str
    label: str
    name: str
    does: str
    threshold: Threshold = UNTESTED

    @property
    def key(self) -> str:
        """Name of the metric in files and addresses."""
        return "-".join(filter(None, (self.metric, self.label.replace(":", "-"))))


# Dependency relations whose accuracy is followed: frequent ones in most languages.
CHECKPOINT_RELATIONS = ("det", "amod", "case", "nsubj", "obj")
CHECKPOINT_METRICS = (
    CheckpointMetric(
        ids.INDUCTION_SCORE, "", "Induction score", "continues repeated sequences (induction)",
        SCORE,
    ),
    CheckpointMetric(
        ids.ATTENTION_TO, "previous", "Attention to the previous token",
        "attends to the previous token", HALF,
    ),
    CheckpointMetric(
        ids.DUPLICATE_SCORE, "", "Duplicate-token score",
        "attends to a token's earlier occurrence (duplicates)", SCORE,
    ),
    CheckpointMetric(ids.SINK_SHARE, "", "Attention to {sink}", "attends to {sink}", HALF),
    CheckpointMetric(
        ids.ATTENTION_TO, "next", "Attention to the next token", "attends to the next token", HALF,
    ),
    CheckpointMetric(
        ids.ATTENTION_TO, "self", "Attention to the token itself", "attends to the token itself",
        HALF,
    ),
    CheckpointMetric(
        ids.ATTENTION_TO, "same_token", "Attention to other occurrences of the token",
        "attends to other occurrences of the token", HALF,
    ),
    CheckpointMetric(
        ids.ATTENTION_TO, "punctuation", "Attention to punctuation", "attends to punctuation", HALF,
    ),
    CheckpointMetric(
        ids.RARE_WORD_FOCUS, "", "Rarest word as strongest key",
        "has the rarest word as strongest key",
    ),
    *(
        CheckpointMetric(
            ids.RELATION_ACCURACY, f"{name}:to_head",
            f"Relation accuracy, {relation_words(f'{name}:to_head')}",
            f"attends {relation_words(f'{name}:to_head')}",
        )
        for name in CHECKPOINT_RELATIONS
    ),
    CheckpointMetric(ids.RELATIVE_ENTROPY, "", "Normalised entropy", ""),
    CheckpointMetric(ids.ATTENTION_DISTANCE, "", "Attention distance", ""),
)  # fmt: skip


class CheckpointColumn(NamedTuple):
    """A followed metric of one stack, in the view that pages show.

    Attributes:
        metric, view, label: key of the metric.
        name, does: texts of `CheckpointMetric`, with the tokens of the stack's sink.
        key: name in files and addresses.
        threshold: limit of the function that the metric decides, as in `CheckpointMetric`.
    """

    metric: str
    view: SinkView
    label: str
    name: str
    does: str
    key: str
    threshold: Threshold

    def passes(self, value: Estimate, uniform: float) -> bool:
        """Check whether the lower end of a number reaches the threshold of the function."""
        corrected = self.threshold is not SCORE
        low = (value.low - uniform) / (1 - uniform) if corrected and uniform < 1 else value.low
        return bool(low >= self.threshold.value)


def checkpoint_metrics(results: StackResults) -> tuple[CheckpointColumn, ...]:
    """Return the followed metrics for which a stack has enough observations."""
    columns = []
    for followed in CHECKPOINT_METRICS:
        metric = results.by_id.get(followed.metric)
        if metric is None:
            continue
        view = results.view(metric, followed.label)
        if not results.has_value(followed.metric, view, followed.label):
            continue
        if not np.isnan(results.heads(followed.metric, view, followed.label).trusted).all():
            name, does = (
                text.format(sink=sink_words(results)) for text in (followed.name, followed.does)
            )
            columns.append(
                CheckpointColumn(
                    followed.metric,
                    view,
                    followed.label,
                    name,
                    does,
                    followed.key,
                    followed.threshold,
                )
            )
    return tuple(columns)


LOSS_TARGETS = (AblationTarget.LOSS, AblationTarget.MASKED_LOSS)


@dataclass(frozen=True, eq=False)
class BucketRatios:
    """Sums of one number over buckets of sentences.

    Attributes:
        keys: keys of the buckets, ascending. *Shape:* ``(bucket,)``.
        n, d: numerators and denominators; ``d`` has one head if all heads share it. *Shape:*
            ``(bucket, layer, head)``.
    """

    keys: Ints
    n: NDArray[np.float32]
    d: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FrameValues:
    """One number of all heads of a stack at one step.

    Attributes:
        heads: values with intervals. *Shape:* ``(layer, head)``.
        choice: values on the selection split; NaN with too few observations. *Shape:*
            ``(layer, head)``.
        report: values with intervals on the held-out split. *Shape:* ``(layer, head)``.
        uniform: values under uniform attention. *Shape:* ``(layer,)``.
        sums: sums by bucket; None if they are not stored.
        random: whether the number is measured on random sequences.
    """

    heads: Estimates
    choice: Floats
    report: Estimates
    uniform: Floats
    sums: BucketRatios | None
    random: bool


@dataclass(frozen=True, eq=False)
class StackFrame:
    """One stack at one step.

    Attributes:
        stack: the stack.
        numbers: numbers of heads, by followed metric.
        functions: function of every head.
        families: families of these functions, with their names.
        maps: mean attention by position; NaN if no sentence is long enough. *Shape:*
            ``(layer, head, query, key)``.
    """

    stack: AttentionStack
    numbers: Mapping[CheckpointColumn, FrameValues]
    functions: Mapping[HeadName, HeadFunction]
    families: Mapping[FunctionFamily, str]
    maps: NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class CheckpointStep:
    """One checkpoint of a training.

    Attributes:
        name: name of the checkpoint: a revision, or a folder.
        manifest: manifest of the checkpoint's study.
        stacks: stacks by name.
        loss: loss of the whole model per token, in nats; NaN if the study has none.
        target: ablation target that names the kind of loss; empty without a loss.
        sentences: the study without anything but the hashes of its sentences.
    """

    name: str
    manifest: Manifest
    stacks: Mapping[str, StackFrame]
    loss: Estimate
    target: str
    sentences: Study


def checkpoint_step(name: str, study: Study) -> CheckpointStep:
    """Reduce a study to the numbers that are followed over steps."""
    target, loss = _loss(study)
    return CheckpointStep(
        name,
        study.manifest,
        {stack: _stack_frame(results) for stack, results in stack_results(study).items()},
        loss,
        target,
        Study(study.manifest, CorpusSums(texts=study.corpus_sums.texts), SentenceData()),
    )


def check_same_run(first: CheckpointStep, other: CheckpointStep) -> None:
    """Check that two steps are of one model's checkpoints on the same sentences.

    Raises:
        StudyError: sentences, shapes or tokenizers differ.
    """
    try:
        check_same_sentences(first.sentences, other.sentences)
    except StudyError as error:
        raise StudyError(f"{first.name} and {other.name}: {error}") from error
    stacks, others = (
        {name: stack_frame.stack for name, stack_frame in frame.stacks.items()}
        for frame in (first, other)
    )
    if stacks.keys() != others.keys() or not all(
        StackPair(stack, others[name]).same_shape for name, stack in stacks.items()
    ):
        sizes = [
            ", ".join(f"{s.n_layers} × {s.n_heads} heads ({s.name})" for s in by_name.values())
            for by_name in (stacks, others)
        ]
        raise StudyError(
            f"{first.name} has {sizes[0]}, {other.name} {sizes[1]}; expected checkpoints of one "
            "model"
        )
    if not same_vocabulary(first.manifest.model, other.manifest.model):
        raise StudyError(
            f"{first.name} and {other.name} have different tokenizers; expected checkpoints of one "
            "model"
        )


def _stack_frame(results: StackResults) -> StackFrame:
    sums = results.study.corpus_sums.heads[results.stack.name].positions
    return StackFrame(
        results.stack,
        {column: _frame_values(results, column) for column in checkpoint_metrics(results)},
        functions_of(results),
        families_of(results),
        sums.mean.astype(np.float16),
    )


def _frame_values(results: StackResults, column: CheckpointColumn) -> FrameValues:
    key = column.metric, column.view, column.label
    metric = results.by_id[column.metric]
    return FrameValues(
        results.heads(*key),
        results.split(SELECTION, *key).trusted,
        results.split(HELD_OUT, *key),
        results.uniform(*key).value,
        _bucket_ratios(results, HeadKey(*key)),
        metric.source is Source.RANDOM,
    )


def _bucket_ratios(results: StackResults, column: HeadKey) -> BucketRatios | None:
    buckets = results.buckets(column)
    if buckets is None:
        return None
    index = buckets.columns.index(column)
    n, d = (np.ascontiguousarray(array[..., index], np.float32) for array in (buckets.n, buckets.d))
    return BucketRatios(buckets.keys, n, d)


def _loss(study: Study) -> tuple[str, Estimate]:
    """Return the kind of the model's loss, and the loss."""
    ablation = study.corpus_sums.ablation
    if ablation is not None:
        for target in LOSS_TARGETS:
            if target in ablation.unablated:
                losses = ablation.ratios_of(target, ablation.unablated[target])
                return str(target), Estimates.of(losses, (0.0, np.inf)).at()
    return "", Estimate(np.nan, np.nan, np.nan, 0, 0)
