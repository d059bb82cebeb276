"""Published figures about heads that were taken away, and what a study computes for each."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from headbook.report.numbers.changes import primary
from headbook.report.numbers.published import BERT, GPT2, GROUPS, Group, Published
from headbook.report.numbers.quantities import Count, Quantity
from headbook.report.numbers.results import NO_ESTIMATE, Estimate, StackResults
from headbook.report.wording import head_name, number, percent
from headbook.study.importancetables import DIRECT, EFFECT, GRADIENT, REPAIR
from headbook.study.sentencedata import HeadName
from headbook.study.summaries import verdicts
from headbook.study.summaries.columns import HeadColumn
from headbook.study.summaries.verdicts import TOP
from headbook.terms import Replacement, Target

IN_WORDS = {
    EFFECT: "change of the true token's logit",
    DIRECT: "change of the true token's logit by the residual path alone",
    REPAIR: "self-repair over direct effect",
}


class OfImportance(Quantity):
    """What is computed from heads that were replaced by their mean."""

    share = False
    columns: ClassVar[tuple[HeadColumn, ...]] = ()  # it is made of no metric

    def written(self, value: float) -> str:
        """A plain number."""
        return number(value)


@dataclass(frozen=True)
class AtReplaced(OfImportance):
    """A number of one head, on the logit of the true token; counted from 0."""

    metric: str
    layer: int
    head: int
    label: str = ""

    @property
    def how(self) -> str:
        """What of which head."""
        name = head_name(HeadName("self", self.layer, self.head))
        return f"{IN_WORDS[self.metric]}, {name} replaced by its mean"

    def compute(self, results: StackResults) -> Estimate:
        """The head's number; NaN where it was not replaced or has none."""
        rows = _logits(results, self.metric, self.label)
        rows = rows[(rows["layer"] == self.layer) & (rows["head"] == self.head)]
        if rows.empty:
            return NO_ESTIMATE
        row = rows.iloc[0]
        ends = float(row["value"]), float(row["low"]), float(row["high"])
        return Estimate(*ends, int(row["sentences"]), float(row["events"]))


@dataclass(frozen=True)
class RankReplaced(Count, OfImportance):
    """The place of a head when all are sorted by how much the true token's logit falls."""

    layer: int
    head: int

    @property
    def how(self) -> str:
        """Of which head."""
        name = head_name(HeadName("self", self.layer, self.head))
        return f"rank of {name} by the {IN_WORDS[EFFECT]}, largest fall first"

    def compute(self, results: StackResults) -> Estimate:
        """From 1; NaN where not all heads were replaced."""
        rows = _logits(results, EFFECT, "")
        own = rows[(rows["layer"] == self.layer) & (rows["head"] == self.head)]["value"]
        stack = results.stack
        if len(rows) < len(stack.attention_layers) * stack.n_heads or own.empty:
            return NO_ESTIMATE
        rank = float((rows["value"] < own.iloc[0]).sum() + 1)
        return Estimate(rank, math.nan, math.nan, int(rows["sentences"].max()), math.nan)


@dataclass(frozen=True)
class CanGo(OfImportance):
    """How many heads can be removed together at 1 % of the loss.

    Attributes:
        order: in which they go, as in ``pruning.csv``.
    """

    order: str

    @property
    def how(self) -> str:
        """In which order, with which limit."""
        return (
            f"share of heads that can be removed, {self.order.replace('_', ' ')} in ascending "
            "order, before the loss may rise by more than 1\u00a0%"
        )

    def written(self, value: float) -> str:
        """In per cent."""
        return number(value) if math.isnan(value) else percent(value)

    def compute(self, results: StackResults) -> Estimate:
        """The share; NaN where heads were not removed in that order."""
        removals, steps = results.study.corpus_sums.removals, results.study.pruning
        steps = steps[(steps["order"] == self.order)]
        if removals is None or steps.empty:
            return NO_ESTIMATE
        steps = steps[steps["target"] == primary(removals)]
        most = verdicts.TOGETHER * verdicts.margin(removals, primary(removals), reported=True)
        share = verdicts.can_go([*steps["share"]], [*steps["high"]], most)
        return Estimate(share, math.nan, math.nan, int((removals.half == 1).sum()), math.nan)


class Elsewhere(OfImportance):
    """What no study holds: a script computes it."""

    how = "what the command prints"

    def compute(self, results: StackResults) -> Estimate:
        """Nothing."""
        del results
        return NO_ESTIMATE


class Untaken(Elsewhere):
    """What is of a model that nothing here corresponds to."""

    how = "not computed: the model is another one"


def _logits(results: StackResults, metric: str, label: str) -> pd.DataFrame:
    """The rows of one number on the logit of the true token, means in place of heads."""
    table = results.study.importance
    return table[
        (table["stack"] == results.stack.name)
        & (table["metric"] == metric)
        & (table["target"] == Target.LOGIT)
        & (table["replacement"] == Replacement.MEAN)
        & (table["label"] == label)
    ]


MICHEL = Group(
    title="How many heads can go, BERT-base",
    source="Michel et al. (2019), arXiv:1905.10650",
    model="bert-base-uncased",
    names=BERT,
    inputs="YOUR_SENTENCES.txt",
    asked="--importance full --importance-sentences 1000",
    differs=(
        "Models: a Transformer for translation (WMT, English–French) and BERT-base fine-tuned on "
        "MNLI. The paper has no figure about GPT-2, nor about BERT before fine-tuning.",
        "Measured: BLEU and accuracy, read off a curve without intervals; here the loss of masked "
        "tokens, with an upper bound of 1\u00a0%.",
        "Heads are replaced by zero there, by their mean here; order by gradient importance in "
        "both, there normalised in each layer.",
    ),
    figures=(
        Published(
            "Heads that can be removed together, MNLI", "40 %", "section 4.2", CanGo(GRADIENT)
        ),
        Published(
            "Heads that can be removed together, WMT", "20 %", "section 4.2", Untaken(),
        ),
    ),
)  # fmt: skip


def _repaired(layer: int, head: int, printed: str) -> Published:
    return Published(
        f"L{layer}·H{head}: self-repair over direct effect, its top 2\u00a0% of tokens",
        printed,
        STORED,
        AtReplaced(REPAIR, layer, head, TOP),
    )


def _changed(layer: int, head: int, printed: str, metric: str = EFFECT) -> Published:
    what = "total" if metric == EFFECT else "direct"
    return Published(
        f"L{layer}·H{head}: {what} change of the true token's logit",
        printed,
        STORED,
        AtReplaced(metric, layer, head),
    )


STORED = "values stored with the authors' code"
SELF_REPAIR = Group(
    title="Self-repair in GPT-2 small",
    source="Rushing & Nanda (2024), arXiv:2402.15390",
    model="gpt2",
    names=GPT2,
    inputs="YOUR_WEB_TEXT.txt",
    asked="--importance full --importance-sentences 1000",
    differs=(
        "Texts: the Pile in prompts of 128 tokens. Expect signs and ranks, not decimals.",
        "A head's output is replaced by that in another text there (resample), by its mean here.",
        "Self-repair: there means of each head's tokens, here sums over sums; ratios of the "
        "authors' means are printed.",
    ),
    figures=(
        Published(
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

INDUCTION = Group(
    title="Repeated tokens without induction heads",
    source="Olsson et al. (2022), arXiv:2209.11895",
    model="gpt2",
    names=GPT2,
    inputs="",
    asked="python benchmarks/induction.py gpt2",
    differs=(
        "The paper ablates heads of small models of attention alone and prints no figure about "
        "GPT-2; this is a check with a known answer: the change must lie above all random sets.",
        "Fifty sequences of 50 random tokens, each repeated once; five heads chosen on other "
        "sequences; 20 random sets with as many heads in each layer.",
    ),
    figures=(
        Published(
            "Change of the loss on the second half without the five heads of highest induction "
            "score", "above random sets", "no figure about GPT-2", Elsewhere(),
        ),
    ),
)  # fmt: skip

CAUSAL = (MICHEL, SELF_REPAIR, INDUCTION)
EVERY = (*GROUPS, *CAUSAL)
