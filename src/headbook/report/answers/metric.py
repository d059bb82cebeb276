"""Answers of the pages of metrics: where a number is largest."""

import math
from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.metrics import ids
from headbook.metrics.base import HeadMetric, LayerwiseMetric, Source
from headbook.report.head_numbers import (
    HeadMetricNumbers,
    Place,
    drawn_numbers,
)
from headbook.report.leaders import alike_note, layer_leaders
from headbook.report.linked_rows import LinkedNumber, Parts, relation_number, uniform_row
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import relation_words
from headbook.report.results import StackResults, sample_size, sentence_start
from headbook.report.wording import (
    DIRECTIONS,
    SPACES,
    TOKEN_CLASSES,
    VIEWS,
    capital,
    count_text,
    is_share,
    label_name,
    with_unit,
)
from headbook.results.formats import number, percent, word_list
from headbook.results.number import COSINE
from headbook.schema import EmbeddingSpace, HeadKey, ResidualPoint, relation_of

NOT_MEASURED: Parts = ("Not measured in this model.",)


ATTENDED = {  # keys of the attention to kinds of tokens
    "previous": "the previous token",
    "next": "the next token",
    "first": "the first token",
}


def label_phrase(label: str, metric: str = "") -> str:
    """Return a label in words: ``from a direct object to its verb (obj)``.

    Args:
        metric: id of the metric, which decides what the label is about.
    """
    if metric == ids.ATTENTION_TO:
        return f"to {ATTENDED.get(label) or label_name(label)}"
    relation, direction = relation_of(label)
    return relation_words(label) if relation and direction in DIRECTIONS else label_name(label)


def head_metric_answer(results: StackResults, metric: HeadMetric) -> Parts:
    """Return the layer, or the label and head, that leads a metric in a stack."""
    numbers = drawn_numbers(results, metric)
    if numbers is None:
        return NOT_MEASURED
    if len(results.drawable(numbers.metric)) > 1:
        phrase = capital(label_phrase(numbers.label, metric.id))
        most = _most(numbers).lower()
        return _relation_answer(numbers, phrase) or _best(numbers, f"{phrase}: {most} in ")
    ends = [
        layer_leaders(results, numbers.key, lowest=lowest) if metric.has_layer_value else None
        for lowest in (numbers.lowest, not numbers.lowest)
    ]
    first, last = ends
    if first is None or not first.is_tested or first.none_differs:
        return _best(numbers, f"{_most(numbers)} in ")
    (layer,) = first.first
    text = numbers.printed(float(numbers.layers.value[layer]))
    opposite = "most" if numbers.lowest else "least"
    end = f"; {opposite} in layer {last.first[0]}" if last and last.leads_alone else ""
    return (
        sentence_start(results, f"{_most(numbers)} in layer {layer}{alike_note(results, first)}: "),
        numbers.layer_number(layer, text),
        f", all heads together{end}.",
    )


def _most(numbers: HeadMetricNumbers) -> str:
    return "Lowest" if numbers.lowest else "Most"


def _best(numbers: HeadMetricNumbers, start: str) -> Parts:
    """Return the head that leads as a sentence with a beginning, and its baseline."""
    place = numbers.best()
    text = numbers.printed(numbers.at(place).value)
    start = sentence_start(numbers.results, start)
    linked = numbers.head_number(place, text)
    return start, numbers.link(place), f"{numbers.note}, ", linked, *_baseline(numbers, place)


def _relation_answer(numbers: HeadMetricNumbers, phrase: str) -> Parts:
    """Return the head of a tested relation beside the best surface rule; empty without a test."""
    results, metric, _, label = numbers
    tests = results.cached(tests_of_stack) if metric.id == ids.RELATION_ACCURACY else None
    if tests is None or label not in tests.labels:
        return ()
    n = tests.labels.index(label)
    layer, head = map(int, tests.head[n])
    accuracy, at_rule = (
        float(numbers.value[n]) for numbers in (tests.scores.accuracy, tests.scores.at_rule)
    )
    return (
        sentence_start(results, f"{phrase}: "),
        numbers.link((layer, head)),
        ", ",
        relation_number(results, tests, n, percent(accuracy)),
        "; ",
        beside(accuracy, at_rule, "the best surface rule"),
        relation_number(results, tests, n, percent(at_rule)),
        ".",
    )


def beside(value: float, baseline: float, name: str) -> str:
    """Return the words before a baseline's number, which say if the value is below it."""
    return f"less than {name}: " if value < baseline else f"{name}: "


def _baseline(numbers: HeadMetricNumbers, place: Place) -> Parts:
    """Return the end of a sentence: the highest number of a head beside uniform attention."""
    results, metric, view, label = numbers
    even = float(numbers.uniform.value[place[0]])
    if math.isnan(even):
        return (".",)
    key = HeadKey(metric.id, view, label)
    linked = uniform_row(results, key, place[0], numbers.printed(even))
    words = beside(float(numbers.at(place).value), even, "uniform attention")
    return f"; {words}", linked, "."


def head_metric_scope(results: StackResults, metric: HeadMetric) -> tuple[tuple[str, str], ...]:
    """Return what a head metric was measured on, and what it is compared with."""
    numbers = drawn_numbers(results, metric)
    if numbers is None:
        return ()
    value = numbers.heads
    heads = count_text(int((~np.isnan(value.value)).sum()), "head")
    manifest = results.study.manifest
    term, count = capital(f"{manifest.text_noun}s"), manifest.counts["sentences"]
    about = "all of them"
    if metric.source is Source.RANDOM:
        term, count, about = "Sequences", int(value.sentences.max()), "of random tokens"
    elif metric.source is not Source.ALL and sample_size(results) < count:
        about = f"of which {sample_size(results):,}, chosen by a hash of their content, count"
    noun, others = manifest.text_noun, []
    if not np.isnan(numbers.uniform.value).all():
        others.append(f"uniform attention on the same {noun}s")
    if metric.of_no_head:
        others.append("rules without a model")
    compared = f"{word_list(others)}. " if others else ""
    return (
        (term, f"{count:,}, {about}; {VIEWS[numbers.view]}."),
        ("Compared with", f"{capital(compared)}{heads} with each other, paired by {noun}."),
    )


def token_series(
    results: StackResults, metric: LayerwiseMetric
) -> Iterator[tuple[ResidualPoint, EmbeddingSpace | None, str, Estimates]]:
    """Yield averages over classes of tokens: state, space, class, and numbers by layer.

    States after the layer come first, and in each state the average over all tokens.
    """
    for state in reversed(metric.states):
        for space in metric.spaces or (None,):
            for kind in ("all", "content", "function"):
                numbers = results.tokens(metric.id, state, space, kind)
                if numbers is not None:
                    yield state, space, kind, numbers


def token_metric_answer(results: StackResults, metric: LayerwiseMetric) -> Parts:
    """Return how a number of tokens changes from the first layer to the last."""
    found = next(token_series(results, metric), None)
    if found is None:
        return NOT_MEASURED
    state, space, kind, numbers = found
    layers = np.flatnonzero(~np.isnan(numbers.value)).tolist()
    first, last = layers[0], layers[-1]
    row = (
        ("class", kind), ("stack", results.stack.name), ("layer", last), ("state", str(state)),
        ("metric", metric.id), ("space", str(space or "")),
    )  # fmt: skip
    part = LinkedNumber(printed_average(float(numbers.value[last]), metric), "words", row)
    about = TOKEN_CLASSES[kind]
    where = "after the last layer" if state is ResidualPoint.POST else "in the last layer"
    if len(layers) < 2:
        return sentence_start(results, f"On average over {about}, {where}: "), part, "."
    if numbers.high[last] < numbers.low[first]:
        start = f"Lower {where} than in the first: "
    elif numbers.low[last] > numbers.high[first]:
        start = f"Higher {where} than in the first: "
    else:
        start = f"About the same {where} as in the first: "
    return sentence_start(results, start), part, f" on average over {about}."


def printed_average(value: float, metric: LayerwiseMetric) -> str:
    """Return an average over tokens with its unit."""
    unit = metric.averaged.unit or metric.unit
    share = not unit and is_share(metric)
    return with_unit(number(value, share=share), "" if unit == COSINE else unit)


def token_metric_scope(
    results: StackResults, metric: LayerwiseMetric
) -> tuple[tuple[str, str], ...]:
    """Return what a token metric was measured on."""
    found = next(token_series(results, metric), None)
    if found is None:
        return ()
    _, space, _, numbers = found
    compared = f", against {SPACES[space]}" if space else ""
    return (("Sentences", f"{int(numbers.sentences.max()):,}, mean over tokens{compared}."),)
