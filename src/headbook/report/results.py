"""Numbers of a study by metric, view and label, as pages and findings look them up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from headbook.analysis.accumulators import Estimates, RatioSums
from headbook.analysis.arrays import Floats
from headbook.memory import CachedByFunction
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.report.wording import count_text
from headbook.schema import (
    AttentionStack,
    Baseline,
    BaselineRun,
    EmbeddingSpace,
    HeadKey,
    ResidualPoint,
    SinkView,
    TokenKey,
)
from headbook.study.corpus_sums import HeadTable
from headbook.study.study import Study


@dataclass(frozen=True, eq=False)
class StackResults(CachedByFunction):
    """All numbers measured in one stack.

    Attributes:
        baseline: the baseline run whose numbers these are; None for the model itself.
    """

    study: Study
    stack: AttentionStack
    baseline: BaselineRun | None = None
    _made: dict[Callable[[Any], Any], Any] = field(default_factory=dict)
    _read: dict[tuple[str, HeadKey], Estimates] = field(default_factory=dict)
    _there: dict[HeadKey, bool] = field(default_factory=dict)

    @cached_property
    def baselines(self) -> dict[Baseline, tuple["StackResults", ...]]:
        """Results of every baseline; a tuple with one entry for each seed."""
        found: dict[Baseline, list[StackResults]] = {}
        for baseline_run in self.study.baselines:
            numbers = StackResults(self.study, self.stack, baseline_run)
            found.setdefault(baseline_run.baseline, []).append(numbers)
        return {baseline: tuple(each) for baseline, each in found.items()}

    @property
    def _table(self) -> HeadTable:
        tables = self.study.baselines[self.baseline] if self.baseline else self.study.head_tables
        return tables[self.stack.name]

    @property
    def metrics(self) -> list[HeadMetric]:
        """Head metrics that this stack has, in the order of lists."""
        return [*self.by_id.values()]

    @cached_property
    def by_id(self) -> Mapping[str, HeadMetric]:
        """Head metrics that this stack has, by id."""
        there = {column.metric for column in self._columns}
        known = all_metrics().values()
        found = [m for m in known if isinstance(m, HeadMetric) and m.id in there]
        labels = {
            m.id: tuple(dict.fromkeys(c.label for c in self._columns if c.metric == m.id))
            for m in found
        }
        return {m.id: replace(m, labels=labels[m.id]) if m.named else m for m in found}

    def labels(self, metric: str) -> tuple[str, ...]:
        """Return the labels of a head metric, including those of the corpus; empty if missing."""
        return self.by_id[metric].labels if metric in self.by_id else ()

    def view(self, metric: HeadMetric, label: str | None = None) -> SinkView:
        """Return the view that pages show first: the stack's default view if the metric has it.

        Args:
            label: label to show; if the default view lacks it, as for the sink, the raw view is
                returned.
        """
        view = self.stack.default_view
        view = view if view in metric.views else metric.views[0]
        return view if label is None or self.has_value(metric.id, view, label) else SinkView.RAW

    def drawn(self, metric: HeadMetric) -> tuple[SinkView, str] | None:
        """Return the view and label that the site's figures of a metric show, or None without any.

        Only for this choice are files of the metric in ``figures/``.
        """
        labels = self.drawable(metric)
        if not labels:
            return None
        label = metric.headline if metric.headline in labels else labels[0]
        return self.view(metric, label), label

    def drawable(self, metric: HeadMetric) -> list[str]:
        """Return the labels for which a metric has numbers in any view."""
        return [
            x for x in metric.listed if any(self.has_value(metric.id, v, x) for v in metric.views)
        ]

    def baseline_band(
        self, baseline: Baseline, metric: str, view: SinkView, label: str = ""
    ) -> Estimates:
        """Return a baseline's number for each layer, all heads together. *Shape:* ``(layer,)``.

        With several seeds: the mean over seeds, with the smallest and the largest value as ends.
        With one seed: its number and interval.
        """
        estimates = [
            baseline_run.layers(metric, view, label) for baseline_run in self.baselines[baseline]
        ]
        if len(estimates) == 1:
            return estimates[0]
        values = np.stack([numbers.value for numbers in estimates])
        return estimates[0]._replace(value=values.mean(0), low=values.min(0), high=values.max(0))

    def sample_note(self, sentences: int, before: str) -> str:
        """Return a note on the number of sentences behind a figure; empty if it is all sentences.

        Captions state the number of all sentences anyway.

        Args:
            before: words before the number.
        """
        every = sentences == self.study.manifest.counts["sentences"]
        return "" if every else f"{before} {count_text(sentences, 'sentence')}"

    def heads(self, metric: str, view: SinkView, label: str = "") -> Estimates:
        """Return a number for each head. *Shape:* ``(layer, head)``."""
        return self._numbers("heads", HeadKey(metric, view, label))

    def layers(self, metric: str, view: SinkView, label: str = "") -> Estimates:
        """Return a number for each layer, all heads together. *Shape:* ``(layer,)``."""
        return self._numbers("layers", HeadKey(metric, view, label))

    def uniform(self, metric: str, view: SinkView, label: str = "") -> Estimates:
        """Return a metric under uniform attention. *Shape:* ``(layer,)``."""
        return self._numbers("uniform", HeadKey(metric, view, label))

    def split(
        self, number: int, metric: str, view: SinkView, label: str = "", *, of: str = "heads"
    ) -> Estimates:
        """Return a number on one split, of ``of``: ``heads``, ``layers`` or ``uniform``."""
        ratios: RatioSums = getattr(self._table, of)
        position = self._columns[HeadKey(metric, view, label)]
        known = all_metrics()[metric]
        return Estimates.of(ratios[..., position].split(number), known.limits, known.spread(label))

    def has_value(self, metric: str, view: SinkView, label: str = "") -> bool:
        """Check whether any head has a value."""
        column = HeadKey(metric, view, label)
        if column not in self._there:  # cached, since pages ask for a column many times
            self._there[column] = column in self._columns and not bool(
                np.isnan(self.heads(metric, view, label).value).all()
            )
        return self._there[column]

    def tokens(
        self, metric: str, state: ResidualPoint, space: EmbeddingSpace | None, label: str
    ) -> Estimates | None:
        """Return an average over the tokens of each layer, or None. *Shape:* ``(layer,)``."""
        column = TokenKey(metric, state, space, label)
        corpus_sums = self.study.corpus_sums
        for table in (corpus_sums.tokens, corpus_sums.vocabulary, corpus_sums.flows):
            sums = table.get(self.stack.name)
            if sums is not None and column in sums.columns:
                ratios = sums.layers[:, sums.columns.index(column)]
                known = all_metrics()[metric]
                numbers = Estimates.of(ratios, known.limits, known.spread(label))
                return None if np.isnan(numbers.value).all() else numbers
        return None

    @cached_property
    def _columns(self) -> Mapping[HeadKey, int]:
        columns = self._table.columns
        return {column: index for index, column in enumerate(columns)}

    def _numbers(self, name: str, column: HeadKey) -> Estimates:
        if (name, column) not in self._read:
            ratios: RatioSums = getattr(self._table, name)
            metric = all_metrics()[column.metric]
            self._read[name, column] = Estimates.of(
                ratios[..., self._columns[column]], metric.limits, metric.spread(column.label)
            )
        return self._read[name, column]


def heads_by_value(values: Floats) -> list[tuple[int, int]]:
    """Return layer and head of each known value, the highest value first.

    Args:
        values: *Shape:* ``(layer, head)``.
    """
    there = np.argwhere(~np.isnan(values))
    order = np.argsort(-values[tuple(there.T)], kind="stable")
    return [(int(layer), int(head)) for layer, head in there[order]]


def study_of(results: Mapping[str, StackResults]) -> Study:
    """Return the study behind the results of all stacks."""
    return next(iter(results.values())).study


def stack_results(study: Study) -> dict[str, StackResults]:
    """Return the results of every stack, in the order of pages."""
    return {stack.name: StackResults(study, stack) for stack in study.manifest.stacks}
