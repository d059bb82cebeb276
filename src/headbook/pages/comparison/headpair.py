"""Two heads: sentences, means, differences of every number."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimate
from headbook.analysis.multiple_testing import ALPHA
from headbook.comparison.change_sizes import change_sizes, number_title
from headbook.comparison.differences import ComparedColumn, HeadDifferences
from headbook.comparison.drift import (
    CEILING_LABEL,
    FLOOR_LABEL,
    PATTERN_DRIFT,
    divergence_text,
)
from headbook.comparison.head_pairs import HeadPair, PairedStack
from headbook.metrics import all_metrics
from headbook.metrics.base import Section
from headbook.pages.comparison.pairmaps import (
    PairExemplar,
    pair_exemplars,
    what_is_drawn,
)
from headbook.pages.comparison.parts import METRICS, moved, moved_words
from headbook.pages.overview_parts.differences import MapPicture, signed_picture
from headbook.pages.parts.atlas import mean_maps
from headbook.pages.parts.groups import difference_cell
from headbook.pages.parts.page import ATTENTION_SCRIPTS, TemplatePage
from headbook.pages.parts.table import MarkedText, NumberCell, PageTable, Row, words_cell
from headbook.report.facts.functions import functions_of
from headbook.report.results import StackResults
from headbook.report.wording import (
    ROUNDING_NOTE,
    STACKS,
    VIEWS,
    count_text,
    is_share,
    label_name,
    unbroken,
)
from headbook.results.formats import MISSING, head_file, head_name, head_page, number, p_text
from headbook.schema import HeadName, SinkView

FIRST = 6  # differences that the page begins with
WEAK = "weak"  # of a row without support
STYLE = "numbers all"
ABOVE_TABLES = {PATTERN_DRIFT} | METRICS  # of both models at once: said in sentences


@dataclass(frozen=True)
class SectionTable:
    """The numbers of one kind of metrics, and how many of them differ with support."""

    title: str
    about: str
    table: PageTable


@dataclass(frozen=True)
class PairNumbers:
    """All numbers of two heads.

    Attributes:
        first: the differences with support that are largest beside those of other heads; None
            without any.
        largest: the first of them in words; empty without any.
        supported, total: how many differ with support, of how many.
        rule: when a number counts as different.
        equal: whether every number of both is exactly equal.
        sections: all of them.
    """

    first: PageTable | None
    largest: str
    supported: int
    total: int
    rule: str
    equal: bool
    sections: tuple[SectionTable, ...]


@dataclass(frozen=True)
class _Number:
    """One number of two heads.

    Attributes:
        column: metric, view and label.
        a, b: value of each head.
        difference: second minus first, with its interval.
        q: p adjusted for all heads and labels.
        supported: whether the heads count as different.
        size: the difference in standard deviations among the heads of both models.
    """

    column: ComparedColumn
    a: float
    b: float
    difference: Estimate
    q: float
    supported: bool
    size: float

    @property
    def share(self) -> bool:
        metric = all_metrics().get(self.column.metric)
        return metric is not None and is_share(metric)

    @property
    def section(self) -> Section:
        metric = all_metrics().get(self.column.metric)
        return metric.section if metric else Section.CONTRIBUTIONS


def pair_numbers(paired: PairedStack, pair: HeadPair) -> PairNumbers:
    """Return the numbers of a pair, without differences if its heads do not correspond."""
    if paired.differences is None:
        return PairNumbers(None, "", 0, 0, "", equal=False, sections=_by_themselves(paired, pair))
    found = [*_numbers(paired.differences, pair.a.layer, pair.a.head)]
    strong = sorted((each for each in found if each.supported), key=lambda each: -each.size)
    columns = ("Metric", *paired.names, "difference")
    first = PageTable(
        columns, tuple(_row(each, short=True) for each in strong[:FIRST]), style=STYLE
    )
    return PairNumbers(
        first=first if strong else None,
        largest=_in_words(strong[0]) if strong else "",
        supported=len(strong),
        total=len(found),
        rule=_rule(paired.differences),
        equal=all(each.difference.value == 0 for each in found),
        sections=tuple(_sections(found, paired.names)),
    )


def largest_difference(found: HeadDifferences, head: HeadName) -> str:
    """Return the supported difference of a head that is largest among heads, in words.

    Empty without a supported difference.
    """
    numbers = [each for each in _numbers(found, head.layer, head.head) if each.supported]
    return _in_words(max(numbers, key=lambda each: each.size)) if numbers else ""


def _rule(found: HeadDifferences) -> str:
    """Return when a number counts as different; floors differ from number to number."""
    if np.isnan(found.floors).all():
        return f"with q < {ALPHA:g}; consistent across sentences; {ROUNDING_NOTE}"
    return f"with q < {ALPHA:g} and an interval beyond the rounding floor"


def _numbers(found: HeadDifferences, layer: int, head: int) -> Iterator[_Number]:
    parts = (found.a, found.b, found.value, found.low, found.high, found.q, found.supported)
    a, b, value, low, high, q, sure = (part[layer, head].tolist() for part in parts)
    behind, sizes = found.sentences[layer, head].tolist(), change_sizes(found)[layer, head]
    for n, column in enumerate(found.columns):
        if column.metric not in ABOVE_TABLES and not np.isnan(value[n]):
            difference = Estimate(value[n], low[n], high[n], behind[n], 0.0)
            yield _Number(column, a[n], b[n], difference, q[n], sure[n], float(sizes[n]))


def _sections(found: list[_Number], names: tuple[str, str]) -> Iterator[SectionTable]:
    columns = ("Metric", "Keys", *names, "difference", "q")
    for section in Section:
        own = [each for each in found if each.section == section]
        if not own:
            continue
        strong = sorted((each for each in own if each.supported), key=lambda each: -each.size)
        rest = [each for each in own if not each.supported]
        about = f"{len(strong)} of {count_text(len(own), 'number')} differ"
        rows = tuple(_row(each) for each in (*strong, *rest))
        yield SectionTable(section, about, PageTable(columns, rows, style=STYLE))


def _row(each: _Number, *, short: bool = False) -> Row:
    """One difference; ``short``: with its keys in its name, and without its q."""
    share, view = each.share, _view(each.column.view)
    cell = difference_cell(
        each.difference, share=share, behind=count_text(each.difference.sentences, "sentence")
    )
    values = number(each.a, share=share), number(each.b, share=share), cell
    style = "" if each.supported else WEAK
    if short:
        keys = f", {view}" if view else ""
        return Row(words_cell(number_title(each.column), MarkedText(keys, "small")), values, style)
    return Row(
        number_title(each.column), (words_cell(view, style="what"), *values, p_text(each.q)), style
    )


def _in_words(each: _Number) -> str:
    """One difference: what of, by how much."""
    cell = difference_cell(each.difference, share=each.share, behind="")
    keys = f", {view}" if (view := _view(each.column.view)) else ""
    return f"{number_title(each.column)}{keys}: {cell.text} {cell.interval}".strip()


def _view(view: str) -> str:
    return VIEWS[SinkView(view)] if view else ""


def _by_themselves(paired: PairedStack, pair: HeadPair) -> tuple[SectionTable, ...]:
    """Metrics of both heads in the view that pages show first, without a test."""
    found = []
    for section in Section:
        rows = []
        for metric in paired.a.metrics:
            if metric.section != section or metric.headline not in metric.labels:
                continue
            sides = ((paired.a, pair.a), (paired.b, pair.b))
            cells = tuple(
                _cell(results, metric.id, metric.headline, head) for results, head in sides
            )
            if not all(cell == MISSING for cell in cells):
                label = unbroken(label_name(metric.headline))
                rows.append(Row(f"{metric.title}{f': {label}' if label else ''}", cells))
        if rows:
            table = PageTable(("Metric", *paired.names), tuple(rows), style=STYLE)
            found.append(SectionTable(section, count_text(len(rows), "number"), table))
    return tuple(found)


def _cell(
    results: StackResults, metric: str, label: str, head: HeadName | None
) -> NumberCell | str:
    known = results.by_id.get(metric)
    if known is None or head is None:
        return MISSING
    view = results.view(known, label)
    if not results.has_value(metric, view, label):
        return MISSING
    return NumberCell.of(results.heads(metric, view, label).at(head.layer, head.head), known)


Links = tuple[str, str] | None


class HeadSide(NamedTuple):
    """The function of a head in one model.

    Attributes:
        name: name of the model.
        head: name of the head; empty if both heads have the same one.
        noun: name of the function.
        text: sentence on the function; empty if it was not measured.
        style: class of the function's colour.
    """

    name: str
    head: str
    noun: str
    text: str
    style: str


@dataclass(frozen=True, kw_only=True)
class HeadPairPage(TemplatePage):
    """Two heads.

    Attributes:
        name: of the first model's head.
        stack_title, place: the kind of attention, and where the head stands there.
        previous, next: addresses and names of the pairs beside it.
        sides: the head of each model; one where no other is known.
        lead: how they differ, in sentences.
        exemplars: sentences that differ most, and the median.
        between: what maps are drawn between, where that is not tokens.
        words: whether they are between words.
        means: mean maps by position, and their difference; empty where sizes differ.
        about_means: what they are the mean of.
        numbers: their numbers.
        tested: whether their differences were.
        data: script with the maps.
    """

    template: ClassVar[str] = "comparison/headpair.html"
    scripts = (*ATTENTION_SCRIPTS, "attention_view", "headpair")
    styles = ("comparison",)
    name: str
    stack_title: str
    place: str
    previous: Links
    next: Links
    sides: tuple[HeadSide, ...]
    lead: tuple[str, ...]
    exemplars: tuple[PairExemplar, ...]
    between: str
    words: bool
    means: tuple[MapPicture, ...]
    about_means: str
    numbers: PairNumbers
    tested: bool
    data: str


def headpair_pages(
    paired: PairedStack, listed: frozenset[int]
) -> Iterator[tuple[HeadPairPage, dict[str, Any]]]:
    """Yield the pages of all pairs of one kind of attention, each with data for its scripts.

    Args:
        listed: sentences that have a page, by index.
    """
    pairs = paired.pairs
    for place, pair in enumerate(pairs):
        before = pairs[place - 1].a if place else None
        after = pairs[place + 1].a if place + 1 < len(pairs) else None
        exemplars, values = pair_exemplars(paired, pair, paired.drift[:, place], listed)
        yield _page(paired, place, exemplars, (_neighbour(before), _neighbour(after))), values


def _page(
    paired: PairedStack,
    place: int,
    exemplars: tuple[PairExemplar, ...],
    beside: tuple[Links, Links],
) -> HeadPairPage:
    pair, stack = paired.pairs[place], paired.stack.a
    numbers = pair_numbers(paired, pair)
    name = head_name(pair.a)
    return HeadPairPage(
        path=head_page(pair.a),
        title=_pair_title(pair),
        description=f"How the attention of head {name} differs between {paired.names[0]} and "
        f"{paired.names[1]}: maps of the same sentences, and every number.",
        name=name,
        stack_title=STACKS[stack.name],
        place=f"layer {pair.a.layer} of {stack.n_layers}, head {pair.a.head} of {stack.n_heads}, "
        "both counted from 0",
        previous=beside[0],
        next=beside[1],
        sides=tuple(_sides(paired, pair)),
        lead=tuple(_lead(paired, place, numbers)),
        exemplars=exemplars,
        between=what_is_drawn(paired),
        words=paired.words,
        means=_means(paired, pair),
        about_means=paired.a.cached(mean_maps).about,
        numbers=numbers,
        tested=paired.differences is not None,
        data=f"data/heads/{head_file(pair.a)}.js",
    )


def _pair_title(pair: HeadPair) -> str:
    name = head_name(pair.a)
    if pair.b is None or not pair.counterpart:
        return f"Head {name}: no counterpart"
    same = (pair.a.layer, pair.a.head) == (pair.b.layer, pair.b.head)
    return f"Head {name} in both models" if same else f"Head {name} and {head_name(pair.b)}"


def _sides(paired: PairedStack, pair: HeadPair) -> Iterator[HeadSide]:
    for results, name, head in zip((paired.a, paired.b), paired.names, pair, strict=False):
        if isinstance(head, HeadName):
            function = functions_of(results)[head]
            other = "" if paired.differences is not None else head_name(head)
            style = function.style
            yield HeadSide(name, other, function.noun, function.text.text, style)


def _lead(paired: PairedStack, place: int, numbers: PairNumbers) -> Iterator[str]:
    pair = paired.pairs[place]
    if paired.differences is None:
        yield from _matched(paired, place)
        yield from _mean_drift(paired, place)
        return
    drift = paired.differences.column(PATTERN_DRIFT, str(SinkView.RAW))
    if drift is not None:
        yield from _drift(paired, pair, drift)
    weights = moved_words(moved(paired.differences), (pair.a.layer, pair.a.head))
    if weights:
        yield weights
    if numbers.equal:
        yield f"All {numbers.total:,} numbers are exactly equal."
    elif not numbers.supported:
        known = numbers.rule.partition("; ")[0]
        yield f"None of {numbers.total:,} numbers differs {known}."
    else:
        verb = "differs" if numbers.supported == 1 else "differ"
        yield (
            f"Of {count_text(numbers.total, 'number')}, {numbers.supported:,} {verb} "
            f"{numbers.rule}; "
            f"largest beside those of other heads: {numbers.largest}."
        )


def _drift(paired: PairedStack, pair: HeadPair, column: int) -> Iterator[str]:
    """Yield sentences on the divergence of attention, with its floor and ceiling."""
    found, at = paired.differences, (pair.a.layer, pair.a.head)
    assert found is not None
    value = float(found.value[*at, column])
    sentences = count_text(int(found.sentences[*at, column]), "sentence")
    if np.isnan(value):
        return
    if value == 0:
        yield f"Its attention is exactly equal in both models, in each of {sentences}."
        return
    low, high = float(found.low[*at, column]), float(found.high[*at, column])
    ends = "" if np.isnan(low) else f" [{divergence_text(low)}, {divergence_text(high)}]"
    beside = [
        f"{what}: {divergence_text(float(found.value[*at, other]))}"
        for label, what in (
            (FLOOR_LABEL, "rounding to bfloat16"),
            (CEILING_LABEL, "another head of its layer"),
        )
        if (other := found.column(PATTERN_DRIFT, str(SinkView.RAW), label)) is not None
        and not np.isnan(found.value[*at, other])
    ]
    yield f"Its attention diverges by {divergence_text(value)} nats{ends} between the models."
    yield f"Mean over queries of {sentences}{'; ' if beside else ''}{', '.join(beside)}."


def _matched(paired: PairedStack, place: int) -> Iterator[str]:
    """Yield the head with which a head is matched, or the reason for having none."""
    pair, matched = paired.pairs[place], paired.matched
    if matched is None or pair.b is None:
        yield "No head of the other model can be compared with it: they share too few words."
        return
    found = matched.matching
    other, model = head_name(pair.b), paired.names[1]
    similarity = matched.similarity[place, matched.b.index(pair.b)]
    if not pair.counterpart:
        why = (
            f"it is below {number(found.threshold)}, which 95\u202f% of heads stay under in a "
            "model with random weights"
            if matched.tested and similarity < found.threshold
            else "that head is matched with another one"
        )
        yield (
            f"No counterpart in {model}: most similar is {other}, with a similarity of "
            f"{number(float(similarity))}; {why}."
        )
        return
    mutual = (
        "each is the other's most similar head"
        if found.mutual[place]
        else ("but another pairing of one of them is more similar")
    )
    yield f"Matched with {other} of {model}: similarity {number(float(similarity))}, {mutual}."
    if not matched.tested:
        yield "Whether that is more than chance was not tested: no model with random weights came."


def _mean_drift(paired: PairedStack, place: int) -> Iterator[str]:
    drift = paired.drift[:, place]
    known = drift[~np.isnan(drift)]
    if len(known):
        behind = count_text(len(known), "sentence")
        mean = divergence_text(float(known.mean()))
        yield f"Their attention diverges by {mean} nats (mean over {behind})."


def _means(paired: PairedStack, pair: HeadPair) -> tuple[MapPicture, ...]:
    """Mean attention by position, and the difference where both are of the same size."""
    if pair.b is None:
        return ()
    sides: tuple[tuple[StackResults, HeadName], ...] = ((paired.a, pair.a), (paired.b, pair.b))
    maps = [results.cached(mean_maps) for results, _ in sides]
    places = [(head.layer, head.head) for _, head in sides]
    drawn = [
        MapPicture(name, each.picture(at), side)
        for name, each, at, side in zip(paired.names, maps, places, "ab", strict=True)
    ]
    one, other = (each.maps[at] for each, at in zip(maps, places, strict=True))
    if one.shape == other.shape:
        apart = np.nan_to_num(other - one)
        title = f"{paired.names[1]} minus {paired.names[0]}"
        drawn.append(MapPicture(title, signed_picture(apart), "difference"))
    return tuple(drawn)


def _neighbour(head: HeadName | None) -> Links:
    return None if head is None else (head_page(head), head_name(head))
