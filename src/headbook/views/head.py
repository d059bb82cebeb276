"""The page of one head."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from headbook.metrics import all_metrics
from headbook.metrics.base import Chart, HeadMetric
from headbook.numbers.results import StackResults
from headbook.stored.shown import Exemplar, HeadName, heads_of
from headbook.terms import UPOS, View
from headbook.views.cells import Cell, percentile
from headbook.views.exemplars import ExemplarGroup, exemplar_groups
from headbook.views.groupvalues import (
    GroupRow,
    Headline,
    PairRow,
    group_rows,
    members_of,
    pair_rows,
    stack_headlines,
)
from headbook.views.neighbours import Neighbours, neighbours
from headbook.views.offsets import Offsets, offsets
from headbook.views.page import EVERY, Page, gap_texts
from headbook.views.plain import plain
from headbook.views.relationtable import FoundRelation, found_relations
from headbook.views.triptych import Triptych, alike, triptych
from headbook.views.twins import beside, control_title
from headbook.wording import (
    STACKS,
    counted,
    head_file,
    head_name,
    head_page,
    is_share,
    label_name,
    number,
)

ELSEWHERE = {"pos_received", "pos_received_ratio", "pos_given"}  # in tables of tags
ELSEWHERE |= {"relation_accuracy", "relation_accuracy_far"}  # in those of relations
WHOLE = {"attention_to"}  # all labels stand in the first table


@dataclass(frozen=True)
class MetricRow:
    """One line of the head's table.

    Attributes:
        title, href: the metric and its page.
        label: what the number is about, where the metric has several.
        unit: of the values.
        cells: by view, in the order of `View`; None where the view does not apply.
        uniform: the same for uniform attention.
        controls: the same for what the model is compared with, in the order of the page's.
        percentile: place among all heads of the stack in the stack's default view, 0 to 100;
            None without one.
    """

    title: str
    href: str
    label: str
    unit: str
    cells: tuple[Cell | None, ...]
    uniform: str
    controls: tuple[str, ...]
    percentile: int | None


@dataclass(frozen=True)
class TagRow:
    """Attention to one part of speech.

    Attributes:
        tag: Universal part of speech.
        share: of the head's attention.
        width: the same as a bar, 0 to 100.
        uniform: what uniform attention would give; ``uniform_width`` as a mark on the bar.
        ratio: of the two.
    """

    tag: str
    share: Cell
    width: float
    uniform: str
    uniform_width: float
    ratio: Cell


@dataclass(frozen=True, kw_only=True)
class HeadPage(Page):
    """One head.

    Attributes:
        name: ``L4·H11``.
        plain: what it looks like and what it parks, in sentences; may be empty.
        stack_title: the kind of attention.
        place: where it stands among layers and heads, in words.
        previous, next: addresses and names of its neighbours, or None.
        views: headings of the table's columns; ``default_view`` is the place of the one that
            percentiles and charts use.
        controls: headings of the columns of what the model is compared with.
        rows: the head's numbers, of metrics with many labels the first one.
        more: the other labels.
        offsets: attention by offset, or None.
        tags: attention to parts of speech; empty without tags.
        relations: those that it finds most above chance; empty without trees.
        alike: by view the heads nearest to it; empty where heads were not compared.
        by_group: some of its numbers by group of sentences; may be empty.
        headlines: titles and addresses of those numbers.
        in_pairs: what differs within pairs of sentences; may be empty.
        members: what tells the members of pairs apart.
        triptych: its strongest exemplar in three ways, or None without exemplars.
        alike_tokens: the same exemplar by what the head writes, or None where values are unknown.
        groups: exemplars by ranking.
        data: script with the exemplars' whole maps.
        remarks: what is missing here, and why.
    """

    template: ClassVar[str] = "head.html"
    name: str
    plain: str
    stack_title: str
    place: str
    previous: tuple[str, str] | None
    next: tuple[str, str] | None
    views: tuple[str, ...]
    default_view: int
    controls: tuple[str, ...]
    rows: tuple[MetricRow, ...]
    more: tuple[MetricRow, ...]
    offsets: Offsets | None
    tags: tuple[TagRow, ...]
    relations: tuple[FoundRelation, ...]
    alike: tuple[Neighbours, ...] = ()
    by_group: tuple[GroupRow, ...] = ()
    headlines: tuple[Headline, ...] = ()
    in_pairs: tuple[PairRow, ...] = ()
    members: tuple[str, ...] = ()
    triptych: Triptych | None
    alike_tokens: Triptych | None
    groups: tuple[ExemplarGroup, ...]
    data: str
    remarks: tuple[str, ...]


def head_pages(results: StackResults, share: slice = EVERY) -> Iterator[HeadPage]:
    """The pages of the heads of a stack, in order.

    Args:
        share: of the heads, those whose pages are made.
    """
    names = heads_of(results.stack)
    exemplars: dict[HeadName, list[Exemplar]] = {name: [] for name in names}
    for exemplar in results.study.portrait.exemplars:
        if exemplar.head in exemplars:
            exemplars[exemplar.head].append(exemplar)
    alike = results.once(neighbours)
    for place, name in [*enumerate(names)][share]:
        before = names[place - 1] if place else None
        after = names[place + 1] if place + 1 < len(names) else None
        page = _page(results, name, exemplars[name], before, after)
        yield replace(page, alike=alike.get(name, ()))


def _page(
    results: StackResults,
    head: HeadName,
    exemplars: Sequence[Exemplar],
    before: HeadName | None,
    after: HeadName | None,
) -> HeadPage:
    stack, study = results.stack, results.study
    name = head_name(head)
    listed = study.manifest.counts["sentences"]
    return HeadPage(
        path=head_page(head),
        title=f"Head {name}",
        description=f"What head {name} of {study.manifest.model.name} looks at in "
        f"{counted(listed, 'sentence')}: numbers with intervals, and exemplar sentences.",
        name=name,
        plain=plain(results, (head.layer, head.head)),
        stack_title=STACKS[stack.name],
        place=f"layer {head.layer} of {stack.n_layers}, head {head.head} of {stack.n_heads}, "
        "both counted from 0",
        previous=_neighbour(before),
        next=_neighbour(after),
        views=tuple(View),
        default_view=list(View).index(stack.default_view),
        controls=tuple(control_title(results, control) for control in results.twins),
        rows=tuple(_rows(results, head, first=True)),
        more=tuple(_rows(results, head, first=False)),
        offsets=offsets(results, head),
        tags=tuple(_tags(results, head)),
        relations=found_relations(results, head),
        by_group=tuple(group_rows(results, head.layer, head.head)),
        headlines=results.once(stack_headlines),
        in_pairs=tuple(pair_rows(results, head.layer, head.head)),
        members=members_of(results),
        triptych=triptych(results, exemplars),
        alike_tokens=alike(results, exemplars),
        groups=tuple(exemplar_groups(results, exemplars)),
        data=f"data/heads/{head_file(head)}.js",
        remarks=tuple(gap_texts(gap for gap in study.manifest.gaps if gap.stack == stack.name)),
    )


def _neighbour(head: HeadName | None) -> tuple[str, str] | None:
    return None if head is None else (head_page(head), head_name(head))


def _rows(results: StackResults, head: HeadName, *, first: bool) -> Iterator[MetricRow]:
    for metric in results.metrics:
        if metric.chart is Chart.PROFILE or metric.id in ELSEWHERE:
            continue  # these have a figure or a table of their own
        if metric.chart is Chart.DISTANCES and not first:
            continue  # their distances are on the metric's page
        for label in metric.labels:
            leads = label == metric.headline or metric.id in WHOLE
            there = any(results.has(metric.id, view, label) for view in metric.views)
            if there and leads == first:
                yield _row(results, head, metric, label)


def _row(results: StackResults, head: HeadName, metric: HeadMetric, label: str) -> MetricRow:
    view = results.view(metric, label)
    values = results.heads(metric.id, view, label).value
    share = percentile(values, float(values[head.layer, head.head]))
    even = results.uniform(metric.id, view, label).at(head.layer).value
    return MetricRow(
        title=metric.title,
        href=f"metrics/{metric.id}.html",
        label=label_name(label),
        unit=metric.unit,
        cells=tuple(
            Cell.of(results.heads(metric.id, v, label).at(head.layer, head.head), metric)
            if v in metric.views
            else None
            for v in View
        ),
        uniform=number(even, share=is_share(metric)),
        controls=tuple(
            beside(results, control, metric, label, (head.layer, head.head))
            for control in results.twins
        ),
        percentile=None if math.isnan(share) else round(100 * share),
    )


def _tags(results: StackResults, head: HeadName) -> Iterator[TagRow]:
    view = results.stack.default_view
    share, ratio = all_metrics()["pos_received"], all_metrics()["pos_received_ratio"]
    tags = [tag for tag in UPOS if results.has(share.id, view, tag)]
    tags = [tag for tag in tags if results.has(ratio.id, view, tag)]
    numbers = {tag: results.heads(share.id, view, tag).at(head.layer, head.head) for tag in tags}
    even = {tag: results.uniform(share.id, view, tag).at(head.layer).value for tag in tags}
    most = max([n.value for n in numbers.values() if n.value == n.value] + [*even.values(), 1e-9])
    for tag in sorted(tags, key=lambda t: -numbers[t].value):
        times = results.heads(ratio.id, view, tag).at(head.layer, head.head)
        yield TagRow(
            tag=tag,
            share=Cell.of(numbers[tag], share),
            width=round(100 * numbers[tag].value / most, 1),
            uniform=number(even[tag], share=True),
            uniform_width=round(100 * even[tag] / most, 1),
            ratio=Cell.of(times, ratio),
        )
