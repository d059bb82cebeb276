"""Numbers of a study by metric, view and label, as pages and facts look them up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate, Estimates, RatioSums
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.few_clusters import few_clusters
from headbook.analysis.paired import ClusterSums
from headbook.memory import CachedByFunction
from headbook.metrics import all_metrics, ids, interval_rules, limits_in_texts
from headbook.metrics.base import HeadMetric, LayerwiseMetric, SampledMetric, Source
from headbook.report.wording import STACKS, count_text
from headbook.results.number import (
    FewSentences,
    Number,
    RowAddress,
    Unit,
    averaged_unit,
    unit_of,
)
from headbook.schema import (
    AttentionStack,
    Baseline,
    BaselineRun,
    EmbeddingSpace,
    HeadKey,
    Place,
    ResidualPoint,
    SinkView,
    TokenKey,
)
from headbook.study.corpus_sums import HeadTable, sampled_ratios
from headbook.study.study import Study
from headbook.study.sums.buckets import MAX_BUCKETS, HeadBuckets, add_by_bucket, bucket_of

# Metrics whose labels are parts of speech.
TAG_METRICS = frozenset({ids.POS_RECEIVED, ids.POS_RECEIVED_RATIO, ids.POS_GIVEN})


TAG_VIEW = SinkView.RENORM  # the view of attention by part of speech
# A multiple of uniform attention at the lower end of its interval: random networks reach 1.28 times
# by chance of their weights, few of them with an interval above this.
LEAST_PREFERENCE = 1.25


MAX_SAMPLED_BYTES = 1 << 26  # of numerators by sentence, beyond which they are computed again


class FewArrays(NamedTuple):
    """Few sentences behind each number of heads, or of layers; see `FewSentences`."""

    sentences: Ints
    share: Floats
    without: Floats


@dataclass(frozen=True, eq=False)
class StackResults(CachedByFunction):
    """All numbers that a study measured in one stack.

    Attributes:
        study: the study.
        stack: the stack.
        baseline: the baseline run whose numbers these are; None for the model itself.
    """

    study: Study
    stack: AttentionStack
    baseline: BaselineRun | None = None
    _made: dict[Callable[[Any], Any], Any] = field(default_factory=dict)
    _estimates: dict[tuple[str, HeadKey], Estimates] = field(default_factory=dict)
    _split: dict[tuple[int, str], tuple[str, dict[HeadKey, Estimates]]] = field(
        default_factory=dict
    )
    _has_value: dict[HeadKey, bool] = field(default_factory=dict)
    _sampled: dict[tuple[str, SinkView], ClusterSums | None] = field(default_factory=dict)
    _few: dict[tuple[str, HeadKey], FewArrays] = field(default_factory=dict)

    @cached_property
    def baselines(self) -> dict[Baseline, tuple["StackResults", ...]]:
        """Results of every baseline; a tuple with one entry for each seed."""
        results: dict[Baseline, list[StackResults]] = {}
        for baseline_run in self.study.baselines:
            of_seed = StackResults(self.study, self.stack, baseline_run)
            results.setdefault(baseline_run.baseline, []).append(of_seed)
        return {baseline: tuple(seeds) for baseline, seeds in results.items()}

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
        by_id = {}
        for metric in all_metrics().values():
            labels = tuple(dict.fromkeys(c.label for c in self._columns if c.metric == metric.id))
            if isinstance(metric, HeadMetric) and labels:
                by_id[metric.id] = replace(metric, labels=labels) if metric.named else metric
        return by_id

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
        """Return the labels for which a metric has numbers in any view.

        Parts of speech that no word of the corpus has are left out: their share is 0 in every head.
        """
        return [
            label
            for label in metric.listed
            if self.occurs(metric.id, label)
            and any(self.has_value(metric.id, view, label) for view in metric.views)
        ]

    def occurs(self, metric: str, label: str) -> bool:
        """Check whether words of the corpus have the part of speech that a label names.

        Labels of metrics without parts of speech occur, as do all if tags were not counted.
        """
        if metric not in TAG_METRICS:
            return True
        side = self.stack.queries if metric == ids.POS_GIVEN else self.stack.keys
        counts = self.study.manifest.counts
        are_counted = any(name.startswith(f"{side}.tag.") for name in counts)
        return not are_counted or bool(counts.get(f"{side}.tag.{label}"))

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
        is_whole_corpus = sentences == self.study.manifest.counts["sentences"]
        return (
            ""
            if is_whole_corpus
            else f"{before} {count_text(sentences, self.study.manifest.text_noun)}"
        )

    def heads(self, metric: str, view: SinkView, label: str = "") -> Estimates:
        """Return a number for each head. *Shape:* ``(layer, head)``."""
        return self._numbers("heads", HeadKey(metric, view, label))

    def layers(self, metric: str, view: SinkView, label: str = "") -> Estimates:
        """Return a number for each layer, all heads together. *Shape:* ``(layer,)``."""
        return self._numbers("layers", HeadKey(metric, view, label))

    def uniform(self, metric: str, view: SinkView, label: str = "") -> Estimates:
        """Return a metric under uniform attention. *Shape:* ``(layer,)``."""
        return self._numbers("uniform", HeadKey(metric, view, label))

    def number(
        self, key: HeadKey, layer: int, head: int | None = None, *, unit: Unit | None = None
    ) -> Number:
        """Return a number of a head, or of all heads of a layer together, with its row.

        Args:
            key: metric, view and label.
            head: None for the layer.
            unit: unit in which it is written; by default that of the metric.
        """
        unit = unit or unit_of(all_metrics()[key.metric])
        place = (layer,) if head is None else (layer, head)
        table, numbers = ("layers", self.layers) if head is None else ("heads", self.heads)
        number = Number.of(numbers(*key).at(*place), unit, self._row(table, key, layer, head))
        return replace(number, few=self.few_sentences(key, *place))

    def uniform_number(self, key: HeadKey, layer: int) -> Number:
        """Return a number of a layer under uniform attention, with its row."""
        row = self._row("controls", key, layer)
        unit = unit_of(all_metrics()[key.metric])
        return Number.of(self.uniform(*key).at(layer), unit, row)

    def token_numbers(self, key: TokenKey) -> tuple[Number, ...]:
        """Return an average over the tokens of each layer, with its row; none if not measured."""
        numbers, metric = self.tokens(*key), all_metrics()[key.metric]
        if numbers is None or not isinstance(metric, LayerwiseMetric):
            return ()
        unit, state, space = averaged_unit(metric), str(key.state), str(key.space or "")
        rows = (
            RowAddress("words", (
                ("class", key.label), ("stack", self.stack.name), ("layer", layer),
                ("state", state), ("metric", key.metric), ("space", space),
            ))
            for layer in range(len(numbers.value))
        )  # fmt: skip
        return tuple(Number.of(numbers.at(layer), unit, row) for layer, row in enumerate(rows))

    def _row(self, table: str, key: HeadKey, layer: int, head: int | None = None) -> RowAddress:
        place = () if head is None else (("head", head),)
        metric, view, label = map(str, key)
        column = ("metric", metric), ("view", view), ("label", label)
        return RowAddress(table, (("stack", self.stack.name), ("layer", layer), *place, *column))

    def split(
        self, number: int, metric: str, view: SinkView, label: str = "", *, of: str = "heads"
    ) -> Estimates:
        """Return a metric on one split.

        Args:
            number: the split, `SELECTION` or `HELD_OUT` of `headbook.analysis.accumulators`.
            metric: id of the metric.
            view: view of the attention.
            label: label of the metric.
            of: ``heads``, ``layers`` or ``uniform``, for uniform attention.
        """
        key = HeadKey(metric, view, label)
        if key in self._circuits:  # measured on one sample
            return _no_estimates(self._numbers(of, key).value.shape)
        if self._split.get((number, of), ("", {}))[0] != metric:  # metrics are asked for in turn
            self._split[number, of] = metric, self._of_metric(of, metric, number)
        return self._split[number, of][1][key]

    def buckets(self, *keys: HeadKey) -> HeadBuckets | None:
        """Return the sums by bucket that hold all of these numbers; None without any.

        Other models that the study was compared with have none.
        """
        of_stack = self.study.corpus_sums.buckets.get(self.stack.name, ())
        of_keys = (buckets for buckets in of_stack if {*keys} <= {*buckets.columns})
        return None if self.baseline else next(of_keys, None)

    def cluster_sums(self, key: HeadKey) -> ClusterSums | None:
        """Return a number's sums by bucket, or by sentence of a small sample; None without any.

        *Shape:* ``(cluster, layer, head)``.
        """
        buckets = self.buckets(key)
        if buckets is not None:
            column = buckets.columns.index(key)
            n = buckets.n[..., column]
            return ClusterSums(n, np.broadcast_to(buckets.d[..., column], n.shape))
        metric, sums = self.by_id.get(key.metric), self.study.corpus_sums.sampled
        sampled = None if self.baseline else sums.get(self.stack.name)
        is_listed = isinstance(metric, SampledMetric) and key.label in metric.listed
        if sampled is None or not isinstance(metric, SampledMetric) or not is_listed:
            return None
        if (key.metric, key.view) not in self._sampled:
            if sum(kept.n.nbytes for kept in self._sampled.values() if kept) > MAX_SAMPLED_BYTES:
                self._sampled.clear()
            ratios = sampled_ratios(sampled, metric, key.view)
            if ratios is not None and len(ratios.n) > MAX_BUCKETS:
                places = bucket_of(sampled.stats.content_hash, MAX_BUCKETS)
                n, d = (np.asarray(part, np.float64) for part in ratios)
                ratios = ClusterSums(*add_by_bucket(places, n, d)[1:])
            self._sampled[key.metric, key.view] = ratios
        ratios = self._sampled[key.metric, key.view]
        label = metric.listed.index(key.label)
        return ratios and ClusterSums(ratios.n[..., label], ratios.d[..., label])

    def few_sentences(
        self, key: HeadKey, layer: int, head: int | None = None
    ) -> FewSentences | None:
        """Return the few sentences that decide a number of a head or a layer; None if none do."""
        sentences, share, without = self.few_arrays(key, of_layers=head is None)
        place = (layer,) if head is None else (layer, head)
        if not sentences.size or not sentences[place]:
            return None
        return FewSentences(int(sentences[place]), float(share[place]), float(without[place]))

    def few_arrays(self, key: HeadKey, *, of_layers: bool) -> FewArrays:
        """Return the few sentences behind all numbers of heads, or of layers; see `_few_of`."""
        table = "layers" if of_layers else "heads"
        if (table, key) not in self._few:
            self._few[table, key] = self._few_of(key, of_layers=of_layers)
        return self._few[table, key]

    def _few_of(self, key: HeadKey, *, of_layers: bool) -> FewArrays:
        """Return the few sentences behind all numbers; empty arrays without sums by sentence."""
        sums = self.cluster_sums(key)
        if sums is None:
            return FewArrays(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        n, d = (np.asarray(part.sum(2) if of_layers else part, np.float64) for part in sums)
        few = few_clusters(n, self.sentences_of_clusters(key))
        n, d = (np.where(few.mask, 0, part).sum(0) for part in (n, d))
        return FewArrays(few.sentences, few.share, divide(n, d))

    def sentences_of_clusters(self, key: HeadKey) -> Ints:
        """Return the number of sentences in each cluster of a number. *Shape:* ``(cluster,)``.

        How many sentences of a sample of head outputs a bucket holds is not stored: then all
        numbers are 0, unless the sample is the corpus.
        """
        buckets, texts = self.buckets(key), self.study.corpus_sums.texts
        if self.cluster_sums(key) is None:
            return np.zeros(0, np.int64)
        if buckets is None:
            hashes = self.study.corpus_sums.sampled[self.stack.name].stats.content_hash
            if len(hashes) <= MAX_BUCKETS:
                return np.ones(len(hashes), np.int64)
            return np.unique(bucket_of(hashes, MAX_BUCKETS), return_counts=True)[1]
        source, manifest = self.by_id[key.metric].source, self.study.manifest
        n_texts = manifest.counts["sentences"]
        if source is not Source.RANDOM and len(buckets.keys) == n_texts:
            return np.ones(n_texts, np.int64)
        of_all = source is Source.ALL or int(manifest.options["sample_sentences"]) >= n_texts
        if texts is None or source is Source.RANDOM or not of_all:
            return np.zeros(len(buckets.keys), np.int64)
        in_bucket = np.bincount(np.arange(MAX_BUCKETS) % buckets.size, texts.sentences)
        return in_bucket[buckets.keys].astype(np.int64)

    def has_value(self, metric: str, view: SinkView, label: str = "") -> bool:
        """Check whether any head has a value of a metric in a view."""
        column = HeadKey(metric, view, label)
        if column not in self._has_value:  # cached, since pages ask for a column many times
            self._has_value[column] = column in self._columns and not bool(
                np.isnan(self.heads(metric, view, label).value).all()
            )
        return self._has_value[column]

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
                definition = all_metrics()[metric]
                numbers = Estimates.of(ratios, definition.limits, definition.spread(label))
                return None if np.isnan(numbers.value).all() else numbers
        return None

    def token_buckets(self, key: TokenKey) -> ClusterSums | None:
        """Return numerators and denominators of a number of tokens by bucket; None without any.

        *Shape:* ``(bucket, layer)`` each.
        """
        for buckets in self.study.corpus_sums.token_buckets.get(self.stack.name, ()):
            if key in buckets.columns and not self.baseline:
                column = buckets.columns.index(key)
                n = buckets.n[..., column]
                return ClusterSums(n, np.broadcast_to(buckets.d[..., column], n.shape))
        return None

    @cached_property
    def _columns(self) -> Mapping[HeadKey, int]:
        columns = (*self._table.columns, *self._circuits)
        return {column: index for index, column in enumerate(columns)}

    @cached_property
    def _circuits(self) -> Mapping[HeadKey, Estimates]:
        """Numbers of the model's heads that are not sums over sentences; baselines have none."""
        return self.study.circuits.estimates(self.stack)

    def _numbers(self, table: str, column: HeadKey) -> Estimates:
        if (table, column) not in self._estimates:
            if column in self._circuits:  # layers and uniform attention have no such number
                numbers = self._circuits[column]
                if table == "heads" and not self.baseline:
                    return numbers
                return _no_estimates(numbers.value.shape[: 2 if table == "heads" else 1])
            for key, estimates in self._of_metric(table, column.metric).items():
                self._estimates[table, key] = estimates
        return self._estimates[table, column]

    def _of_metric(
        self, table: str, metric: str, split: int | None = None
    ) -> dict[HeadKey, Estimates]:
        """Return the estimates of all columns of a metric, which are faster to compute together."""
        columns = [key for key in self._table.columns if key.metric == metric]
        ratios: RatioSums = getattr(self._table, table)[..., [self._columns[c] for c in columns]]
        estimates = Estimates.of(
            ratios if split is None else ratios.split(split), *interval_rules(columns)
        )
        limits = limits_in_texts(metric, self.study.corpus_sums.max_tokens)
        return {
            column: estimates.column(place).within(limits) for place, column in enumerate(columns)
        }


def _no_estimates(shape: tuple[int, ...]) -> Estimates:
    missing, none = np.full(shape, np.nan), np.zeros(shape)
    return Estimates(missing, missing, missing, none.astype(np.int64), none, none)


def heads_by_value(values: Floats) -> list[tuple[int, int]]:
    """Return layer and head of each known value, the highest value first.

    Args:
        values: *Shape:* ``(layer, head)``.
    """
    known = np.argwhere(~np.isnan(values))
    order = np.argsort(-values[tuple(known.T)], kind="stable")
    return [(int(layer), int(head)) for layer, head in known[order]]


def study_of(results: Mapping[str, StackResults]) -> Study:
    """Return the study behind the results of all stacks."""
    return next(iter(results.values())).study


def stack_results(study: Study) -> dict[str, StackResults]:
    """Return the results of every stack, in the order of pages."""
    return {stack.name: StackResults(study, stack) for stack in study.manifest.stacks}


def sample_size(results: StackResults) -> int:
    """Return the number of sentences in the sample."""
    manifest = results.study.manifest
    return min(int(manifest.options["sample_sentences"]), manifest.counts["sentences"])


def sentence_start(results: StackResults, text: str) -> str:
    """Return the beginning of a sentence; it names the stack if the model has several."""
    if results.stack.name == "self":
        return text
    return f"In {STACKS[results.stack.name]}, {text[0].lower()}{text[1:]}"


def share_of_head(
    results: StackResults, metric: str, view: SinkView, label: str, place: Place
) -> Estimate:
    """Return a number of one head; NaN if the study lacks it."""
    if not results.has_value(metric, view, label):
        return NO_ESTIMATE
    return results.heads(metric, view, label).at(*place)
