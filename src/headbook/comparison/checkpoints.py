"""Checkpoints of one training in order, and when numbers of heads changed.

Studies are read one after the other, and each is reduced to a step before the next is read.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate
from headbook.analysis.arrays import Floats, Ints
from headbook.analysis.half_rise import HalfRise, best_heads, half_rises, shares
from headbook.analysis.paired import ClusterSums, PairedDifferences, differences, paired_tests
from headbook.comparison.checkpoint_steps import (
    BucketRatios,
    CheckpointColumn,
    CheckpointStep,
    FrameValues,
    check_same_run,
    checkpoint_step,
)
from headbook.errors import StudyError
from headbook.report.facts.functions import FUNCTION_COLUMNS, FunctionFamily
from headbook.schema import AttentionStack, Place
from headbook.study.study import Study
from headbook.study.tables import HEAD_COLUMNS, METRIC_COLUMNS, TableSpec
from headbook.written_site import Site, show_site

STEP_NUMBER = re.compile(r"\d+")  # numbers in the name of a checkpoint; the last is its step
STEP_COLUMNS = {
    "step": "the last number in the checkpoint's name; else its place in the order given",
    "checkpoint": "its revision, or folder",
}
CURVES: "TableSpec[Checkpoints]" = TableSpec(
    "curves",
    "The followed numbers of every head, at every step.",
    STEP_COLUMNS
    | HEAD_COLUMNS
    | METRIC_COLUMNS
    | {
        "value": "ratio of sums over sentences; empty where there is no observation",
        "low": "lower end of the 95 % confidence interval, clustered by sentence",
        "high": "upper end",
    },
    lambda checkpoints: checkpoints.curves,
    optional=True,
)
HALF_RISE: "TableSpec[Checkpoints]" = TableSpec(
    "half_rise",
    "When the numbers of every head changed: the first step past the middle between the first "
    "and the last value, if all later ones are, too.",
    HEAD_COLUMNS
    | {"head": "counted from 0; empty for the mean over the heads of a layer, without a step"}
    | METRIC_COLUMNS
    | {
        "first": "value at the first step",
        "last": "value at the last step",
        "change": "last minus first",
        "low": "lower end of the 95 % confidence interval of the change, paired by sentence",
        "high": "upper end",
        "q": "p of the change, adjusted for all heads and labels of the metric and view, as in "
        "comparisons; empty for layers, or with fewer than 20 sentences (or buckets of them)",
        "step": "half-rise step; empty unless q < 0.05, the interval of the change excludes 0, and "
        "all later values are past the middle",
        "step_low": "lower end of the 95 % interval of the half-rise step, by drawing "
        "sentences; one of the steps",
        "step_high": "upper end; both are empty if fewer than 90 % of the draws stay past the "
        "middle",
        "passes": "first step past the middle, if a later value is not past the middle",
        "returns": "first later step that is not past the middle",
        "n_clusters": "sentences behind it, or buckets of them",
    },
    lambda checkpoints: checkpoints.half_rise,
    optional=True,
)
FUNCTIONS: "TableSpec[Checkpoints]" = TableSpec(
    "functions",
    "The function of every head at every step.",
    STEP_COLUMNS
    | HEAD_COLUMNS
    | {name: FUNCTION_COLUMNS[name] for name in ("function", "noun", "family")},
    lambda checkpoints: checkpoints.functions,
)
CHECKPOINT_TABLES = (CURVES, HALF_RISE, FUNCTIONS)


class NamedStudy(NamedTuple):
    """A checkpoint whose study is yet to be read.

    Attributes:
        name: revision or folder of the checkpoint.
        study: function that reads the study, or collects it.
    """

    name: str
    study: Callable[[], Study]


class BestHead(NamedTuple):
    """The head with the highest value of a number at one step.

    Attributes:
        place: layer and head, chosen on one half of the sentences; None if nothing is known.
        value: value on all sentences.
        held_out: value on the other half.
        uniform: value under uniform attention.
    """

    place: Place | None
    value: Estimate
    held_out: Estimate
    uniform: float


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """Checkpoints in the order of their steps.

    Attributes:
        frames: the checkpoints.
        steps: step of each checkpoint, ascending. *Shape:* ``(step,)``.
        named: whether steps are numbers in the checkpoints' names; otherwise steps are counted.
        site: the site that was written, or None.
    """

    frames: tuple[CheckpointStep, ...]
    steps: Ints
    named: bool
    site: Site | None = None

    def __repr__(self) -> str:
        """Return lines on the checkpoints."""
        names = ", ".join(frame.name for frame in self.frames)
        return f"{self.title}: {names}" + ("" if self.site is None else f"\n{self.site.index}")

    def _repr_html_(self) -> str:
        """Return the overview of the checkpoints as HTML, for notebooks."""
        from headbook.notebook.views import checkpoints_html  # noqa: PLC0415

        return checkpoints_html(self)

    def show(self) -> None:
        """Show the site, as `Site.show` does.

        Raises:
            ConfigError: no site was written.
        """
        show_site(self.site)

    @property
    def title(self) -> str:
        """Title of pages: the name of the model, if all checkpoints have it, or the steps."""
        names = {frame.manifest.model.name for frame in self.frames}
        if len(names) == 1:
            return f"Training of {names.pop()}"
        return f"Training from {self.name(0)} to {self.name(-1)}"

    @property
    def stacks(self) -> tuple[AttentionStack, ...]:
        """Stacks of the model."""
        return self.frames[0].manifest.stacks

    def columns(self, stack: str) -> tuple[CheckpointColumn, ...]:
        """Return the followed metrics that all checkpoints have."""
        first, *others = (frame.stacks[stack].numbers for frame in self.frames)
        return tuple(column for column in first if all(column in other for other in others))

    def numbers(self, stack: str, column: CheckpointColumn) -> list[FrameValues]:
        """Return one number of all heads, by step."""
        return [frame.stacks[stack].numbers[column] for frame in self.frames]

    def values(self, stack: str, column: CheckpointColumn) -> Floats:
        """Return the values of one number of all heads. *Shape:* ``(step, layer, head)``."""
        return np.stack([values.heads.value for values in self.numbers(stack, column)])

    @cached_property
    def half_rises(self) -> Mapping[tuple[str, CheckpointColumn], HalfRise]:
        """Half-rises of each head by stack and metric, as indices of steps.

        Metrics without sums by bucket are left out.
        """
        rises: dict[tuple[str, CheckpointColumn], HalfRise] = {}
        for stack in self.stacks:
            q = self._change_q(stack.name)
            for column in q:
                for _, n, d in self._sums(stack.name, column):
                    rises[stack.name, column] = half_rises(n, d, q[column])
        return rises

    def _change_q(self, stack: str) -> dict[CheckpointColumn, Floats]:
        """Return the adjusted p of the change of each head, tested by metric and view."""
        families: dict[tuple[str, str], list[CheckpointColumn]] = {}
        for column in self.columns(stack):
            families.setdefault((column.metric, column.view), []).append(column)
        q_values: dict[CheckpointColumn, Floats] = {}
        for family in families.values():
            sums = {column: ends for column in family for ends in self._sums(stack, column)}
            if not sums:
                continue
            keys = next(iter(sums.values()))[0]  # the same for all labels of a metric
            first, last = (_ends(sums.values(), end) for end in (0, -1))
            tests = paired_tests(first, last, differences(first, last), keys)
            q_values |= {column: tests.q[..., index] for index, column in enumerate(sums)}
        return q_values

    def difference(
        self, stack: str, column: CheckpointColumn, steps: tuple[int, int]
    ) -> PairedDifferences | None:
        """Return the paired differences of the second of two steps from the first."""
        for _, n, d in self._sums(stack, column):
            first, last = (ClusterSums(n[step], d[step]) for step in steps)
            return differences(first, last)
        return None

    def step(self, index: float) -> int:
        """Return the step at an index."""
        return int(self.steps[int(index)])

    def name(self, index: int) -> str:
        """Return the name of a step on pages: ``step 512``, or ``checkpoint 2`` if counted."""
        return f"{'step' if self.named else 'checkpoint'} {self.step(index):,}"

    def best_heads(self, stack: str, column: CheckpointColumn) -> list[BestHead]:
        """Return the head with the highest value at each step."""
        numbers = self.numbers(stack, column)
        size = len(self.frames), -1
        selection, held_out = (
            np.stack(part).reshape(size)
            for part in ([n.choice for n in numbers], [n.report.value for n in numbers])
        )
        cells = best_heads(selection[:, None], held_out[:, None]).cell[:, 0]
        return [
            _best_head(of_step, int(cell)) for of_step, cell in zip(numbers, cells, strict=True)
        ]

    def family_shares(self, stack: str) -> Floats:
        """Return the share of heads of each of the `families`. *Shape:* ``(step, family)``."""
        return shares(
            np.array([
                [function.family or "" for function in frame.stacks[stack].functions.values()]
                for frame in self.frames
            ], np.str_),
            [*self.families(stack)],
        )  # fmt: skip

    def families(self, stack: str) -> dict[FunctionFamily, str]:
        """Return the families that any head has at any step, in their order, with their names."""
        names: dict[FunctionFamily, str] = {}
        for frame in self.frames:
            names |= frame.stacks[stack].families
        return {family: names[family] for family in FunctionFamily if family in names}

    @property
    def curves(self) -> pd.DataFrame:
        """Table with a row for each number, head and step; columns as in ``curves.csv``."""
        parts = [
            _curve_rows(step, frame, stack, column)
            for step, frame in zip(self.steps.tolist(), self.frames, strict=True)
            for stack in self.stacks
            for column in self.columns(stack.name)
        ]
        return pd.concat(parts, ignore_index=True) if parts else CURVES.empty

    @property
    def half_rise(self) -> pd.DataFrame:
        """Table with a row for each number of each head and layer; columns as in the file."""
        stacks = {stack.name: stack for stack in self.stacks}
        parts = [
            self._half_rise(stacks[name], column, rise)
            for (name, column), rise in self.half_rises.items()
        ]
        parts += [
            _layer_changes_rows(stacks[name], column, rise)
            for (name, column), rise in self.half_rises.items()
        ]
        if not parts:
            return HALF_RISE.empty
        return pd.concat([part.astype({"head": "Int64"}) for part in parts], ignore_index=True)

    @property
    def functions(self) -> pd.DataFrame:
        """Table with a row for each head and step; columns as in ``functions.csv``."""
        rows = [
            (step, frame.name, *head, function.id, function.noun, str(function.family or ""))
            for step, frame in zip(self.steps.tolist(), self.frames, strict=True)
            for stack in frame.stacks.values()
            for head, function in stack.functions.items()
        ]
        return pd.DataFrame(rows, columns=[*FUNCTIONS.columns])

    def _half_rise(
        self, stack: AttentionStack, column: CheckpointColumn, rise: HalfRise
    ) -> pd.DataFrame:
        layers, change = [*stack.attention_layers], rise.change
        indices = rise.step, rise.low, rise.high, rise.passes, rise.returns
        steps = [self._steps(part) for part in indices]
        arrays = (
            change.a,
            change.b,
            change.value,
            change.low,
            change.high,
            rise.q,
            *steps,
            change.clusters,
        )
        names = [*HALF_RISE.columns]
        values = {
            name: array[layers].ravel() for name, array in zip(names[6:], arrays, strict=True)
        }
        return _table(names, stack, column, values)

    def _steps(self, indices: Floats) -> Floats:
        """Return the steps at some indices; NaN for NaN."""
        filled = np.nan_to_num(indices).astype(np.int64)
        return np.where(np.isnan(indices), np.nan, self.steps[filled])

    def _sums(self, stack: str, column: CheckpointColumn) -> Iterator[tuple[Ints, Floats, Floats]]:
        """Yield keys and sums of all steps over the same buckets, if all steps have them.

        *Shape:* ``(bucket,)``, and ``(step, bucket, layer, head)`` of numerators and denominators.
        """
        numbers = self.numbers(stack, column)
        sums = [of_step.sums for of_step in numbers if of_step.sums is not None]
        if len(sums) < len(numbers):
            return
        keys = np.unique(np.concatenate([ratios.keys for ratios in sums]))
        pairs = [_spread(ratios, keys) for ratios in sums]
        yield keys, np.stack([n for n, _ in pairs]), np.stack([d for _, d in pairs])


def checkpoints_of(studies: Sequence[NamedStudy]) -> Checkpoints:
    """Return the checkpoints of a training; only one study is in memory at a time.

    Args:
        studies: studies of checkpoints, in the order of training if their names do not give it.

    Raises:
        StudyError: there is only one checkpoint, or the checkpoints are not of one model on the
            same sentences; or a study cannot be read.
    """
    if len(studies) < 2:
        raise StudyError(f"checkpoints: got {len(studies)} checkpoint, expected two or more")
    steps = steps_of([study.name for study in studies])
    frames: list[CheckpointStep] = []
    for study in studies:
        frame = checkpoint_step(study.name, study.study())
        if frames:
            check_same_run(frames[0], frame)
        frames.append(frame)
    step_numbers = steps if steps is not None else list(range(len(studies)))
    order = sorted(range(len(studies)), key=step_numbers.__getitem__)
    return Checkpoints(
        tuple(frames[index] for index in order),
        np.array([step_numbers[index] for index in order], np.int64),
        steps is not None,
    )


def steps_of(names: Sequence[str]) -> list[int] | None:
    """Return the last number in each name; None if a name has no number, or two have the same."""
    numbers_of_names = [STEP_NUMBER.findall(name) for name in names]
    steps = [int(numbers[-1]) for numbers in numbers_of_names if numbers]
    return steps if len({*steps}) == len(names) else None


def _ends(sums: Iterable[tuple[Ints, Floats, Floats]], step: int) -> ClusterSums:
    """Return the sums of several numbers at one step. *Shape:* ``(bucket, layer, head, number)``.

    Args:
        sums: keys, numerators and denominators of each number.
        step: index of the step.
    """
    parts = [(n[step], d[step]) for _, n, d in sums]
    return ClusterSums(*(np.stack(part, -1) for part in zip(*parts, strict=True)))


def layer_changes(rise: HalfRise) -> PairedDifferences:
    """Return the mean over the heads of each layer of a number's first and last value and change.

    Each end of an interval is the mean of the ends of the heads' intervals, which is wide enough
    however heads vary together; NaN if the interval of a head is missing.

    *Shape:* ``(layer,)`` each.
    """
    change = rise.change
    a, b, value, low, high = (
        part.mean(1) for part in (change.a, change.b, change.value, change.low, change.high)
    )
    clusters, effective = change.clusters.min(1), change.effective.min(1)
    equal: NDArray[np.bool_] = np.asarray(change.equal.all(1))
    return PairedDifferences(a, b, value, low, high, clusters, effective, equal)


def _best_head(numbers: FrameValues, cell: int) -> BestHead:
    if cell < 0:
        return BestHead(None, NO_ESTIMATE, NO_ESTIMATE, np.nan)
    layer, head = np.unravel_index(cell, numbers.choice.shape)
    layer_and_head = int(layer), int(head)
    return BestHead(
        layer_and_head,
        numbers.heads.at(*layer_and_head),
        numbers.report.at(*layer_and_head),
        float(numbers.uniform[layer_and_head[0]]),
    )


def _spread(sums: BucketRatios, keys: Ints) -> tuple[Floats, Floats]:
    """Return numerators and denominators in all buckets; 0 in buckets of other steps."""
    rows = np.searchsorted(keys, sums.keys)
    n = np.zeros((len(keys), *sums.n.shape[1:]), np.float32)
    d = np.zeros_like(n)
    n[rows], d[rows] = sums.n, sums.d
    return n, d


def _curve_rows(
    step: int, frame: CheckpointStep, stack: AttentionStack, column: CheckpointColumn
) -> pd.DataFrame:
    heads = frame.stacks[stack.name].numbers[column].heads
    layers = [*stack.attention_layers]
    values = {name: getattr(heads, name)[layers].ravel() for name in ("value", "low", "high")}
    return _table(
        [*CURVES.columns], stack, column, {"step": step, "checkpoint": frame.name} | values
    )


def _layer_changes_rows(
    stack: AttentionStack, column: CheckpointColumn, rise: HalfRise
) -> pd.DataFrame:
    """Return a row for the mean change of each layer, in the columns of ``half_rise.csv``."""
    changes, layers = layer_changes(rise), [*stack.attention_layers]
    keys = {"metric": column.metric, "view": str(column.view), "label": column.label}
    arrays = (changes.a, changes.b, changes.value, changes.low, changes.high)
    values = dict(
        zip(
            ("first", "last", "change", "low", "high"),
            (part[layers] for part in arrays),
            strict=True,
        )
    )
    steps = dict.fromkeys(("q", "step", "step_low", "step_high", "passes", "returns"), np.nan)
    places = {"stack": stack.name, "layer": layers, "head": pd.NA}
    table = pd.DataFrame(places | keys | values | steps | {"n_clusters": changes.clusters[layers]})
    return table[[*HALF_RISE.columns]]


def _table(
    names: Sequence[str],
    stack: AttentionStack,
    column: CheckpointColumn,
    values: Mapping[str, object],
) -> pd.DataFrame:
    """Return a table with a row for each head, from columns or values that all rows share."""
    layer, head = np.meshgrid(stack.attention_layers, range(stack.n_heads), indexing="ij")
    head_columns = {"stack": stack.name, "layer": layer.ravel(), "head": head.ravel()}
    key_columns = {"metric": column.metric, "view": str(column.view), "label": column.label}
    return pd.DataFrame({**head_columns, **key_columns, **values})[[*names]]
