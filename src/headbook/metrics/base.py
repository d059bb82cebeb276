"""What a metric is: a measure with its name, unit, formula, source, bounds and examples.

Nothing here imports torch: a metric's prose, bounds and chart serve the pages, too.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from headbook.terms import Space, Stack, State, View

if TYPE_CHECKING:
    import torch

    from headbook.layerview import LayerView
    from headbook.tokenview import TokenView

Bounds = Callable[[float], tuple[float, float]]


class Section(StrEnum):
    """Where a metric stands in lists; in this order."""

    LOOKS = "Where a head looks"
    LANGUAGE = "Attention and language"
    TRAVELS = "How a token travels"


class Chart(StrEnum):
    """How a metric is drawn on its page and on the pages of heads."""

    HEATMAP = "one number a head: heat map over layers and heads"
    LABELS = "one number a head and label: heat map of a chosen label, bars on head pages"
    PROFILE = "one number a head and offset: curve on head pages"
    TRAJECTORY = "one number a token and layer: curves on sentence pages"
    TABLE = "a table on sentence pages"


class Need(StrEnum):
    """What a metric cannot do without."""

    ONE_TEXT = "queries and keys from the same text"
    WORDS = "words"
    TAGS = "parts of speech"
    TREE = "dependencies"


class Ratio(NamedTuple):
    """What a measure returns: sums over each sentence, to be summed over sentences.

    Attributes:
        numerator: *Shape:* ``(sentence, head)`` or ``(sentence, head, label)``.
        denominator: broadcasts to the same shape; where it is 0 the sentence does not take part.
        events: how many observations stand behind it; broadcasts, too. By default the
            denominator, where that is a number of observations.
    """

    numerator: "torch.Tensor"
    denominator: "torch.Tensor"
    events: "torch.Tensor | None" = None


class Example(NamedTuple):
    """A small attention map with its answer worked by hand.

    Attributes:
        weights: rows look, columns are looked at; each row sums to 1.
        tags, heads: part of speech and head of each word; every token is a word.
        special: positions of special tokens.
    """

    weights: tuple[tuple[float, ...], ...]
    tags: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()
    special: tuple[int, ...] = ()


Examples = Mapping[str, tuple[Example, float | Mapping[str, float]]]


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
    """

    title: str
    unit: str = ""
    formula: str
    reference: str
    bounds: Bounds
    section: Section
    chart: Chart
    labels: tuple[str, ...] = ("",)
    headline: str = ""
    measure: Callable[..., object]

    @property
    def id(self) -> str:
        """The file's name, which is the metric's name in tables and addresses."""
        return self.measure.__module__.rpartition(".")[2]

    @property
    def prose(self) -> str:
        """The file's docstring: Markdown for the metric's page."""
        return inspect.getdoc(inspect.getmodule(self.measure)) or ""

    @property
    def summary(self) -> str:
        """The first line of the prose."""
        return self.prose.partition("\n")[0]

    @property
    def limits(self) -> tuple[float, float]:
        """Bounds for texts of any length."""
        return self.bounds(math.inf)


@dataclass(frozen=True, kw_only=True)
class HeadMetric(Metric):
    """A number for each head, from its attention alone.

    Attributes:
        measure: sums over each sentence of a batch.
        views: the views in which it makes sense.
        needs: what the input must offer.
        examples: maps with known answers.
    """

    measure: "Callable[[LayerView], Ratio]"
    views: tuple[View, ...] = tuple(View)
    needs: frozenset[Need] = frozenset()
    examples: Examples = field(default_factory=dict)

    def applies(self, stack: Stack) -> bool:
        """Whether the metric makes sense for a stack."""
        return not (Need.ONE_TEXT in self.needs and stack.crosses)


class Averaged(NamedTuple):
    """How single values enter an average.

    Attributes:
        transform: applied to each value first.
        unit: of the average.
    """

    transform: "Callable[[torch.Tensor], torch.Tensor]" = lambda values: values
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class TokenMetric(Metric):
    """A number for each token in each layer, from the token's states.

    Attributes:
        measure: values of a batch of states; *Shape:* ``(state, sentence, token)``.
        states: the states it is taken at.
        spaces: the vocabulary spaces it is taken in; empty where it needs no vocabulary.
        averaged: what is averaged over tokens in the layer tables, with its own unit.
    """

    measure: "Callable[[TokenView, Space | None], torch.Tensor]"
    states: tuple[State, ...] = (State.MID, State.OUT)
    spaces: tuple[Space, ...] = ()
    averaged: Averaged = field(default_factory=Averaged)
