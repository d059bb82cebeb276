"""Sections of the page of a head: offsets, contribution, relations, parts of speech, maps."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import Estimate
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.charts import Drawing, OffsetBar, images, offset_profile
from headbook.charts.theme import rgba_ramp
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.baselines import ShareWithBaseline, share_with_baseline
from headbook.pages.parts.table import NumberCell, PageTable, Row
from headbook.report.relation_counts import VIEW
from headbook.report.relation_tests import RelationTests, tests_of_stack
from headbook.report.relations import TAG_NAMES, relation_words
from headbook.report.results import TAG_VIEW, StackResults, share_of_head
from headbook.report.sink import sink_words
from headbook.report.wording import (
    VIEWS,
    capital,
    count_text,
    number_word,
    p_family_wise_text,
    rule_phrase,
)
from headbook.results.formats import head_file, head_name, number, percent
from headbook.schema import HeadName, SinkView
from headbook.study.sentence_data import UINT8_STEPS, Exemplar

OUTPUT, GIVEN, BROUGHT = ids.OUTPUT_NORM_SHARE, ids.SINK_SHARE, ids.SINK_NORM_SHARE


def output_shares(results: StackResults, head: HeadName) -> Iterator[ShareWithBaseline]:
    """Yield shares of the output norm beside equal parts, and beside shares of attention."""
    cell = head.layer, head.head
    whole, given, brought = (
        share_of_head(results, x, SinkView.RAW, "", cell) for x in (OUTPUT, GIVEN, BROUGHT)
    )
    if not math.isnan(whole.value):
        equal, layer = 1 / results.stack.n_heads, f"the output norm of layer {head.layer}"
        yield _beside(f"share of {layer}", f"equal shares: {percent(equal)}", whole, equal)
    if math.isnan(given.value):
        return
    even = results.uniform(GIVEN, SinkView.RAW).at(head.layer).value
    what = sink_words(results)
    yield _beside(f"attention to {what}", f"uniform attention: {percent(even)}", given, even)
    if not math.isnan(brought.value):
        yield share_with_baseline(
            f"share of its own output norm from {what} (‖αvW_O‖)",
            f"their share of its attention: {percent(given.value)}",
            brought,
            given.value,
            supported=brought.high < given.low or brought.low > given.high,
        )


def _beside(text: str, baseline: str, value: Estimate, other: float) -> ShareWithBaseline:
    """Return a share beside a number without an interval; supported if its interval excludes it."""
    supported = value.low > other or value.high < other
    return share_with_baseline(text, baseline, value, other, supported=supported)


COLOURS = 32  # colours of a map, few since each picture has its own palette


@dataclass(frozen=True)
class Panel:
    """A map with its title and a note.

    Attributes:
        title: view or quantity of the map.
        note: how to read the map, also for readers who cannot see it.
        image: the map as an image address.
    """

    title: str
    note: str
    image: str


@dataclass(frozen=True)
class ExemplarMaps:
    """The maps of the strongest exemplar.

    Attributes:
        sentence: number of the sentence.
        panels: two maps, and a third one if values are known.
        size: numbers of queries and of keys.
    """

    sentence: int
    panels: tuple[Panel, ...]
    size: tuple[int, int]


def exemplar_maps(results: StackResults, exemplar: Exemplar) -> ExemplarMaps:
    """Return the maps of a head's strongest exemplar."""
    sentence = results.study.sentence_data.sentences[exemplar.index]
    text = sentence.texts[results.stack.keys]
    sink, raw = text.sink(causal=results.stack.causal), exemplar.attention
    panels = [
        _panel("all keys", "weights as the model computes them", raw),
        _panel("sink masked", "without the columns of the sink", np.where(sink, 0, raw)),
    ]
    if len(exemplar.norms):
        carried = raw * exemplar.norms
        most = float(carried.max()) or 1.0
        scaled = (carried / most * UINT8_STEPS).round().astype(np.uint8)
        note = "each weight times the norm of its value after W_O, over the largest"
        panels.append(_panel("value-weighted", note, scaled))
    return ExemplarMaps(sentence.number, tuple(panels), (raw.shape[0], raw.shape[1]))


def _panel(title: str, note: str, cells: NDArray[np.uint8]) -> Panel:
    """Return a map as a panel."""
    return Panel(title, note, images.map_preview(cells // (256 // COLOURS), rgba_ramp(COLOURS)))


LONGEST = 98  # per cent of the width for a bar; a mark at its end takes the rest


@dataclass(frozen=True)
class TagRow:
    """Attention to one part of speech.

    Attributes:
        tag: part of speech, a universal one by its name.
        share: share of the head's attention to ordinary keys.
        width: length of the bar of ``share``, in per cent of the longest possible one.
        uniform: share under uniform attention; ``uniform_width`` is its mark on the bar.
        ratio: ``share`` over ``uniform``.
    """

    tag: str
    share: NumberCell
    width: float
    uniform: str
    uniform_width: float
    ratio: NumberCell


def tag_rows(results: StackResults, head: HeadName) -> Iterator[TagRow]:
    """Return the attention to parts of speech among ordinary keys, the largest share first."""
    view = TAG_VIEW
    share, ratio = all_metrics()[ids.POS_RECEIVED], all_metrics()[ids.POS_RECEIVED_RATIO]
    tags = [tag for tag in results.labels(share.id) if results.has_value(share.id, view, tag)]
    tags = [tag for tag in tags if results.has_value(ratio.id, view, tag)]
    numbers = {tag: results.heads(share.id, view, tag).at(head.layer, head.head) for tag in tags}
    even = {tag: results.uniform(share.id, view, tag).at(head.layer).value for tag in tags}
    most = max([n.value for n in numbers.values() if n.value == n.value] + [*even.values(), 1e-9])
    for tag in sorted(tags, key=lambda t: -numbers[t].value):
        times = results.heads(ratio.id, view, tag).at(head.layer, head.head)
        yield TagRow(
            tag=TAG_NAMES.get(tag, tag),
            share=NumberCell.of(numbers[tag], share),
            width=round(LONGEST * numbers[tag].value / most, 1),
            uniform=number(even[tag], share=True),
            uniform_width=round(LONGEST * even[tag] / most, 1),
            ratio=NumberCell.of(times, ratio),
        )


OFFSET_METRIC = ids.OFFSET_PROFILE
OFFSET_COLUMNS = ("Offset", "share", "interval", "uniform")
REACH = 8  # offsets on either side that are drawn


@dataclass(frozen=True)
class Offsets:
    """Attention of one head by offset.

    Attributes:
        drawing: shares as bars.
        bars: numbers of the bars.
    """

    drawing: Drawing
    bars: tuple[OffsetBar, ...]

    @property
    def picture(self) -> Drawing:
        """Drawing with its numbers, to be written into files."""
        return replace(self.drawing, rows=pd.DataFrame(self.bars))

    @property
    def table(self) -> PageTable:
        """Shares by offset as a table."""
        return PageTable(OFFSET_COLUMNS, tuple(Row(None, bar.cells) for bar in self.bars))


def profile_name(head: HeadName) -> str:
    """Return the name of the picture of a head's offsets, as in files and links."""
    return f"profile-{head_file(head)}"


def has_offsets(results: StackResults) -> bool:
    """Whether a stack has attention by offset."""
    return results.has_value(OFFSET_METRIC, results.stack.default_view, "0")


def offset_section(results: StackResults, head: HeadName) -> Offsets | None:
    """Return attention by offset in the stack's default view; None if it was not measured."""
    if not has_offsets(results):
        return None
    view, noun = results.stack.default_view, results.study.manifest.text_noun
    bars = []
    for offset in range(-REACH, (0 if results.stack.causal else REACH) + 1):
        estimate = results.heads(OFFSET_METRIC, view, str(offset)).at(head.layer, head.head)
        even = results.uniform(OFFSET_METRIC, view, str(offset)).at(head.layer)
        bars.append(OffsetBar(offset, estimate.value, estimate.low, estimate.high, even.value))
    caption = (
        f"Share of the attention of head {head_name(head)} by distance from query to key, "
        f"{VIEWS[view]}, {count_text(estimate.sentences, noun)}. Lines: 95\u202f% intervals; "
        "dashed: uniform attention."
    )
    drawing = offset_profile(profile_name(head), caption, bars)
    return Offsets(drawing, tuple(bars))


RELATION_METRIC = ids.RELATION_ACCURACY
MOST = 8


def found_relations(results: StackResults, head: HeadName) -> tuple[ShareWithBaseline, ...]:
    """Return the relations that the head serves most above uniform attention."""
    rows = _furthest(results, head)
    tests = results.cached(tests_of_stack) if rows else None
    return tuple(
        _relation(label, accuracy, _test(tests, head, label), tests) for label, accuracy in rows
    )


def weak_relations_text(results: StackResults, head: HeadName) -> str:
    """Return how many of `found_relations` have no support, and how many of these were tested."""
    rows = _furthest(results, head)
    tests = results.cached(tests_of_stack) if rows else None
    places = [_test(tests, head, label) for label, _ in rows]
    weak = [n for n in places if tests is None or n is None or not tests.claimed[n]]
    return weak_text(len(weak), sum(n is not None for n in weak)) if weak else ""


def weak_text(weak: int, tested: int) -> str:
    """Return a number of relations without support, with how many of them were tested."""
    what = f"{capital(number_word(weak))} relation{'s' * (weak > 1)} without support"
    if tested in {0, weak}:
        return f"{what}, {'' if tested else 'not '}tested for this head"
    return f"{what}: {number_word(tested)} tested for this head, {number_word(weak - tested)} not"


def _furthest(results: StackResults, head: HeadName) -> list[tuple[str, Estimate]]:
    """Return labels and accuracies of the relations furthest above uniform attention."""
    rows = []
    for label in results.labels(RELATION_METRIC):
        accuracy = results.heads(RELATION_METRIC, VIEW, label).at(head.layer, head.head)
        if accuracy.effective >= MIN_EFFECTIVE:
            even = results.uniform(RELATION_METRIC, VIEW, label).at(head.layer).value
            rows.append((accuracy.value - even, label, accuracy))
    rows.sort(key=lambda row: -row[0])
    return [(label, accuracy) for _, label, accuracy in rows[:MOST]]


def _test(tests: RelationTests | None, head: HeadName, label: str) -> int | None:
    """Return the index of the test of a head and a relation; None if there was no test."""
    if tests is None or label not in tests.labels:
        return None
    n = list(tests.labels).index(label)
    cell = (head.layer, head.head)
    return n if tuple(map(int, tests.head[n])) == cell and not np.isnan(tests.p[n]) else None


def _relation(
    label: str, accuracy: Estimate, n: int | None, tests: RelationTests | None
) -> ShareWithBaseline:
    words, share, supported = relation_words(label), math.nan, False
    if tests is not None and label in tests.labels:
        place = list(tests.labels).index(label)
        share = float(tests.scores.at_rule.value[place])
        baseline = f"best surface rule ({rule_phrase(tests.rule[place])}): {percent(share)}; "
    else:
        baseline = ""
    if n is None or tests is None:
        baseline += "another head was tested" if baseline else "not tested"
    else:
        supported = bool(tests.claimed[n])
        baseline += p_family_wise_text(float(tests.p[n]))
        if tests.above_rule[n] and not supported:
            baseline += ", but no more than a preference for a class of words"
    behind = f"{accuracy.events:,.0f} words"
    return share_with_baseline(words, baseline, accuracy, share, behind=behind, supported=supported)
