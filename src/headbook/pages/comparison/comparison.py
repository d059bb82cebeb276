"""The overview of two models."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimate
from headbook.analysis.arrays import Floats
from headbook.charts import Figure, heat_map, layer_curve
from headbook.comparison.comparison import Comparison
from headbook.comparison.difference_claims import difference_claims, equal_text
from headbook.comparison.differences import HeadDifferences
from headbook.comparison.drift import (
    CEILING_LABEL,
    FLOOR_LABEL,
    MAX_EQUAL_DRIFT,
    PATTERN_DRIFT,
    DriftSummary,
    by_layer,
    divergence_text,
    drift_summary,
    nats_interval,
)
from headbook.comparison.matching import MatchedHeads
from headbook.comparison.matching_claims import (
    apart_text,
    matching_claims,
    stability_clause,
    unmatched_text,
)
from headbook.metrics import ids
from headbook.pages.comparison.matched import MatchedPage, matched_summary
from headbook.pages.comparison.metricpair import MetricPair
from headbook.pages.comparison.metricpair_heads import compared_metric
from headbook.pages.comparison.parts import (
    ABOUT,
    DriftMeasure,
    StackComparison,
    layer_moves,
    moved,
    moved_cells,
    moved_lead,
)
from headbook.pages.comparison.walls import changed_heads, difference_wall, side_atlases
from headbook.pages.overview_parts.claims import ClaimItem, Lit, claim_items, lit_heads
from headbook.pages.overview_parts.differences import (
    ChangedHead,
    SideAtlas,
)
from headbook.pages.parts.groups import difference_cell
from headbook.pages.parts.page import TemplatePage
from headbook.pages.parts.run_facts import text_facts
from headbook.pages.parts.table import Content, PageTable, Row, words_cell
from headbook.report.facts.functions import FunctionFamily, families_of, functions_of
from headbook.report.linked_rows import Parts
from headbook.report.results import heads_by_value
from headbook.report.wording import capital, count_text, counted_if, number_word
from headbook.results.formats import interval_text, number, p_text, percent
from headbook.results.sentence import Link, head_link
from headbook.schema import HeadName, SinkView
from headbook.study.ablation_tables import EFFECT
from headbook.study.manifest import NOT_GIVEN

SERIES = {"": "same head", FLOOR_LABEL: "bfloat16 rounding", CEILING_LABEL: "another head"}
TITLE = "divergence of attention (nats)"


def drift_map(stack: StackComparison, differences: HeadDifferences) -> Figure:
    """Every head's divergence; colours begin at 0, below which rounding lies."""
    rows = _cells(differences, SinkView.RAW).assign(view=str(SinkView.RAW), label="")
    return heat_map(
        f"drift-{stack.stack}",
        f"Divergence of the attention of each head of {stack.names[0]} and the same head of "
        f"{stack.names[1]}, all keys. Rows: layers, columns: heads.",
        rows,
        title=TITLE,
        domain=(0.0, float(rows["value"].max()) or 1.0),
    )


def drift_curve(stack: StackComparison, differences: HeadDifferences) -> Figure:
    """Return the median head of each layer with the middle half, rounding and unrelated heads."""
    rows = pd.concat([*_lines(differences)], ignore_index=True)
    floor = FLOOR_LABEL in {column.label for column in differences.columns}
    return layer_curve(
        f"drift-{stack.stack}-layers",
        "Divergence by layer, all keys: the median head; band: the middle half of the heads. "
        "Another head: the next one of the layer in the other model, as a ceiling"
        f"{'; rounding: the first model against itself in bfloat16, as a floor' if floor else ''}.",
        rows,
        title=TITLE,
    )


def _values(differences: HeadDifferences, view: SinkView, label: str) -> Floats:
    place = differences.column(PATTERN_DRIFT, str(view), label)
    assert place is not None
    return differences.value[..., place]


def _cells(differences: HeadDifferences, view: SinkView) -> pd.DataFrame:
    place = differences.column(PATTERN_DRIFT, str(view))
    assert place is not None
    there = ~np.isnan(differences.value[..., place])
    layers, heads = np.nonzero(there)
    parts = {n: getattr(differences, n)[..., place][there] for n in ("value", "low", "high")}
    return pd.DataFrame({"layer": layers, "head": heads, **parts})


def _lines(differences: HeadDifferences) -> Iterator[pd.DataFrame]:
    for label, series in SERIES.items():
        if differences.column(PATTERN_DRIFT, str(SinkView.RAW), label) is None:
            continue
        low, value, high = by_layer(_values(differences, SinkView.RAW, label))
        known = np.flatnonzero(~np.isnan(value))
        frame = pd.DataFrame({"layer": known, "series": series, "view": str(SinkView.RAW)})
        yield frame.assign(label="", value=value[known], low=low[known], high=high[known])


MAX_IMPORTANCE_ROWS = 8  # heads that the overview lists
SCALE = 1000.0  # changes are small: thousandths


def importance_differences(stack: StackComparison) -> PageTable | None:
    """Heads whose importance differs most; None where a study has none, or all are equal."""
    metric, differences = compared_metric(EFFECT), stack.differences
    columns = (
        [n for n, c in enumerate(differences.columns) if c.metric == EFFECT] if differences else []
    )
    if differences is None or metric is None or not columns:
        return None
    at = columns[0]
    value, sure = differences.value[..., at], differences.supported[..., at]
    if not np.nan_to_num(value).any():
        return None  # exactly equal, as the list of metrics says
    chosen = heads_by_value(np.abs(np.where(sure, value, np.nan))) or heads_by_value(np.abs(value))
    rows = []
    for place in chosen[:MAX_IMPORTANCE_ROWS]:
        gap, low, high = (
            float(part[*place, at]) * SCALE
            for part in (differences.value, differences.low, differences.high)
        )
        cell = difference_cell(Estimate(gap, low, high, 0, 0.0), share=False, behind="")
        values = (
            number(float(part[*place, at]) * SCALE) for part in (differences.a, differences.b)
        )
        name = head_link(HeadName(stack.pair.a.name, *place))
        style = "" if sure[place] else "weak"
        rows.append(Row(name, (*values, cell, p_text(float(differences.q[*place, at]))), style))
    counts = f"{int(sure.sum()):,} of {count_text(int((~np.isnan(value)).sum()), 'head')} differ"
    label, floor = (
        metric.label(differences.columns[at].label),
        float(differences.floors[at]) * SCALE,
    )
    return PageTable(
        ("Head", *stack.names, "difference", "q"),
        tuple(rows),
        f"In thousandths: {label}. {counts} ({counted_if(floor, share=False)}).",
    )


NAMED = 3  # heads that a sentence names
NAMED_LAYERS = 4


def drift_lead(stack: StackComparison, summary: DriftSummary, *, several: bool) -> Iterator[Parts]:
    """Return how different corresponding heads are, and where attention diverges most.

    Args:
        several: whether there are other kinds of attention, so that sentences name theirs.
    """
    where = f"In {stack.title}, " if several else ""
    total = int(summary.there.sum())
    if summary.equal:
        text = f"the attention of {stack.names[0]} and {stack.names[1]} is exactly equal in all"
        yield (capital(f"{where}{text} {count_text(total, 'head')}."),)
        return
    yield (capital(f"{where}{_share(summary, total)}{_part(summary)}."),)
    layers = summary.changed()
    if layers:
        yield (_layers(layers, summary.layers()[1]),)
    yield (*_heads(stack, summary),)


def _share(summary: DriftSummary, total: int) -> str:
    """Return how many heads changed more than by rounding."""
    above = summary.above
    heads = count_text(total, "head")
    if above is None:
        moved = int((summary.low > 0).sum())
        return f"attention differs in {moved:,} of {heads} (rounding was not measured)"
    moved = int(above.sum())
    amount = "none" if moved == 0 else "all" if moved == total else f"{moved:,}"
    return f"attention differs by more than bfloat16 rounding in {amount} of {heads}"


def _part(summary: DriftSummary) -> str:
    """Return how far the median head is from rounding towards another head."""
    median, part = float(np.nanmedian(summary.value)), summary.part
    if part is None or np.isnan(part).all():
        return f"; the median divergence is {divergence_text(median)} nats"
    gone = float(np.nanmedian(part))
    if median <= MAX_EQUAL_DRIFT:
        return "; at least half of the heads attend exactly alike"
    if gone <= 0:
        return "; the median head is no further apart than rounding"
    floor = "0" if summary.floor is None else "rounding"
    return (
        f"; the median head has gone {percent(gone)} of the way from {floor} to an unrelated head "
        "of its layer"
    )


def _layers(layers: Sequence[int], medians: Floats) -> str:
    """Return the layers with the highest medians, each with its own, beside the others."""
    others = float(np.nanmax(np.delete(medians, list(layers))))
    beside = (
        "the others are equal"
        if others <= MAX_EQUAL_DRIFT
        else f"at most {divergence_text(others)} in the others"
    )
    if len(layers) > NAMED_LAYERS:
        ends = [divergence_text(float(end(medians[list(layers)]))) for end in (np.min, np.max)]
        named = f"{number_word(len(layers))} layers ({ends[0]} to {ends[1]} nats)"
    else:
        texts = [f"{n} ({divergence_text(float(medians[n]))} nats)" for n in sorted(layers)]
        joined = " and ".join(part for part in (", ".join(texts[:-1]), texts[-1]) if part)
        named = f"layer{'s' if len(texts) > 1 else ''} {joined}"
    return f"The median divergence of heads is highest in {named}; {beside} (not tested)."


def _heads(stack: StackComparison, summary: DriftSummary) -> Iterator[str | Link]:
    """Yield the heads with the highest divergence, with their numbers."""
    yield "Highest divergence of attention: "
    for n, place in enumerate(heads_by_value(summary.value)[:NAMED]):
        yield ", " if n else ""
        yield head_link(HeadName(stack.pair.a.name, *place))
        ends = nats_interval(float(summary.low[place]), float(summary.high[place]))
        drift = divergence_text(float(summary.value[place]))
        yield f" ({drift} nats{f' {ends}' if n == 0 and ends else ''})"
    yield "."


def matched_lead(matched: MatchedHeads) -> Iterator[Parts]:
    """Yield how many heads have a counterpart."""
    page = Link("matched by where they attend", "matched.html")
    if np.isnan(matched.similarity).all():
        yield ("Too few words were read by both for heads to be matched.",)
        return
    total = count_text(len(matched.a), "head")
    matching = matched.matching
    if not matched.tested:
        mutual = int(matching.mutual.sum())
        yield (
            "Heads were ",
            page,
            f": {mutual:,} of {total} {'is' if mutual == 1 else 'are'} each other's most similar "
            "head. No model with random "
            "weights was compared, so that no match is shown to be more than chance.",
        )
        return
    n_counterparts = int(matching.counterpart.sum())
    yield (
        "Heads were ",
        page,
        f": {n_counterparts:,} of {total} have a counterpart{stability_clause(matched)}.",
    )


def losses_text(comparison: Comparison) -> str:
    """Loss of both by character; empty where one of them predicts no text."""
    losses = comparison.losses
    if losses is None or np.isnan(losses.bits.value).any():
        return ""
    names = comparison.sides.names
    a, b, gap, low, high = (
        float(np.ravel(part)[0])
        for part in (
            losses.bits.a, losses.bits.b, losses.bits.value, losses.bits.low, losses.bits.high,
        )
    )  # fmt: skip
    begin = (
        f"Loss of the next token: {number(a)} bits per character in {names[0]}, {number(b)} in "
        f"{names[1]}"
    )
    behind = f"({count_text(losses.sentences, 'sentence')})"
    if gap == 0:
        return f"{begin}, exactly equal {behind}."
    ends = interval_text(low, high)
    signed = ("+" if gap > 0 else "") + number(gap)
    return f"{begin}, a difference of {signed}{f' {ends}' if ends else ''} {behind}."


@dataclass(frozen=True)
class FamilyChanges:
    """Families of functions of corresponding heads.

    Attributes:
        summary: how many heads keep their family, and how many chance would give.
        table: rows are families in the first model, columns those in the second.
    """

    summary: str
    table: PageTable


def family_changes(stack: StackComparison) -> FamilyChanges | None:
    """Return families in one model against those in the other; None if they are not known."""
    first, second = functions_of(stack.a), functions_of(stack.b)
    pairs = Counter((function.family, second[head].family) for head, function in first.items())
    family_names = {**families_of(stack.b), **families_of(stack.a)}
    families = [family for family in FunctionFamily if family in family_names]
    counts = np.array([[pairs[one, other] for other in families] for one in families], np.int64)
    if not counts.any():
        return None
    names = [family_names[family] for family in families]
    columns = (f"in {stack.names[0]}", *names, "all")
    groups = ((f"Family in {stack.names[1]}", len(names) + 1),)
    table = PageTable(columns, tuple(_rows(names, counts)), groups=groups)
    return FamilyChanges(_summary(counts), table)


def _rows(families: list[str], counts: "np.typing.NDArray[np.int64]") -> Iterator[Row]:
    for place, family in enumerate(families):
        cells: list[Content] = [str(n) if n else None for n in counts[place].tolist()]
        if counts[place, place]:
            cells[place] = words_cell(str(counts[place, place]), style="number kept")
        yield Row(family, (*cells, str(counts[place].sum())))
    yield Row("all", (*(str(n) for n in counts.sum(0).tolist()), str(counts.sum())))


def _summary(counts: "np.typing.NDArray[np.int64]") -> str:
    """Return how many heads keep their family, beside random families, and Cohen's kappa."""
    total, kept = int(counts.sum()), int(np.trace(counts))
    chance = float((counts.sum(0) * counts.sum(1)).sum()) / total
    begin = f"Of {count_text(total, 'head')}, {kept:,} are of the same family in both models"
    if chance >= total:
        return f"{begin}; all are of one family."
    kappa = (kept - chance) / (total - chance)
    return (
        f"{begin}; {number(chance)} would if families were dealt out at random in the same numbers "
        f"(Cohen's κ {number(kappa)}: 0 is chance, 1 no change)."
    )


MAX_DRIFT_ROWS = 12  # heads that the table lists
DEPTHS = (ids.SINK_SHARE, ids.RELATIVE_ENTROPY, ids.ATTENTION_DISTANCE, ids.COSINE_TO_INPUT)


@dataclass(frozen=True)
class ComparedSection:
    """One kind of attention in both models.

    Attributes:
        title: the kind of attention.
        stack: its name in files.
        lead: how far the models are apart, in sentences.
        wall: difference of every head; None if heads do not correspond.
        largest: largest divergence of a head, in words; empty without a wall or divergence.
        changed: heads that differ most, with both maps.
        atlases: of both models.
        drift: charts of divergence by head and by layer; none where heads do not correspond.
        most: heads whose attention differs most; None likewise.
        layers: how far attention, weights and outputs of each layer moved; None where models
            themselves were not compared.
        families: how families of functions differ; None if they are not known.
        importance: how importance differs; None if it is not known.
        matched: what matching found, in sentences.
    """

    title: str
    stack: str
    lead: tuple[Parts, ...]
    wall: SideAtlas | None
    largest: str
    changed: tuple[ChangedHead, ...]
    atlases: tuple[SideAtlas, ...]
    drift: tuple[Figure, ...]
    most: PageTable | None
    layers: PageTable | None
    families: FamilyChanges | None
    importance: PageTable | None
    matched: tuple[Parts, ...]


@dataclass(frozen=True, kw_only=True)
class ComparisonPage(TemplatePage):
    """Two models side by side.

    Attributes:
        names: of the models.
        claims: what the numbers support.
        unsupported: a sentence in place of claims; empty with claims.
        apart: why heads are not compared one to one; empty where they are.
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

    template: ClassVar[str] = "comparison/comparison.html"
    styles = ("overview", "comparison")
    contents = False
    names: tuple[str, str]
    claims: tuple[ClaimItem, ...]
    unsupported: str
    apart: str
    same: bool
    models: PageTable
    sections: tuple[ComparedSection, ...]
    depths: tuple[Figure, ...]
    metrics: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]
    losses: str
    missing: tuple[str, ...]
    matching: bool
    behind: str
    about_moves: ClassVar[str] = ABOUT

    @property
    def pictures(self) -> Iterator[tuple[str, bytes]]:
        """Pictures of atlases that are files: address and content."""
        for section in self.sections:
            for side in filter(None, (section.wall, *section.atlases)):
                if side.picture:
                    yield side.atlas.sheet, side.picture


def comparison_page(
    comparison: Comparison,
    stacks: Sequence[StackComparison],
    metrics: Sequence[MetricPair],
    matched: MatchedPage | None,
) -> ComparisonPage:
    """Return the overview.

    Args:
        metrics, matched: the pages that it leads to.
    """
    sides = comparison.sides
    mapped = sum(1 for _ in sides.mapped())
    same = sides.same_heads
    functions = {stack.stack: (functions_of(stack.a), functions_of(stack.b)) for stack in stacks}
    claims = difference_claims(comparison, functions) if same else matching_claims(comparison)
    unsupported = equal_text(comparison) if same else unmatched_text(comparison)
    lit = lit_heads(claims)
    return ComparisonPage(
        path="index.html",
        title=f"{sides.names[0]} and {sides.names[1]}",
        description="How the attention heads of two models differ on the same sentences.",
        names=sides.names,
        claims=tuple(claim_items(claims)),
        unsupported="" if claims else unsupported,
        apart="" if same else apart_text(comparison),
        same=same,
        models=_models(comparison),
        sections=tuple(_section(stack, lit, several=len(stacks) > 1) for stack in stacks),
        depths=tuple(_depths(metrics)),
        metrics=tuple(_links(metrics)),
        losses=losses_text(comparison),
        missing=comparison.missing,
        matching=matched is not None,
        behind=f"{count_text(sides.sentences, 'sentence')} that both models read; attention maps "
        f"of {count_text(mapped, 'sentence')}.",
    )


def _models(comparison: Comparison) -> PageTable:
    """Return a table of the facts of both models."""
    sides = comparison.sides
    rows = []
    for name, study in zip(sides.names, (sides.a, sides.b), strict=True):
        model = study.manifest.model
        sizes = "; ".join(
            f"{stack.n_layers} × {stack.n_heads}{' (causal)' * stack.causal}"
            for stack in study.manifest.stacks
        )
        revision = model.revision.removeprefix("sha256:")[:12]
        made = (model.name, revision, model.dtype, sizes, f"{model.parameters:,}")
        texts = "; ".join(value for _, value in text_facts(study.manifest))
        rows.append(Row(name, (*made, model.license or NOT_GIVEN, texts)))
    columns = (
        "Model", "name", "revision", "weights", "layers × heads", "parameters", "licence",
        "origin and licence of the texts",
    )  # fmt: skip
    return PageTable(columns, tuple(rows))


def _section(stack: StackComparison, lit: Lit, *, several: bool) -> ComparedSection:
    differences = stack.differences
    summary = drift_summary(differences) if differences is not None else None
    lead: tuple[Parts, ...] = ()
    if summary is not None:
        lead = tuple(drift_lead(stack, summary, several=several))
    elif differences is None and stack.matched is not None:
        lead = tuple(matched_lead(stack.matched))
    moves = moved(differences) if differences is not None else ()
    lead = (*lead, *moved_lead(stack, moves))
    drawn = differences is not None and summary is not None and not summary.equal
    differs = summary if drawn else None
    return ComparedSection(
        title=stack.title,
        stack=stack.stack,
        lead=lead,
        wall=difference_wall(stack, differs, lit) if differences is not None else None,
        largest=divergence_text(float(np.nanmax(differs.value))) if differs else "",
        changed=tuple(changed_heads(stack, differs)) if differs else (),
        atlases=tuple(side_atlases(stack, lit)),
        drift=(drift_map(stack, differences), drift_curve(stack, differences))
        if differences and drawn
        else (),
        most=_most(stack, summary, moves) if summary is not None and drawn else None,
        layers=layer_moves(summary, moves),
        families=family_changes(stack) if differences is not None else None,
        importance=importance_differences(stack),
        matched=_matched(stack),
    )


def _matched(stack: StackComparison) -> tuple[Parts, ...]:
    matched = stack.matched
    if matched is None or np.isnan(matched.similarity).all():
        return ()
    return tuple(matched_summary(stack, matched))


def _most(
    stack: StackComparison, summary: DriftSummary, moves: Sequence[DriftMeasure]
) -> PageTable:
    """Return the heads whose attention differs most, beside rounding and unrelated heads."""
    part, floor = summary.part, summary.floor
    functions = [functions_of(results) for results in (stack.a, stack.b)]
    rows = []
    for place in heads_by_value(summary.value)[:MAX_DRIFT_ROWS]:
        cells: list[Content] = [
            divergence_text(float(summary.value[place])),
            nats_interval(float(summary.low[place]), float(summary.high[place])),
        ]
        if floor is not None:
            cells.append(divergence_text(float(floor[place])))
        if part is not None:
            cells.append(percent(max(float(part[place]), 0.0)))
        cells += moved_cells(moves, place)
        head = HeadName(stack.pair.a.name, *place)
        cells += [by_head[head].noun for by_head in functions]
        rows.append(Row(head_link(head), tuple(cells)))
    columns = (
        "Head", "divergence (nats)", "95 %", *(("rounding",) if floor is not None else ()),
        *(("of the way to an unrelated head",) if part is not None else ()),
        *(move.title for move in moves), *(f"function in {name}" for name in stack.names),
    )  # fmt: skip
    return PageTable(columns, tuple(rows), _unrelated(summary))


def _unrelated(summary: DriftSummary) -> str:
    """Return the divergence of unrelated heads, the end of the way; empty if it is unknown."""
    if summary.ceiling is None:
        return ""
    median = divergence_text(float(np.nanmedian(summary.ceiling)))
    return f"An unrelated head is {median} nats apart: the median over all heads."


def _depths(metrics: Sequence[MetricPair]) -> Iterator[Figure]:
    """Metrics of prime importance over relative depth, of the first kind of attention."""
    by_id = {page.metric.id: page for page in metrics}
    for name in DEPTHS:
        if name in by_id and by_id[name].depths:
            yield by_id[name].depths[0]


def _links(
    metrics: Sequence[MetricPair],
) -> Iterator[tuple[str, tuple[tuple[str, str, str], ...]]]:
    """All metrics by section, with what differs in the first kind of attention."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for page in metrics:
        groups.setdefault(page.metric.section, []).append(
            (page.page.path, page.page.title, page.short)
        )
    yield from ((section, tuple(links)) for section, links in groups.items())
