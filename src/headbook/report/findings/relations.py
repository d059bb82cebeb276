"""Which relations heads serve beyond the best surface rule."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headbook.analysis.flips import LEVEL
from headbook.metrics import ids
from headbook.metrics.base import Source
from headbook.report.findings.finding import Finding, begun, head_link, metric_link
from headbook.report.numbers.claims import estimate, point_estimate
from headbook.report.numbers.relationnames import ends_of
from headbook.report.numbers.results import StackResults
from headbook.report.wording import rule_phrase, small, tested
from headbook.study.sentencedata import HeadName

if TYPE_CHECKING:
    from headbook.report.numbers.inference import RelationTests


def relations(results: StackResults, tests: "RelationTests") -> Iterator[Finding]:
    """Yield in how many relations a head beats the best surface rule, and one of them.

    The one with the largest margin on the choice half.
    """
    at = tests.first(tests.claimed)
    if at is None:
        return
    head = HeadName(results.stack.name, *map(int, tests.head[at]))
    ends, rule = ends_of(tests.labels[at]), rule_phrase(tests.rule[at])
    number = int(tests.claimed.sum())
    yield Finding(
        (
            begun(results, f"In {small(number)} of {len(tests.labels):,} pairs of relation "),
            "and direction, a head beats the ",
            metric_link(ids.RELATION_ACCURACY, "best surface rule"),
            f" (p ≤ {LEVEL:g} family-wise) and does more than prefer a class of words. ",
            head_link(head),
            f" attends from {ends.query} to {ends.key} in {estimate(tests.accuracy.at(at))} of "
            f"cases: {point_estimate(tests.margin.at(at))} over the best surface rule ({rule}), "
            f"{tested(float(tests.p[at]))}.",
        ),
        int(tests.accuracy.sentences[at]),
        Source.SAMPLE,
        _sampled(results),
    )


def _sampled(results: StackResults) -> int:
    """Return the number of sentences of a stack in which relations were tested."""
    words = results.study.corpus_sums.heads[results.stack.name].strongest_words
    return len(words.index) if words else 0
