"""Functions of heads: for each the head that has it most, beside a baseline.

The head is chosen on one half of the sentences and measured on the other.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimate
from headbook.metrics import ids
from headbook.report.findings.finding import Parts, choose_head, uniform_estimate
from headbook.report.linked_rows import LinkedNumber, claim_number
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import best_head_of_relation, relation_words
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import p_family_wise_text, rule_phrase
from headbook.results.formats import interval_text, percent
from headbook.schema import HELD_OUT_SPLIT, HeadName

# Words, metric and label; the name of the sink is put in.
ASKED = (
    ("attends to the previous token", ids.ATTENTION_TO, "previous"),
    ("attends to the next token", ids.ATTENTION_TO, "next"),
    ("attends to the token itself", ids.ATTENTION_TO, "self"),
    ("attends to other occurrences of the token", ids.ATTENTION_TO, "same_token"),
    ("attends to punctuation", ids.ATTENTION_TO, "punctuation"),
    ("attends to {sink}", ids.SINK_SHARE, ""),
    ("continues repeated sequences (induction)", ids.INDUCTION_SCORE, ""),
    ("attends to a token's earlier occurrence (duplicates)", ids.DUPLICATE_SCORE, ""),
    ("attends to the rarest word", ids.RARE_WORD_FOCUS, ""),
)
MAX_RELATIONS = 8
HIGHEST, RELATION = "highest of all heads", "relation"  # claims in the table of tests


class ClaimedFunction(NamedTuple):
    """A function and the head that has it most.

    Attributes:
        text: the function, as a verb or as the ends of a relation.
        head: the head.
        tied: note on heads with the same value; empty without any.
        share: share of the attention, or of the words, with its interval.
        value: the same as a number with its row.
        against: the baseline with its number, and whether it was tested.
        baseline: number of the baseline.
        supported: whether the share is clearly above the baseline.
    """

    text: str
    head: HeadName
    tied: str
    share: Estimate
    value: LinkedNumber
    against: Parts
    baseline: float
    supported: bool

    @property
    def interval(self) -> str:
        """The interval of the share; empty without one."""
        return interval_text(self.share.low, self.share.high, share=True)


def head_functions(results: StackResults) -> list[ClaimedFunction]:
    """Return the functions of a stack, the supported ones first: relations, then the rest."""
    found = [*_relations(results), *_shares(results)]
    return sorted(found, key=lambda each: not each.supported)


def _relations(results: StackResults) -> Iterator[ClaimedFunction]:
    """Yield relations and directions by margin over the best surface rule on the choice half."""
    tests, stack = results.cached(tests_of_stack), results.stack.name
    if tests is None:
        return
    order = np.argsort(-tests.selection_scores.margin.value, kind="stable")
    for n in order[:MAX_RELATIONS].tolist():
        p, rule, label = float(tests.p[n]), rule_phrase(tests.rule[n]), tests.labels[n]
        share, other = tests.accuracy.at(n), float(tests.at_rule.value[n])
        head = best_head_of_relation(tests, n, stack)
        value = claim_number(
            percent(share.value), RELATION, stack, (METRIC, VIEW, label), split=HELD_OUT_SPLIT,
            layer=head.layer, head=head.head,
        )  # fmt: skip
        tested = "not tested" if np.isnan(p) else p_family_wise_text(p)
        against = (
            f"best surface rule ({rule}): ", value._replace(text=percent(other)), f", {tested}",
        )  # fmt: skip
        supported = bool(tests.claimed[n])
        yield ClaimedFunction(
            relation_words(label), head, "", share, value, against, other, supported
        )


def _shares(results: StackResults) -> Iterator[ClaimedFunction]:
    """Yield shares of attention against uniform attention."""
    for text, metric, label in ASKED:
        known = results.by_id.get(metric)
        if known is None:
            continue
        view = results.view(known, label)
        best = choose_head(results, metric, view, label)
        if best is None:
            continue
        even = float(uniform_estimate(results, metric, view, label, best.head.layer).value)
        value = claim_number(
            percent(best.value.value), HIGHEST, results.stack.name, (metric, view, label),
            split=HELD_OUT_SPLIT, layer=best.head.layer, head=best.head.head,
        )  # fmt: skip
        yield ClaimedFunction(
            text.format(sink=sink_tokens(results)),
            best.head,
            best.tied,
            best.value,
            value,
            ("uniform attention: ", value._replace(text=percent(even))),
            even,
            bool(best.value.low > even),
        )
