"""The part of each checkpoint's study that a film keeps, and the metrics that a film follows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate, Estimates
from headbook.analysis.arrays import Floats, Ints
from headbook.comparison.study_pair import StackPair, check_same_sentences, same_vocabulary
from headbook.errors import StudyError
from headbook.metrics import ids
from headbook.metrics.base import Source
from headbook.report.head_types import HeadType, Place, head_types
from headbook.report.relations import relation_words
from headbook.report.results import StackResults, stack_results
from headbook.report.roles import sink_words
from headbook.schema import AblationTarget, AttentionStack, HeadKey, SinkView
from headbook.study.corpus_sums import CorpusSums
from headbook.study.manifest import Manifest
from headbook.study.sentence_data import SentenceData
from headbook.study.study import Study

INDUCTION = 0.4  # least score of an induction head, by convention


class FilmMetric(NamedTuple):
    """A metric of every head that a film follows.

    Attributes:
        metric, label: id and label as in files.
        name: name on pages; ``{sink}`` stands for the tokens that are the sink.
        does: description of a head with a high value; empty if the metric describes no function.
    """

    metric: str
    label: str
    name: str
    does: str

    @property
    def key(self) -> str:
        """Name of the metric in files and addresses."""
        return "-".join(filter(None, (self.metric, self.label.replace(":", "-"))))


RELATIONS = ("det", "amod", "case", "nsubj", "obj")
HEADLINES = (
    FilmMetric(
        ids.INDUCTION_SCORE, "", "Induction score", "continues repeated sequences (induction)"
    ),
    FilmMetric(
        ids.ATTENTION_TO, "previous", "Attention to the previous token",
        "attends to the previous token",
    ),
    FilmMetric(
        ids.DUPLICATE_SCORE, "", "Duplicate-token score",
        "attends to a token's earlier occurrence (duplicates)",
    ),
    FilmMetric(ids.SINK_SHARE, "", "Attention to {sink}", "attends to {sink}"),
    FilmMetric(
        ids.ATTENTION_TO, "next", "Attention to the next token", "attends to the next token"
    ),
    FilmMetric(
        ids.ATTENTION_TO, "self", "Attention to the token itself", "attends to the token itself"
    ),
    FilmMetric(
        ids.ATTENTION_TO, "same_token", "Attention to other occurrences of the token",
        "attends to other occurrences of the token",
    ),
    FilmMetric(
        ids.ATTENTION_TO, "punctuation", "Attention to punctuation", "attends to punctuation"
    ),
    FilmMetric(
        ids.RARE_WORD_FOCUS, "", "Attention to the rarest word", "attends to the rarest word"
    ),
    *(
        FilmMetric(
            ids.RELATION_ACCURACY, f"{name}:to_head",
            f"Relation accuracy, {relation_words(f'{name}:to_head')}",
            f"attends {relation_words(f'{name}:to_head')}",
        )
        for name in RELATIONS
    ),
    FilmMetric(ids.RELATIVE_ENTROPY, "", "Normalised entropy", ""),
    FilmMetric(ids.ATTENTION_DISTANCE, "", "Attention distance", ""),
)  # fmt: skip


class FilmColumn(NamedTuple):
    """A followed metric of one stack, in the view that pages show.

    Attributes:
        metric, view, label: key of the metric.
        name, does: texts of `FilmMetric`, with the tokens of the stack's sink.
        key: name in files and addresses.
    """

    metric: str
    view: SinkView
    label: str
    name: str
    does: str
    key: str


def film_metrics(results: StackResults) -> tuple[FilmColumn, ...]:
    """Return the followed metrics for which a stack has enough observations."""
    found = []
    for each in HEADLINES:
        known = results.by_id.get(each.metric)
        if known is None:
            continue
        view = results.view(known, each.label)
        if not results.has_value(each.metric, view, each.label):
            continue
        if not np.isnan(results.heads(each.metric, view, each.label).trusted).all():
            name, does = (text.format(sink=sink_words(results)) for text in (each.name, each.does))
            found.append(FilmColumn(each.metric, view, each.label, name, does, each.key))
    return tuple(found)


LOSSES = (AblationTarget.LOSS, AblationTarget.MASKED_LOSS)


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
        types: types of heads; None if the numbers are missing.
        maps: mean attention by position; NaN if no sentence is long enough. *Shape:*
            ``(layer, head, query, key)``.
    """

    stack: AttentionStack
    numbers: Mapping[FilmColumn, FrameValues]
    types: Mapping[Place, HeadType | None]
    maps: NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class FilmStep:
    """One checkpoint of a film.

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


def film_step(name: str, study: Study) -> FilmStep:
    """Reduce a study to the numbers that a film keeps."""
    target, loss = _loss(study)
    return FilmStep(
        name,
        study.manifest,
        {stack: _stack(each) for stack, each in stack_results(study).items()},
        loss,
        target,
        Study(study.manifest, CorpusSums(texts=study.corpus_sums.texts), SentenceData()),
    )


def check_same_run(first: FilmStep, other: FilmStep) -> None:
    """Check that two steps are of one model's checkpoints on the same sentences.

    Raises:
        StudyError: sentences, shapes or tokenizers differ.
    """
    try:
        check_same_sentences(first.sentences, other.sentences)
    except StudyError as error:
        raise StudyError(f"{first.name} and {other.name}: {error}") from error
    stacks, others = (
        {name: each.stack for name, each in frame.stacks.items()} for frame in (first, other)
    )
    if stacks.keys() != others.keys() or not all(
        StackPair(stack, others[name]).same_shape for name, stack in stacks.items()
    ):
        sizes = [
            ", ".join(f"{s.n_layers} × {s.n_heads} heads ({s.name})" for s in each.values())
            for each in (stacks, others)
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


def _stack(of: StackResults) -> StackFrame:
    sums = of.study.corpus_sums.heads[of.stack.name].positions
    return StackFrame(
        of.stack,
        {column: _numbers(of, column) for column in film_metrics(of)},
        {place: _bare(found) for place, found in head_types(of).items()},
        sums.mean.astype(np.float16),
    )


def _bare(found: HeadType | None) -> HeadType | None:
    """Return a type without the shares by offset, which only pages of heads show."""
    return found and replace(found, shares=replace(found.shares, offsets={}))


def _numbers(of: StackResults, column: FilmColumn) -> FrameValues:
    asked = column.metric, column.view, column.label
    known = of.by_id[column.metric]
    return FrameValues(
        of.heads(*asked),
        of.split(SELECTION, *asked).trusted,
        of.split(HELD_OUT, *asked),
        of.uniform(*asked).value,
        _sums(of, HeadKey(*asked)),
        known.source is Source.RANDOM,
    )


def _sums(of: StackResults, column: HeadKey) -> BucketRatios | None:
    for part in of.study.corpus_sums.buckets.get(of.stack.name, ()):
        if column in part.columns:
            at = part.columns.index(column)
            n, d = (np.ascontiguousarray(a[..., at], np.float32) for a in (part.n, part.d))
            return BucketRatios(part.keys, n, d)
    return None


def _loss(study: Study) -> tuple[str, Estimate]:
    """Return the kind of the model's loss, and the loss."""
    ablation = study.corpus_sums.ablation
    if ablation is not None:
        for target in LOSSES:
            if target in ablation.unablated:
                found = ablation.ratios_of(target, ablation.unablated[target])
                return str(target), Estimates.of(found, (0.0, np.inf)).at()
    return "", Estimate(np.nan, np.nan, np.nan, 0, 0)
