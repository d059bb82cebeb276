"""Who does what: for each function the head that does it most, with its baseline."""

from collections.abc import Iterator

import numpy as np

from headbook.metrics import ids
from headbook.pages.parts.measured import Measured, measured
from headbook.pages.parts.ranked import place_of
from headbook.report.findings.finding import chosen, uniform
from headbook.report.numbers.inference import tests_of
from headbook.report.numbers.relationnames import relation_words
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.roles import sink_words
from headbook.report.wording import percent, rule_phrase, tested

# Words, metric and label; the sink's name is put in.
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
MOST_RELATIONS = 8


def functions(results: StackResults) -> tuple[Measured, ...]:
    """The functions of one stack, supported ones first: relations, then the rest."""
    found = [*_relations(results), *_shares(results)]
    return tuple(sorted(found, key=lambda each: not each.supported))


def _relations(results: StackResults) -> Iterator[Measured]:
    """Relations and directions by margin over the best surface rule on the choice half."""
    tests = results.once(tests_of)
    if tests is None:
        return
    order = np.argsort(-tests.choice.margin.value, kind="stable")
    for n in order[:MOST_RELATIONS]:
        p, rule = float(tests.p[n]), rule_phrase(tests.rule[n])
        value, other = tests.accuracy.at(n), float(tests.at_rule.value[n])
        yield measured(
            relation_words(tests.labels[n]),
            f"best surface rule ({rule}): {percent(other)}, "
            + ("not tested" if np.isnan(p) else tested(p)),
            value,
            other,
            behind=place_of(tests, int(n), results.stack.name),
            supported=bool(tests.claimed[n]),
        )


def _shares(results: StackResults) -> Iterator[Measured]:
    """Shares of attention against uniform attention, head chosen on the other half."""
    for text, metric, label in ASKED:
        known = results.by_id.get(metric)
        if known is None:
            continue
        view = results.view(known, label)
        best = chosen(results, metric, view, label)
        if best is None:
            continue
        even = uniform(results, metric, view, label, best.head.layer).value
        yield measured(
            text.format(sink=sink_words(results)),
            f"uniform attention: {percent(float(even))}{best.tied}",
            best.value,
            float(even),
            behind=best.head,
            supported=bool(best.value.low > even),
        )
