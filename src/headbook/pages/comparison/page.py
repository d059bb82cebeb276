"""The overview of a comparison: how far two models are apart, and where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headbook.charts import Figure
from headbook.comparison.comparison import Comparison
from headbook.comparison.driftsummary import DriftSummary, drift_summary
from headbook.metrics import ids
from headbook.pages.comparison.atlases import SideAtlas, side_atlases
from headbook.pages.comparison.driftcharts import drift_curve, drift_map
from headbook.pages.comparison.importance import importance_table
from headbook.pages.comparison.lead import drift_lead, losses_text, matched_lead
from headbook.pages.comparison.moved import (
    ABOUT,
    Moved,
    layer_moves,
    moved,
    moved_cells,
    moved_lead,
)
from headbook.pages.comparison.nats import nats, nats_interval
from headbook.pages.comparison.types import TypeChanges, type_changes
from headbook.pages.matched.page import MatchedPage
from headbook.pages.matched.summary import matched_summary
from headbook.pages.metricpair.depth import DepthSection
from headbook.pages.metricpair.page import MetricPairPage
from headbook.pages.parts.both import BothStacks
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import Content, Row, Table
from headbook.report.findings.finding import Parts, head_link
from headbook.report.numbers.headtypes import head_types
from headbook.report.numbers.results import descending
from headbook.report.wording import MISSING, counted, percent
from headbook.study.sentencedata import HeadName

MOST = 12  # heads that the table lists
DEPTHS = (ids.SINK_SHARE, ids.RELATIVE_ENTROPY, ids.ATTENTION_DISTANCE, ids.COSINE_TO_INPUT)


@dataclass(frozen=True)
class ComparedSection:
    """One kind of attention in both models.

    Attributes:
        title: the kind of attention.
        lead: how far the models are apart, in sentences.
        atlases: of both models and of their difference.
        drift: charts of divergence by head and by layer; none where heads do not correspond.
        most: heads whose attention differs most; None likewise.
        layers: how far attention, weights and outputs of each layer moved; None where models
            themselves were not compared.
        types, importance: how these differ; None where that is not known.
        matched: what matching found, in sentences.
    """

    title: str
    lead: tuple[Parts, ...]
    atlases: tuple[SideAtlas, ...]
    drift: tuple[Figure, ...]
    most: Table | None
    layers: Table | None
    types: TypeChanges | None
    importance: Table | None
    matched: tuple[Parts, ...]


@dataclass(frozen=True, kw_only=True)
class ComparisonPage(Page):
    """Two models side by side.

    Attributes:
        names: of the models.
        same: whether heads correspond by their numbers.
        models: what the two are, in a table.
        sections: by kind of attention.
        depths: a few metrics over relative depth, where heads do not correspond.
        metrics: links to the pages of all metrics, by section: address, title, what differs.
        losses: how well both predict the texts; empty where one does not.
        missing: what could not be compared, and why.
        matching: whether there is a page of matched heads.
        behind: what the numbers rest on.
        about_moves: what numbers of weights and outputs are.
    """

    template: ClassVar[str] = "comparison.html"
    names: tuple[str, str]
    same: bool
    models: Table
    sections: tuple[ComparedSection, ...]
    depths: tuple[DepthSection, ...]
    metrics: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]
    losses: str
    missing: tuple[str, ...]
    matching: bool
    behind: str
    about_moves: ClassVar[str] = ABOUT

    @property
    def pictures(self) -> Iterator[tuple[str, bytes]]:
        """Pictures of atlases that are files: address and content."""
        for each in (each for section in self.sections for each in section.atlases):
            if each.picture:
                yield each.atlas.sheet, each.picture


def comparison_page(
    comparison: Comparison,
    stacks: Sequence[BothStacks],
    metrics: Sequence[MetricPairPage],
    matched: MatchedPage | None,
) -> ComparisonPage:
    """The overview.

    Args:
        metrics, matched: the pages that it leads to.
    """
    sides = comparison.sides
    mapped = sum(1 for _ in sides.mapped())
    return ComparisonPage(
        path="index.html",
        title=f"{sides.names[0]} and {sides.names[1]}",
        description="How the attention heads of two models differ on the same sentences.",
        names=sides.names,
        same=sides.same_heads,
        models=_models(comparison),
        sections=tuple(_section(both, comparison, several=len(stacks) > 1) for both in stacks),
        depths=tuple(_depths(metrics)),
        metrics=tuple(_links(metrics)),
        losses=losses_text(comparison),
        missing=comparison.missing,
        matching=matched is not None,
        behind=f"{counted(sides.sentences, 'sentence')} that both models read; attention maps of "
        f"{counted(mapped, 'sentence')}.",
    )


def _models(comparison: Comparison) -> Table:
    """What both models are."""
    sides = comparison.sides
    rows = []
    for name, study in zip(sides.names, (sides.a, sides.b), strict=True):
        model = study.manifest.model
        sizes = "; ".join(
            f"{stack.n_layers} × {stack.n_heads}{' (causal)' * stack.causal}"
            for stack in study.manifest.stacks
        )
        revision = model.revision.removeprefix("sha256:")[:12]
        rows.append(Row(name, (model.name, revision, model.dtype, sizes, f"{model.parameters:,}")))
    columns = ("Model", "name", "revision", "weights", "layers × heads", "parameters")
    return Table(columns, tuple(rows))


def _section(both: BothStacks, comparison: Comparison, *, several: bool) -> ComparedSection:
    found = both.found
    summary = drift_summary(found) if found is not None else None
    lead: tuple[Parts, ...] = ()
    if summary is not None:
        lead = tuple(drift_lead(both, summary, several=several))
    elif found is None and both.matched is not None:
        lead = tuple(matched_lead(both, both.matched, comparison.sides.apart))
    moves = moved(found) if found is not None else ()
    lead = (*lead, *moved_lead(both, moves))
    drawn = found is not None and summary is not None and not summary.equal
    return ComparedSection(
        title=both.title,
        lead=lead,
        atlases=tuple(side_atlases(both)),
        drift=(drift_map(both, found), drift_curve(both, found)) if found and drawn else (),
        most=_most(both, summary, moves) if summary is not None and drawn else None,
        layers=layer_moves(summary, moves),
        types=type_changes(both) if found is not None else None,
        importance=importance_table(both),
        matched=_matched(both),
    )


def _matched(both: BothStacks) -> tuple[Parts, ...]:
    found = both.matched
    if found is None or np.isnan(found.similarity).all():
        return ()
    return tuple(matched_summary(both, found))


def _most(both: BothStacks, summary: DriftSummary, moves: Sequence[Moved]) -> Table:
    """The heads whose attention differs most, beside rounding and unrelated heads."""
    beside = [(name, part) for name, part in (
        ("rounding", summary.floor), ("another head", summary.ceiling),
    ) if part is not None]  # fmt: skip
    part = summary.part
    types = [head_types(each) for each in (both.a, both.b)]
    rows = []
    for place in descending(summary.value)[:MOST]:
        cells: list[Content] = [
            nats(float(summary.value[place])),
            nats_interval(float(summary.low[place]), float(summary.high[place])),
            *(nats(float(each[place])) for _, each in beside),
        ]
        if part is not None:
            cells.append(percent(max(float(part[place]), 0.0)))
        cells += moved_cells(moves, place)
        cells += [kind.name if (kind := each.get(place)) else MISSING for each in types]
        rows.append(Row(head_link(HeadName(both.pair.a.name, *place)), tuple(cells)))
    columns = ("Head", "divergence (nats)", "95 %", *(name for name, _ in beside))
    way = ("of the way to an unrelated head",) if part is not None else ()
    columns = (*columns, *way, *(each.title for each in moves))
    return Table((*columns, *(f"type in {name}" for name in both.names)), tuple(rows))


def _depths(metrics: Sequence[MetricPairPage]) -> Iterator[DepthSection]:
    """Metrics of prime importance over relative depth, of the first kind of attention."""
    by_id = {page.metric.id: page for page in metrics}
    for name in DEPTHS:
        if name in by_id and by_id[name].depths:
            yield by_id[name].depths[0]


def _links(
    metrics: Sequence[MetricPairPage],
) -> Iterator[tuple[str, tuple[tuple[str, str, str], ...]]]:
    """All metrics by section, with what differs in the first kind of attention."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for page in metrics:
        groups.setdefault(page.metric.section, []).append((page.path, page.title, page.short))
    yield from ((section, tuple(links)) for section, links in groups.items())
