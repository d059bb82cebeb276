"""The overview's curves over layers: attention, cosine to the input, rank in the vocabulary."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.charts.base.drawing import Drawing
from headbook.charts.drawn.lines import Line, layer_lines
from headbook.metrics import ids
from headbook.report.numbers.results import Estimates, StackResults
from headbook.report.numbers.roles import sink_words
from headbook.report.wording import STACKS, percent
from headbook.terms import Space, State, View

CLASSES = {"content": "content words", "function": "function words", "special": "special tokens",
           "all": "all tokens"}  # fmt: skip
DRAWN = (ids.SINK_SHARE, ids.RELATIVE_ENTROPY, ids.COSINE_TO_INPUT, ids.VOCABULARY_RANK)
MOST_LINES = 3
ROOM = 1.25
APART = 0.12  # of the axis, between two of its numbers


@dataclass(frozen=True)
class LayerCurve:
    """One of the curves.

    Attributes:
        title: what is drawn.
        picture: the curve.
        metric: whose page has more.
        files: name of the metric's own chart of layers, which shows other lines; empty without
            one.
    """

    title: str
    picture: Drawing
    metric: str
    files: str


def layer_curves(results: StackResults, files: Collection[str]) -> tuple[LayerCurve, ...]:
    """Those that a stack has numbers for.

    Args:
        files: names of the charts that there are files of.
    """
    return tuple(
        LayerCurve(title, picture, metric, name if name in files else "")
        for metric, title, picture in (*_attention(results), *_cosine(results), *_rank(results))
        for name in (f"{metric}-{results.stack.name}-layers",)
    )


Made = tuple[str, str, Drawing]


def _attention(results: StackResults) -> Iterator[Made]:
    """What the sink receives and contributes; without it, how even attention is."""
    what = sink_words(results)
    if results.has(ids.SINK_SHARE, View.RAW):
        lines = [
            _of(results, "attention", results.layers(ids.SINK_SHARE, View.RAW)),
            *(
                [_of(results, "output norm", results.layers(ids.SINK_NORM_SHARE, View.RAW))]
                if results.has(ids.SINK_NORM_SHARE, View.RAW)
                else []
            ),
            _of(results, "uniform", results.uniform(ids.SINK_SHARE, View.RAW), dashed=True),
        ]
        caption = (
            f"Share of attention to {what}, and their share of the value-weighted norm, all heads "
            "of a layer together"
        )
        yield (
            ids.SINK_SHARE,
            f"Attention to {what}",
            _drawn(results, "sink", caption, lines, share=True),
        )
    elif results.has(ids.RELATIVE_ENTROPY, View.RAW):
        lines = [_of(results, "attention maps", results.layers(ids.RELATIVE_ENTROPY, View.RAW), 2)]
        caption = "Normalised entropy of attention; 1 is uniform attention"
        yield ids.RELATIVE_ENTROPY, "Normalised entropy", _drawn(results, "entropy", caption, lines)


def _cosine(results: StackResults) -> Iterator[Made]:
    lines = [*_by_class(results, ids.COSINE_TO_INPUT, None)]
    if lines:
        caption = "Cosine between a token's state after each layer and its input embedding"
        yield (
            ids.COSINE_TO_INPUT,
            "Cosine to the input embedding",
            _drawn(results, "cosine", caption, lines),
        )


def _rank(results: StackResults) -> Iterator[Made]:
    for space in (Space.POSITIONAL, Space.RAW):
        lines = [*_by_class(results, ids.VOCABULARY_RANK, space)]
        if lines:
            caption = (
                "Number of vocabulary tokens nearer to a state than its own input token, mean of "
                "log10(1 + rank) after each layer; 0: still the nearest"
            )
            yield (
                ids.VOCABULARY_RANK,
                "Vocabulary rank, log10(1 + rank)",
                _drawn(results, "rank", caption, lines),
            )
            return


def _by_class(results: StackResults, metric: str, space: Space | None) -> Iterator[Line]:
    """Classes of tokens; all together where no class is known."""
    found = 0
    for label, name in CLASSES.items():
        numbers = results.tokens(metric, State.OUT, space, label)
        if numbers is not None and (label != "all" or not found) and found < MOST_LINES:
            found += 1
            yield _of(results, name, numbers, 2)


def _of(
    results: StackResults, name: str, numbers: Estimates, digits: int = -1, *, dashed: bool = False
) -> Line:
    layers = [*results.stack.attention_layers]
    value, low, high = (part[layers] for part in numbers[:3])
    if dashed:
        low = high = np.full(len(layers), math.nan)
    texts = [
        percent(each) if digits < 0 else f"{each:.{digits}f}".replace("-", "−")
        for each in map(float, value)
    ]
    return Line(name, value, low, high, texts, dashed)


def _drawn(
    results: StackResults, name: str, caption: str, lines: Sequence[Line], *, share: bool = False
) -> Drawing:
    stack = results.stack
    ends = _ends(lines)
    marks = (ends[0], 0.0, ends[1] / 2, ends[1])
    ticks = [
        (mark, f"{100 * mark:.0f}\u202f%" if share else f"{mark:g}".replace("-", "−"))
        for mark in dict.fromkeys(marks)
        if not mark or abs(mark) >= APART * (ends[1] - ends[0])
    ]
    caption_text = f"{caption}; {STACKS[stack.name]}. Bands: 95 % intervals, sentences as clusters."
    return layer_lines(
        f"overview-{name}-{stack.name}",
        caption_text,
        lines,
        layers=stack.attention_layers,
        ends=ends,
        ticks=ticks,
    )


def _ends(lines: Sequence[Line]) -> tuple[float, float]:
    """Round ends of the axis that hold 0 and all values.

    Intervals count as far as `ROOM` times the largest value: one wide interval must not flatten
    all lines. What lies beyond is cut.
    """
    values, bands = ([part[~np.isnan(part)] for part in parts] for parts in (
        [line.values for line in lines], [end for line in lines for end in (line.low, line.high)]
    ))  # fmt: skip
    most = ROOM * max((float(abs(value).max(initial=0)) for value in values), default=0.0)
    known = np.concatenate([*values, *(band.clip(-most, most) for band in bands)])
    low, high = float(known.min(initial=0)), float(known.max(initial=0))
    return (-_round(-low) if low < 0 else 0.0), (_round(high) if high > 0 else 1.0)


def _round(size: float) -> float:
    """The least round number that is not smaller."""
    ten = 10.0 ** math.floor(math.log10(size))
    return next(step * ten for step in (1, 2, 4, 6, 8, 10) if step * ten >= size * (1 - 1e-9))
