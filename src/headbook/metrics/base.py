"""What a metric is: a measure with its name, unit, formula, source, bounds and examples.

Nothing here imports torch: a metric's prose, bounds and chart serve the pages, too.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from headbook.schema import (
    AnnotationScheme,
    AttentionStack,
    EmbeddingSpace,
    IntervalRule,
    ResidualPoint,
    SinkView,
)

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
    """Where a metric stands in lists; in this order."""

    PATTERNS = "Attention patterns"
    LANGUAGE = "Attention and language"
    STATES = "Token states"
    OUTPUTS = "Head outputs"
    CONTRIBUTIONS = "Contributions of heads"


class ChartKind(StrEnum):
    """How a metric is drawn on its page and on the pages of heads."""

    HEATMAP = "one number a head: heat map over layers and heads"
    LABELS = "one number a head and label: heat map of a chosen label, bars on head pages"
    PROFILE = "one number a head and offset: curve on head pages"
    DISTANCES = "one number a head and distance, and one over all: heat map of a chosen distance"
    TRAJECTORY = "one number a token and layer: curves on sentence pages"
    TABLE = "a table on sentence pages"
    STATES = "one number a state of a layer: curves over layers, on a page of their own"
    PAIRS = "one number for two heads: a map of heads and an ordered matrix, on a page of their own"


class Need(StrEnum):
    """What a metric cannot do without."""

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


class Source(StrEnum):
    """What a head metric is taken on."""

    ALL = "all sentences"
    SAMPLE = "a sample of the sentences, chosen by a hash of their content"
    RANDOM = "sequences of random tokens"
    CONTEXT = "the same sample, twice: to find which pairs are similar, and to measure"


class Ratio(NamedTuple):
    """What a measure returns: sums over each sentence, to be summed over sentences.

    Attributes:
        numerator: *Shape:* ``(sentence, head)`` or ``(sentence, head, label)``.
        denominator: broadcasts to the same shape; where it is 0 the sentence does not take part.
        events: how many observations stand behind it; broadcasts, too. By default the
            denominator, where that is a number of observations.
        labels: numbers of the labels that are given, where others have numerator 0 in all
            sentences of the batch; and denominator 0, unless all labels share one.
    """

    numerator: "torch.Tensor"
    denominator: "torch.Tensor"
    events: "torch.Tensor | None" = None
    labels: "Sequence[int] | None" = None


@dataclass(frozen=True)
class Example:
    """A small attention map with its answer worked by hand.

    Attributes:
        weights: rows look, columns are looked at; each row sums to 1.
        tags, heads, relations: part of speech of each word, its head and the relation to it; every
            token is a word.
        special: positions of special tokens; separator: of those that end a sentence.
        rarest: position of the rarest word; -1 where there is none.
        norms: of each key's value after the output projection; empty where not known.
        values: of each key, before it; empty where not known.
        stops: positions of full stops and their like.
        sentences: which sentence of a passage each token belongs to; empty where it is all one.
    """

    weights: tuple[tuple[float, ...], ...]
    tags: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()
    relations: tuple[str, ...] = ()
    special: tuple[int, ...] = ()
    separator: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    rarest: int = -1
    norms: tuple[float, ...] = ()
    values: tuple[tuple[float, ...], ...] = ()
    stops: tuple[int, ...] = ()
    sentences: tuple[int, ...] = ()


# Of one sentence or, for metrics that need several, of several.
Examples = Mapping[str, tuple[Example | tuple[Example, ...], float | Mapping[str, float]]]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What head and token metrics have in common.

    Attributes:
        title, unit: for headings and axes; the unit is empty for shares and ratios.
        formula: LaTeX.
        reference: where the definition comes from.
        bounds: smallest and largest possible value for texts of up to ``n`` tokens.
        section, chart: where and how pages show it.
        labels: what the values of one head are told apart by; ``("",)`` where there is one.
        headline: the label that pages show first.
        named: the labels of a corpus with tags and relations of its own, where they are these.
        spreads: how the values of labels vary from sentence to sentence, where not as usual; it
            decides their intervals.
    """

    title: str
    unit: str = ""
    formula: str
    reference: str
    bounds: Bounds
    section: Section
    chart: ChartKind
    labels: tuple[str, ...] = ("",)
    headline: str = ""
    named: Callable[[AnnotationScheme], tuple[str, ...]] | None = None
    spreads: Mapping[str, IntervalRule] = field(default_factory=dict)
    measure: Callable[..., object]

    @property
    def id(self) -> str:
        """The file's name, which is the metric's name in tables and addresses."""
        return self.measure.__module__.rpartition(".")[2]

    def with_scheme(self, scheme: AnnotationScheme) -> Self:
        """The same with the labels of a corpus."""
        return self if self.named is None else replace(self, labels=self.named(scheme))

    @property
    def prose(self) -> str:
        """The file's docstring: Markdown for the metric's page."""
        return inspect.getdoc(inspect.getmodule(self.measure)) or ""

    @property
    def summary(self) -> str:
        """The first line of the prose."""
        return self.prose.partition("\n")[0]

    def spread(self, label: str) -> IntervalRule:
        """How the values of a label vary from sentence to sentence."""
        return self.spreads.get(label, IntervalRule.USUAL)

    @property
    def limits(self) -> tuple[float, float]:
        """Bounds for texts of any length."""
        return self.bounds(math.inf)


@dataclass(frozen=True, kw_only=True)
class HeadMetric(Metric):
    """What metrics have in common that give a number for each head; each kind sees its own thing.

    Attributes:
        views: the views in which it makes sense.
        needs: what the input must offer.
        source: what it is taken on.
        chance: what uniform attention would give, by its own computation: for measures of the
            strongest key, which uniform attention does not have.
        pairs: what makes the pairs of query and key whose mass it asks for, where both are of one
            text; they are summed up for all metrics at once.
        examples: maps with known answers.
        has_layer_value: whether the heads of a layer together have a number worth showing.
        headline_compared: whether two models are compared by the headline alone, not by all labels.
        baselines: labels that hold what uniform attention gives for another label: files have them,
            pages do not list them.
    """

    views: tuple[SinkView, ...] = tuple(SinkView)
    needs: frozenset[Need] = frozenset()
    source: Source = Source.ALL
    chance: "Callable[[ViewMask], Ratio] | None" = None
    pairs: "Callable[[BatchMask], QueryKeyPairs] | None" = None
    examples: Examples = field(default_factory=dict)
    has_layer_value: bool = True
    headline_compared: bool = False
    baselines: frozenset[str] = frozenset()

    @property
    def listed(self) -> tuple[str, ...]:
        """The labels that pages list."""
        return tuple(label for label in self.labels if label not in self.baselines)

    @property
    def compared(self) -> tuple[str, ...]:
        """The labels that two models are compared by: not every offset, nor every distance."""
        if self.chart is ChartKind.PROFILE:
            return ()
        one = self.headline_compared or self.chart is ChartKind.DISTANCES
        return (self.headline,) if one else self.listed

    def applies(self, stack: AttentionStack) -> bool:
        """Whether the metric makes sense for a stack."""
        crosses = Need.ONE_TEXT in self.needs and stack.crosses
        return not (crosses or (Need.CAUSAL in self.needs and not stack.causal))


@dataclass(frozen=True, kw_only=True)
class AttentionMetric(HeadMetric):
    """A number for each head, from its attention alone.

    Attributes:
        measure: sums over each sentence of a batch.
    """

    measure: "Callable[[LayerAttention], Ratio]"


class FinishedRatios(NamedTuple):
    """What a sampled metric makes of its statistics, by sentence; see `Ratio`.

    Attributes:
        numerator, denominator, events: *Shape:* ``(sentence, head, label)``.
    """

    numerator: "Floats"
    denominator: "Floats"
    events: "Floats"

    @classmethod
    def over_last(cls, stats: "Floats") -> "FinishedRatios":
        """Every statistic but the last over the last, which counts the observations, too."""
        last = np.broadcast_to(stats[..., -1:], stats[..., :-1].shape)
        return cls(stats[..., :-1], last, last)


@dataclass(frozen=True, kw_only=True)
class SampledMetric(HeadMetric):
    """A number for each head that needs all sentences of a sample at once.

    Attributes:
        measure: statistics of each sentence, any number of them. *Shape:*
            ``(sentence, head, statistic)``.
        sentence_statistics: statistics of the sentences themselves, of no head. *Shape:*
            ``(sentence, statistic)``.
        finish: from the statistics of all sampled sentences in one layer, ``(sentence, head,
            statistic)``, and those about the sentences, to ratios; both may have zeros behind
            them. Heads do not influence each other.
        expected_at: place of the statistic that is filled in before ``finish``, if there is one:
            what a head would give to linked pairs by parts of speech and distance alone.
    """

    measure: "Callable[[LayerAttention], torch.Tensor]"
    sentence_statistics: "Callable[[ViewMask], torch.Tensor] | None" = None
    finish: "Callable[[Floats, Floats], FinishedRatios]"
    expected_at: int | None = None
    source: Source = Source.SAMPLE


@dataclass(frozen=True, kw_only=True)
class ContextMetric(HeadMetric):
    """A number for each head from what it writes, on a sample of the sentences.

    Attributes:
        measure: sums over each sentence of a batch.
        layer: the same for the heads of a layer as one, where that is not the sum of their sums.
    """

    measure: "Callable[[HeadOutputs], Ratio]"
    layer: "Callable[[HeadOutputs], Ratio] | None" = None
    views: tuple[SinkView, ...] = (SinkView.RAW, SinkView.NOSINK)
    source: Source = Source.CONTEXT


@dataclass(frozen=True, kw_only=True)
class AnchorMetric(Metric):
    """A token for each head, from what it writes, on a sample of the sentences.

    Attributes:
        measure: how many ends of pairs of high similarity stand at each token. *Shape:*
            ``(sentence, head, token, label)``.
        views: the views in which it makes sense.
        needs: what the input must offer.
    """

    measure: "Callable[[HeadOutputs], torch.Tensor | None]"
    views: tuple[SinkView, ...] = (SinkView.RAW, SinkView.NOSINK)
    needs: frozenset[Need] = frozenset({Need.OUTPUTS})


@dataclass(frozen=True, kw_only=True)
class PairMetric(Metric):
    """A number for every two heads of a stack, on a sample of the sentences; symmetric.

    Attributes:
        measure: from the rows of all heads, *Shape:* ``(head, row, key)``, and whether each counts,
            ``(head, row)``, 1 or 0: a value for each row, added over the rows that count in both
            heads. *Shape:* ``(head, head)``.
        measure_pairs: the same of chosen pairs, given by their two heads; all three ``(pair,)``.
        similarity: how alike heads are, by one matrix product, in the same form as `measure`; where
            there are too many pairs to measure, those that are most alike are chosen by it.
        views: the views in which it makes sense.
    """

    measure: "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
    measure_pairs: (
        "Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]"
    )
    similarity: "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
    views: tuple[SinkView, ...]


class Averaged(NamedTuple):
    """How single values enter an average.

    Attributes:
        transform: applied to each value first.
        unit: of the average.
    """

    transform: "Callable[[torch.Tensor], torch.Tensor]" = lambda values: values
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class LayerwiseMetric(Metric):
    """A number for each token in each layer.

    Attributes:
        states: the states it is taken at.
        spaces: the vocabulary spaces it is taken in; empty where it needs no vocabulary.
        averaged: what is averaged over tokens in the layer tables, with its own unit.
        constant: whether the number is the same for all tokens by construction.
    """

    states: tuple[ResidualPoint, ...] = (ResidualPoint.MID, ResidualPoint.POST)
    spaces: tuple[EmbeddingSpace, ...] = ()
    averaged: Averaged = field(default_factory=Averaged)
    constant: bool = False

    def spread(self, label: str) -> IntervalRule:
        """Averages are taken over classes of tokens."""
        return IntervalRule.CONSTANT if self.constant else IntervalRule.CLASSES


@dataclass(frozen=True, kw_only=True)
class TokenMetric(LayerwiseMetric):
    """A number for each token in each layer, from the token's states.

    Attributes:
        measure: values of a batch of states; *Shape:* ``(state, sentence, token)``; NaN where there
            is none.
        needs: what the model must offer.
        beside: metrics that its charts and tables set it against.
    """

    measure: "Callable[[TokenStates, EmbeddingSpace | None], torch.Tensor]"
    needs: frozenset[Need] = frozenset()
    beside: tuple[str, ...] = ()

    @property
    def sampled(self) -> bool:
        """Whether every state is compared with the whole vocabulary: taken on a sample."""
        return bool(self.spaces) or Need.HEAD in self.needs


@dataclass(frozen=True, kw_only=True)
class FlowMetric(LayerwiseMetric):
    """A number for each token in each layer, from what attention carries to it, on a sample.

    Attributes:
        measure: values of one layer, or None where it lacks what they need; *Shape:*
            ``(sentence, token)``.
        states: the one state that the values belong to.
        needs: what the model must offer.
    """

    measure: "Callable[[LayerFlow], torch.Tensor | None]"
    needs: frozenset[Need] = frozenset()


@dataclass(frozen=True, kw_only=True)
class LayerMetric(Metric):
    """A number for each state of a stack, from the vectors of all tokens of a sample at once.

    Attributes:
        measure: by label, in the order of ``labels``.
    """

    measure: "Callable[[StateVectors], Mapping[str, Jackknife]]"

    def spread(self, label: str) -> IntervalRule:
        """How a label varies without each sentence in turn: by a little, if at all."""
        return IntervalRule.CONTINUOUS


@dataclass(frozen=True, kw_only=True)
class LayerPairMetric(Metric):
    """A number for every two states of a stack, from minibatches of tokens.

    Attributes:
        measure: from the vectors of a minibatch in each state, ``(token, width)``, products of
            every two states, to be added over minibatches and divided by the roots of those of
            each state with itself. *Shape:* ``(state, state)``.
    """

    measure: "Callable[[Sequence[Floats]], Floats]"
