"""Numbers of one metric: the head that leads, or the range of values over heads.

A metric has a headline only if its definition says which end is notable. Of other metrics the
largest number of many heads is no finding, and the fact describes where all values lie.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from headbook.metrics import ids
from headbook.metrics.base import ChartKind, HeadMetric, LayerwiseMetric, Notable
from headbook.report.head_numbers import HeadMetricNumbers
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import relation_words
from headbook.report.results import StackResults, sentence_start
from headbook.report.wording import (
    DIRECTIONS,
    TOKEN_CLASSES,
    capital,
    count_text,
    label_name,
    unbroken,
)
from headbook.results.fact import Fact, Tested
from headbook.results.number import SHARE, Number
from headbook.results.sentence import NOTHING, Sentence, listed, say
from headbook.schema import (
    RELATION,
    ResidualPoint,
    SinkView,
    TokenKey,
    relation_of,
)

ATTENDED = {  # keys of the attention to kinds of tokens
    "previous": "the previous token",
    "next": "the next token",
    "first": "the first token",
}
# Views whose ranges an answer gives.
WITH_KEYS = {SinkView.RAW: "all keys", SinkView.NOSINK: "the sink masked"}
LOWEST_HIGHEST = {Notable.LOW: "lowest", Notable.HIGH: "most"}


def label_phrase(label: str, metric: HeadMetric) -> str:
    """Return a label in words: ``from a direct object to its verb (obj)``."""
    if not label:
        return metric.title
    if metric.id == ids.ATTENTION_TO:
        return f"to {ATTENDED.get(label) or label_name(label)}"
    if label.lstrip("-").isdigit():
        kind = "distance" if metric.chart is ChartKind.DISTANCES else "offset"
        return f"{kind} {label}".replace("-", "−")
    relation, direction = relation_of(label)
    return relation_words(label) if relation and direction in DIRECTIONS else label_name(label)


def head_values(numbers: HeadMetricNumbers) -> Fact:
    """Return the head that leads at the notable end, or the range over heads without one."""
    if numbers.notable is Notable.NONE or not _stands_out(numbers):
        return _over_heads(numbers)
    return _best_for_relation(numbers) or _leading(numbers)


def _stands_out(numbers: HeadMetricNumbers) -> bool:
    """Return whether any head differs from others, by a test if there are sums by sentence."""
    lowest, highest = (numbers.number(place).as_text() for place in numbers.ends())
    return lowest != highest and not (numbers.leaders and numbers.leaders.none_differs)


def _start(numbers: HeadMetricNumbers, rest: str, between: str = ": ") -> str:
    """Return the beginning of a fact: stack and label, as far as there are several."""
    several = len(numbers.results.drawable(numbers.metric)) > 1
    phrase = label_phrase(numbers.label, numbers.metric) + between if several else ""
    return sentence_start(numbers.results, unbroken(capital(phrase + rest)))


def _leading(numbers: HeadMetricNumbers) -> Fact:
    """Return the head that leads, beside uniform attention."""
    place = numbers.best()
    value, uniform = numbers.number(place), numbers.uniform(place[0])
    beside = NOTHING
    if uniform.known:
        words = f"; {beside_words(value.value, uniform.value, 'uniform attention')}{{uniform}}"
        beside = say(words, uniform=uniform)
    text = say(
        "{start}{head}{note}, {value}{beside}.",
        start=_start(numbers, f"{LOWEST_HIGHEST[numbers.notable]} in "), head=numbers.name(place),
        note=numbers.note, value=value, beside=beside,
    )  # fmt: skip
    return Fact(numbers.metric.id, text, heads=(numbers.name(place),))


def beside_words(value: float, baseline: float, name: str) -> str:
    """Return the words before a baseline's number, which say if the value is below it."""
    return f"less than {name}: " if value < baseline else f"{name}: "


def _best_for_relation(numbers: HeadMetricNumbers) -> Fact | None:
    """Return the head of a tested relation beside the best surface rule; None without a test."""
    results, metric, view, label = numbers
    tests = results.cached(tests_of_stack) if metric.id == ids.RELATION_ACCURACY else None
    if tests is None or label not in tests.labels:
        return None
    n = tests.labels.index(label)
    layer, head = map(int, tests.head[n])
    tested = Tested(
        RELATION, results.stack.name, metric.id, view, label, tests.scores.accuracy.at(n),
        layer=layer, head=head,
    )  # fmt: skip
    accuracy, rule = tested.number(SHARE), float(tests.scores.at_rule.value[n])
    words = beside_words(accuracy.value, rule, "the best surface rule")
    text = say(
        "{start}{head}, {accuracy}; {words}{rule}.",
        start=_start(numbers, ""), head=numbers.name((layer, head)), accuracy=accuracy, words=words,
        rule=Number(rule, SHARE, tested.row),
    )  # fmt: skip
    return Fact(metric.id, text, heads=(numbers.name((layer, head)),))


def _over_heads(numbers: HeadMetricNumbers) -> Fact:
    """Return between which values heads lie, with all keys and with the sink masked."""
    known_views = [numbers._replace(view=view) for view in WITH_KEYS]
    known_views = [of_view for of_view in known_views if of_view.known] or [numbers]
    ranges = [
        say("{values}{keys}", values=range_over_heads(of_view),
            keys=f" with {WITH_KEYS[of_view.view]}" if len(known_views) > 1 else "")
        for of_view in known_views
    ]  # fmt: skip
    amount = count_text(int((~np.isnan(numbers.heads.value)).sum()), "head")
    text = say(
        "{start}{values}.",
        start=_start(numbers, f"over {amount}: ", ", "),
        values=listed(ranges, "; "),
    )
    return Fact(numbers.metric.id, text, holds=False)


def range_over_heads(numbers: HeadMetricNumbers) -> Sentence:
    """Return the lowest and the highest number of heads: ``2.1 to 11.1 tokens``."""
    low, high = map(numbers.number, numbers.ends())
    if low.row == high.row:
        return say("{high}", high=high)
    if low.as_text() == high.as_text():
        return say("{high} in each", high=high)
    return say(
        "{low} to {high}" if low.unit == SHARE else "{low:bare} to {high}", low=low, high=high
    )


TokenNumbers = tuple[TokenKey, tuple[Number, ...]]  # a class of tokens, and its layers


def token_series(results: StackResults, metric: LayerwiseMetric) -> Iterator[TokenNumbers]:
    """Yield averages over classes of tokens by layer.

    States after the layer come first, and in each state the average over all tokens.
    """
    for state in reversed(metric.states):
        for space in metric.spaces or (None,):
            for kind in ("all", "content", "function"):
                key = TokenKey(metric.id, state, space, kind)
                numbers = results.token_numbers(key)
                if numbers:
                    yield key, numbers


def token_values(results: StackResults, metric: LayerwiseMetric) -> Fact:
    """Return an average over tokens in the first and last layer, and where it lies beyond both."""
    key, numbers = next(token_series(results, metric))
    after, unit = "after" if key.state is ResidualPoint.POST else "in", numbers[0].unit
    points = [
        say(f"{{number}} {after} layer {{layer}}", layer=str(number.place("layer")),
            number=number if unit == SHARE else number.bare)
        for number in _turning_points([number for number in numbers if number.known])
    ]  # fmt: skip
    name = "" if unit == SHARE or not unit.name else f",{unit.name}"
    text = say(
        "{start}{tokens}{unit}: {points}.", start=sentence_start(results, "Mean over "),
        tokens=TOKEN_CLASSES[key.label], unit=name, points=listed(points),
    )  # fmt: skip
    return Fact(metric.id, text)


def _turning_points(numbers: Sequence[Number]) -> list[Number]:
    """Return the first and the last number, and those of values beyond both, in order."""
    first, last = numbers[0], numbers[-1]
    lowest, highest = min(numbers, key=_value), max(numbers, key=_value)
    printed = {first.as_text(), last.as_text()}
    beyond = [number for number in (lowest, highest) if number.as_text() not in printed]
    by_layer = {number.place("layer"): number for number in (first, last, *beyond)}
    return [by_layer[layer] for layer in sorted(by_layer)]


def _value(number: Number) -> float:
    return number.value
