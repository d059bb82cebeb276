"""The page of all heads: maps by family, a line for each head, and the highest numbers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlencode

from headbook.charts.drawing import Drawing
from headbook.charts.patterns import parts_bar, parts_of
from headbook.pages.parts.all_heads import MANY
from headbook.pages.parts.atlas import many_heads, map_style
from headbook.pages.parts.head_list import (
    EFFECT_TITLE,
    Column,
    HeadEffects,
    all_facts,
    head_effects,
    initial_columns,
    line_style,
    list_order,
    number_columns,
)
from headbook.pages.parts.page import AnalysisPage, StackSection
from headbook.pages.parts.table import HeatCell
from headbook.report.ablation import main_target
from headbook.report.answers.heads import (
    RANKINGS,
    RankedHead,
    first_head,
    heads_answer,
    ranking_text,
)
from headbook.report.facts.functions import RULES, FunctionFamily, families_of
from headbook.report.facts.head_facts import HeadFacts, head_facts
from headbook.report.linked_rows import LinkedNumber, head_number
from headbook.report.relation_tests import tests_of_stack
from headbook.report.results import StackResults, study_of
from headbook.report.sink import sink_tokens
from headbook.report.thresholds import HALF
from headbook.report.wording import capital, count_text, is_share
from headbook.results.formats import MISSING, head_file, interval_text, number
from headbook.schema import HeadKey, HeadName, Replacement
from headbook.study.ablation.effect_tests import ATTRIBUTION
from headbook.study.ablation_tables import EFFECT

Results = Mapping[str, StackResults]

MOST_LINES, FEW_LINES = 150, 60  # heads listed without scripts; the latter if there are many
FACT_TITLES = {
    "verdict": "Verdict",
    "relation": "Relation",
}
MOST_IN_COLUMNS = 36  # heads of a family whose maps stand in columns of four


@dataclass(frozen=True)
class FamilyMap:
    """A head as a small map.

    Attributes:
        facts: facts about the head.
        href: address of the head's line, or of its page if it has none.
        style: classes of the map.
        title: name of the head with its function.
    """

    facts: HeadFacts
    href: str
    style: str
    title: str


@dataclass(frozen=True)
class FamilyPanel:
    """All heads of a family as small maps.

    Attributes:
        family: class of the family's colour; empty for heads without a function.
        name: name of the family.
        view: the list filtered by the family, as addresses have it after their ``#``.
        maps: heads, most attention to the sink last.
    """

    family: str
    name: str
    view: str
    maps: tuple[FamilyMap, ...]


@dataclass(frozen=True)
class FamilyPanels(StackSection):
    """The heads of a stack by family, the largest family first.

    Attributes:
        panels: families with their heads.
        size: pixels of a map.
        in_columns: whether the maps of a family stand in columns of four, side by side with other
            families; else each family has a row of its own.
    """

    panels: tuple[FamilyPanel, ...]
    size: int
    in_columns: bool


@dataclass(frozen=True)
class HeadLine:
    """A head as a line of the list.

    Attributes:
        facts: facts about the head.
        id: fragment of the line's address.
        style: classes of its small map.
        parts: bar of the parts of its attention; None without them.
        cells: numbers of the shown columns.
    """

    facts: HeadFacts
    id: str
    style: str
    parts: Drawing | None
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True)
class RankedHeads:
    """The first head of each stack by one number.

    Attributes:
        text: what the heads do most.
        heads: first head of each stack.
        view: the list in the order of the number, as addresses have it after their ``#``.
        column: the number.
    """

    text: str
    heads: tuple[RankedHead, ...]
    view: str
    column: Column


@dataclass(frozen=True, kw_only=True)
class HeadsPage(AnalysisPage):
    """The list of all heads.

    Attributes:
        sections: small maps of all heads by family, by stack.
        columns: title and unit of the numbers.
        lines: lines of heads by family, in a family the largest change without the head first.
        facts: names of the facts that any head has, in the order of columns.
        total: number of heads; scripts and files have those without a line.
        rankings: first heads by some numbers.
        symbols: terms of the page with their meaning.
        estimated: whether the effects of some heads are estimates.
        data: address of the script with the data of the list.
        values: folder with a script for each metric.
    """

    template: ClassVar[str] = "heads.html"
    scripts = ("numbers", "heads_list", "heads_controls", "heads")
    styles: ClassVar[tuple[str, ...]] = (*AnalysisPage.styles, "heads")
    sections: tuple[FamilyPanels, ...]
    columns: tuple[tuple[str, str], ...]
    lines: tuple[HeadLine, ...]
    facts: tuple[str, ...]
    fact_titles: ClassVar[Mapping[str, str]] = FACT_TITLES
    total: int
    rankings: tuple[RankedHeads, ...]
    symbols: tuple[tuple[str, str], ...]
    estimated: bool
    data: str = "data/headlist.js"
    values: str = "data/values/"

    @property
    def has_parts(self) -> bool:
        """Whether any head has a bar of the parts of its attention."""
        return any(line.parts for line in self.lines)


def has_heads(results: Results) -> bool:
    """Return whether a study has numbers of heads."""
    return bool(number_columns(results))


def heads_page(results: Results) -> HeadsPage:
    """Return the page of all heads."""
    columns, facts, effects = number_columns(results), all_facts(results), head_effects(results)
    initial = initial_columns(columns)
    many = any(many_heads(r) for r in results.values())
    order = list_order(facts, effects)[: FEW_LINES if many else MOST_LINES]
    lines = [_line(results, facts, i, initial, effects) for i in order]
    model = study_of(results).manifest.model.name
    titles = [(column.title, column.unit) for column in initial]
    listed = {facts[i].href for i in order}
    estimated = effects is not None and bool(effects.estimated.any())
    return HeadsPage(
        path="heads.html",
        title="What does each head do?",
        description=f"All {count_text(len(facts), 'head')} of {model}: family, attention, "
        "relations and all metrics, to sort and filter.",
        topic="Heads",
        answer=heads_answer(facts).parts,
        scope=tuple(_scope(results)),
        absent=tuple(_absent(results, facts, effects)),
        sections=tuple(_panels(r, listed) for r in results.values()),
        columns=(*titles, *([(EFFECT_TITLE, effects.unit)] if effects else [])),
        lines=tuple(lines),
        facts=tuple(
            name for name in FACT_TITLES if any(getattr(each, name).word for each in facts)
        ),
        total=len(facts),
        rankings=tuple(rankings(results, columns, initial)),
        symbols=tuple(_symbols(estimated=estimated)),
        estimated=estimated,
    )


def _scope(results: Results) -> Iterator[tuple[str, str]]:
    manifest = study_of(results).manifest
    yield (
        count_text(manifest.counts["sentences"], manifest.text_noun) + ",",
        "queries without special tokens.",
    )
    sinks = dict.fromkeys(sink_tokens(r) for r in results.values())
    yield "Sink:", f"{'; '.join(sinks)}."
    yield "Compared with", "uniform attention, and for relations with the best surface rule."


def _absent(
    results: Results, facts: Sequence[HeadFacts], effects: HeadEffects | None
) -> Iterator[str]:
    if effects is None:
        yield "Change of the output without each head, and verdicts: --importance auto or full."
    if all(each.cached(tests_of_stack) is None for each in results.values()):
        yield (
            "Relations of heads: sentences with dependencies, from CoNLL-U files or --annotator, "
            "and enough of them."
        )
    if not any(each.function.family for each in facts):
        yield (
            "Functions of heads: --metrics all, or a list with sink_share, type_shares and "
            "relative_entropy."
        )


def _symbols(*, estimated: bool) -> Iterator[tuple[str, str]]:
    """Yield the terms of the page with their meaning.

    Args:
        estimated: whether the effects of some heads are estimates.
    """
    yield (
        "What it does",
        f"the first of {len(RULES) - 1} functions whose number, which follows its name, reaches "
        "its threshold with the lower end of the 95 % interval. Shares of attention count with the "
        "sink masked and rows renormalised, and have to reach "
        f"{100 * HALF.value:.0f} % after correction for uniform attention, (share − u) / (1 − u) "
        "with u its share",
    )
    yield (
        "Depends on",
        "what explains the head’s departure from even attention, from left to right: the distance "
        "between query and key, the key whatever the query, or the pair",
    )
    yield "Attention to the sink", "share of the attention of ordinary tokens, all keys"
    yield (
        "Normalised entropy",
        "−Σ A ln A, divided by ln of the number of visible keys; 1 is uniform attention",
    )
    yield "Attention distance", "Σ A |i − j| / Σ A from query i to key j, in tokens"
    yield (
        EFFECT_TITLE,
        "change of the target below the title if the head's output is replaced by its mean over "
        "tokens of the same kind"
        + estimated
        * "; ≈ is the first-order estimate for heads that were not replaced",
    )


def _panels(results: StackResults, listed: set[str]) -> FamilyPanels:
    """Return the small maps of a stack; heads in ``listed`` have a line in the list."""
    groups: dict[FunctionFamily | None, list[HeadFacts]] = {}
    for facts in head_facts(results):
        groups.setdefault(facts.function.family, []).append(facts)
    stack, several = results.stack, len(results.study.manifest.stacks) > 1

    def sink(facts: HeadFacts) -> float:
        share = facts.function.sink
        return 0.0 if share is None else share.value

    panels = []
    for family, heads in sorted(groups.items(), key=lambda group: -len(group[1])):
        maps = [_map(results, facts, listed) for facts in sorted(heads, key=sink)]
        place = {"stack": stack.name} if several else {}
        name = families_of(results)[family] if family else capital(heads[0].function.noun)
        panels.append(
            FamilyPanel(
                heads[0].function.style,
                name,
                urlencode({"class": heads[0].label.word, **place}),
                tuple(maps),
            )
        )
    largest = max(map(len, groups.values()))
    small = stack.n_heads >= MANY or many_heads(results)
    in_columns = largest <= MOST_IN_COLUMNS
    return FamilyPanels(
        stack.name, tuple(panels), size=24 if small else 36, in_columns=in_columns and not small
    )


def _map(results: StackResults, facts: HeadFacts, listed: set[str]) -> FamilyMap:
    head = facts.head
    return FamilyMap(
        facts,
        f"#{head_file(head)}" if facts.href in listed else facts.href,
        map_style(results.stack, head.layer, head.head),
        f"{facts.name}, {facts.function.noun}",
    )


def _line(
    results: Results,
    facts: Sequence[HeadFacts],
    index: int,
    columns: Sequence[Column],
    effects: HeadEffects | None,
) -> HeadLine:
    """Return the line of one head.

    Args:
        facts: facts of all heads.
        index: place of the head among them.
    """
    head = facts[index].head
    cells = [_cell(results, head, column) for column in columns]
    if effects:
        cells.append(_effect_cell(results, head, effects, index))
    style, parts = line_style(results, facts[index]), parts_of(results[head.stack], *head[1:])
    bar = parts_bar(parts) if parts else None
    return HeadLine(facts[index], head_file(head), style, bar, tuple(cells))


def _cell(results: Results, head: HeadName, column: Column) -> HeatCell:
    estimate, share = column.at(results, head), is_share(column.metric)
    text = number(estimate.value, share=share)
    if text == MISSING:
        return HeatCell(text, "")
    key = HeadKey(column.metric.id, column.views[head.stack], column.label)
    linked = head_number(text, head, key)
    note = interval_text(estimate.low, estimate.high, share=share)
    return HeatCell(text, "", linked, note)


def _effect_cell(results: Results, head: HeadName, effects: HeadEffects, index: int) -> HeatCell:
    """Return the change without a head."""
    value, ablation = float(effects.value[index]), study_of(results).corpus_sums.ablation
    if math.isnan(value) or ablation is None:
        return HeatCell(MISSING, "")
    estimated = bool(effects.estimated[index])
    text = f"{'≈ ' * estimated}{number(value)}"
    row = (
        ("stack", head.stack), ("layer", head.layer), ("head", head.head),
        ("metric", ATTRIBUTION if estimated else EFFECT),
        ("replacement", str(Replacement.MEAN)), ("target", main_target(ablation)), ("label", ""),
    )  # fmt: skip
    note = interval_text(float(effects.low[index]), float(effects.high[index])) or "estimated"
    return HeatCell(text, "", LinkedNumber(text, "importance", row), note)


def rankings(
    results: Results, columns: Sequence[Column], initial: Sequence[Column]
) -> Iterator[RankedHeads]:
    """Yield the rankings that a study has numbers for.

    Args:
        columns: all columns of the list.
        initial: columns that the list shows first; that of the ranking is put before them.
    """
    by_key = {(column.metric.id, column.label): column for column in columns}
    for ranking in RANKINGS:
        column = by_key.get((ranking.metric, ranking.label))
        if column is None:
            continue
        first = [first_head(results[name], ranking, view) for name, view in column.views.items()]
        heads = tuple(head for head in first if head is not None)
        keys = dict.fromkeys([column.key, *(other.key for other in initial)])
        sort = column.key if ranking.lowest else f"-{column.key}"
        if heads:
            yield RankedHeads(
                ranking_text(ranking, next(iter(results.values()))),
                heads,
                urlencode({"columns": " ".join(keys), "sort": sort}),
                column,
            )
