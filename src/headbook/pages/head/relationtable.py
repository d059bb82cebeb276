"""The relations that one head serves, for its page."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from headbook.analysis.arithmetic import Floats
from headbook.analysis.intervals import FEW
from headbook.metrics import ids
from headbook.pages.parts.measured import Measured, measured
from headbook.pages.parts.ranked import tests_of
from headbook.report.numbers.inference import RelationTests, best_offsets
from headbook.report.numbers.relationnames import relation_words
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.wording import percent, signed, tested
from headbook.study.sentencedata import HeadName
from headbook.terms import View

METRIC = ids.RELATION_ACCURACY
VIEW = View.NOSINK
MOST = 8


def found_relations(results: StackResults, head: HeadName) -> tuple[Measured, ...]:
    """The relations that the head serves most above uniform attention.

    Numbers are those of the reporting half where the head was tested for a relation; those of all
    sentences elsewhere.
    """
    rows = []
    for label in results.labels(METRIC):
        accuracy = results.heads(METRIC, VIEW, label).at(head.layer, head.head)
        if accuracy.effective >= FEW:
            even = results.uniform(METRIC, VIEW, label).at(head.layer).value
            rows.append((accuracy.value - even, label, accuracy))
    rows.sort(key=lambda row: -row[0])
    offsets = results.once(_offsets) if rows else {}
    tests = results.once(tests_of) if rows else None
    return tuple(
        _relation(label, accuracy, offsets, _test(tests, head, label), tests)
        for _, label, accuracy in rows[:MOST]
    )


def _test(tests: RelationTests | None, head: HeadName, label: str) -> int | None:
    """The number of the test of a head and a relation; None where there was none."""
    if tests is None or label not in tests.labels:
        return None
    n = list(tests.labels).index(label)
    cell = (head.layer, head.head)
    return n if tuple(map(int, tests.head[n])) == cell and not np.isnan(tests.p[n]) else None


def _relation(
    label: str,
    accuracy: Estimate,
    offsets: Mapping[str, tuple[int, float]],
    n: int | None,
    tests: RelationTests | None,
) -> Measured:
    words = relation_words(label)
    if n is None or tests is None:
        offset, share = offsets.get(label, (0, math.nan))
        known = (
            "" if math.isnan(share) else f"best fixed offset ({signed(offset)}): {percent(share)}; "
        )
        baseline, supported = f"{known}not tested", False
    else:
        accuracy, share = tests.accuracy.at(n), float(tests.at_offset.value[n])
        baseline = (
            f"best fixed offset ({signed(int(tests.offset[n]))}): {percent(share)}; "
            f"{tested(float(tests.p[n]))}"
        )
        supported = bool(tests.supported[n])
    behind = f"{accuracy.events:,.0f} words"
    return measured(words, baseline, accuracy, share, behind=behind, supported=supported)


def _offsets(results: StackResults) -> dict[str, tuple[int, float]]:
    """The best fixed offset of each label and what it finds."""
    relation_hits = results.study.corpus_sums.heads[results.stack.name].relation_hits
    if relation_hits is None:
        return {}
    return dict(_named(relation_hits.labels, *best_offsets(relation_hits)))


def _named(
    labels: tuple[str, ...],
    offsets: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]",
    shares: Floats,
) -> Iterator[tuple[str, tuple[int, float]]]:
    for label, offset, share in zip(labels, offsets, shares, strict=True):
        if not np.isnan(share):
            yield label, (int(offset), float(share))
