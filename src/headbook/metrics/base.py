"""The classes of metrics: a measure with its name, unit, formula, source, bounds and examples.

Nothing in this module imports torch, because pages need prose, bounds and charts of metrics, too.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from headbook import schema
from headbook.metrics.examples import Examples

if TYPE_CHECKING:
    import torch

    from headbook.analysis.arrays import Floats
    from headbook.analysis.state_vectors import Jackknife, StateVectors
    from headbook.attention.flow import LayerFlow
    from headbook.attention.head_outputs import HeadOutputs
    from headbook.attention.masks import BatchMask, QueryKeyPairs, ViewMask
    from headbook.attention.token_states import TokenStates
    from headbook.attention.views import LayerAttention


Bounds = Callable[[float], tuple[float, float]]


class Section(StrEnum):
    """Sections of the lists of metrics, in the order of the lists."""

    PATTERNS = "Attention patterns"
    LANGUAGE = "Attention and language"
    STATES = "Token states"
    OUTPUTS = "Head outputs"
    CONTRIBUTIONS = "Contributions of heads"
    CIRCUITS = "What heads read and write"


class ChartKind(StrEnum):
    """Kinds of charts on the page of a metric and on the pages of heads."""

    HEATMAP = "one number a head: heat map over layers and heads"
    LABELS = "one number a head and label: heat map of a chosen label, bars on head pages"
    PROFILE = "one number a head and offset: curve on head pages"
    DISTANCES = "one number a head and distance, and one over all: heat map of a chosen distance"
    TRAJECTORY = "one number a token and layer: curves on sentence pages"
    TABLE = "a table on sentence pages"
    STATES = "one number a state of a layer: curves over layers, on a page of their own"
    PAIRS = "one number for two heads: a map of heads and an ordered matrix, on a page of their own"


class Need(StrEnum):
    """Requirements of a metric on model and input."""

    ONE_TEXT = "queries and keys from the same text"
    WORDS = "words"
    TAGS = "parts of speech"
    TREE = "dependencies"
    CAUSAL = "queries that see earlier tokens only"
    VALUES = "values and their output projection"
    FREQUENCIES = "word frequencies"
    OUTPUTS = "head outputs (values)"
    HEAD = "a language-model head"
    PASSAGES = "texts of several sentences"
    REGIONS = "texts with regions, such as pairs"


class Notable(StrEnum):
    """The end of a metric's values that is notable, and makes the headline of its page."""

    HIGH = "high"
    LOW = "low"  # ranks: 1 is the first of all
    NONE = "none"  # the page says between which values heads lie


class Source(StrEnum):
    """Sequences on which a head metric is measured."""

    ALL = "all sentences"
    SAMPLE = "a sample of the sentences, chosen by a hash of their content"
    RANDOM = "sequences of random tokens"
    CIRCUITS = "weights of the heads, single tokens, and exemplars of the sample"
    CONTEXT = "the same sample, twice: to find which pairs are similar, and to measure"


class Ratio(NamedTuple):
    """Sums over each sentence that a measure returns, to be added up over sentences.

    Attributes:
        numerator: *Shape:* ``(sentence, head)`` or ``(sentence, head, label)``.
        denominator: broadcasts to the shape of ``numerator``; sentences with 0 are left out.
        events: number of observations; broadcasts to the shape of ``numerator``. By default the
            denominator, if that is a number of observations.
        labels: indices of the labels that are given, if other labels have numerator 0 in all
            sentences of the batch; and denominator 0, unless all labels share a denominator.
    """

    numerator: "torch.Tensor"
    denominator: "torch.Tensor"
    events: "torch.Tensor | None" = None
    labels: "Sequence[int] | None" = None


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Fields that all metrics have.

    Attributes:
        title, unit: texts for headings and axes; the unit is empty for shares and ratios.
        question: heading of the metric's page, a question; the title without one.
        variant_of: id of the metric whose page shows this one, too; empty for a page of its own.
        formula: formula in LaTeX.
        reference: source of the definition.
        bounds: smallest and largest possible value for texts of up to ``n`` tokens.
        section, chart: place and kind of chart on pages.
        labels: names of the values of one head; ``("",)`` for a single value.
        headline: the label that pages show first.
        has_unbounded_shares: whether values are shares that may be below 0 or above 1.
        named: returns the labels for a corpus with tags and relations of its own; None if labels
            do not depend on tags or relations.
        spreads: rule of the confidence interval by label, for labels with an unusual one.
        measure: the function that computes the metric.
        name: id of the metric; empty for the name of the file of ``measure``. The id of a metric of
            another package is the name of its entry point.
        text: text of the metric's page in Markdown; empty for the docstring of that file.
        package: name and version of the package that has the metric; empty for Headbook's own.
    """

    title: str
    unit: str = ""
    question: str = ""
    variant_of: str = ""
    formula: str
    reference: str
    bounds: Bounds
    section: Section
    chart: ChartKind
    labels: tuple[str, ...] = ("",)
    headline: str = ""
    has_unbounded_shares: bool = False
    named: Callable[[schema.AnnotationScheme], tuple[str, ...]] | None = None
    spreads: Mapping[str, schema.IntervalRule] = field(default_factory=dict)
    measure: Callable[..., object]
    name: str = ""
    text: str = ""
    package: str = ""

    @property
    def id(self) -> str:
        """Id of the metric in tables and addresses."""
        return self.name or self.measure.__module__.rpartition(".")[2]

    def with_scheme(self, scheme: schema.AnnotationScheme) -> Self:
        """Return the metric with the labels of a corpus."""
        if self.named is None:
            return self
        labels = self.named(scheme)
        headline = self.headline if self.headline in labels or not labels else labels[0]
        return replace(self, labels=labels, headline=headline)

    @property
    def prose(self) -> str:
        """Text of the metric's page in Markdown."""
        return self.text or inspect.getdoc(inspect.getmodule(self.measure)) or ""

    @property
    def summary(self) -> str:
        """First line of the prose."""
        return self.prose.partition("\n")[0]

    def spread(self, label: str) -> schema.IntervalRule:
        """Return how the confidence interval of a label is computed."""
        return self.spreads.get(label, schema.IntervalRule.USUAL)

    @property
    def is_share(self) -> bool:
        """Whether values are shares, printed in per cent."""
        return self.has_unbounded_shares or (self.limits == (0.0, 1.0) and not self.unit)

    @property
    def limits(self) -> tuple[float, float]:
        """Bounds for texts of any length."""
        return self.bounds(math.inf)


@dataclass(frozen=True, kw_only=True)
class HeadMetric(Metric):
    """A metric that gives a number for each head; subclasses differ in the input of their measure.

    Attributes:
        views: views in which the metric makes sense.
        needs: requirements on model and input.
        source: sequences on which the metric is measured.
        chance: computes the value under uniform attention, for measures of the strongest key, which
            uniform attention does not have; None for other measures.
        pairs: returns the pairs of query and key whose mass the metric needs, within one text; the
            mass is summed for all metrics at once. None if not needed.
        examples: maps with known answers.
        has_layer_value: whether the heads of a layer together have a number worth showing.
        headline_compared: whether two models are compared by the headline alone, not by all labels.
        baselines: labels that hold the value of another label under uniform attention: files have
            these labels, pages do not list them.
        notable: which end of the values is notable: that of heads a reader looks for, such as the
            best score.
        low_labels: labels of which low values are notable, if high ones are of the others.
        of_no_head: labels with one number for all heads, such as those of rules without a model.
    """

    views: tuple[schema.SinkView, ...] = tuple(schema.SinkView)
    needs: frozenset[Need] = frozenset()
    source: Source = Source.ALL
    chance: "Callable[[ViewMask], Ratio] | None" = None
    pairs: "Callable[[BatchMask], QueryKeyPairs] | None" = None
    examples: Examples = field(default_factory=dict)
    has_layer_value: bool = True
    headline_compared: bool = False
    baselines: frozenset[str] = frozenset()
    notable: Notable = Notable.NONE
    low_labels: frozenset[str] = frozenset()
    of_no_head: frozenset[str] = frozenset()

    def is_low(self, label: str) -> bool:
        """Return whether the lowest number of a label is the notable one."""
        return self.notable is Notable.LOW or label in self.low_labels

    @property
    def listed(self) -> tuple[str, ...]:
        """Labels that pages list."""
        return tuple(label for label in self.labels if label not in self.baselines)

    @property
    def compared(self) -> tuple[str, ...]:
        """Labels by which two models are compared; not every offset, nor every distance."""
        if self.chart is ChartKind.PROFILE:
            return ()
        one = self.headline_compared or self.chart is ChartKind.DISTANCES
        return (self.headline,) if one else self.listed

    def applies(self, stack: schema.AttentionStack) -> bool:
        """Check whether the metric makes sense for a stack."""
        crosses = Need.ONE_TEXT in self.needs and stack.crosses
        return not (crosses or (Need.CAUSAL in self.needs and not stack.causal))


@dataclass(frozen=True, kw_only=True)
class AttentionMetric(HeadMetric):
    """A number for each head, from the head's attention alone.

    Attributes:
        measure: returns sums over each sentence of a batch.
    """

    measure: "Callable[[LayerAttention], Ratio]"


def needs_regions(metric: Metric) -> bool:
    """Whether a metric has no numbers for texts without regions."""
    return isinstance(metric, HeadMetric) and Need.REGIONS in metric.needs


class FinishedRatios(NamedTuple):
    """Ratios of a sampled metric by sentence, computed from its statistics; see `Ratio`.

    Attributes:
        numerator, denominator, events: *Shape:* ``(sentence, head, label)``.
    """

    numerator: "Floats"
    denominator: "Floats"
    events: "Floats"

    @classmethod
    def over_last(cls, stats: "Floats") -> "FinishedRatios":
        """Return all statistics but the last over the last one, the number of observations."""
        last = np.broadcast_to(stats[..., -1:], stats[..., :-1].shape)
        return cls(stats[..., :-1], last, last)


class SampleFit(NamedTuple):
    """A fit to the whole sample that a sampled metric needs before it measures.

    Attributes:
        gather: returns what the fit needs of the sentences of a batch.
        fit: returns the fit of one layer from what all batches gave; None without one.
        crossed: whether each half of the sentences has a fit, by which the other half is measured.
            ``gather`` then returns one part for each sentence, and ``measure`` takes the fit of
            each sentence, with NaN if the other half has none.
    """

    gather: "Callable[[LayerAttention], list[Any]]"
    fit: "Callable[[list[Any]], Floats | None]"
    crossed: bool = False


@dataclass(frozen=True, kw_only=True)
class SampledMetric(HeadMetric):
    """A number for each head that is computed from all sentences of a sample at once.

    Attributes:
        measure: returns statistics of each sentence, any number of them, given the layer and, for
            metrics with one, the fit to the sample. *Shape:* ``(sentence, head, statistic)``.
        sample_fit: fit to the whole sample that ``measure`` needs; None without one. Without its
            result, ``measure`` fits to the batch.
        sentence_statistics: returns statistics of the sentences themselves. *Shape:*
            ``(sentence, statistic)``.
        finish: converts the statistics of all sampled sentences in one layer, ``(sentence, head,
            statistic)``, and the statistics of the sentences to ratios; both may be padded with
            zeros. Heads do not influence each other.
        compares_sentences: whether ``finish`` needs all sentences at once, so that its ratios for
            two samples do not add up to those for both.
    """

    measure: "Callable[..., torch.Tensor]"
    sample_fit: SampleFit | None = None
    sentence_statistics: "Callable[[ViewMask], torch.Tensor] | None" = None
    finish: "Callable[[Floats, Floats], FinishedRatios]"
    compares_sentences: bool = False
    source: Source = Source.SAMPLE

    def statistics(self, layer: "LayerAttention", fit: "Floats | None" = None) -> "torch.Tensor":
        """Return the statistics of each sentence.

        Args:
            layer: attention of one layer in one view.
            fit: result of ``sample_fit``; not used by metrics without one.
        """
        return self.measure(layer) if self.sample_fit is None else self.measure(layer, fit)


@dataclass(frozen=True, kw_only=True)
class ContextMetric(HeadMetric):
    """A number for each head from the head's output, on a sample of the sentences.

    Attributes:
        measure: returns sums over each sentence of a batch.
        layer: returns sums for the heads of a layer together, if these are not the sums of the
            heads' sums; else None.
    """

    measure: "Callable[[HeadOutputs], Ratio]"
    layer: "Callable[[HeadOutputs], Ratio] | None" = None
    views: tuple[schema.SinkView, ...] = (schema.SinkView.RAW, schema.SinkView.NOSINK)
    source: Source = Source.CONTEXT


@dataclass(frozen=True, kw_only=True)
class CircuitMetric(HeadMetric):
    """A number for each head from its weights, or from what its output does to tokens.

    Its numbers are not sums over attention maps: `headbook.circuits` computes them, and
    `headbook.study.circuits.CircuitResults.numbers` holds them. ``measure`` computes the number
    from what the file of the metric describes.
    """

    views: tuple[schema.SinkView, ...] = (schema.SinkView.RAW,)
    source: Source = Source.CIRCUITS
    has_layer_value: bool = False


@dataclass(frozen=True, kw_only=True)
class AnchorMetric(Metric):
    """A token for each head from the head's output, on a sample of the sentences.

    Attributes:
        measure: returns the number of ends of pairs of high similarity at each token. *Shape:*
            ``(sentence, head, token, label)``.
        views: views in which the metric makes sense.
        needs: requirements on model and input.
    """

    measure: "Callable[[HeadOutputs], torch.Tensor | None]"
    views: tuple[schema.SinkView, ...] = (schema.SinkView.RAW, schema.SinkView.NOSINK)
    needs: frozenset[Need] = frozenset({Need.OUTPUTS})


@dataclass(frozen=True, kw_only=True)
class PairMetric(Metric):
    """A number for every two heads of a stack, on a sample of the sentences; symmetric.

    Attributes:
        measure: takes the rows of all heads, *Shape:* ``(head, row, key)``, and 1 or 0 for rows
            that count or do not, ``(head, row)``; returns a value for each row, added over the rows
            that count in both heads. *Shape:* ``(head, head)``.
        measure_pairs: computes ``measure`` for chosen pairs, given by their two heads. *Shape:*
            ``(pair,)`` of heads and values.
        similarity: returns the similarity of heads by one matrix product, with the arguments of
            ``measure``; with too many pairs to measure, the most similar pairs are measured.
        views: views in which the metric makes sense.
    """

    measure: "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
    measure_pairs: (
        "Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]"
    )
    similarity: "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
    views: tuple[schema.SinkView, ...]


class Averaged(NamedTuple):
    """The transformation of single values before they are averaged.

    Attributes:
        transform: function applied to the values.
        unit: unit of the average.
    """

    transform: "Callable[[torch.Tensor], torch.Tensor]" = lambda values: values
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class LayerwiseMetric(Metric):
    """A number for each token in each layer.

    Attributes:
        states: states at which the metric is measured.
        spaces: embedding spaces in which the metric is measured; empty without a vocabulary.
        averaged: transformation and unit of the averages over tokens in the layer tables.
        constant: whether the number is equal for all tokens by construction.
    """

    states: tuple[schema.ResidualPoint, ...] = (schema.ResidualPoint.MID, schema.ResidualPoint.POST)
    spaces: tuple[schema.EmbeddingSpace, ...] = ()
    averaged: Averaged = field(default_factory=Averaged)
    constant: bool = False

    def spread(self, label: str) -> schema.IntervalRule:
        """Return the rule of intervals for averages over classes of tokens."""
        return schema.IntervalRule.CONSTANT if self.constant else schema.IntervalRule.CLASSES


@dataclass(frozen=True, kw_only=True)
class TokenMetric(LayerwiseMetric):
    """A number for each token in each layer, from the token's states.

    Attributes:
        measure: returns values of a batch of states. *Shape:* ``(state, sentence, token)``, NaN
            without a value.
        needs: requirements on the model.
        beside: metrics that charts and tables show for comparison.
        without_outliers: whether the average over all tokens of text is also measured without the
            outlier dimensions of each state, on the sample and in the model's first space.
    """

    measure: "Callable[[TokenStates, schema.EmbeddingSpace | None], torch.Tensor]"
    needs: frozenset[Need] = frozenset()
    beside: tuple[str, ...] = ()
    without_outliers: bool = False

    @property
    def sampled(self) -> bool:
        """Whether states are compared with the whole vocabulary, and so measured on a sample."""
        return bool(self.spaces) or Need.HEAD in self.needs


@dataclass(frozen=True, kw_only=True)
class FlowMetric(LayerwiseMetric):
    """A number for each token in each layer from the flow of attention, on a sample.

    Attributes:
        measure: returns the values of one layer, or None if the layer lacks the input. *Shape:*
            ``(sentence, token)``.
        states: the one state to which the values belong.
        needs: requirements on the model.
    """

    measure: "Callable[[LayerFlow], torch.Tensor | None]"
    needs: frozenset[Need] = frozenset()


@dataclass(frozen=True, kw_only=True)
class LayerMetric(Metric):
    """A number for each state of a stack, from the vectors of all tokens of a sample at once.

    Attributes:
        measure: returns the estimate of each label, in the order of ``labels``.
    """

    measure: "Callable[[StateVectors], Mapping[str, Jackknife]]"

    def spread(self, label: str) -> schema.IntervalRule:
        """Return the rule for jackknife estimates, which change little with each sentence."""
        return schema.IntervalRule.CONTINUOUS


@dataclass(frozen=True, kw_only=True)
class LayerPairMetric(Metric):
    """A number for every two states of a stack, from minibatches of tokens.

    Attributes:
        measure: takes the vectors of a minibatch in each state, ``(token, width)``; returns the
            products of every two states, which are added over minibatches and divided by the roots
            of each state's product with itself. *Shape:* ``(state, state)``.
    """

    measure: "Callable[[Sequence[Floats]], Floats]"
