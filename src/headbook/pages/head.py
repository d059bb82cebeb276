"""The page of one head, section by section."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from headbook.author import HeadNote
from headbook.charts.drawing import Drawing
from headbook.charts.patterns import parts_bar, parts_of, parts_sentence
from headbook.metrics import ids
from headbook.pages.head_parts import sections
from headbook.pages.head_parts.effect import AblationSection, ablation_section
from headbook.pages.head_parts.nearest_heads import Neighbours, nearest_heads
from headbook.pages.head_parts.numbers import metric_rows
from headbook.pages.head_parts.regions import RegionsSection, regions_section
from headbook.pages.head_parts.standing import Strip, strips, strips_text
from headbook.pages.head_parts.tokens import FromTo, TopTokens, from_to, top_tokens
from headbook.pages.head_parts.writes import WritesSection, missing_text, writes_section
from headbook.pages.parts.atlas import map_style, mean_maps
from headbook.pages.parts.baselines import ShareWithBaseline, baseline_title
from headbook.pages.parts.blocks import Table
from headbook.pages.parts.exemplars import Exemplars, exemplars_of
from headbook.pages.parts.groups import group_table, pair_table
from headbook.pages.parts.head_card import strongest_of
from headbook.pages.parts.page import (
    ATTENTION_SCRIPTS,
    EVERY,
    TemplatePage,
    gap_texts,
)
from headbook.pages.parts.table import NumberCell, PageTable
from headbook.report.class_flows import flows_of_stack
from headbook.report.facts.circuits.head_outputs import outputs_of
from headbook.report.facts.function_tests import evidence_of
from headbook.report.facts.functions import (
    SINK_RULES,
    FunctionFamily,
    HeadFunction,
    families_of,
    functions_of,
)
from headbook.report.function_numbers import number_of
from headbook.report.published import published_of_head
from headbook.report.results import StackResults
from headbook.report.sink import FIRST_TOKEN, sink_tokens
from headbook.report.wording import STACKS, VIEWS, capital, count_text
from headbook.results.formats import head_file, head_name, head_page
from headbook.results.sentence import NOTHING, Sentence, say
from headbook.schema import HeadKey, HeadName, SinkView, heads_of
from headbook.study.sentence_data import Exemplar

UNMEASURED = say(
    "The function was not measured; it follows from sink_share, type_shares and relative_entropy "
    "(--metrics)."
)
SINK_NORM = HeadKey(ids.SINK_NORM_SHARE, SinkView.RAW, "")
STYLE = "numbers all"  # classes of the tables of all numbers


@dataclass(frozen=True)
class NearTile:
    """A head near to the head of the page: address, classes of its mean map, and distance."""

    name: str
    href: str
    style: str
    distance: str


@dataclass(frozen=True, kw_only=True)
class HeadPage(TemplatePage):
    """The page of one head.

    Attributes:
        name: ``L4·H11``.
        text: what the head does, and what its output does.
        evidence: the numbers behind ``text``; nothing without any.
        sink: shares of the sink in attention and in the output norm; nothing if not measured.
        family: class of the colours of its family; empty without one.
        family_text: name of the family, and how many heads it has; empty without one.
        stack_title: the kind of attention.
        place: numbers of layer and head, in words.
        previous, next: addresses and names of the heads before and after; None at the ends.
        map: classes of its mean map.
        map_over: sentences and positions behind the mean map, in words.
        flow: classes or tokens that the head attends from and to; None if not measured.
        offsets: attention by offset, or None.
        exemplars: sentences with the attention of the head.
        strips: ranks of the head among all heads, and ``strips_text`` the metrics in words; both
            empty if no metric ranks the head.
        alike: nearest heads by view, empty if heads were not compared; ``near`` are the nearest as
            pictures, by the keys ``near_keys``.
        relations: relations that the head serves most above uniform attention; empty without trees.
        weak_relations: how many of these have no support, in words; empty if all have it.
        regions: attention between the regions of a text; None without regions.
        contributions: shares of the head and of the sink in the output.
        ablated: effects of ablating the head; None if no head was replaced.
        writes: tokens that the head promotes, or words that vectors move to; None if not measured.
        tags: attention to parts of speech; empty without tags.
        top: tokens and pairs that the head favours; None if tokens were not summed.
        default_view: keys that count in percentiles and charts, in words.
        baselines: names of the baselines.
        numbers: numbers of the head; of metrics with many labels the first label.
        more: numbers of the other labels.
        by_group: numbers by group of sentences; None without groups.
        in_pairs: differences within pairs of sentences; None without pairs.
        exemplar_maps: strongest exemplar in up to three views; None without exemplars.
        data: address of the script with the whole maps of the exemplars.
        note: the author's words on the head.
        published: numbers that papers print about the head, beside those of the study.
        absent: numbers that were not measured, with the reason or the option.
    """

    template: ClassVar[str] = "head.html"
    scripts = (*ATTENTION_SCRIPTS, "attention_view", "attention_lines", "exemplars", "head_csv")
    styles = ("plots", "maps", "written", "head")
    contents = False
    name: str
    text: Sentence
    evidence: Sentence
    sink: Sentence
    family: str
    family_text: str
    stack_title: str
    place: str
    previous: tuple[str, str] | None
    next: tuple[str, str] | None
    default_view: str
    baselines: tuple[str, ...]
    numbers: PageTable
    more: PageTable
    map: str
    map_over: str
    flow: FromTo | None
    offsets: sections.Offsets | None
    exemplars: Exemplars
    strips: tuple[Strip, ...]
    strips_text: str
    relations: tuple[ShareWithBaseline, ...]
    weak_relations: str
    regions: RegionsSection | None
    contributions: tuple[ShareWithBaseline, ...]
    ablated: AblationSection | None
    writes: WritesSection | None
    tags: tuple[sections.TagRow, ...]
    top: TopTokens | None
    alike: tuple[Neighbours, ...] = ()
    near: tuple[NearTile, ...] = ()
    near_keys: str = ""
    by_group: Table | None
    in_pairs: Table | None
    exemplar_maps: sections.ExemplarMaps | None
    data: str
    note: HeadNote
    published: tuple[Sentence, ...]
    parts: tuple[Drawing, Sentence] | None
    absent: tuple[str, ...]


def head_pages(results: StackResults, share: slice = EVERY) -> Iterator[HeadPage]:
    """Yield the pages of the heads of a stack, in order.

    Args:
        share: slice of the heads for which pages are made.
    """
    names = heads_of(results.stack)
    exemplars: dict[HeadName, list[Exemplar]] = {name: [] for name in names}
    for exemplar in results.study.sentence_data.by_weight:
        if exemplar.head in exemplars:
            exemplars[exemplar.head].append(exemplar)
    alike = results.cached(nearest_heads)
    for position, name in [*enumerate(names)][share]:
        before = names[position - 1] if position else None
        after = names[position + 1] if position + 1 < len(names) else None
        page = _page(results, name, exemplars[name], before, after)
        each = alike.get(name, ())
        keys = VIEWS[each[-1].view] if each else ""
        yield replace(page, alike=each, near=tuple(_near(results, each)), near_keys=keys)


def _parts(results: StackResults) -> dict[HeadName, tuple[Drawing, Sentence]]:
    """Return the bar of the parts of attention and its numbers, for heads that have them."""
    by_head = {head: parts_of(results, head.layer, head.head) for head in heads_of(results.stack)}
    return {
        head: (parts_bar(parts), parts_sentence(parts)) for head, parts in by_head.items() if parts
    }


def _published(results: StackResults, head: HeadName) -> Iterator[Sentence]:
    for published, number in published_of_head(results, head):
        yield say(
            "Published ({source}, {place}): {figure}: {value}; here {number}.",
            source=published.source, place=published.place, figure=published.figure,
            value=published.value, number=number,
        )  # fmt: skip


def _page(
    results: StackResults,
    head: HeadName,
    exemplars: Sequence[Exemplar],
    before: HeadName | None,
    after: HeadName | None,
) -> HeadPage:
    stack, study = results.stack, results.study
    name, place = head_name(head), (head.layer, head.head)
    function, strongest = functions_of(results)[head], strongest_of(results).get(head)
    outputs, family = outputs_of(results, function), function.family
    text = sum((output.text for output in outputs), start=function.text or UNMEASURED)
    evidence = (output.evidence for output in outputs)
    baselines = tuple(baseline_title(results, baseline) for baseline in results.baselines)
    views = (VIEWS[view] for view in SinkView)
    columns = ("Metric", *views, "uniform attention", *baselines, "percentile")
    listed = count_text(study.manifest.counts["sentences"], study.manifest.text_noun)
    found_strips = strips(results, head)
    return HeadPage(
        path=head_page(head),
        title=f"Head {name}",
        description=f"{text.text} Head {name} of {study.manifest.model.name}, "
        f"in {listed}, with intervals and exemplar sentences.",
        name=name,
        text=text,
        evidence=sum(evidence, start=evidence_of(results, function)),
        sink=_sink(results, function),
        family=function.style,
        family_text=_family_text(results, family) if family else "",
        stack_title=STACKS[stack.name],
        place=f"layer {head.layer} of {stack.n_layers}, head {head.head} of {stack.n_heads}, "
        "both counted from 0",
        previous=_neighbour(before),
        next=_neighbour(after),
        default_view=VIEWS[stack.default_view],
        baselines=baselines,
        numbers=PageTable(columns, tuple(metric_rows(results, head, first=True)), style=STYLE),
        more=PageTable(columns, tuple(metric_rows(results, head, first=False)), style=STYLE),
        map=map_style(stack, *place),
        map_over=results.cached(mean_maps).over,
        flow=from_to(results, head),
        offsets=sections.offset_section(results, head),
        exemplars=exemplars_of(results, head, exemplars),
        strips=found_strips,
        strips_text=strips_text(results, head, len(found_strips)),
        regions=regions_section(results, head),
        contributions=tuple(sections.output_shares(results, head)),
        ablated=ablation_section(results, head),
        writes=writes_section(results, head),
        tags=tuple(sections.tag_rows(results, head)),
        top=top_tokens(results, head),
        relations=sections.found_relations(results, head),
        weak_relations=sections.weak_relations_text(results, head),
        by_group=group_table(results, head),
        in_pairs=pair_table(results, head),
        exemplar_maps=sections.exemplar_maps(results, strongest) if strongest else None,
        data=f"data/heads/{head_file(head)}.js",
        note=study.manifest.note_on(head),
        published=tuple(_published(results, head)),
        parts=results.cached(_parts).get(head),
        absent=tuple(_absent(results)),
    )


def _family_text(results: StackResults, family: FunctionFamily) -> str:
    """Return the name of a family, and how many heads of the stack it has."""
    members = sum(each.family is family for each in functions_of(results).values())
    return f"{families_of(results)[family]}, {count_text(members, 'head')}"


def _sink(results: StackResults, function: HeadFunction) -> Sentence:
    """Return what the sink receives and contributes; its share alone decides some functions."""
    tokens = sink_tokens(results)
    norm = number_of(results, SINK_NORM, function.head)
    verb = "contributes" if tokens == FIRST_TOKEN else "contribute"
    if function.sink is None:
        return NOTHING
    if function.id in SINK_RULES:
        text = "{Tokens} {verb} {norm:whole} of its output norm." if norm else ""
    elif norm:
        text = (
            "{share:whole} of its attention goes to {tokens}, which {verb} {norm:whole} of its "
            "output norm."
        )
    else:
        text = "{share:whole} of its attention goes to {tokens}."
    return say(
        text, share=function.sink, norm=norm, verb=verb, tokens=tokens, Tokens=capital(tokens)
    )


def _absent(results: StackResults) -> Iterator[str]:
    """Yield the numbers that were not measured, a sentence each."""
    if results.study.corpus_sums.ablation is None:
        yield "What the model loses without this head: --importance auto, or full."
    if flows_of_stack(results) is None and not results.stack.crosses:
        yield "Attention between classes of words needs parts of speech: --annotator."
    if missing := missing_text(results):
        yield missing
    gaps = (gap for gap in results.study.manifest.gaps if gap.stack == results.stack.name)
    yield from gap_texts(gaps)


def _near(results: StackResults, alike: Sequence[Neighbours]) -> Iterator[NearTile]:
    """Yield the nearest heads by the last view, that without the sink."""
    if not alike:
        return
    names, functions = results.cached(_heads_by_name), functions_of(results)
    nearest = alike[-1]
    column = list(nearest.table.columns).index(VIEWS[nearest.view]) - 1
    for row in nearest.table.rows:
        head, distance = names[row.name], row.cells[column]
        assert isinstance(distance, NumberCell)
        style = map_style(results.stack, head.layer, head.head)
        style = f"{style} {functions[head].style}".rstrip()
        yield NearTile(row.name, head_page(head), style, distance.text)


def _heads_by_name(results: StackResults) -> dict[str, HeadName]:
    return {head_name(head): head for head in heads_of(results.stack)}


def _neighbour(head: HeadName | None) -> tuple[str, str] | None:
    return None if head is None else (head_page(head), head_name(head))
