"""The page on the kinds of words that receive attention: parts of speech by layer and by head."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, Estimate
from headbook.analysis.arrays import Floats
from headbook.charts import Drawing, Plot, ratio_grid
from headbook.charts.plots import Scale, Series, layer_plot
from headbook.charts.theme import fills_between, ratio_class
from headbook.metrics import all_metrics
from headbook.pages.parts.page import AnalysisPage, StackSection, gap_text
from headbook.pages.parts.table import HeatCell
from headbook.report.answers import speech as answers
from headbook.report.claims.heads import GIVEN_BY_TAG
from headbook.report.findings.finding import Link, Parts, head_link
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults, study_of
from headbook.report.wording import (
    FEW_WORDS,
    MISSING,
    count_text,
    head_name,
    interval_text,
    number,
    percent,
)
from headbook.schema import HIGHEST, HeadName, heads_of
from headbook.study.manifest import Manifest, MissingPart

MOST_LINES = 14  # parts of speech in the figure
MOST_LINKED = 150  # marks of the figure up to which each is a link to its row
MOST_TABLE_CELLS = 400  # cells of a table by layer
MOST_CELLS = 720  # cells of heads with numbers, of all stacks together
MOST_STRONG = 4  # lines of the figure that are drawn at full strength: the farthest from 1x
MOST_GRIDS = 18  # parts of speech of a stack that are shown by head
TICKS = (1 / 8, 1 / 4, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0)  # ratios on the axis
HEIGHT = 430.0  # pixels of the figure
LONG_NAME = 15  # letters of a name that fits the narrower column of labels
ROW_VIEW = str(answers.VIEWS[answers.Direction.RECEIVED])


class TagRatios(NamedTuple):
    """Words of one part of speech: their ratios to uniform attention by layer.

    Attributes:
        name: the words as a plural.
        kind: their class, as the palette names it.
        words: number of words with the tag.
        cells: ratios by layer.
    """

    name: str
    kind: str
    words: str
    cells: tuple[HeatCell, ...]


class HeadGrid(NamedTuple):
    """Ratios of attention received by words of one part of speech, by head.

    Attributes:
        name, kind: the words, and their class.
        head: link to the head with the largest ratio on the half that chooses; None if unknown.
        most: its ratio on the other half.
        ratio: the number of ``most``; 0 if unknown.
        rows: layers with their cells; empty if a picture shows them.
        picture: all heads as fills; None if the rows show them.
    """

    name: str
    kind: str
    head: Link | None
    most: LinkedNumber | None
    ratio: float
    rows: tuple[tuple[int, tuple[HeatCell, ...]], ...]
    picture: Drawing | None


@dataclass(frozen=True)
class SpeechStack(StackSection):
    """Parts of speech in one stack.

    Attributes:
        plot: attention received by layer; None if no part of speech has enough words.
        layers: numbers of the layers with attention.
        received, given: parts of speech with enough words, the farthest from uniform attention
            first.
        few: parts of speech with fewer words, attention received.
        low, fills, high: the scale of fills of both tables.
        grids: parts of speech by head.
        left_out: number of parts of speech with enough words that are not shown everywhere.
        worked: a ratio as a computation.
    """

    plot: Plot | None
    layers: tuple[int, ...]
    received: tuple[TagRatios, ...]
    given: tuple[TagRatios, ...]
    few: tuple[TagRatios, ...]
    low: str
    fills: tuple[str, ...]
    high: str
    grids: tuple[HeadGrid, ...]
    left_out: int
    worked: Parts


@dataclass(frozen=True, kw_only=True)
class SpeechPage(AnalysisPage):
    """The page on parts of speech in all stacks.

    Attributes:
        stacks: stacks with parts of speech on either side.
        few_words: words below which a part of speech is folded.
    """

    template: ClassVar[str] = "speech.html"
    styles = (*AnalysisPage.styles, "speech")
    few_words: ClassVar[int] = FEW_WORDS
    stacks: tuple[SpeechStack, ...]


def speech_page(results: Mapping[str, StackResults]) -> SpeechPage:
    """Return the page of parts of speech."""
    manifest = study_of(results).manifest
    tagged = [
        r for r in results.values() if any(answers.tags_of(r, each) for each in answers.Direction)
    ]
    first = next(iter(results.values()))
    return SpeechPage(
        path="speech.html",
        title="Which kinds of words receive attention?",
        topic="Parts of speech",
        description=f"Attention of the heads of {manifest.model.name} to and from parts of speech, "
        "against uniform attention.",
        answer=answers.speech_answer(first),
        scope=tuple(_scope(first)),
        absent=tuple(dict.fromkeys(text for r in results.values() for text in _absent(r))),
        stacks=tuple(_stack(r, MOST_CELLS // len(tagged)) for r in tagged),
    )


def _scope(results: StackResults) -> Iterator[tuple[str, str]]:
    tags = answers.tags_of(results, answers.Direction.RECEIVED)
    if tags:
        words = sum(
            answers.n_words_of_tag(results, answers.Direction.RECEIVED, tag) for tag in tags
        )
        sentences = count_text(results.study.manifest.counts["sentences"], "sentence")
        yield f"{sentences},", f"{words:,} words with a tag; special tokens masked as keys."
        yield "Compared with", "uniform attention: equal weights on all visible keys (1×)."


def _absent(results: StackResults) -> Iterator[str]:
    """Yield the parts that a stack lacks: tags, or metrics that were not chosen."""
    manifest: Manifest = results.study.manifest
    for direction in answers.Direction:
        if answers.tags_of(results, direction):
            continue
        side = answers.side_of(results, direction)
        gaps = [
            gap_text(gap)
            for gap in manifest.gaps
            if gap.key == MissingPart.TAGS and gap.stack and manifest.stack(gap.stack).keys is side
        ]
        lacking = [metric for metric in answers.METRICS[direction] if metric not in results.by_id]
        if gaps:
            yield from (f"{gap}." for gap in gaps)
        elif lacking:
            titles = ", ".join(all_metrics()[metric].title for metric in lacking)
            yield f"{titles}: measured with --metrics {','.join(lacking)}."
        else:
            yield f"Words, {direction}: no word that counts has a part of speech."


def _stack(results: StackResults, most_cells: int) -> SpeechStack:
    received, given = (answers.frequent_tags(results, direction) for direction in answers.Direction)
    few = [
        tag for tag in answers.tags_of(results, answers.Direction.RECEIVED) if tag not in received
    ]
    ratios = [
        answers.layer_ratios(results, answers.Direction.RECEIVED, tag).value for tag in received
    ]
    ratios += [answers.layer_ratios(results, answers.Direction.GIVEN, tag).value for tag in given]
    low, high = (float(end(ratios)) if ratios else 1.0 for end in (np.nanmin, np.nanmax))
    n_heads, n_layers = len(heads_of(results.stack)), len(results.stack.attention_layers)
    n_rows = max(1, MOST_TABLE_CELLS // n_layers)
    grids = tuple(_grids(results, received, with_numbers=len(received) * n_heads <= most_cells))
    return SpeechStack(
        stack=results.stack.name,
        plot=_plot(results, received[:MOST_LINES]) if received else None,
        layers=results.stack.attention_layers,
        received=tuple(_rows(results, answers.Direction.RECEIVED, received[:n_rows])),
        given=tuple(_rows(results, answers.Direction.GIVEN, given[:n_rows])),
        few=tuple(_rows(results, answers.Direction.RECEIVED, few)),
        low=f"{number(low)}×",
        fills=fills_between(ratio_class(low), ratio_class(high)),
        high=f"{number(high)}×, of uniform attention",
        grids=grids,
        left_out=len(received) - min(len(grids), n_rows),
        worked=_worked(results, received) if received else (),
    )


def _rows(
    results: StackResults, direction: answers.Direction, tags: Sequence[str]
) -> Iterator[TagRatios]:
    """Yield parts of speech with their ratios, the farthest from uniform attention first."""
    ratios = {tag: answers.layer_ratios(results, direction, tag) for tag in tags}
    for tag in sorted(tags, key=lambda tag: -_distance(ratios[tag].value)):
        cells = tuple(
            _cell(results, direction, tag, layer, ratios[tag].at(layer))
            for layer in results.stack.attention_layers
        )
        words = f"{answers.n_words_of_tag(results, direction, tag):,}"
        yield TagRatios(answers.tag_name(tag), answers.word_class(tag), words, cells)


def _distance(ratios: Floats) -> float:
    """Return how far the farthest ratio is from 1, in octaves."""
    known = ratios[ratios > 0]
    return float(np.abs(np.log2(known)).max()) if len(known) else 0.0


def _cell(
    results: StackResults, direction: answers.Direction, tag: str, layer: int, ratio: Estimate
) -> HeatCell:
    if np.isnan(ratio.value):
        return HeatCell(MISSING, "q0")
    text, interval = number(ratio.value), interval_text(ratio.low, ratio.high)
    if direction is answers.Direction.RECEIVED:
        link = answers.received_number(results, tag, layer, text)
    else:
        metric, view = answers.METRICS[direction][0], str(answers.VIEWS[direction])
        row = (
            ("claim", GIVEN_BY_TAG), ("stack", results.stack.name), ("layer", layer),
            ("metric", metric), ("view", view), ("label", tag),
        )  # fmt: skip
        link = LinkedNumber(text, "tests", row)
    return HeatCell(text, ratio_class(ratio.value), link, f"{text} {interval}" * bool(interval))


def _plot(results: StackResults, tags: Sequence[str]) -> Plot:
    """Draw attention received by layer, a line for each part of speech."""
    layers = [*results.stack.attention_layers]
    series = _lines(results, tags)
    values = np.concatenate([line.values for line in series])
    known = values[values > 0]
    low, high = min(known.min(initial=1.0), 0.8) / 1.05, max(known.max(initial=1.0), 1.25) * 1.05
    scale = Scale(float(low), float(high), HEIGHT, top=16, log=True)
    nothing = np.full(len(layers), np.nan)
    plot = layer_plot(
        f"speech-{results.stack.name}",
        _caption(tags, series),
        [line._replace(low=nothing, high=nothing) for line in series],
        [str(layer) for layer in layers],
        scale=scale,
        ticks=[(tick, f"{tick:g}×") for tick in TICKS if low <= tick <= high],
        baselines=[(1.0, "")],
        label_width=160 if max(len(line.name) for line in series) <= LONG_NAME else 200,
    )
    intervals = [np.concatenate([getattr(s, end) for s in series]) for end in ("low", "high")]
    return replace(plot, rows=plot.rows.assign(low=intervals[0], high=intervals[1]))


def _lines(results: StackResults, tags: Sequence[str]) -> list[Series]:
    """Return a line for each part of speech; lines near uniform attention step back."""
    layers = [*results.stack.attention_layers]
    linked = len(layers) * len(tags) <= MOST_LINKED
    series = []
    for tag in tags:
        each = answers.layer_ratios(results, answers.Direction.RECEIVED, tag)
        hrefs = [answers.received_number(results, tag, layer, "").href for layer in layers]
        series.append(
            Series(
                answers.tag_name(tag).replace("conjunctions", "conj."),
                answers.word_class(tag),
                each.value[layers],
                each.low[layers],
                each.high[layers],
                [f"{number(value)}×" for value in each.value[layers].tolist()],
                hrefs if linked else (),
                hollow=bool(np.isnan(each.low[layers]).all()),
            )
        )
    strong = sorted(series, key=_end_distance, reverse=True)[:MOST_STRONG]
    return [line._replace(faint=all(line is not each for each in strong)) for line in series]


def _caption(tags: Sequence[str], series: Sequence[Series]) -> str:
    """Return the caption of the figure of attention received by layer."""
    weak = " Hollow: too few sentences for an interval." * any(line.hollow for line in series)
    strong = " Strong lines: farthest from 1× in the last layer." * any(s.faint for s in series)
    return (
        "Attention that words of a kind receive as keys, all heads of a layer, as a multiple of "
        "uniform attention (dashed); log scale. ● content words, ■ function words, ▲ punctuation"
        f"{', ○ other words' if any(answers.word_class(tag) == 'other' for tag in tags) else ''}. "
        "Kinds "
        f"with at least {FEW_WORDS} words{', the most frequent' * (len(tags) == MOST_LINES)}."
        f"{strong}{weak}"
    )


def _end_distance(line: Series) -> float:
    """Return how far the last known ratio of a line is from 1, in octaves."""
    known = line.values[line.values > 0]
    return float(abs(np.log2(known[-1]))) if len(known) else 0.0


def _grids(results: StackResults, tags: Sequence[str], *, with_numbers: bool) -> Iterator[HeadGrid]:
    """Yield parts of speech by head, the largest ratio first."""
    ratios = {tag: answers.head_ratios(results, tag) for tag in tags}
    order = sorted(tags, key=lambda tag: -float(np.nanmax(ratios[tag])))
    for tag in order[:MOST_GRIDS]:
        best = answers.best_head(results, tag)
        link = most = None
        ratio = 0.0
        if best is not None:
            link = head_link(HeadName(results.stack.name, *best))
            value = results.split(
                HELD_OUT, answers.RATIO, answers.VIEWS[answers.Direction.RECEIVED], tag
            ).at(*best)
            ratio = float(np.nan_to_num(value.value))
            most = LinkedNumber(
                f"{number(value.value)}×", "tests",
                (("claim", HIGHEST), ("stack", results.stack.name), ("metric", answers.RATIO),
                 ("view", ROW_VIEW), ("label", tag), ("split", "held_out")),
            )  # fmt: skip
        name = answers.tag_name(tag)
        yield HeadGrid(
            name, answers.word_class(tag), link, most, ratio,
            tuple(_grid_rows(results, tag, ratios[tag], best)) if with_numbers else (),
            None if with_numbers else ratio_grid(f"heads-{tag}", name, ratios[tag], best),
        )  # fmt: skip


def _grid_rows(
    results: StackResults, tag: str, ratios: Floats, best: tuple[int, int] | None
) -> Iterator[tuple[int, tuple[HeatCell, ...]]]:
    stack = results.stack.name
    for layer in results.stack.attention_layers:
        cells = []
        for head, value in enumerate(ratios[layer].tolist()):
            if np.isnan(value):
                cells.append(HeatCell(MISSING, "q0"))
                continue
            row = (
                ("stack", stack), ("layer", layer), ("head", head), ("metric", answers.RATIO),
                ("view", ROW_VIEW), ("label", tag),
            )  # fmt: skip
            fill = ratio_class(value) + " top1" * ((layer, head) == best)
            name = head_name(HeadName(stack, layer, head))
            link = LinkedNumber(f"{value:.1f}", "heads", row)
            cells.append(HeatCell(link.text, fill, link, f"{name}: {number(value)}×"))
        yield layer, tuple(cells)


def _worked(results: StackResults, tags: Sequence[str]) -> Parts:
    """Return the largest ratio of all layers as a computation."""
    numbers = {tag: answers.layer_ratios(results, answers.Direction.RECEIVED, tag) for tag in tags}
    tag = max(tags, key=lambda each: float(np.nanmax(numbers[each].value)))
    layer = int(np.nanargmax(numbers[tag].value))
    view, ratio = answers.VIEWS[answers.Direction.RECEIVED], numbers[tag].at(layer)
    share = results.layers(answers.SHARE, view, tag).value[layer]
    uniform = results.uniform(answers.SHARE, view, tag).value[layer]
    interval = interval_text(ratio.low, ratio.high)
    return (
        f"{answers.tag_name(tag)} in layer {layer}: {percent(float(share))} of the attention, "
        f"under uniform attention {percent(float(uniform))}: {number(ratio.value)}×"
        f"{f' {interval}' if interval else ''}.",
    )
