"""The page of one head, section by section."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import Estimate, Estimates
from headbook.analysis.arrays import Floats
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.charts import Drawing, OffsetBar, images, offset_profile
from headbook.charts.heads import RangeStrip
from headbook.charts.theme import DIVERGING, STOPS, rgba_ramp
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import ChartKind, HeadMetric
from headbook.pages.parts.atlas import mean_maps
from headbook.pages.parts.baselines import (
    ShareWithBaseline,
    baseline_text,
    baseline_title,
    share_with_baseline,
)
from headbook.pages.parts.exemplars import Exemplars, exemplars_of
from headbook.pages.parts.groups import group_table, pair_table
from headbook.pages.parts.head_card import strongest_of
from headbook.pages.parts.nearest_heads import Neighbours, nearest_heads
from headbook.pages.parts.page import ATTENTION_SCRIPTS, EVERY, Page, gap_texts
from headbook.pages.parts.table import (
    MarkedText,
    NumberCell,
    PageTable,
    Row,
    WordsCell,
    percentiles,
    words_cell,
)
from headbook.report.ablation import (
    REPLACEMENT_NAMES,
    TARGET_NAMES,
    Rows,
    backups,
    change_row,
    main_target,
    margin_text,
    rows_by_head,
    unit,
    unit_factor,
    verdict_of_row,
    verdict_target_text,
)
from headbook.report.findings.finding import metric_link
from headbook.report.head_types import TAG_VIEW, share_of_head, sink_remark
from headbook.report.relation_counts import VIEW
from headbook.report.relation_tests import RelationTests, tests_of_stack
from headbook.report.relations import TAG_NAMES, relation_words
from headbook.report.results import StackResults
from headbook.report.roles import Role, estimate, roles_by_head, sink_words
from headbook.report.trees import is_ranked
from headbook.report.type_styles import style_of
from headbook.report.wording import (
    MISSING,
    STACKS,
    VIEWS,
    capital,
    count_text,
    head_file,
    head_name,
    head_page,
    interval_text,
    is_share,
    label_name,
    number,
    number_word,
    ordinal,
    p_family_wise_text,
    percent,
    rule_phrase,
    sentence_page,
    unbroken,
    visible,
)
from headbook.schema import AblationTarget, Replacement, SinkView
from headbook.study.ablation import AblationResults, MissedToken
from headbook.study.ablation_tables import DIRECT, EFFECT, EXACT, REPAIR
from headbook.study.ablation_tests import COSINE_TARGETS
from headbook.study.sentence_data import UINT8_STEPS, Exemplar, HeadName, heads_of
from headbook.study.token_sums import (
    KEY,
    MIN_SENTENCES,
    PAIR,
    QUERY,
    Affinities,
    FavouredTokens,
    favoured_tokens,
)

LISTED = 5  # tokens, and the one in the middle


@dataclass(frozen=True)
class MissedTokenRow:
    """A token at which the head is missed.

    Attributes:
        rank: among all, in words.
        preceding, token, following: the text.
        before, after: what the model says with the head and without; ``before`` may be empty.
        sentence, href: its sentence; no address where that has no page.
    """

    rank: str
    preceding: str
    token: str
    following: str
    before: str
    after: str
    sentence: int
    href: str


@dataclass(frozen=True)
class AblationSection:
    """What the model loses without a head.

    Attributes:
        short: the change where its mean output stands in its place; may be empty.
        what: of the model's answer changes.
        margin: of verdicts, with its unit.
        verdict_target: target of verdicts, in words.
        instead: by what stands in its place.
        remarks: direct and total change, and heads that back it up, in sentences.
        tokens: where it is missed most; empty where the head was not replaced.
        scores: what ``before`` and ``after`` of the tokens are, in words.
    """

    short: str
    what: str
    margin: str
    verdict_target: str
    instead: PageTable
    remarks: tuple[str, ...]
    tokens: tuple[MissedTokenRow, ...]
    scores: str


def ablation_section(results: StackResults, head: HeadName) -> AblationSection | None:
    """None where no head was replaced."""
    study = results.study
    ablation = study.corpus_sums.ablation
    if ablation is None:
        return None
    rows = results.cached(rows_by_head).get(head, {})
    target = AblationTarget(main_target(ablation))
    columns = ("In its place", f"Change, {unit(ablation)}", "Verdict")
    tokens = results.cached(_tokens).get(head, ())
    backed = results.cached(backups).get(head)
    return AblationSection(
        short=_short(ablation, rows),
        what=TARGET_NAMES[target],
        margin=margin_text(ablation),
        verdict_target=verdict_target_text(ablation),
        instead=PageTable(columns, tuple(_instead(ablation, rows))),
        remarks=(*_repaired(rows), *((backed,) if backed else ())),
        tokens=tokens,
        scores="probability of the true token"
        if target in ablation.unablated
        else "1 minus the cosine of the token's last state",
    )


def _cell(ablation: AblationResults, row: Mapping[str, Any]) -> NumberCell:
    by = unit_factor(ablation)
    about = "" if row["method"] == EXACT else "≈\u2009"
    ends = interval_text(row["low"] * by, row["high"] * by) if row["method"] == EXACT else ""
    return NumberCell(f"{about}{number(row['value'] * by)}", ends, note="", too_few=False)


def _short(ablation: AblationResults, rows: Rows) -> str:
    """The change where the mean stands in its place, and what follows; empty where not known."""
    row = change_row(ablation, rows, Replacement.MEAN)
    if row is None:
        return ""
    cell = _cell(ablation, row)
    ends = f" {cell.interval}" if cell.interval else ""
    verdict = verdict_of_row(ablation, rows, Replacement.MEAN)
    conclusion = f"; verdict: {verdict}" if row["method"] == EXACT else " (estimated)"
    if main_target(ablation) in COSINE_TARGETS:
        what = (
            "sentence vectors"
            if main_target(ablation) == AblationTarget.EMBEDDING
            else "last states"
        )
        value = f"{cell.text}\u00a0{unit(ablation)}{ends}"
        return f"{what} change by {value} (1\u202f−\u202fcosine){conclusion}"
    return f"the loss changes by {cell.text}\u00a0%{ends}{conclusion}"


def _instead(ablation: AblationResults, rows: Rows) -> Iterator[Row]:
    for replacement, what in REPLACEMENT_NAMES.items():
        row = change_row(ablation, rows, replacement)
        if row is not None:
            verdict = verdict_of_row(ablation, rows, replacement)
            outcome = verdict if row["method"] == EXACT else "estimated"
            yield Row(what, (_cell(ablation, row), words_cell(outcome)))


def _repaired(rows: Rows) -> Iterator[str]:
    """What the head itself says to the logit of the true token, and what becomes of it."""
    keys = (Replacement.MEAN, AblationTarget.LOGIT)
    direct, total, repair = (rows.get((metric, *keys)) for metric in (DIRECT, EFFECT, REPAIR))
    if direct and total:
        made_up = ""
        if repair and not math.isnan(repair["value"]):
            ends = interval_text(repair["low"], repair["high"], share=True)
            made_up = f"; later layers make up for {percent(repair['value'])} {ends}".rstrip()
        yield (
            f"Logit of the true token: {_with_ends(direct)} by the residual path alone, "
            f"{_with_ends(total)} in all{made_up}."
        )


def _with_ends(row: Mapping[str, Any]) -> str:
    return f"{number(row['value'])} {interval_text(row['low'], row['high'])}".rstrip()


def _after(ablation: AblationResults, missed: MissedToken, probability: float) -> str:
    if main_target(ablation) in ablation.unablated:
        return number(probability)
    return f"{number(missed.change * unit_factor(ablation))}\u00a0{unit(ablation)}"


def _tokens(results: StackResults) -> dict[HeadName, tuple[MissedTokenRow, ...]]:
    """Of each head, those of the first ranks and the one in the middle."""
    ablation, pages = results.study.corpus_sums.ablation, results.study.sentence_data.sentences
    assert ablation is not None
    table = results.study.effect_tokens
    found: dict[HeadName, list[MissedTokenRow]] = {}
    for missed, (before, after) in zip(
        ablation.missed, table[["before", "after"]].itertuples(index=False), strict=True
    ):
        head = ablation.heads[missed.head]
        middle = missed.rank - 1 == (missed.tokens - 1) // 2
        if head.stack == results.stack.name and (missed.rank <= LISTED or middle):
            rank = f"rank {missed.rank:,} of {missed.tokens:,}{', the median' if middle else ''}"
            found.setdefault(head, []).append(
                MissedTokenRow(
                    rank, missed.preceding, missed.token, missed.following,
                    "" if math.isnan(before) else number(before), _after(ablation, missed, after),
                    missed.sentence + 1,
                    sentence_page(missed.sentence + 1) if missed.sentence in pages else "",
                )
            )  # fmt: skip
    return {head: tuple(tokens) for head, tokens in found.items()}


OUTPUT, GIVEN, BROUGHT = ids.OUTPUT_NORM_SHARE, ids.SINK_SHARE, ids.SINK_NORM_SHARE


def output_shares(results: StackResults, head: HeadName) -> Iterator[ShareWithBaseline]:
    """Shares of the output norm beside what equal parts would be, and beside attention."""
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
    """A share beside a baseline without an interval, which its own should leave out."""
    supported = value.low > other or value.high < other
    return share_with_baseline(text, baseline, value, other, supported=supported)


COLOURS = 32  # a picture carries its palette


@dataclass(frozen=True)
class Panel:
    """One of the maps.

    Attributes:
        title: what is drawn.
        note: how to read it; also its text for who cannot see it.
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
        panels: two or three maps; the last where values are known.
        size: tokens that look, tokens that are looked at.
    """

    sentence: int
    panels: tuple[Panel, ...]
    size: tuple[int, int]


def exemplar_maps(results: StackResults, exemplar: Exemplar) -> ExemplarMaps:
    """The maps of a head's strongest exemplar."""
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


def token_similarity_maps(results: StackResults, exemplar: Exemplar) -> ExemplarMaps | None:
    """What a head writes for every two tokens of its strongest exemplar, and how they look.

    None where values are not available.
    """
    if not exemplar.written.size:
        return None
    written, rows = exemplar.written
    panels = tuple(
        _panel(*each, signed=True)
        for each in (
            ("head outputs", "cosine of the outputs for two tokens", written),
            ("attention rows", "cosine of the rows of two tokens", rows),
        )
    )
    sentence = results.study.sentence_data.sentences[exemplar.index]
    return ExemplarMaps(sentence.number, panels, (written.shape[0], written.shape[1]))


def _panel(title: str, note: str, cells: "NDArray[np.uint8]", *, signed: bool = False) -> Panel:
    """A map; ``signed`` ones run from -1 to 1."""
    palette = rgba_ramp(COLOURS, DIVERGING if signed else STOPS)
    return Panel(title, note, images.map_preview(cells // (256 // COLOURS), palette))


ELSEWHERE = {ids.POS_RECEIVED, ids.POS_RECEIVED_RATIO, ids.POS_GIVEN}  # in tables of tags
ELSEWHERE |= {ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR}  # in those of relations
ELSEWHERE |= {ids.SURFACE_RULE}  # on the metric's own page: too many rules
LONGEST = 98  # per cent of a bar's room; a mark at its end needs the rest
WHOLE = {ids.ATTENTION_TO}  # all labels stand in the first table


@dataclass(frozen=True)
class TagRow:
    """Attention to one part of speech.

    Attributes:
        tag: part of speech, a universal one by its name.
        share: of the head's attention to ordinary keys.
        width: the same as a bar, in per cent of its room.
        uniform: what uniform attention would give; ``uniform_width`` as a mark on the bar.
        ratio: of the two.
    """

    tag: str
    share: NumberCell
    width: float
    uniform: str
    uniform_width: float
    ratio: NumberCell


@dataclass(frozen=True)
class _Line:
    """What a row of numbers has that is the same for all heads, or made for all at once.

    Attributes:
        first: whether it stands in the first table.
        title: metric, label and unit.
        numbers: by view; None where the metric has no such view.
        even: of uniform attention, by layer.
        percentiles: places among all heads of the stack in the stack's default view, 0 to 1.
            *Shape:* ``(layer, head)``.
    """

    metric: HeadMetric
    label: str
    first: bool
    title: WordsCell
    numbers: tuple[Estimates | None, ...]
    even: Floats
    percentiles: Floats


def metric_rows(results: StackResults, head: HeadName, *, first: bool) -> Iterator[Row]:
    """Its numbers: of metrics with many labels the first one, or the others."""
    for line in results.cached(_lines):
        if line.first == first:
            yield _metric_row(results, (head.layer, head.head), line)


def _lines(results: StackResults) -> tuple[_Line, ...]:
    """The rows of both tables."""
    found = []
    for metric in results.metrics:
        if metric.chart is ChartKind.PROFILE or metric.id in ELSEWHERE:
            continue  # these have a figure or a table of their own
        for label in metric.listed:
            first = label == metric.headline or metric.id in WHOLE
            if metric.chart is ChartKind.DISTANCES and not first:
                continue  # their distances are on the metric's page
            if any(results.has_value(metric.id, view, label) for view in metric.views):
                found.append(_line(results, metric, label, first=first))
    return tuple(found)


def _line(results: StackResults, metric: HeadMetric, label: str, *, first: bool) -> _Line:
    view = results.view(metric, label)
    about = f": {unbroken(label_name(label))}" if label_name(label) else ""
    unit = (" ", MarkedText(f"({metric.unit})", "small")) if metric.unit else ()
    return _Line(
        metric=metric,
        label=label,
        first=first,
        title=words_cell(
            metric_link(metric.id, metric.title) if first else metric.title, about, *unit
        ),
        numbers=tuple(
            results.heads(metric.id, v, label) if v in metric.views else None for v in SinkView
        ),
        even=results.uniform(metric.id, view, label).value,
        percentiles=percentiles(results.heads(metric.id, view, label).value),
    )


def _metric_row(results: StackResults, cell: tuple[int, int], line: _Line) -> Row:
    """By view the head's number, then uniform attention and what it is compared with."""
    metric, share = line.metric, float(line.percentiles[cell])
    cells = (
        *(None if each is None else NumberCell.of(each.at(*cell), metric) for each in line.numbers),
        number(float(line.even[cell[0]]), share=is_share(metric)),
        *(
            baseline_text(results, control, metric, line.label, cell)
            for control in results.baselines
        ),
        MISSING if math.isnan(share) else str(round(100 * share)),
    )
    return Row(line.title, cells)


def tag_rows(results: StackResults, head: HeadName) -> Iterator[TagRow]:
    """Attention to parts of speech among ordinary keys, the largest share first."""
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


MOST_STRIPS = 6
STRIP_TITLES = {
    "previous": "Attention to the previous token",
    "next": "Attention to the next token",
    "self": "Attention to the token itself",
    "same_token": "Attention to other occurrences of the token",
    "same_word": "Attention within the word",
    "punctuation": "Attention to punctuation",
}
LEAST_HEADS = 3
# Metrics and labels that say what a head does; the first come first where two are as extreme.
ASKED = (
    (ids.DEPENDENCY_EXCESS, "surface"),
    (ids.DEPENDENCY_ALIGNMENT, "either"),
    (ids.DEPENDENCY_TREES, ""),
    (ids.PHRASE_TREES, ""),
    (ids.ATTENTION_TO, "previous"),
    (ids.ATTENTION_TO, "next"),
    (ids.ATTENTION_TO, "self"),
    (ids.ATTENTION_TO, "same_token"),
    (ids.ATTENTION_TO, "same_word"),
    (ids.ATTENTION_TO, "punctuation"),
    (ids.ATTENTION_DISTANCE, ""),
    (ids.RELATIVE_ENTROPY, ""),
    (ids.CONFIDENCE, ""),
    (ids.VARIABILITY, ""),
    (ids.SINK_SHARE, ""),
    (ids.OUTPUT_NORM_SHARE, ""),
    (ids.RARE_WORD_FOCUS, ""),
    (ids.INDUCTION_SCORE, ""),
    (ids.DUPLICATE_SCORE, ""),
    (ids.ROW_SIMILARITY, ""),
)


@dataclass(frozen=True)
class Strip:
    """One number of a head among those of all heads of its stack.

    Attributes:
        title, href: the metric with its label, and its page.
        place: which of all heads it is, such as ``2nd highest of 72``.
        value: with its interval.
        median: of all heads.
        keys: which keys count, where not all do.
        drawing: all heads as hairlines.
    """

    title: str
    href: str
    place: str
    value: str
    median: str
    keys: str
    drawing: Drawing


@dataclass(frozen=True)
class _Asked:
    """A number that is asked for, and what is the same for all heads.

    Attributes:
        metric, label, view: which number it is.
        title: its name on pages.
        values: *Shape:* ``(layer, head)``.
        strip: of all of them.
        alike: values of all heads by what pages print of them.
        median: of all heads, in words.
    """

    metric: HeadMetric
    label: str
    view: SinkView
    title: str
    values: Floats
    strip: RangeStrip
    alike: Mapping[str, Floats]
    median: str

    def rank(self, own: float) -> tuple[int, int, int]:
        """Return how many heads have more, less, and a value that is equal or printed alike."""
        there = self.strip.values
        tied = self.alike[_written(self.metric, own)]
        below = int(np.searchsorted(there, tied.min(), "left"))
        above = len(there) - int(np.searchsorted(there, tied.max(), "right"))
        return above, below, len(there) - above - below


def strips(results: StackResults, head: HeadName) -> tuple[Strip, ...]:
    """The most extreme metrics of a head, the most extreme first."""
    found = []
    for order, asked in enumerate(results.cached(_asked)):
        own = float(asked.values[head.layer, head.head])
        if not math.isnan(own) and is_ranked(results, asked.metric.id, (head.layer, head.head)):
            rank, away = _extreme(asked, own)
            found.append((-rank, -away, order, asked))
    found.sort(key=lambda each: each[:3])
    return tuple(_strip(results, head, asked) for *_, asked in found[:MOST_STRIPS])


def _asked(results: StackResults) -> tuple[_Asked, ...]:
    return tuple(_there(results))


def _there(results: StackResults) -> Iterator[_Asked]:
    """What the stack has of `ASKED`, with values that differ among enough heads."""
    known = results.by_id
    for name, asked in ASKED:
        if name not in known:
            continue
        metric, label = known[name], asked or known[name].headline
        view = results.view(metric, label)
        if results.has_value(name, view, label):
            values = results.heads(name, view, label).value
            there = values[~np.isnan(values)]
            if len(there) >= LEAST_HEADS and np.ptp(there) > 0:
                median = _written(metric, float(np.median(there)))
                strip, title = RangeStrip.of(values), _title(metric, label)
                alike = _alike(metric, there)
                yield _Asked(metric, label, view, title, values, strip, alike, median)


def _written(metric: HeadMetric, value: float) -> str:
    return number(value, share=is_share(metric))


def _alike(metric: HeadMetric, values: Floats) -> dict[str, Floats]:
    """Group values by what pages print of them."""
    found: dict[str, list[float]] = {}
    for value in values.tolist():
        found.setdefault(_written(metric, value), []).append(value)
    return {text: np.array(group) for text, group in found.items()}


def _title(metric: HeadMetric, label: str) -> str:
    of_kind = STRIP_TITLES.get(label) if metric.id == ids.ATTENTION_TO else None
    return of_kind or (f"{metric.title}: {label_name(label)}" if label else metric.title)


def _extreme(asked: _Asked, own: float) -> tuple[float, float]:
    """How far from the middle: by rank, then in quartile ranges."""
    there, (first, middle, third) = asked.strip.values, asked.strip.quarters
    _, below, equal = asked.rank(own)
    away = abs(own - middle) / max(third - first, float(there[-1] - there[0]) / 100)
    return round(abs((below + equal / 2) / len(there) - 0.5), 3), away


def _strip(results: StackResults, head: HeadName, asked: _Asked) -> Strip:
    metric, title = asked.metric, asked.title
    own = results.heads(metric.id, asked.view, asked.label).at(head.layer, head.head)
    place = _place(asked, own.value)
    picture = Drawing(f"strip-{metric.id}", f"{title}: {place}", asked.strip.drawn(own.value))
    return Strip(
        title=title,
        href=f"metrics/{metric.id}.html",
        place=place,
        value=estimate(own, share=is_share(metric)),
        median=asked.median,
        keys="" if asked.view is SinkView.RAW else VIEWS[asked.view],
        drawing=picture,
    )


def _place(asked: _Asked, own: float) -> str:
    """Return the rank of a head in words: ``highest of 72``, ``2nd lowest of 72``.

    Heads whose values are equal or printed alike are tied, and share the rank.
    """
    above, below, equal = asked.rank(own)
    rank, end = (above + 1, "highest") if above <= below else (below + 1, "lowest")
    place = f"{ordinal(rank) + ' ' if rank > 1 else ''}{end} of {above + below + equal:,}"
    others = equal - 1
    note = f" (tied with {number_word(others)} other{'s' * (others > 1)})" if others else ""
    return place + note


OFFSET_METRIC = ids.OFFSET_PROFILE
OFFSET_COLUMNS = ("Offset", "share", "interval", "uniform")
REACH = 8  # offsets that are shown on either side


@dataclass(frozen=True)
class Offsets:
    """Attention of one head by offset.

    Attributes:
        drawing: as bars.
        bars: their numbers.
    """

    drawing: Drawing
    bars: tuple[OffsetBar, ...]

    @property
    def picture(self) -> Drawing:
        """The drawing with its numbers, to be written into files."""
        return replace(self.drawing, rows=pd.DataFrame(self.bars))

    @property
    def table(self) -> PageTable:
        """The numbers as text."""
        return PageTable(OFFSET_COLUMNS, tuple(Row(None, bar.cells) for bar in self.bars))


def profile_name(head: HeadName) -> str:
    """What files and links call the picture of a head."""
    return f"profile-{head_file(head)}"


def has_offsets(results: StackResults) -> bool:
    """Whether a stack has attention by offset."""
    return results.has_value(OFFSET_METRIC, results.stack.default_view, "0")


def offset_section(results: StackResults, head: HeadName) -> Offsets | None:
    """Attention by offset in the stack's default view; None where it was not measured."""
    if not has_offsets(results):
        return None
    view = results.stack.default_view
    bars = []
    for offset in range(-REACH, (0 if results.stack.causal else REACH) + 1):
        estimate = results.heads(OFFSET_METRIC, view, str(offset)).at(head.layer, head.head)
        even = results.uniform(OFFSET_METRIC, view, str(offset)).at(head.layer)
        bars.append(OffsetBar(offset, estimate.value, estimate.low, estimate.high, even.value))
    caption = (
        f"Share of the attention of head {head_name(head)} by distance from query to key, "
        f"{VIEWS[view]}, {count_text(estimate.sentences, 'sentence')}. Lines: 95\u202f% intervals; "
        "dashed: uniform attention."
    )
    drawing = offset_profile(profile_name(head), caption, bars)
    return Offsets(drawing, tuple(bars))


RELATION_METRIC = ids.RELATION_ACCURACY
MOST = 8


def found_relations(results: StackResults, head: HeadName) -> tuple[ShareWithBaseline, ...]:
    """The relations that the head serves most above uniform attention.

    Numbers are those of the reporting half where the head was tested for a relation; those of all
    sentences elsewhere.
    """
    rows = []
    for label in results.labels(RELATION_METRIC):
        accuracy = results.heads(RELATION_METRIC, VIEW, label).at(head.layer, head.head)
        if accuracy.effective >= MIN_EFFECTIVE:
            even = results.uniform(RELATION_METRIC, VIEW, label).at(head.layer).value
            rows.append((accuracy.value - even, label, accuracy))
    rows.sort(key=lambda row: -row[0])
    tests = results.cached(tests_of_stack) if rows else None
    return tuple(
        _relation(label, accuracy, _test(tests, head, label), tests)
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
    label: str, accuracy: Estimate, n: int | None, tests: RelationTests | None
) -> ShareWithBaseline:
    words, share, supported = relation_words(label), math.nan, False
    if tests is not None and label in tests.labels:
        place = list(tests.labels).index(label)
        share = float(tests.at_rule.value[place])
        baseline = f"best surface rule ({rule_phrase(tests.rule[place])}): {percent(share)}; "
    else:
        baseline = ""
    if n is None or tests is None:
        baseline += "another head was tested" if baseline else "not tested"
    else:
        accuracy, supported = tests.accuracy.at(n), bool(tests.claimed[n])
        baseline += p_family_wise_text(float(tests.p[n]))
        if tests.above_rule[n] and not supported:
            baseline += ", but no more than a preference for a class of words"
    behind = f"{accuracy.events:,.0f} words"
    return share_with_baseline(words, baseline, accuracy, share, behind=behind, supported=supported)


MOST_ROWS = 8
COLUMNS = ("ratio to uniform", "to the mean head", "mean attention", "count", "sentences")
KINDS = {
    QUERY: ("Query tokens", "what the token gives to all keys off the sink"),
    KEY: ("Key tokens", "what the token receives from all queries of its sentence"),
    PAIR: ("Pairs, query → key", "what the query gives to the key"),
}


@dataclass(frozen=True)
class TopTokens:
    """The tokens and pairs that a head favours.

    Attributes:
        tables: by kind; none where nothing qualifies.
        about: the sentences that they were taken on.
        nothing: why there is no table; empty where there is one.
    """

    tables: tuple[PageTable, ...]
    about: str
    nothing: str


def top_tokens(results: StackResults, head: HeadName) -> TopTokens | None:
    """Return the tokens and pairs that a head favours; None if the study has no sums of them."""
    sums = results.study.corpus_sums.affinities.get(results.stack.name)
    if sums is None:
        return None
    layers = results.cached(_of_layers)
    tables, occurring = [], 0
    for what, (title, about) in KINDS.items():
        found = layers[head.layer][what]
        occurring += found.item.size
        more = (found.ratio[head.head] > 1) & (found.mean_head_ratio[head.head] > 1)
        above = np.flatnonzero(more)[:MOST_ROWS]
        rows = tuple(_token_row(sums, found, head.head, int(place)) for place in above)
        if rows:
            columns = ("Pair" if what == PAIR else "Token", *COLUMNS)
            caption = f"{title}: {about}."
            tables.append(PageTable(columns, rows, caption, "numbers top-tokens"))
    nothing = (
        f"No token and no pair of tokens occurs in {MIN_SENTENCES} different sentences."
        if not occurring
        else "No token or pair receives more than under uniform attention and from the mean head."
    )
    return TopTokens(tuple(tables), _about(results, sums), "" if tables else nothing)


def _of_layers(results: StackResults) -> dict[int, dict[str, FavouredTokens]]:
    sums = results.study.corpus_sums.affinities[results.stack.name]
    layers = results.stack.attention_layers
    return {layer: {what: favoured_tokens(sums, layer, what) for what in KINDS} for layer in layers}


def _token_row(sums: Affinities, found: FavouredTokens, head: int, place: int) -> Row:
    """Return a token or a pair; grey where the interval reaches a baseline."""
    at = head, place
    item = found.item[at]
    query, key = (str(sums.named(np.array(each[item]))) for each in (sums.query, sums.key))
    mean, low, high = (float(part[at]) for part in (found.mean, found.low, found.high))
    arrow = " → " if query and key else ""
    ends = interval_text(low, high, share=True)
    return Row(
        words_cell(MarkedText(visible(query), "bdi"), arrow, MarkedText(visible(key), "bdi")),
        (
            f"{number(float(found.ratio[at]))}×",
            f"{number(float(found.mean_head_ratio[at]))}×",
            words_cell(percent(mean), ends and " ", MarkedText(ends, "small"), style="number"),
            f"{int(found.count[at]):,}",
            f"{int(found.n_sentences[at]):,}",
        ),
        "" if found.clear[at] else "thin",
    )


def _about(results: StackResults, sums: Affinities) -> str:
    """On how many sentences, and what of them was left out."""
    every = results.study.manifest.counts["sentences"]
    of = "" if sums.looked == every else f" of {every:,} (those with the smallest hashes)"
    kept = (
        f"; tokens and pairs in fewer than {sums.floor} sentences were not kept"
        if sums.floor > MIN_SENTENCES
        else ""
    )
    return f"{count_text(sums.looked, 'sentence')}{of}{kept}"


STYLE = "numbers all"  # of the tables of all numbers


@dataclass(frozen=True)
class Lead:
    """What a head does.

    Attributes:
        type, style: its type, and the classes of its colours; empty without one.
        border: what its type is near the border of; may be empty.
        short: in a few words; may be empty.
        text: the evidence, in sentences; may be empty.
    """

    type: str
    style: str
    border: str
    short: str
    text: str


@dataclass(frozen=True)
class MeanMap:
    """Mean attention by position: the picture, empty where there is none, and what it is of."""

    picture: str
    over: str


@dataclass(frozen=True)
class NearTile:
    """A head near to this one: its page, its mean map, and how far it is."""

    name: str
    href: str
    picture: str
    distance: str


@dataclass(frozen=True)
class Near:
    """The nearest heads, by which keys."""

    keys: str
    tiles: tuple[NearTile, ...]


@dataclass(frozen=True, kw_only=True)
class HeadPage(Page):
    """One head.

    Attributes:
        name: ``L4·H11``.
        lead: what it does.
        stack_title: the kind of attention.
        place: where it stands among layers and heads, in words.
        previous, next: addresses and names of its neighbours, or None.
        mean: its mean attention.
        offsets: attention by offset, or None.
        exemplars: sentences with its attention.
        strips: where it stands among all heads.
        alike: by view the heads nearest to it, empty where heads were not compared; ``near`` are
            the nearest as pictures.
        relations: those that it serves most above uniform attention; empty without trees.
        contributions: its share of the output, and the sink's.
        ablated: what the model loses without it; None where no head was replaced.
        tags: attention to parts of speech; empty without tags.
        tags_sink: how much goes to the sink, which ``tags`` leave out; empty if that is little.
        top: the tokens and pairs that it favours; None where they were not summed.
        default_view: the keys that percentiles and charts use, in words.
        baselines: what the model is compared with.
        numbers: the head's numbers, of metrics with many labels the first one.
        more: the other labels.
        by_group: some of its numbers by group of sentences; None without groups.
        in_pairs: what differs within pairs of sentences; None without pairs.
        exemplar_maps: its strongest exemplar in three ways, or None without exemplars.
        alike_tokens: the same exemplar by what the head writes, or None where values are unknown.
        data: script with the exemplars' whole maps.
        remarks: what is missing here, and why.
    """

    template: ClassVar[str] = "head.html"
    scripts = (*ATTENTION_SCRIPTS, "attention_view", "attention_lines", "exemplars")
    contents = False
    name: str
    lead: Lead
    stack_title: str
    place: str
    previous: tuple[str, str] | None
    next: tuple[str, str] | None
    default_view: str
    baselines: tuple[str, ...]
    numbers: PageTable
    more: PageTable
    mean: MeanMap
    offsets: Offsets | None
    exemplars: Exemplars
    strips: tuple[Strip, ...]
    relations: tuple[ShareWithBaseline, ...]
    contributions: tuple[ShareWithBaseline, ...]
    ablated: AblationSection | None
    tags: tuple[TagRow, ...]
    tags_sink: str
    top: TopTokens | None
    alike: tuple[Neighbours, ...] = ()
    near: Near | None = None
    by_group: PageTable | None
    in_pairs: PageTable | None
    exemplar_maps: ExemplarMaps | None
    alike_tokens: ExemplarMaps | None
    data: str
    remarks: tuple[str, ...]


def head_pages(results: StackResults, share: slice = EVERY) -> Iterator[HeadPage]:
    """The pages of the heads of a stack, in order.

    Args:
        share: of the heads, those whose pages are made.
    """
    names = heads_of(results.stack)
    exemplars: dict[HeadName, list[Exemplar]] = {name: [] for name in names}
    for exemplar in results.study.sentence_data.exemplars:
        if exemplar.head in exemplars:
            exemplars[exemplar.head].append(exemplar)
    alike = results.cached(nearest_heads)
    for position, name in [*enumerate(names)][share]:
        before = names[position - 1] if position else None
        after = names[position + 1] if position + 1 < len(names) else None
        page = _page(results, name, exemplars[name], before, after)
        each = alike.get(name, ())
        yield replace(page, alike=each, near=_near(results, each))


def _page(
    results: StackResults,
    head: HeadName,
    exemplars: Sequence[Exemplar],
    before: HeadName | None,
    after: HeadName | None,
) -> HeadPage:
    stack, study = results.stack, results.study
    name = head_name(head)
    listed, maps = study.manifest.counts["sentences"], results.cached(mean_maps)
    strongest = strongest_of(results).get(head)
    baselines = tuple(baseline_title(results, baseline) for baseline in results.baselines)
    views = (VIEWS[view] for view in SinkView)
    columns = ("Metric", *views, "uniform attention", *baselines, "percentile")
    return HeadPage(
        path=head_page(head),
        title=f"Head {name}",
        description=f"What head {name} of {study.manifest.model.name} attends to in "
        f"{count_text(listed, 'sentence')}: numbers with intervals, and exemplar sentences.",
        name=name,
        lead=_lead(results, head, roles_by_head(results)[head]),
        stack_title=STACKS[stack.name],
        place=f"layer {head.layer} of {stack.n_layers}, head {head.head} of {stack.n_heads}, "
        "both counted from 0",
        previous=_neighbour(before),
        next=_neighbour(after),
        default_view=VIEWS[stack.default_view],
        baselines=baselines,
        numbers=PageTable(columns, tuple(metric_rows(results, head, first=True)), style=STYLE),
        more=PageTable(columns, tuple(metric_rows(results, head, first=False)), style=STYLE),
        mean=MeanMap(maps.picture((head.layer, head.head)), maps.over),
        offsets=offset_section(results, head),
        exemplars=exemplars_of(results, head, exemplars),
        strips=strips(results, head),
        contributions=tuple(output_shares(results, head)),
        ablated=ablation_section(results, head),
        tags=tuple(tag_rows(results, head)),
        tags_sink=sink_remark(results, (head.layer, head.head)),
        top=top_tokens(results, head),
        relations=found_relations(results, head),
        by_group=group_table(results, head.layer, head.head),
        in_pairs=pair_table(results, head.layer, head.head),
        exemplar_maps=exemplar_maps(results, strongest) if strongest else None,
        alike_tokens=token_similarity_maps(results, strongest) if strongest else None,
        data=f"data/heads/{head_file(head)}.js",
        remarks=tuple(gap_texts(gap for gap in study.manifest.gaps if gap.stack == stack.name)),
    )


def _lead(results: StackResults, head: HeadName, role: Role) -> Lead:
    head_type, short = role.type, role.short
    return Lead(
        type=head_type.name if head_type else "",
        style=style_of(head_type) if head_type else "",
        border=head_type.near if head_type else "",
        short=capital(short),
        text=role.text,
    )


def _near(results: StackResults, alike: Sequence[Neighbours]) -> Near | None:
    """The nearest heads by the last view, that without the sink."""
    if not alike:
        return None
    maps, names = results.cached(mean_maps), results.cached(_heads_by_name)
    nearest = alike[-1]
    column = list(nearest.table.columns).index(VIEWS[nearest.view]) - 1
    tiles = []
    for row in nearest.table.rows:
        head, distance = names[row.name], row.cells[column]
        assert isinstance(distance, NumberCell)
        picture = maps.picture((head.layer, head.head))
        tiles.append(NearTile(row.name, head_page(head), picture, distance.text))
    return Near(VIEWS[nearest.view], tuple(tiles))


def _heads_by_name(results: StackResults) -> dict[str, HeadName]:
    return {head_name(head): head for head in heads_of(results.stack)}


def _neighbour(head: HeadName | None) -> tuple[str, str] | None:
    return None if head is None else (head_page(head), head_name(head))
