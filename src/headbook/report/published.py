"""Figures that papers print about GPT-2 and BERT, and how a study computes each.

A figure is NaN if a number is missing, and the ends of its interval are NaN if no interval is
defined.

No figure is a target that a study must meet: texts, annotation and details of definitions differ,
and each group says how. Heads and layers count from 0. `docs/published-results.md` has the figures
as well, with commands, and the figures that no study computes.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate, Estimates
from headbook.metrics import all_metrics, ids
from headbook.report.relation_counts import best_offsets
from headbook.report.results import StackResults
from headbook.report.wording import head_name, is_share, number, percent, with_unit
from headbook.schema import UPOS, AblationTarget, HeadKey, Replacement, SinkView
from headbook.study import ablation_tests
from headbook.study.ablation_tables import DIRECT, EFFECT, GRADIENT, REPAIR
from headbook.study.ablation_tests import TOP_TOKENS_LABEL
from headbook.study.sentence_data import HeadName


def alone(value: float, numbers: Estimates) -> Estimate:
    """Return a value without an interval, with the number of sentences behind it."""
    return Estimate(value, math.nan, math.nan, int(numbers.sentences.max()), math.nan)


class Quantity(ABC):
    """A quantity that can be computed from the results of a stack."""

    @property
    @abstractmethod
    def columns(self) -> tuple[HeadKey, ...]:
        """Columns of head numbers from which the quantity is computed."""

    @property
    @abstractmethod
    def how(self) -> str:
        """Description of the computation, as printed on the page."""

    @abstractmethod
    def compute(self, results: StackResults) -> Estimate:
        """Return the value, given that all columns have values."""

    def number(self, results: StackResults) -> Estimate:
        """Return the value; NaN if a column is missing."""
        return (
            self.compute(results)
            if all(results.has_value(*c) for c in self.columns)
            else NO_ESTIMATE
        )

    @property
    def share(self) -> bool:
        """Whether values are shares, printed in per cent."""
        return is_share(all_metrics()[self.columns[0].metric])

    def written(self, value: float) -> str:
        """Return a value as text, with the unit of its metric."""
        metric = all_metrics()[self.columns[0].metric]
        return with_unit(number(value, share=self.share), metric.unit)


class Count(Quantity):
    """A quantity that is a number of heads or labels."""

    def written(self, value: float) -> str:
        """Return a whole number as text."""
        return number(value) if math.isnan(value) else f"{value:.0f}"


@dataclass(frozen=True)
class OfColumn(Quantity):
    """A quantity computed from one column."""

    column: HeadKey

    @property
    def columns(self) -> tuple[HeadKey, ...]:
        """The column from which the quantity is computed."""
        return (self.column,)


@dataclass(frozen=True)
class AtHead(OfColumn):
    """The number of one head, with its interval over sentences; layer and head count from 0."""

    layer: int
    head: int

    @property
    def how(self) -> str:
        """Name of the head."""
        return f"L{self.layer}·H{self.head}"

    def compute(self, results: StackResults) -> Estimate:
        """Return the head's number; NaN if the stack has no such head."""
        heads = results.heads(*self.column)
        there = self.layer < heads.value.shape[0] and self.head < heads.value.shape[1]
        return heads.at(self.layer, self.head) if there else NO_ESTIMATE


@dataclass(frozen=True)
class MeanOver(OfColumn):
    """The mean over the heads of some layers, or of all layers; every head has the same weight.

    The interval of the mean is the mean of the heads' intervals, which is wide enough, since no
    mean varies more than its parts do on average.
    """

    layers: tuple[int, ...] = ()

    @property
    def how(self) -> str:
        """Layers whose heads are averaged, in words."""
        where = f"layers {self.layers[0]}–{self.layers[-1]}" if self.layers else "all layers"
        return f"mean over the heads of {where}"

    def compute(self, results: StackResults) -> Estimate:
        """Return the mean; NaN if the stack lacks one of the layers."""
        heads = results.heads(*self.column)
        if self.layers and max(self.layers) >= len(heads.value):
            return NO_ESTIMATE
        chosen = [*self.layers] or slice(None)
        there = ~np.isnan(heads.value[chosen])
        if not there.any():
            return NO_ESTIMATE
        value, low, high = (float(part[chosen][there].mean()) for part in heads[:3])
        return Estimate(value, low, high, int(heads.sentences.max()), math.nan)


@dataclass(frozen=True)
class Largest(OfColumn):
    """The largest number of any head, with that head's interval."""

    how = "largest of all heads"

    def compute(self, results: StackResults) -> Estimate:
        """Return the largest number of any head."""
        heads = results.heads(*self.column)
        return heads.at(*divmod(int(np.nanargmax(heads.value)), heads.value.shape[1]))


@dataclass(frozen=True)
class SpreadOver(OfColumn):
    """The standard deviation over all heads, with the number of heads as divisor."""

    how = "standard deviation over all heads"

    def compute(self, results: StackResults) -> Estimate:
        """Return the standard deviation, without an interval."""
        heads = results.heads(*self.column)
        return alone(float(np.nanstd(heads.value)), heads)


@dataclass(frozen=True)
class HeadsAbove(OfColumn, Count):
    """The number of heads above a threshold."""

    least: float

    @property
    def how(self) -> str:
        """Description of the heads that are counted."""
        return f"number of heads above {OfColumn.written(self, self.least)}"

    def compute(self, results: StackResults) -> Estimate:
        """Return the number of heads, without an interval."""
        heads = results.heads(*self.column)
        return alone(float((heads.value > self.least).sum()), heads)


@dataclass(frozen=True)
class AtOffset(OfColumn):
    """The accuracy of the best fixed offset for the column's relation, on the sample."""

    how = "best fixed offset, −5 to +5"

    def compute(self, results: StackResults) -> Estimate:
        """Return the accuracy, without an interval; NaN if the study kept no relations."""
        sums = results.study.corpus_sums.heads[results.stack.name]
        words = sums.strongest_words
        if words is None:
            return NO_ESTIMATE
        _, shares = best_offsets(words)
        share = float(shares[words.labels.index(self.column.label)])
        return Estimate(share, math.nan, math.nan, len(words.index), math.nan)


@dataclass(frozen=True)
class Correlation(Quantity):
    """Pearson's correlation of two numbers over the heads that have both.

    There is no interval and no p, because heads of one model are not independent.
    """

    how = "Pearson correlation over all heads"
    one: HeadKey
    other: HeadKey

    @property
    def columns(self) -> tuple[HeadKey, ...]:
        """The two correlated columns."""
        return self.one, self.other

    def compute(self, results: StackResults) -> Estimate:
        """Return the correlation; NaN if one of the two numbers does not vary."""
        numbers = [results.heads(*column) for column in self.columns]
        one, other = (each.value.ravel() for each in numbers)
        both = ~np.isnan(one + other)
        if both.sum() < 2 or not one[both].std() * other[both].std():
            return NO_ESTIMATE
        return alone(float(np.corrcoef(one[both], other[both])[0, 1]), numbers[0])

    def written(self, value: float) -> str:
        """Return a correlation as text with two decimals, without a unit."""
        return number(value)


@dataclass(frozen=True)
class TagsAbove(Count):
    """The number of parts of speech for which some head lies above a multiple of the mean head."""

    metric: str
    view: SinkView
    times: float

    @property
    def columns(self) -> tuple[HeadKey, ...]:
        """The columns of all parts of speech."""
        return tuple(HeadKey(self.metric, self.view, tag) for tag in UPOS)

    @property
    def how(self) -> str:
        """Description of the tags that are counted."""
        return f"number of tags for which some head is above {self.times:g} times the mean head"

    def number(self, results: StackResults) -> Estimate:
        """Return the number of tags among the tags of the texts; NaN if the texts have none."""
        return (
            self.compute(results)
            if any(results.has_value(*c) for c in self.columns)
            else NO_ESTIMATE
        )

    def compute(self, results: StackResults) -> Estimate:
        """Return the number of tags, without an interval."""
        estimates = [
            results.heads(*column) for column in self.columns if results.has_value(*column)
        ]
        values = [heads.value for heads in estimates]
        count = sum(bool(np.nanmax(v) > self.times * np.nanmean(v)) for v in values)
        return alone(float(count), estimates[0])


@dataclass(frozen=True)
class PublishedFigure:
    """A figure of a paper.

    Attributes:
        what: description of the figure.
        value: value as the paper prints it.
        where: place in the paper.
        quantity: quantity that a study computes for the figure.
        differs: difference that concerns this figure alone; empty if there is none.
    """

    what: str
    value: str
    where: str
    quantity: Quantity
    differs: str = ""


@dataclass(frozen=True)
class PaperFigures:
    """Figures of one paper about one model.

    Attributes:
        title: heading of the group.
        source: the paper, with its identifier.
        names: names of the model on the hub.
        differs: differences between the paper and this site.
        figures: the figures, a row each.
    """

    title: str
    source: str
    names: frozenset[str]
    differs: tuple[str, ...]
    figures: tuple[PublishedFigure, ...]


IN_WORDS = {
    EFFECT: "change of the true token's logit",
    DIRECT: "change of the true token's logit by the residual path alone",
    REPAIR: "self-repair over direct effect",
}


class AblationQuantity(Quantity):
    """A quantity computed from heads whose output was replaced by its mean."""

    share = False
    columns: ClassVar[tuple[HeadKey, ...]] = ()  # no metric is involved

    def written(self, value: float) -> str:
        """Return a value as a plain number."""
        return number(value)


@dataclass(frozen=True)
class AtReplaced(AblationQuantity):
    """A number of one ablated head, on the logit of the true token; layer and head count from 0."""

    metric: str
    layer: int
    head: int
    label: str = ""

    @property
    def how(self) -> str:
        """Name of the number and of the head."""
        name = head_name(HeadName("self", self.layer, self.head))
        return f"{IN_WORDS[self.metric]}, {name} replaced by its mean"

    def compute(self, results: StackResults) -> Estimate:
        """Return the head's number; NaN if the head was not replaced or has none."""
        rows = _logits(results, self.metric, self.label)
        rows = rows[(rows["layer"] == self.layer) & (rows["head"] == self.head)]
        if rows.empty:
            return NO_ESTIMATE
        row = rows.iloc[0]
        ends = float(row["value"]), float(row["low"]), float(row["high"])
        return Estimate(*ends, int(row["n_sentences"]), float(row["n_observations"]))


@dataclass(frozen=True)
class RankReplaced(Count, AblationQuantity):
    """The rank of a head by how much the true token's logit falls without the head."""

    layer: int
    head: int

    @property
    def how(self) -> str:
        """Name of the ranked head and of the number that ranks it."""
        name = head_name(HeadName("self", self.layer, self.head))
        return f"rank of {name} by the {IN_WORDS[EFFECT]}, largest fall first"

    def compute(self, results: StackResults) -> Estimate:
        """Return the rank, from 1; NaN if not all heads were replaced."""
        rows = _logits(results, EFFECT, "")
        own = rows[(rows["layer"] == self.layer) & (rows["head"] == self.head)]["value"]
        stack = results.stack
        if len(rows) < len(stack.attention_layers) * stack.n_heads or own.empty:
            return NO_ESTIMATE
        rank = float((rows["value"] < own.iloc[0]).sum() + 1)
        return Estimate(rank, math.nan, math.nan, int(rows["n_sentences"].max()), math.nan)


@dataclass(frozen=True)
class RemovableShare(AblationQuantity):
    """The share of heads that can be removed together for at most 1 % of the loss.

    Attributes:
        order: order in which heads are removed, as in ``pruning.csv``.
    """

    order: str

    @property
    def how(self) -> str:
        """Order of removal and limit, in words."""
        return (
            f"share of heads that can be removed, {self.order.replace('_', ' ')} in ascending "
            "order, before the loss may rise by more than 1\u00a0%"
        )

    def written(self, value: float) -> str:
        """Return a share in per cent as text."""
        return number(value) if math.isnan(value) else percent(value)

    def compute(self, results: StackResults) -> Estimate:
        """Return the share; NaN if heads were not removed in that order."""
        ablation, steps = results.study.corpus_sums.ablation, results.study.pruning
        steps = steps[(steps["order"] == self.order)]
        if ablation is None or steps.empty:
            return NO_ESTIMATE
        shares, _ = ablation_tests.removable_shares(ablation, steps)
        share = shares[self.order]
        return Estimate(share, math.nan, math.nan, int((ablation.half == 1).sum()), math.nan)


def _logits(results: StackResults, metric: str, label: str) -> pd.DataFrame:
    """Return a metric's rows on the logit of the true token, with heads replaced by their mean."""
    table = results.study.importance
    return table[
        (table["stack"] == results.stack.name)
        & (table["metric"] == metric)
        & (table["target"] == AblationTarget.LOGIT)
        & (table["replacement"] == Replacement.MEAN)
        & (table["label"] == label)
    ]


GPT2 = frozenset({"gpt2", "openai-community/gpt2"})
BERT = frozenset({"bert-base-uncased", "google-bert/bert-base-uncased"})

DISTANCE = HeadKey(ids.ATTENTION_DISTANCE, SinkView.NOSINK, "")
ENTROPY = HeadKey(ids.ATTENTION_ENTROPY, SinkView.RENORM, "")
ALIGNMENT = HeadKey(ids.DEPENDENCY_ALIGNMENT, SinkView.NOSINK, "either")
NOUN = HeadKey(ids.POS_RECEIVED, SinkView.NOSINK, "NOUN")
FIRST = HeadKey(ids.ATTENTION_TO, SinkView.RAW, "first")
TAGS = "Of the 17 universal tags here, those that the texts have."

VIG = PaperFigures(
    title="GPT-2 small on Wikipedia",
    source="Vig & Belinkov (2019), arXiv:1906.04284",
    names=GPT2,
    differs=(
        "Texts: 10,000 sentences of English Wikipedia, 27.7 tokens long on average. Distance and "
        "entropy grow with the length of the texts.",
        "Annotation: spaCy 2, its features copied to every subword token of a word; here, "
        "attention to a word is the sum over its subword tokens and from a word the mean, and the "
        "parser is another one.",
        "Attention to the first token is masked without renormalising, as with the sink masked "
        "here; for the entropy the rows are renormalised and those with over 90 % on the first "
        "token dropped. The paper does not name the base of the logarithm.",
    ),
    figures=(
        PublishedFigure(
            "Attention to the first token, all heads", "57 %", "section 5", MeanOver(FIRST)
        ),
        PublishedFigure(
            "Attention to the first token, the highest of all heads",
            "over 97 %",
            "section 5",
            Largest(FIRST),
        ),
        PublishedFigure(
            "Attention to nouns, the highest of all heads", "43 %", "section 5", AtHead(NOUN, 9, 0)
        ),
        PublishedFigure("Attention to nouns, mean head", "21 %", "section 5", MeanOver(NOUN)),
        PublishedFigure(
            "Tags that receive from some head twice the attention of the mean head",
            "13 of 16",
            "section 5",
            TagsAbove(ids.POS_RECEIVED, SinkView.NOSINK, 2),
            TAGS,
        ),
        PublishedFigure(
            "Tags that give in some head twice the attention of the mean head",
            "7 of 16",
            "section 5",
            TagsAbove(ids.POS_GIVEN, SinkView.NOSINK, 2),
            TAGS,
        ),
        PublishedFigure(
            "Attention along dependencies, the highest of all heads",
            "0.42 (42 %)",
            "section 5",
            AtHead(ALIGNMENT, 4, 11),
        ),
        PublishedFigure(
            "Attention variability of the head with most attention along dependencies, the lowest "
            "of all",
            "0.004 (0.4 %)",
            "section 5",
            AtHead(HeadKey(ids.VARIABILITY, SinkView.NOSINK, ""), 4, 11),
            "Here on at most 2,000 sentences.",
        ),
        PublishedFigure(
            "Longest mean distance of all heads", "14.2 tokens", "section 5", AtHead(DISTANCE, 5, 1)
        ),
        PublishedFigure(
            "Entropy of the head with the longest mean distance",
            "0.41",
            "section 5",
            AtHead(ENTROPY, 5, 1),
        ),
        PublishedFigure(
            "Spread of the mean distance over heads",
            "3.6 tokens",
            "section 5",
            SpreadOver(DISTANCE),
        ),
        PublishedFigure(
            "Distance and entropy", "r = 0.61", "section 5", Correlation(DISTANCE, ENTROPY)
        ),
        PublishedFigure(
            "Distance and attention along dependencies",
            "r = −0.73",
            "section 5",
            Correlation(DISTANCE, ALIGNMENT),
        ),
    ),
)

CLARK = PaperFigures(
    title="BERT-base on Wikipedia",
    source="Clark et al. (2019), arXiv:1906.04341",
    names=BERT,
    differs=(
        "Texts: 1,000 segments of Wikipedia of at most 128 tokens, two paragraphs each, so with "
        "two [SEP]; here one text with one [SEP].",
        "The paper averages documents' means and counts special tokens as queries, too; here, sums "
        "over all texts are divided, and special tokens count as keys only.",
        "Whether the model was cased or uncased is not clear from the paper; its scripts take the "
        "uncased one.",
    ),
    figures=(
        PublishedFigure(
            "Attention to [SEP] in layers 5 to 9 (6 to 10 in the paper)",
            "over half",
            "section 3",
            MeanOver(HeadKey(ids.ATTENTION_TO, SinkView.RAW, "separator"), (5, 6, 7, 8, 9)),
        ),
        PublishedFigure(
            "Heads that give most of their attention to the previous token",
            "4",
            "section 3.1",
            HeadsAbove(HeadKey(ids.ATTENTION_TO, SinkView.RAW, "previous"), 0.5),
        ),
        PublishedFigure(
            "Heads that give most of their attention to the next token",
            "5",
            "section 3.1",
            HeadsAbove(HeadKey(ids.ATTENTION_TO, SinkView.RAW, "next"), 0.5),
        ),
    ),
)


def _found(relation: str) -> HeadKey:
    return HeadKey(ids.RELATION_ACCURACY, SinkView.NOSINK, f"{relation}:to_head")


RELATIONS = PaperFigures(
    title="BERT-base on a treebank",
    source="Clark et al. (2019), arXiv:1906.04341",
    names=BERT,
    differs=(
        "Texts and trees: the Penn Treebank's development set in Stanford Dependencies; here, the "
        "study's trees in Universal Dependencies. Numbers do not compare across the two. dobj, "
        "pobj, poss and auxpass are taken as obj, case, nmod:poss and aux:pass; pobj hangs the "
        "object on its preposition, case the preposition on its object.",
        "Published heads were chosen among 144 heads and two directions on the very sentences on "
        "which they are reported, offsets among −3 to +2; here the head is the published one.",
        "The paper takes the mean over a word's subword tokens as the attention from the word, as "
        "here; the released code takes the first one, and gives a word before 's what "
        "the 's predicts.",
    ),
    figures=(
        PublishedFigure(
            "det: accuracy, dependent → head", "94.3 %", "table 1", AtHead(_found("det"), 7, 10)
        ),
        PublishedFigure(
            "det: accuracy of the best fixed offset, dependent → head",
            "51.7 % (+1)",
            "table 1",
            AtOffset(_found("det")),
        ),
        PublishedFigure(
            "dobj: accuracy, dependent → head",
            "86.8 %",
            "table 1",
            AtHead(_found("obj"), 7, 9),
        ),
        PublishedFigure(
            "dobj: accuracy of the best fixed offset, dependent → head",
            "40.0 % (−2)",
            "table 1",
            AtOffset(_found("obj")),
        ),
        PublishedFigure(
            "pobj: accuracy, preposition → object",
            "76.3 %",
            "table 1",
            AtHead(_found("case"), 8, 5),
        ),
        PublishedFigure(
            "poss: accuracy, dependent → head",
            "80.5 %",
            "table 1",
            AtHead(_found("nmod:poss"), 6, 5),
        ),
        PublishedFigure(
            "auxpass: accuracy, dependent → head",
            "94.1 %",
            "the authors' notebook; table 1 prints 82.5 %, which there is the offset's",
            AtHead(_found("aux:pass"), 3, 9),
        ),
    ),
)

MICHEL = PaperFigures(
    title="How many heads can go, BERT-base",
    source="Michel et al. (2019), arXiv:1905.10650",
    names=BERT,
    differs=(
        "Models: a Transformer for translation (WMT, English–French) and BERT-base fine-tuned on "
        "MNLI. The paper has no figure about GPT-2, nor about BERT before fine-tuning.",
        "Measured: BLEU and accuracy, read off a curve without intervals; here the loss of masked "
        "tokens, with an upper bound of 1\u00a0%.",
        "Heads are replaced by zero there, by their mean here; order by gradient importance in "
        "both, there normalised in each layer.",
    ),
    figures=(
        PublishedFigure(
            "Heads that can be removed together, MNLI",
            "40 %",
            "section 4.2",
            RemovableShare(GRADIENT),
        ),
    ),
)


def _repaired(layer: int, head: int, printed: str) -> PublishedFigure:
    return PublishedFigure(
        f"L{layer}·H{head}: self-repair over direct effect, its top 2\u00a0% of tokens",
        printed,
        STORED,
        AtReplaced(REPAIR, layer, head, TOP_TOKENS_LABEL),
    )


def _changed(layer: int, head: int, printed: str, metric: str = EFFECT) -> PublishedFigure:
    what = "total" if metric == EFFECT else "direct"
    return PublishedFigure(
        f"L{layer}·H{head}: {what} change of the true token's logit",
        printed,
        STORED,
        AtReplaced(metric, layer, head),
    )


STORED = "values stored with the authors' code"
SELF_REPAIR = PaperFigures(
    title="Self-repair in GPT-2 small",
    source="Rushing & Nanda (2024), arXiv:2402.15390",
    names=GPT2,
    differs=(
        "Texts: the Pile in prompts of 128 tokens. Expect signs and ranks, not decimals.",
        "A head's output is replaced by that in another text there (resample), by its mean here.",
        "Self-repair: there means of each head's tokens, here sums over sums; ratios of the "
        "authors' means are printed.",
    ),
    figures=(
        PublishedFigure(
            "L4·H11: rank by the fall of the true token's logit", "1", STORED, RankReplaced(4, 11)
        ),
        _changed(4, 11, "−0.58"),
        _changed(4, 11, "−0.02", DIRECT),
        _changed(8, 10, "+0.27"),
        _changed(0, 8, "+0.21"),
        _changed(10, 7, "+0.13"),
        _changed(10, 7, "+0.14", DIRECT),
        _changed(11, 10, "+0.07"),
        _repaired(9, 9, "0.86 (1.47 of 1.70)"),
        _repaired(7, 10, "0.85 (0.99 of 1.17)"),
        _repaired(11, 3, "0.41 (0.58 of 1.40)"),
        _repaired(11, 8, "0.28 (0.44 of 1.55)"),
    ),
)

GROUPS = (VIG, CLARK, RELATIONS, MICHEL, SELF_REPAIR)
