"""Who does what: for each function the head that does it most, with its baseline."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headbook.charts.base.drawing import Drawing
from headbook.charts.drawn.dots import interval_dot
from headbook.metrics import ids
from headbook.pages.parts.ranked import place_of, tests_of
from headbook.report.findings.finding import chosen, uniform
from headbook.report.numbers.claims import value_and_interval
from headbook.report.numbers.relationnames import relation_words
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.numbers.roles import sink_words
from headbook.report.wording import head_name, head_page, percent, signed, tested
from headbook.study.sentencedata import HeadName

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


@dataclass(frozen=True)
class Function:
    """A function and its head.

    Attributes:
        text: what is done.
        baseline: what it is set against, in words.
        name, href: the head and its page.
        value, interval: share, and its interval; empty without one.
        dot: the same as a picture.
        supported: tested family-wise and above the baseline, or clear of uniform attention.
    """

    text: str
    baseline: str
    name: str
    href: str
    value: str
    interval: str
    dot: Drawing
    supported: bool


def functions(results: StackResults) -> tuple[Function, ...]:
    """The functions of one stack, supported ones first: relations, then the rest."""
    found = [*_relations(results), *_shares(results)]
    return tuple(sorted(found, key=lambda each: not each.supported))


def _relations(results: StackResults) -> Iterator[Function]:
    """Relations and directions by margin over the best fixed offset."""
    tests = results.once(tests_of)
    if tests is None:
        return
    order = np.argsort(-tests.margin.value, kind="stable")
    for n in order[:MOST_RELATIONS]:
        p, offset = float(tests.p[n]), signed(int(tests.offset[n]))
        value, other = tests.accuracy.at(n), float(tests.at_offset.value[n])
        yield _function(
            relation_words(tests.labels[n]),
            f"best fixed offset ({offset}): {percent(other)}, "
            + ("not tested" if np.isnan(p) else tested(p)),
            place_of(tests, int(n), results.stack.name),
            value,
            other,
            supported=bool(tests.supported[n]),
        )


def _shares(results: StackResults) -> Iterator[Function]:
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
        yield _function(
            text.format(sink=sink_words(results)),
            f"uniform attention: {percent(float(even))}",
            best.head,
            best.value,
            float(even),
            supported=bool(best.value.low > even),
        )


def _function(
    text: str, baseline: str, head: HeadName, value: Estimate, other: float, *, supported: bool
) -> Function:
    dot = interval_dot(value.value, value.low, value.high, other, supported=supported)
    name = head_name(head)
    value_text, ends = value_and_interval(value)
    return Function(
        text=text,
        baseline=baseline,
        name=name,
        href=head_page(head),
        value=value_text,
        interval=ends,
        dot=Drawing(f"dot-{name}-{text}", text, dot),
        supported=supported,
    )
