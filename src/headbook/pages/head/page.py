"""The page of one head."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from headbook.pages.head.ablated import Ablated, ablated
from headbook.pages.head.contribution import contributions
from headbook.pages.head.exemplarmaps import ExemplarMaps, alike, exemplar_maps
from headbook.pages.head.headmetrics import TagRow, metric_rows, tag_rows
from headbook.pages.head.headstrips import Strip, strips
from headbook.pages.head.offsets import Offsets, offsets
from headbook.pages.head.relationtable import found_relations
from headbook.pages.head.toptokens import TopTokens, top_tokens
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.groupvalues import group_table, pair_table
from headbook.pages.parts.measured import Measured
from headbook.pages.parts.page import EVERY, Page, gap_texts
from headbook.pages.parts.table import Table
from headbook.pages.parts.twins import baseline_title
from headbook.pages.widgets.atlas import mean_maps, style_of
from headbook.pages.widgets.exemplars import Exemplars, exemplars_of
from headbook.pages.widgets.inspector import roles_of, strongest_of
from headbook.pages.widgets.neighbours import Neighbours, neighbours
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.roles import Role
from headbook.report.numbers.tagshares import sink_remark
from headbook.report.wording import STACKS, VIEWS, capital, counted, head_file, head_name, head_page
from headbook.study.sentencedata import Exemplar, HeadName, heads_of
from headbook.terms import View

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
    name: str
    lead: Lead
    stack_title: str
    place: str
    previous: tuple[str, str] | None
    next: tuple[str, str] | None
    default_view: str
    baselines: tuple[str, ...]
    numbers: Table
    more: Table
    mean: MeanMap
    offsets: Offsets | None
    exemplars: Exemplars
    strips: tuple[Strip, ...]
    relations: tuple[Measured, ...]
    contributions: tuple[Measured, ...]
    ablated: Ablated | None
    tags: tuple[TagRow, ...]
    tags_sink: str
    top: TopTokens | None
    alike: tuple[Neighbours, ...] = ()
    near: Near | None = None
    by_group: Table | None
    in_pairs: Table | None
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
    alike = results.once(neighbours)
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
    listed, maps = study.manifest.counts["sentences"], results.once(mean_maps)
    strongest = strongest_of(results).get(head)
    baselines = tuple(baseline_title(results, baseline) for baseline in results.twins)
    views = (VIEWS[view] for view in View)
    columns = ("Metric", *views, "uniform attention", *baselines, "percentile")
    return HeadPage(
        path=head_page(head),
        title=f"Head {name}",
        description=f"What head {name} of {study.manifest.model.name} attends to in "
        f"{counted(listed, 'sentence')}: numbers with intervals, and exemplar sentences.",
        name=name,
        lead=_lead(results, head, roles_of(results)[head]),
        stack_title=STACKS[stack.name],
        place=f"layer {head.layer} of {stack.n_layers}, head {head.head} of {stack.n_heads}, "
        "both counted from 0",
        previous=_neighbour(before),
        next=_neighbour(after),
        default_view=VIEWS[stack.default_view],
        baselines=baselines,
        numbers=Table(columns, tuple(metric_rows(results, head, first=True)), style=STYLE),
        more=Table(columns, tuple(metric_rows(results, head, first=False)), style=STYLE),
        mean=MeanMap(maps.picture((head.layer, head.head)), maps.over),
        offsets=offsets(results, head),
        exemplars=exemplars_of(results, head, exemplars),
        strips=strips(results, head),
        contributions=tuple(contributions(results, head)),
        ablated=ablated(results, head),
        tags=tuple(tag_rows(results, head)),
        tags_sink=sink_remark(results, (head.layer, head.head)),
        top=top_tokens(results, head),
        relations=found_relations(results, head),
        by_group=group_table(results, head.layer, head.head),
        in_pairs=pair_table(results, head.layer, head.head),
        exemplar_maps=exemplar_maps(results, strongest) if strongest else None,
        alike_tokens=alike(results, strongest) if strongest else None,
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
    maps, names = results.once(mean_maps), results.once(_heads_by_name)
    nearest = alike[-1]
    column = list(nearest.table.columns).index(VIEWS[nearest.view]) - 1
    tiles = []
    for row in nearest.table.rows:
        head, distance = names[row.name], row.cells[column]
        assert isinstance(distance, Cell)
        picture = maps.picture((head.layer, head.head))
        tiles.append(NearTile(row.name, head_page(head), picture, distance.text))
    return Near(VIEWS[nearest.view], tuple(tiles))


def _heads_by_name(results: StackResults) -> dict[str, HeadName]:
    return {head_name(head): head for head in heads_of(results.stack)}


def _neighbour(head: HeadName | None) -> tuple[str, str] | None:
    return None if head is None else (head_page(head), head_name(head))
