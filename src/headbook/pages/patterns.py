"""Attention patterns: heads by type, fits, questions on sinks, ablation of types."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats
from headbook.charts import Figure, images, mixture_bars
from headbook.charts.theme import MIXTURE, rgba_ramp
from headbook.metrics import ids
from headbook.pages.parts.ablation import TYPES, removed_table
from headbook.pages.parts.page import Page, StackSection
from headbook.pages.parts.table import PageTable, Row, words_cell
from headbook.report.ablation import margin_text
from headbook.report.findings import Finding
from headbook.report.findings.ablation import answer
from headbook.report.findings.finding import head_link
from headbook.report.findings.patterns import PATTERN, Discussion, discussions, without
from headbook.report.head_types import (
    NOT_MEASURED,
    HeadType,
    OffSinkType,
    Place,
    Types,
    head_types,
    share_of_head,
)
from headbook.report.results import StackResults, study_of
from headbook.report.roles import sink_claim
from headbook.report.wording import STACKS, count_text, head_name, head_page, label_name, number
from headbook.schema import SinkView
from headbook.study.corpus_sums import SENTENCE_ROW
from headbook.study.sentence_data import HeadName

DEAD = "Are sink heads dead?"


@dataclass(frozen=True)
class WithoutThem:
    """The answer for one kind of attention.

    Attributes:
        measured: whether heads were replaced at all.
        margin: below which a change counts as none, with its unit; empty where none was.
        findings: what the numbers say.
        table: three lines for each type; None where no heads were replaced together.
    """

    measured: bool
    margin: str
    findings: tuple[Finding, ...]
    table: PageTable | None


def without_them(results: StackResults, types: Types) -> WithoutThem:
    """What the model loses without the heads of each type."""
    ablation = results.study.corpus_sums.ablation
    if ablation is None:
        return WithoutThem(measured=False, margin="", findings=(), table=None)
    return WithoutThem(
        measured=True,
        margin=margin_text(ablation),
        findings=tuple(_findings(results, types)),
        table=removed_table(ablation, results.study.head_groups, results.stack.name),
    )


def _findings(results: StackResults, types: Types) -> Iterator[Finding]:
    """Of types as a whole where their heads were replaced together, and of each sink head."""
    ablation, groups = results.study.corpus_sums.ablation, results.study.head_groups
    assert ablation is not None
    for group in TYPES:
        yield from answer(ablation, groups, results.stack.name, group, named=False)
        if group == "sink":
            sinks = [place for place, kind in types.items() if kind is not None and kind.sink]
            yield from without(results, sinks, "sink head")


METRIC = ids.VARIABILITY  # keeps the weights between the first tokens of each sentence
COLOURS = 16  # a picture carries its palette


def mean_maps_of_sample(results: StackResults) -> dict[Place, Floats]:
    """The mean weight between the first positions, by layer and head; empty where not kept.

    *Shape:* ``(query, key)`` each. Positions that never look, or are never seen, are left out:
    special tokens do not look. A pair that no sentence has is 0 as a masked one.
    """
    sums = results.study.corpus_sums.sampled.get(results.stack.name)
    start = 0
    for name, view, width in sums.columns if sums else ():
        if (name, view) == (METRIC, SinkView.RAW):
            payload = sums.stats.payload[..., start : start + width] if sums else None
            break
        start += width
    else:
        return {}
    assert payload is not None
    total = payload.sum(0, dtype=np.float64)
    side = round(width**0.5)
    found = {}
    for layer in results.stack.attention_layers:
        there = total[layer, SENTENCE_ROW].reshape(side, side)
        rows, columns = there.any(1), there.any(0)
        for head in range(results.stack.n_heads):
            mean = total[layer, head].reshape(side, side) / np.maximum(there, 1)
            found[layer, head] = mean[rows][:, columns]
    return {cell: each for cell, each in found.items() if each.size}


def mean_map_pictures(results: StackResults) -> Mapping[Place, str]:
    """The same as addresses of images; colours run with the square root of the weight."""
    palette = rgba_ramp(COLOURS)
    return {
        cell: images.map_preview(
            np.rint(np.sqrt(mean_map.clip(0, 1)) * (COLOURS - 1)).astype(np.uint8), palette
        )
        for cell, mean_map in mean_maps_of_sample(results).items()
    }


MOST_ROWS = 150  # of all tables of the page; the files have them all
MOST_HEADS = 300  # of all groups of the page
SHARES = ("spread", "column", "offset", *MIXTURE)
COLUMNS = ("Head", "Type", *map(label_name, SHARES), "Sink")
MEANING = {
    "sink": "corrected share of special tokens (causal: and of the first position) at least "
    "50\u202f%",
    OffSinkType.PREVIOUS: "corrected share of the previous token at least 50\u202f%",
    OffSinkType.NEXT: "corrected share of the next token at least 50\u202f%",
    OffSinkType.SELF: "corrected share of the token itself at least 50\u202f%",
    OffSinkType.OFFSET: "corrected share of one offset at least 50\u202f%",
    OffSinkType.SAME: "corrected share of other occurrences of the token at least 50\u202f%",
    OffSinkType.WINDOW: "corrected share of the tokens within three at least 50\u202f%",
    OffSinkType.UNIFORM: "normalised entropy at least 0.8, and no corrected share reaches "
    "50\u202f%",
    OffSinkType.KEYS: "the same keys from every query",
    OffSinkType.OWN: "the query's own sentence",
    OffSinkType.MIXED: "none of these; the two largest corrected shares are named",
    NOT_MEASURED: "the study lacks type_shares or relative_entropy",
}


@dataclass(frozen=True)
class Thumb:
    """A head in its type.

    Attributes:
        name, href: the head and its page.
        picture: mean attention by position as an image address; empty where it was not kept.
        detail: what its type says beyond the first part.
        numbers: spread, column and offset residual.
    """

    name: str
    href: str
    picture: str
    detail: str
    numbers: tuple[str, str, str]


@dataclass(frozen=True)
class TypeGroup:
    """The heads of a type; ``left_out`` more are not shown."""

    label: str
    meaning: str
    total: int
    heads: tuple[Thumb, ...]
    left_out: int


@dataclass(frozen=True)
class PatternSection(StackSection):
    """One kind of attention.

    Attributes:
        behind: how many sentences stand behind the numbers, in words.
        without: what the model loses without the heads of each type.
        discussions: questions with what the numbers say.
        groups: heads by type.
        unknown: how many heads have no type.
        figures: mixtures.
        even: the numbers of uniform attention.
        table: all heads below uniform attention; ``left_out`` more are in the files.
    """

    behind: str
    without: WithoutThem
    discussions: tuple[Discussion, ...]
    groups: tuple[TypeGroup, ...]
    unknown: int
    figures: tuple[Figure, ...]
    even: tuple[str, ...]
    table: PageTable
    left_out: int


@dataclass(frozen=True, kw_only=True)
class PatternsPage(Page):
    """Patterns in all stacks.

    Attributes:
        sections: by stack, the heads by type and what their numbers say.
        pictured: whether there are pictures.
    """

    template: ClassVar[str] = "patterns.html"
    sections: tuple[PatternSection, ...]
    pictured: bool


def _with_patterns(results: Mapping[str, StackResults]) -> list[str]:
    return [name for name, r in results.items() if r.has_value(PATTERN, SinkView.RAW, "spread")]


def has_patterns(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has fits of attention patterns."""
    return bool(_with_patterns(results))


def patterns_page(results: Mapping[str, StackResults]) -> PatternsPage:
    """The page of patterns."""
    there = _with_patterns(results)
    sections = tuple(_section(results[name], len(there)) for name in there)
    model = study_of(results).manifest.model.name
    return PatternsPage(
        path="patterns.html",
        title="Attention patterns",
        description=f"The heads of {model} by type: sinks, positions, near-uniform and mixed, with "
        "mean attention maps.",
        sections=sections,
        pictured=any(t.picture for s in sections for g in s.groups for t in g.heads),
    )


def _section(results: StackResults, n_stacks: int) -> PatternSection:
    stack = results.stack
    sentences = int(results.heads(PATTERN, SinkView.RAW, "spread").sentences.max())
    types = head_types(results)
    rows = tuple(_rows(results, types))
    most = MOST_ROWS // n_stacks
    even = tuple(_even(results, label, stack.attention_layers[0]) for label in SHARES)
    first = Row("uniform attention", (words_cell(), *even, words_cell()))
    return PatternSection(
        stack=stack.name,
        behind=count_text(sentences, "sentence"),
        without=without_them(results, types),
        discussions=tuple(discussions(results, types)),
        groups=tuple(_groups(results, types, MOST_HEADS // n_stacks)),
        unknown=sum(kind is None for kind in types.values()),
        figures=tuple(_mixtures(results, sentences)),
        even=even,
        table=PageTable(COLUMNS, (first, *rows[:most]), style="numbers patterns"),
        left_out=max(len(rows) - most, 0),
    )


def _even(results: StackResults, label: str, layer: int) -> str:
    found = results.uniform(PATTERN, SinkView.RAW, label).value[layer]
    return number(float(found), share=label in MIXTURE)


def _name(results: StackResults, place: Place) -> tuple[str, str]:
    head = HeadName(results.stack.name, *place)
    return head_name(head), head_page(head)


def _groups(results: StackResults, types: Types, most: int) -> Iterator[TypeGroup]:
    """Types in order of size; where there are too many heads, all lose the same share."""
    pictured = mean_map_pictures(results)
    members: dict[str, list[tuple[Place, HeadType]]] = {}
    for cell, each in types.items():
        if each is not None:
            members.setdefault(each.family or NOT_MEASURED, []).append((cell, each))
    total = sum(map(len, members.values()))
    for family, heads in sorted(members.items(), key=lambda item: -len(item[1])):
        n_drawn = len(heads) if total <= most else max(len(heads) * most // total, 1)
        thumbs = tuple(_thumb(results, *head, pictured) for head in heads[:n_drawn])
        yield TypeGroup(family, MEANING[family], len(heads), thumbs, len(heads) - n_drawn)


def _thumb(
    results: StackResults, place: Place, found: HeadType, pictured: Mapping[Place, str]
) -> Thumb:
    spread, column, offset = (number(_fit(results, x, place)) for x in SHARES[:3])
    return Thumb(
        *_name(results, place),
        picture=pictured.get(place, ""),
        detail=found.detail,
        numbers=(spread, column, offset),
    )


def _rows(results: StackResults, types: Types) -> Iterator[Row]:
    for cell, kind in types.items():
        if kind is not None:
            shares = (number(_fit(results, x, cell), share=x in MIXTURE) for x in SHARES)
            of_sink_text = " ".join(claim.text for claim in sink_claim(results, cell, kind))
            named, of_sink = words_cell(kind.name), words_cell(of_sink_text, style="summary")
            yield Row(head_link(HeadName(results.stack.name, *cell)), (named, *shares, of_sink))


def _fit(results: StackResults, label: str, place: Place) -> float:
    """One of the numbers of the fits; NaN where there is none."""
    return share_of_head(results, PATTERN, SinkView.RAW, label, place).value


def _mixtures(results: StackResults, sentences: int) -> Iterator[Figure]:
    """What fixed keys, fixed distances and neither explain; none across two texts."""
    if not results.has_value(PATTERN, SinkView.RAW, "vertical"):
        return
    stack, frames = results.stack, []
    for part in MIXTURE:
        shares = results.heads(PATTERN, SinkView.RAW, part).value
        layer, place = np.nonzero(~np.isnan(shares))
        heads = [_name(results, at)[0] for at in zip(layer.tolist(), place.tolist(), strict=True)]
        columns = {"head": heads, "layer": layer, "number": place}
        frames.append(pd.DataFrame(columns | {"share": shares[layer, place], "part": part}))
    yield mixture_bars(
        f"patterns-{stack.name}",
        "Share of each head's attention explained by fixed keys (or all alike), by fixed "
        f"distances, and by neither: one bar per head; {STACKS[stack.name]}"
        f"{results.sample_note(sentences, ', on')}. Uniform attention is fixed keys throughout.",
        pd.concat(frames, ignore_index=True),
        n_heads=stack.n_heads,
    )
