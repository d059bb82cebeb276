"""The list of all heads, its questions, and the data that its script reads."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, ClassVar
from urllib.parse import urlencode

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate, Estimates
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.charts import Figure
from headbook.charts.heads import head_scatter
from headbook.metrics import all_metrics, head_metrics, ids
from headbook.metrics.base import HeadMetric
from headbook.pages.parts.grid import FIRST, number_key, offered_labels
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import (
    DASH,
    MarkedText,
    NumberCell,
    PageTable,
    Row,
    WordsCell,
    words_cell,
)
from headbook.report.ablation import head_changes, unit
from headbook.report.findings import Link
from headbook.report.findings.finding import choose_head, head_link, uniform_estimate
from headbook.report.head_facts import Fact, HeadFacts, head_facts
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import best_head_of_relation, relation_words
from headbook.report.results import StackResults, study_of
from headbook.report.roles import sink_words, value_and_interval
from headbook.report.wording import (
    STACKS,
    VIEWS,
    capital,
    count_text,
    is_share,
    label_name,
    p_family_wise_text,
    percent,
    rule_phrase,
)
from headbook.schema import SinkView
from headbook.study.ablation import AblationResults
from headbook.study.ablation_tables import EFFECT, EXACT
from headbook.study.sentence_data import HeadName, heads_of

AXES = FIRST[:2]  # what the list's picture shows first

Results = Mapping[str, StackResults]


@dataclass(frozen=True)
class Column:
    """A metric and a label as a column.

    Attributes:
        metric: whose numbers it holds; ``label`` which of them.
        views: by stack; a stack that lacks the number is missing.
    """

    metric: HeadMetric
    label: str
    views: Mapping[str, SinkView]

    @property
    def key(self) -> str:
        """How addresses and scripts call it."""
        return number_key(self.metric, self.label)

    @property
    def title(self) -> str:
        """Heading."""
        about = label_name(self.label)
        return f"{self.metric.title}: {about}" if about else self.metric.title

    @property
    def unit(self) -> str:
        """Unit and keys, for a small line below the heading; shares say % themselves."""
        views = " or ".join(dict.fromkeys(VIEWS[view] for view in self.views.values()))
        return f"{self.metric.unit}, {views}" if self.metric.unit else views

    def at(self, results: Results, head: HeadName) -> Estimate:
        """A head's number; NaN where there is none."""
        if head.stack not in self.views:
            return NO_ESTIMATE
        return self.numbers(results[head.stack]).at(head.layer, head.head)

    def numbers(self, results: StackResults) -> Estimates:
        """The numbers of a stack that has them. *Shape:* ``(layer, head)``."""
        return results.heads(self.metric.id, self.views[results.stack.name], self.label)


def number_columns(results: Results) -> tuple[Column, ...]:
    """All columns that some stack has numbers for, in the order of metrics."""
    there = {metric.id for r in results.values() for metric in r.metrics}
    order = head_metrics(metric for name, metric in all_metrics().items() if name in there)
    asked = ((metric, label) for metric in order for label in offered_labels(metric))
    made = (Column(*pair, _views(results, *pair)) for pair in asked)
    return tuple(column for column in made if column.views)


def _views(results: Results, metric: HeadMetric, label: str) -> dict[str, SinkView]:
    views = {name: r.view(metric, label) for name, r in results.items()}
    return {name: v for name, v in views.items() if results[name].has_value(metric.id, v, label)}


def first_columns(offered: Sequence[Column]) -> tuple[Column, ...]:
    """Those that the page shows first; without any of them, the first one."""
    return _columns_of(offered, FIRST) or tuple(offered[:1])


def first_axes(offered: Sequence[Column]) -> tuple[Column, ...]:
    """The two columns that the picture shows first; the first two where a study lacks them."""
    named = _columns_of(offered, AXES)
    if len(named) == len(AXES):
        return named
    return tuple(offered[:2]) if len(offered) > 1 else ()


def _columns_of(offered: Sequence[Column], metrics: Sequence[str]) -> tuple[Column, ...]:
    """The columns of some metrics that have one number a head."""
    there = {column.metric.id: column for column in offered if not column.label}
    return tuple(there[name] for name in metrics if name in there)


def list_data(results: Results) -> dict[str, Any]:
    """What the script of the list needs at once: heads in order, and which numbers there are."""
    offered = number_columns(results)
    return {
        "stacks": [[name, STACKS[name]] for name in results],
        "heads": [_data_row(facts) for r in results.values() for facts in head_facts(r)],
        "metrics": [*_metrics(offered)],
        "columns": [column.key for column in first_columns(offered)],
        "axes": [column.key for column in first_axes(offered)],
    }


def _data_row(facts: HeadFacts) -> list[Any]:
    summary = (facts.label, facts.attends_to, facts.relation)
    place = (facts.name, facts.href, facts.head.stack, facts.head.layer)
    return [*place, *map(_written, summary), int(facts.beats)]


def _written(fact: Fact) -> list[Any]:
    return [fact.word, fact.detail, fact.sort_value]


def _metrics(offered: Sequence[Column]) -> Iterator[dict[str, Any]]:
    for metric, own in groupby(offered, key=lambda column: column.metric):
        yield {
            "id": metric.id,
            "title": metric.title,
            "share": is_share(metric),
            "labels": [[column.key, column.title, column.unit] for column in own],
        }


def values_data(results: Results) -> Iterator[tuple[str, dict[str, Any]]]:
    """For each metric a file: by column, the numbers of all heads in the order of the list.

    Values are 64-bit floats, ends of intervals 32-bit ones, little-endian, as bytes; NaN where
    there is no number. ``thin`` has a 1 where few observations stand behind the value.
    """
    for metric, own in groupby(number_columns(results), key=lambda column: column.metric):
        yield metric.id, {column.key: _packed(results, column) for column in own}


def _packed(results: Results, column: Column) -> dict[str, bytes | str]:
    parts = [_of_stack(r, column) for r in results.values()]
    value, low, high, effective = (np.concatenate(part) for part in zip(*parts, strict=True))
    return {
        "value": value.astype("<f8").tobytes(),
        "low": low.astype("<f4").tobytes(),
        "high": high.astype("<f4").tobytes(),
        "thin": "".join(map(str, np.where(effective < MIN_EFFECTIVE, 1, 0))),
    }


def _of_stack(results: StackResults, column: Column) -> tuple[NDArray[np.float64], ...]:
    stack = results.stack
    if stack.name not in column.views:
        return (np.full(len(stack.attention_layers) * stack.n_heads, np.nan),) * 4
    layers = [*stack.attention_layers]
    numbers = column.numbers(results)
    parts = (numbers.value, numbers.low, numbers.high, numbers.effective)
    return tuple(part[layers].ravel().astype(np.float64) for part in parts)


KEY = f"{EFFECT}/mean"
TITLE = "Change without the head"


def effect_choice(results: Results) -> dict[str, Any] | None:
    """What the list's script needs to offer the column; None where no head was replaced."""
    ablation = _ablation_of(results)
    if ablation is None:
        return None
    labels = [[KEY, TITLE, f"{unit(ablation)}, mean output in its place"]]
    return {"id": EFFECT, "title": "Importance", "share": False, "labels": labels}


def effect_values(results: Results) -> dict[str, dict[str, bytes | str]] | None:
    """Numbers of all heads in the order of the list; packed as those of metrics.

    ``guess`` has a 1 where the value is an estimate, which has no interval.
    """
    ablation = _ablation_of(results)
    if ablation is None:
        return None
    heads = [head for r in results.values() for head in heads_of(r.stack)]
    places = pd.MultiIndex.from_tuples(heads)
    frame = head_changes(ablation).set_index(["stack", "layer", "head"]).reindex(places)
    value, low, high = (frame[name].to_numpy(float) for name in ("value", "low", "high"))
    guess = ~np.isnan(value) & (frame["method"] != EXACT).to_numpy()
    return {
        KEY: {
            "value": value.astype("<f8").tobytes(),
            "low": low.astype("<f4").tobytes(),
            "high": high.astype("<f4").tobytes(),
            "thin": "0" * len(heads),
            "guess": "".join(map(str, guess.astype(int))),
        }
    }


def _ablation_of(results: Results) -> AblationResults | None:
    study = next(iter(results.values())).study
    return study.corpus_sums.ablation


RELATION = ids.RELATION_ACCURACY
# What is asked, and the metric, its label and whether its lowest value answers; the sink's name is
# put in, and relations are named after their label.
ASKED = (
    ("Most attention to the previous token", ids.ATTENTION_TO, "previous", False),
    ("Most attention to the next token", ids.ATTENTION_TO, "next", False),
    ("Most attention to the first token", ids.ATTENTION_TO, "first", False),
    ("Most attention to separators such as [SEP]", ids.ATTENTION_TO, "separator", False),
    ("Most attention to punctuation", ids.ATTENTION_TO, "punctuation", False),
    ("Most attention to other occurrences of the token", ids.ATTENTION_TO, "same_token", False),
    ("Most attention to the rest of the token's own word", ids.ATTENTION_TO, "rest_of_word", False),
    ("", RELATION, "obj:to_dependent", False),
    ("", RELATION, "obj:to_head", False),
    ("", RELATION, "nsubj:to_dependent", False),
    ("", RELATION, "det:to_head", False),
    ("Largest attention distance, as a ratio to uniform attention", ids.DISTANCE_RATIO, "", False),
    ("Most attention to {sink}", ids.SINK_SHARE, "", False),
    ("Lowest normalised entropy", ids.RELATIVE_ENTROPY, "", True),
    ("Largest induction score", ids.INDUCTION_SCORE, "", False),
)


@dataclass(frozen=True)
class AnsweringHead:
    """A head with its number.

    Attributes:
        head: with its address.
        value, interval: the number; the interval is empty without one, the unit comes last.
        behind: what it is set against.
        supported: as everywhere on the site: tested family-wise, or clear of uniform attention.
    """

    head: Link
    value: str
    interval: str
    behind: str
    supported: bool


@dataclass(frozen=True)
class HeadQuestion:
    """A question with its answers.

    Attributes:
        text: what is asked.
        heads: a head of each stack.
        view: the list in the order that answers it, as addresses write it after their #.
        column: the number that answers it.
    """

    text: str
    heads: tuple[AnsweringHead, ...]
    view: str
    column: Column


def questions(
    results: Results, offered: Sequence[Column], first: Sequence[Column]
) -> Iterator[HeadQuestion]:
    """The questions that a study has numbers for.

    Args:
        first: columns that the list shows first; those asked for come before them.
    """
    there = {(column.metric.id, column.label): column for column in offered}
    for text, name, label, lowest in ASKED:
        column = there.get((name, label))
        answering_heads = tuple(_heads(results, column, lowest=lowest)) if column else ()
        if column and answering_heads:
            named = _question_text(text, label, next(iter(results.values())))
            yield HeadQuestion(named, answering_heads, _view(column, first, lowest=lowest), column)


def _question_text(text: str, label: str, results: StackResults) -> str:
    return capital(text.format(sink=sink_words(results)) or relation_words(label))


def _view(column: Column, first: Sequence[Column], *, lowest: bool) -> str:
    keys = dict.fromkeys([column.key, *(other.key for other in first)])
    sort = column.key if lowest else f"-{column.key}"
    return urlencode({"columns": " ".join(keys), "sort": sort})


def _heads(results: Results, column: Column, *, lowest: bool) -> Iterator[AnsweringHead]:
    """The head of each stack, chosen on one half of the sentences and reported on the other."""
    for name, r in results.items():
        if name in column.views:
            answering_head = _tested(r, column.label) if column.metric.id == RELATION else None
            answering_head = answering_head or _described(r, column, lowest=lowest)
            if answering_head is not None:
                yield answering_head


def _described(results: StackResults, column: Column, *, lowest: bool) -> AnsweringHead | None:
    """The best head beside uniform attention, which its interval should leave out."""
    metric, view = column.metric, column.views[results.stack.name]
    best = choose_head(results, metric.id, view, column.label, lowest=lowest)
    if best is None:
        return None
    even = uniform_estimate(results, metric.id, view, column.label, best.head.layer)
    share, value = is_share(metric), best.value
    unit = f" {metric.unit}" if metric.unit and not share else ""
    value_text, ends = value_and_interval(value, share=share)
    value_text, ends = (value_text, ends + unit) if ends else (value_text + unit, "")
    clear = value.high < even.value if lowest else value.low > even.value
    other = percent(even.value) if share else f"{even.value:.3g}"
    behind = "" if math.isnan(even.value) else f"uniform attention: {other}"
    behind = (behind + best.tied).strip()
    return AnsweringHead(head_link(best.head), value_text, ends, behind, supported=bool(clear))


def _tested(results: StackResults, label: str) -> AnsweringHead | None:
    """The best head for a relation beside the best surface rule on the same words."""
    tests = results.cached(tests_of_stack)
    if tests is None or label not in tests.labels:
        return None
    n = tests.labels.index(label)
    other = percent(float(tests.at_rule.value[n]))
    rule = rule_phrase(tests.rule[n])
    if tests.claimed[n]:
        behind = f"best surface rule ({rule}): {other}, {p_family_wise_text(float(tests.p[n]))}"
    elif tests.above_rule[n]:
        behind = (
            f"above the best surface rule ({rule}), {other}, but no more than a preference for a "
            "class of words"
        )
    else:
        behind = f"not clearly above the best surface rule ({rule}), {other}"
    head = head_link(best_head_of_relation(tests, n, results.stack.name))
    value, ends = value_and_interval(tests.accuracy.at(n))
    return AnsweringHead(head, value, ends, behind, supported=bool(tests.claimed[n]))


FACTS = ("Type", "Most attention to", "Best relation")
MOST_ROWS = 150  # of the page; its script and the files have all heads


@dataclass(frozen=True, kw_only=True)
class HeadsPage(Page):
    """The list of heads.

    Attributes:
        questions: what readers come with, and which head answers.
        table: heads, layer by layer: some numbers, then type, what receives most attention, and
            the best relation; ``total`` heads are in the script's data.
        total: number of heads.
        figures: a picture of two columns for each stack.
        data: script with what the page's own script needs at once.
        values: folder with a script for each metric.
    """

    template: ClassVar[str] = "heads.html"
    scripts = ("numbers", "scatter", "heads_list", "heads_controls", "heads")
    contents = False
    questions: tuple[HeadQuestion, ...]
    table: PageTable
    total: int
    figures: tuple[Figure, ...]
    data: str = "data/headlist.js"
    values: str = "data/values/"


def has_heads(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has numbers of heads."""
    return bool(number_columns(results))


def heads_page(results: Results) -> HeadsPage:
    """The list of heads."""
    offered = number_columns(results)
    first = first_columns(offered)
    heads = [*chain.from_iterable(head_facts(r) for r in results.values())]
    model = study_of(results).manifest.model.name
    return HeadsPage(
        path="heads.html",
        title="Heads",
        description=f"All {count_text(len(heads), 'head')} of {model}: type, attention, "
        "relations and all metrics, to sort and filter.",
        questions=tuple(questions(results, offered, first)),
        table=PageTable(
            (
                "Head",
                *(words_cell(c.title, " ", MarkedText(c.unit, "small")) for c in first),
                *FACTS,
            ),
            tuple(_table_row(results, facts, first) for facts in heads[:MOST_ROWS]),
            style="numbers finding",
        ),
        total=len(heads),
        figures=tuple(_figures(results, first_axes(offered))),
    )


def _table_row(results: Results, facts: HeadFacts, first: Sequence[Column]) -> Row:
    cells = (NumberCell.of(column.at(results, facts.head), column.metric) for column in first)
    about = map(_fact, (facts.label, facts.attends_to, facts.relation))
    return Row(head_link(facts.head), (*cells, *about))


def _fact(fact: Fact) -> WordsCell:
    behind = (" ", MarkedText(fact.detail, "small")) if fact.detail else ()
    return words_cell(fact.word, *behind) if fact.word else DASH


def _figures(results: Results, pair: Sequence[Column]) -> Iterator[Figure]:
    for name, r in results.items():
        if pair and all(name in column.views for column in pair):
            yield _figure(r, pair)


def _figure(results: StackResults, pair: Sequence[Column]) -> Figure:
    stack = results.stack
    facts = head_facts(results)
    numbers = [column.numbers(results).value for column in pair]
    rows = pd.DataFrame({"head": [f.name for f in facts], "layer": [f.head.layer for f in facts]})
    for place, values in zip("xy", numbers, strict=True):
        rows[place] = values[[*stack.attention_layers]].ravel()
    titles = [f"{column.title} ({column.unit})" for column in pair]
    caption = (
        f"Each point is a head, colour: layer. {pair[0].title} and {pair[1].title}. "
        f"{STACKS[stack.name].capitalize()}."
    )
    rows = rows.dropna(ignore_index=True)
    return head_scatter(
        f"heads-{stack.name}", caption, rows, titles=titles, layers=stack.attention_layers
    )
