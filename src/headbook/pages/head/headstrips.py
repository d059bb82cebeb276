"""Where a head stands among all heads: the metrics in which it is most extreme."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arithmetic import Floats
from headbook.charts.base.drawing import Drawing
from headbook.charts.drawn.strips import range_strip
from headbook.metrics import ids
from headbook.metrics.base import HeadMetric
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.roles import estimate
from headbook.report.wording import VIEWS, is_share, label_name, number, ordinal
from headbook.study.sentencedata import HeadName
from headbook.terms import View

MOST_STRIPS = 6
KINDS = {
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
    (ids.DEPENDENCY_EXCESS, "either"),
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


def strips(results: StackResults, head: HeadName) -> tuple[Strip, ...]:
    """The most extreme metrics of a head, the most extreme first."""
    found = []
    for order, (metric, label, view) in enumerate(results.once(_asked)):
        values = results.heads(metric.id, view, label).value
        own = float(values[head.layer, head.head])
        if not math.isnan(own):
            rank, away = _extreme(values, own)
            found.append((-rank, -away, order, (metric, label, view)))
    found.sort(key=lambda each: each[:3])
    return tuple(_strip(results, head, *asked) for *_, asked in found[:MOST_STRIPS])


def _asked(results: StackResults) -> tuple[tuple[HeadMetric, str, View], ...]:
    return tuple(_there(results))


def _there(results: StackResults) -> Iterator[tuple[HeadMetric, str, View]]:
    """What the stack has of `ASKED`, with values that differ among enough heads."""
    known = results.by_id
    for name, asked in ASKED:
        if name not in known:
            continue
        label = asked or known[name].headline
        view = results.view(known[name], label)
        if results.has(name, view, label):
            values = results.heads(name, view, label).value
            there = values[~np.isnan(values)]
            if len(there) >= LEAST_HEADS and np.ptp(there) > 0:
                yield known[name], label, view


def _extreme(values: Floats, own: float) -> tuple[float, float]:
    """How far from the middle: by rank, then in quartile ranges."""
    there = values[~np.isnan(values)]
    share = ((there < own).sum() + (there == own).sum() / 2) / len(there)
    first, middle, third = np.quantile(there, (0.25, 0.5, 0.75))
    away = abs(own - middle) / max(third - first, np.ptp(there) / 100)
    return round(abs(float(share) - 0.5), 3), float(away)


def _strip(
    results: StackResults, head: HeadName, metric: HeadMetric, label: str, view: View
) -> Strip:
    numbers = results.heads(metric.id, view, label)
    values, own = numbers.value, numbers.at(head.layer, head.head)
    share = is_share(metric)
    of_kind = KINDS.get(label) if metric.id == ids.ATTENTION_TO else None
    title = of_kind or (f"{metric.title}: {label_name(label)}" if label else metric.title)
    place = _place(values, own.value)
    picture = Drawing(f"strip-{metric.id}", f"{title}: {place}", range_strip(values, own.value))
    return Strip(
        title=title,
        href=f"metrics/{metric.id}.html",
        place=place,
        value=estimate(own, share=share),
        median=number(float(np.nanmedian(values)), share=share),
        keys="" if view is View.RAW else VIEWS[view],
        drawing=picture,
    )


def _place(values: Floats, own: float) -> str:
    """``highest of 72``, ``2nd lowest of 72``."""
    there = values[~np.isnan(values)]
    above, below = int((there > own).sum()), int((there < own).sum())
    rank, end = (above + 1, "highest") if above <= below else (below + 1, "lowest")
    return f"{ordinal(rank) + ' ' if rank > 1 else ''}{end} of {len(there):,}"
