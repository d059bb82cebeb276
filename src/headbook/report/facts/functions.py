"""The function of each head: the first of seventeen rules that holds.

Every list, chart, table and sentence about a head takes name, sentence, family and number from
`functions_of`. A rule holds if the lower end of the 95 % interval of its number reaches its
threshold (`headbook.report.thresholds`), on enough sentences and query tokens. The share on
the sink is a number beside the function: a function off the sink is said with a clause on the sink
where the sink takes half.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

from headbook.report.facts import function_rules as rules
from headbook.report.facts.function_rules import Decide
from headbook.report.function_numbers import (
    DUPLICATE,
    INDUCTION,
    NEARBY,
    SAME_TOKEN,
    SINK,
    reaches,
    share_of,
)
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.thresholds import (
    EVEN,
    HALF,
    OWN_SENTENCE_ODDS,
    SAME_KEYS,
    SCORE,
    SINK_ONLY,
    UNTESTED,
    Threshold,
)
from headbook.report.wording import capital
from headbook.results.number import Number
from headbook.results.sentence import Sentence, say
from headbook.schema import HeadName, heads_of
from headbook.study.tables import HEAD_COLUMNS, METRIC_COLUMNS


class FunctionFamily(StrEnum):
    """Group of functions, which gives the colour of a head."""

    POSITION = "position"
    NEARBY = "nearby"
    WORDS = "words"
    SAME_KEYS = "same_keys"
    REPEATS = "repeats"
    EVEN = "even"
    SINK = "sink"
    MIXED = "mixed"


@dataclass(frozen=True)
class HeadFunction:
    """The function of one head.

    Attributes:
        head: the head.
        id: id of the rule that holds: ``offset``.
        noun: name in lists: ``previous token``.
        text: sentence without its subject; nothing if the function was not measured.
        family: family of the function; None if it was not measured.
        number: the number that decided; None for functions without one.
        threshold: value that the lower end of ``number`` reached; for a share that is corrected
            for chance, the share at which the corrected one is the threshold; NaN without one.
        even: ``number`` under uniform attention; None if it is not corrected for chance.
        sink: share of all attention on the sink; None if it was not measured.
        mostly_sink: whether the sink takes at least half, corrected for chance.
    """

    head: HeadName
    id: str
    noun: str
    text: Sentence
    family: FunctionFamily | None
    number: Number | None = None
    threshold: float = math.nan
    even: Number | None = None
    sink: Number | None = None
    mostly_sink: bool = False

    @property
    def is_known(self) -> bool:
        """Whether a rule gives what the head does: it was measured, on enough sentences."""
        return self.id not in UNKNOWN

    @property
    def style(self) -> str:
        """Class of the colour of the family; empty without one."""
        return f"f-{self.family}" if self.family else ""

    @property
    def column(self) -> tuple[str, str, str]:
        """Metric, view and label of the number that decided; empty texts without one."""
        row = dict(self.number.row.key) if self.number else {}
        metric = row.get("metric", row.get("measure", ""))  # a measure in the table of alignments
        label = row.get("label", row.get("row", ""))  # the row of attention in that table
        return str(metric), str(row.get("view", "")), str(label)


@dataclass(frozen=True)
class FunctionRule:
    """A rule that gives heads their function.

    Attributes:
        id: the function.
        family: family of the function; None if it has none.
        threshold: what the lower end of the number has to reach.
        decide: returns what supports the function, or None if the rule does not hold.
        noun: name in lists; empty if it varies by head.
        where: words after "Attends"; empty if they vary by head.
    """

    id: str
    family: FunctionFamily | None
    threshold: Threshold
    decide: Decide
    noun: str = ""
    where: str = ""


# Rules in their order; alignment holds in cross-attention alone, where offsets are absent.
RULES = (
    FunctionRule("not_measured", None, UNTESTED, rules.not_measured, "not measured"),
    FunctionRule("too_few", FunctionFamily.MIXED, UNTESTED, rules.too_few, "not known"),
    FunctionRule("alignment", FunctionFamily.WORDS, HALF, rules.alignment),
    FunctionRule("same_token", FunctionFamily.REPEATS, HALF, rules.by_share(SAME_TOKEN),
                 "same token elsewhere", "to other occurrences of the same token"),
    FunctionRule("induction", FunctionFamily.REPEATS, SCORE, rules.by_number(INDUCTION),
                 "induction", "to what followed an earlier occurrence of the current token"),
    FunctionRule("duplicate", FunctionFamily.REPEATS, SCORE, rules.by_number(DUPLICATE),
                 "earlier occurrence", "to the earlier occurrence of the current token"),
    FunctionRule("sink_only", FunctionFamily.SINK, SINK_ONLY, rules.by_number(SINK),
                 "{sink} only", "almost only to {sink}"),
    FunctionRule("offset", FunctionFamily.POSITION, HALF, rules.offset),
    FunctionRule("relation", FunctionFamily.WORDS, UNTESTED, rules.relation),
    FunctionRule("region", FunctionFamily.WORDS, HALF, rules.region),
    FunctionRule("next_word", FunctionFamily.WORDS, HALF, rules.next_word),
    FunctionRule("punctuation", FunctionFamily.WORDS, HALF, rules.punctuation,
                 "punctuation", "to punctuation"),
    FunctionRule("even", FunctionFamily.EVEN, EVEN, rules.even,
                 "spread evenly", "nearly evenly to all words"),
    FunctionRule("same_keys", FunctionFamily.SAME_KEYS, SAME_KEYS, rules.same_keys,
                 "the same words from everywhere"),
    FunctionRule("nearby", FunctionFamily.NEARBY, HALF, rules.by_share(NEARBY),
                 "nearby words", "to nearby words, within three tokens"),
    FunctionRule("own_sentence", FunctionFamily.NEARBY, OWN_SENTENCE_ODDS, rules.own_sentence,
                 "own sentence", "within its own sentence"),
    FunctionRule("sink_mostly", FunctionFamily.SINK, HALF, rules.by_share(SINK),
                 "mostly {sink}", "mostly to {sink}"),
    FunctionRule("mixed", FunctionFamily.MIXED, UNTESTED, rules.mixed, "mixed"),
)  # fmt: skip
UNKNOWN = {"not_measured", "too_few"}  # rules without a function
SINK_RULES = {"sink_only", "sink_mostly"}  # whose sentences need no clause on the sink


def functions_of(results: StackResults) -> Mapping[HeadName, HeadFunction]:
    """Return the function of every head of a stack."""
    return results.cached(_functions)


def _functions(results: StackResults) -> Mapping[HeadName, HeadFunction]:
    return {head: _function(results, head) for head in heads_of(results.stack)}


def _function(results: StackResults, head: HeadName) -> HeadFunction:
    """Return the function of a head, by the first rule that holds."""
    decisions = ((rule, rule.decide(results, head, rule.threshold)) for rule in RULES)
    rule, decision = next((rule, decision) for rule, decision in decisions if decision is not None)
    sink, tokens = share_of(results, SINK, head), sink_tokens(results)
    mostly_sink = sink is not None and reaches(sink.number, sink.least())
    where = decision.where or rule.where.format(sink=tokens)
    text = decision.text
    if where and mostly_sink and rule.id not in SINK_RULES:
        text = say("Attends mostly to {sink}, otherwise {where}.", sink=tokens, where=where)
    elif where:
        text = say("Attends {where}.", where=where)
    return HeadFunction(
        head, rule.id, decision.noun or rule.noun.format(sink=tokens), text, rule.family,
        decision.number, decision.threshold, decision.even, sink.number if sink else None,
        mostly_sink,
    )  # fmt: skip


FAMILY_NAMES = {
    FunctionFamily.POSITION: "One fixed distance",
    FunctionFamily.NEARBY: "Nearby words",
    FunctionFamily.WORDS: "Words of a kind",
    FunctionFamily.SAME_KEYS: "Same words from everywhere",
    FunctionFamily.REPEATS: "Repeated tokens",
    FunctionFamily.EVEN: "Spread evenly",
    FunctionFamily.MIXED: "Mixed",
}


# Where heads of a family attend, after "attends" or "attend"; nothing can be said of mixed ones.
WHERE_OF_FAMILY = {
    FunctionFamily.POSITION: "at one fixed distance",
    FunctionFamily.NEARBY: "to nearby words",
    FunctionFamily.WORDS: "to words of a kind",
    FunctionFamily.SAME_KEYS: "to the same words from everywhere",
    FunctionFamily.REPEATS: "to repeated tokens",
    FunctionFamily.EVEN: "nearly evenly to all words",
    FunctionFamily.SINK: "mostly to the sink",
}


def families_of(results: StackResults) -> Mapping[FunctionFamily, str]:
    """Return the families that a stack has heads of, in their order, with their names."""
    functions = functions_of(results).values()
    present = {function.family for function in functions}
    names = FAMILY_NAMES | {FunctionFamily.SINK: capital(sink_tokens(results))}
    # With too few sentences no function is known, and the family has the name of that rule.
    names |= {f.family: capital(f.noun) for f in functions if f.family and not f.is_known}
    return {family: names[family] for family in FunctionFamily if family in present}


FUNCTION_COLUMNS = HEAD_COLUMNS | {
    "function": "id of the rule, the first that holds",
    "noun": "name of the function in lists",
    "family": "group of functions that share a colour; empty if not measured",
    **METRIC_COLUMNS,
    "value": "number that decides, over all sentences; empty for functions without one",
    "low": "lower end of the 95 % confidence interval, which decides",
    "high": "upper end",
    "threshold": "value that the lower end has reached; for shares that are corrected for chance, "
    "the share at which the corrected share reaches its threshold; empty if a test decides",
}


def functions_table(results: Mapping[str, StackResults]) -> pd.DataFrame:
    """Return a row for each head of all stacks, with columns as in `FUNCTION_COLUMNS`."""
    functions = (functions_of(of_stack) for of_stack in results.values())
    rows = [_row(function) for of_stack in functions for function in of_stack.values()]
    return pd.DataFrame(rows, columns=[*FUNCTION_COLUMNS])


def _row(function: HeadFunction) -> tuple[str | int | float, ...]:
    number, family = function.number, str(function.family or "")
    ends = (number.value, number.low, number.high) if number else (math.nan,) * 3
    return (
        *function.head, function.id, function.noun, family, *function.column,
        *ends, function.threshold,
    )  # fmt: skip
