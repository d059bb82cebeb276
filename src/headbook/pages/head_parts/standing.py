"""The rank of a head among all heads, by metrics on which few heads are further out."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.charts import Drawing
from headbook.charts.heads import RangeStrip
from headbook.metrics import ids
from headbook.metrics.base import HeadMetric
from headbook.report.leaders import NOT_TESTED, rank_range
from headbook.report.results import StackResults
from headbook.report.trees import is_ranked
from headbook.report.wording import VIEWS, estimate, is_share, label_name, number_word, ordinal
from headbook.results.formats import metric_page, number
from headbook.schema import HeadKey, HeadName, SinkView

MOST_STRIPS = 6
MAX_RANK = 3  # from either end, up to which a head stands out
STRIP_TITLES = {
    "previous": "Attention to the previous token",
    "next": "Attention to the next token",
    "self": "Attention to the token itself",
    "same_token": "Attention to other occurrences of the token",
    "same_word": "Attention within the word",
    "punctuation": "Attention to punctuation",
}
LEAST_HEADS = 3
# Metrics and labels by which heads are ranked; of two equally extreme ones, the earlier is printed
# first.
ASKED = (
    (ids.DEPENDENCY_EXCESS, ""),
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
    (ids.SENTENCE_EXCESS, ""),
    (ids.REPETITION_EXCESS, ""),
)


@dataclass(frozen=True)
class Strip:
    """A number of one head among those of all heads of the stack.

    Attributes:
        title, href: the metric with its label, and its page.
        place: rank among all heads, such as ``2nd highest of 72``.
        value: number of the head with its interval.
        median: median of all heads.
        keys: keys that count; empty if all keys do.
        drawing: values of all heads as hairlines.
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
    """A number by which heads are ranked, with the values that are computed once for all heads.

    Attributes:
        metric, label, view: key of the number.
        title: name of the number on pages.
        values: numbers of all heads. *Shape:* ``(layer, head)``.
        strip: strip of these values.
        alike: values of all heads by their printed text.
        median: printed median of all heads.
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
        values = self.strip.values
        tied = self.alike[_written(self.metric, own)]
        below = int(np.searchsorted(values, tied.min(), "left"))
        above = len(values) - int(np.searchsorted(values, tied.max(), "right"))
        return above, below, len(values) - above - below

    def outer_rank(self, own: float) -> float:
        """Return the rank of a value from the nearer end; tied heads share the middle rank."""
        above, below, equal = self.rank(own)
        return min(above, below) + (equal + 1) / 2


def strips(results: StackResults, head: HeadName) -> tuple[Strip, ...]:
    """Return the metrics on which a head is among the first or last `MAX_RANK`, by rank."""
    ranked = []
    for order, (asked, own) in enumerate(_ranked(results, head)):
        if asked.outer_rank(own) <= MAX_RANK:
            rank, away = _extreme(asked, own)
            ranked.append((-rank, -away, order, asked))
    ranked.sort(key=lambda each: each[:3])
    return tuple(_strip(results, head, asked) for *_, asked in ranked[:MOST_STRIPS])


def strips_text(results: StackResults, head: HeadName, n_strips: int) -> str:
    """Return on how many metrics a head stands out, as a sentence; empty if none ranks it.

    Args:
        n_strips: metrics that the page shows.
    """
    ranked = [asked for asked, _ in _ranked(results, head)]
    if not ranked:
        return ""
    many = f"{number_word(MAX_RANK)} highest or lowest"
    heads = f"{max(len(asked.strip.values) for asked in ranked):,} heads"
    if not n_strips:
        return f"On none of {len(ranked)} metrics is it among the {many} of {heads}."
    those = "a metric" if n_strips == 1 else "metrics"
    return (
        f"By {those} on which it is among the {many} of {heads}, of {len(ranked)} compared; "
        "numbers are those of all sentences."
    )


def _ranked(results: StackResults, head: HeadName) -> Iterator[tuple["_Asked", float]]:
    """Yield the metrics that rank a head, with the head's number."""
    for asked in results.cached(_asked):
        own = float(asked.values[head.layer, head.head])
        if not math.isnan(own) and is_ranked(results, asked.metric.id, (head.layer, head.head)):
            yield asked, own


def _asked(results: StackResults) -> tuple[_Asked, ...]:
    return tuple(_asked_of_stack(results))


def _asked_of_stack(results: StackResults) -> Iterator[_Asked]:
    """Yield the numbers of `ASKED` that the stack has and that differ among enough heads."""
    known = results.by_id
    for name, asked in ASKED:
        if name not in known:
            continue
        metric, label = known[name], asked or known[name].headline
        view = results.view(metric, label)
        if results.has_value(name, view, label):
            values = results.heads(name, view, label).value
            known_values = values[~np.isnan(values)]
            if len(known_values) >= LEAST_HEADS and np.ptp(known_values) > 0:
                median = _written(metric, float(np.median(known_values)))
                strip, title = RangeStrip.of(values), _title(metric, label)
                alike = _alike(metric, known_values)
                yield _Asked(metric, label, view, title, values, strip, alike, median)


def _written(metric: HeadMetric, value: float) -> str:
    return number(value, share=is_share(metric))


def _alike(metric: HeadMetric, values: Floats) -> dict[str, Floats]:
    """Group values by their printed text."""
    groups: dict[str, list[float]] = {}
    for value in values.tolist():
        groups.setdefault(_written(metric, value), []).append(value)
    return {text: np.array(group) for text, group in groups.items()}


def _title(metric: HeadMetric, label: str) -> str:
    of_kind = STRIP_TITLES.get(label) if metric.id == ids.ATTENTION_TO else None
    return of_kind or (f"{metric.title}: {label_name(label)}" if label else metric.title)


def _extreme(asked: _Asked, own: float) -> tuple[float, float]:
    """Return the distance of a value from the middle: by rank, then in quartile ranges."""
    values, (first, middle, third) = asked.strip.values, asked.strip.quarters
    _, below, equal = asked.rank(own)
    away = abs(own - middle) / max(third - first, float(values[-1] - values[0]) / 100)
    return round(abs((below + equal / 2) / len(values) - 0.5), 3), away


def _strip(results: StackResults, head: HeadName, asked: _Asked) -> Strip:
    metric, title = asked.metric, asked.title
    own = results.heads(metric.id, asked.view, asked.label).at(head.layer, head.head)
    place = _place(results, head, asked, own.value)
    picture = Drawing(f"strip-{metric.id}", f"{title}: {place}", asked.strip.drawn(own.value))
    return Strip(
        title=title,
        href=metric_page(metric.id),
        place=place,
        value=estimate(own, share=is_share(metric)),
        median=asked.median,
        keys="" if asked.view is SinkView.RAW else VIEWS[asked.view],
        drawing=picture,
    )


def _place(results: StackResults, head: HeadName, asked: _Asked, own: float) -> str:
    """Return the rank of a head in words: ``2nd lowest of 72``, ``among the 4 highest of 72``.

    Heads that a paired test does not tell from it may have its rank. Where nothing was tested,
    heads whose values are equal or printed alike share the rank.
    """
    key = HeadKey(asked.metric.id, asked.view, asked.label)
    tested = rank_range(results, key, (head.layer, head.head))
    above, below, equal = asked.rank(own)
    if tested is not None:
        above, below = tested.above, tested.below
        equal = tested.candidates - above - below
    first, end = (above + 1, "highest") if above <= below else (below + 1, "lowest")
    last, total = first + equal - 1, above + below + equal
    note = "" if tested else NOT_TESTED
    if first == last:
        return f"{ordinal(first) + ' ' if first > 1 else ''}{end} of {total:,}{note}"
    if first == 1:
        return f"among the {last:,} {end} of {total:,}{note}"
    return f"{ordinal(first)} to {ordinal(last)} {end} of {total:,}{note}"
