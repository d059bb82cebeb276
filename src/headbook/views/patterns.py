"""What heads' maps look like: all heads by class, their mixtures, and what stripes are for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.charts import Figure, mixture_bars
from headbook.charts.patterns import PARTS
from headbook.measures.classify import Label
from headbook.numbers.classes import PATTERN, Classes, HeadClass, Place, head_classes, value
from headbook.numbers.results import StackResults
from headbook.stored.shown import HeadName
from headbook.terms import View
from headbook.views.answers import Answer, answers
from headbook.views.page import Page
from headbook.views.plain import MEANING, detail, parks
from headbook.views.thumbs import pictures
from headbook.wording import STACKS, counted, head_name, head_page, number

MOST_ROWS = 150  # of all tables of the page; the files have them all
MOST_HEADS = 300  # of all groups of the page
SHARES = ("spread", "column", "offset", *PARTS)


@dataclass(frozen=True)
class Thumb:
    """A head in its class.

    Attributes:
        name, href: the head and its page.
        picture: mean attention by position as an image address; empty where it was not kept.
        detail: what its stripes stand on, or its offset.
        numbers: spread, column and offset residual.
    """

    name: str
    href: str
    picture: str
    detail: str
    numbers: tuple[str, str, str]


@dataclass(frozen=True)
class ClassGroup:
    """The heads of a class; ``left_out`` more are not shown."""

    label: str
    meaning: str
    total: int
    heads: tuple[Thumb, ...]
    left_out: int


@dataclass(frozen=True)
class PatternRow:
    """A head in the table.

    Attributes:
        name, href: the head and its page; no page for uniform attention.
        label: its class with the detail.
        shares: by `SHARES`.
        sentence: what it parks and what that carries, in words.
    """

    name: str
    href: str
    label: str
    shares: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class StackSection:
    """One kind of attention.

    Attributes:
        stack, title: as files and as pages call it.
        behind: how many sentences stand behind the numbers, in words.
        answers: questions with what the numbers say.
        groups: heads by class.
        unknown: how many heads have no class.
        figures: mixtures.
        even: the numbers of uniform attention.
        rows: all heads; ``left_out`` more are in the files.
    """

    stack: str
    title: str
    behind: str
    answers: tuple[Answer, ...]
    groups: tuple[ClassGroup, ...]
    unknown: int
    figures: tuple[Figure, ...]
    even: tuple[str, ...]
    rows: tuple[PatternRow, ...]
    left_out: int


@dataclass(frozen=True, kw_only=True)
class PatternsPage(Page):
    """Patterns in all stacks.

    Attributes:
        sections: by stack, the heads in their classes and what their numbers say.
        pictured: whether there are pictures.
        shares: columns of the tables.
    """

    template: ClassVar[str] = "patterns.html"
    sections: tuple[StackSection, ...]
    pictured: bool
    shares: tuple[str, ...] = SHARES


def patterns_page(results: Mapping[str, StackResults]) -> PatternsPage | None:
    """The page of patterns; None for a study without them."""
    classes = {name: head_classes(r) for name, r in results.items()}
    there = [name for name in results if classes[name]]
    if not there:
        return None
    sections = tuple(_section(results[name], classes[name], len(there)) for name in there)
    model = next(iter(results.values())).study.manifest.model.name
    return PatternsPage(
        path="patterns.html",
        title="Patterns",
        description=f"What the attention maps of {model} look like: stripes, diagonals, blocks "
        "or neither, and what the stripes are for.",
        sections=sections,
        pictured=any(t.picture for s in sections for g in s.groups for t in g.heads),
    )


def _section(results: StackResults, classes: Classes, n_stacks: int) -> StackSection:
    stack = results.stack
    sentences = int(results.heads(PATTERN, View.RAW, "spread").sentences.max())
    rows = tuple(_rows(results, classes))
    most = MOST_ROWS // n_stacks
    layer = stack.attention_layers[0]
    return StackSection(
        stack=stack.name,
        title=STACKS[stack.name],
        behind=counted(sentences, "sentence"),
        answers=tuple(answers(results, classes)),
        groups=tuple(_groups(results, classes, MOST_HEADS // n_stacks)),
        unknown=sum(each is None for each in classes.values()),
        figures=tuple(_mixtures(results, sentences)),
        even=tuple(_even(results, label, layer) for label in SHARES),
        rows=rows[:most],
        left_out=max(len(rows) - most, 0),
    )


def _even(results: StackResults, label: str, layer: int) -> str:
    found = results.uniform(PATTERN, View.RAW, label).value[layer]
    return number(float(found), share=label in PARTS)


def _name(results: StackResults, place: Place) -> tuple[str, str]:
    head = HeadName(results.stack.name, *place)
    return head_name(head), head_page(head)


def _groups(results: StackResults, classes: Classes, most: int) -> Iterator[ClassGroup]:
    """Classes in order of size; where there are too many heads, all lose the same share."""
    pictured = pictures(results)
    members: dict[Label, list[tuple[Place, HeadClass]]] = {}
    for place, each in classes.items():
        if each is not None:
            members.setdefault(each.label, []).append((place, each))
    total = sum(map(len, members.values()))
    for label, heads in sorted(members.items(), key=lambda item: -len(item[1])):
        shown = len(heads) if total <= most else max(len(heads) * most // total, 1)
        thumbs = tuple(_thumb(results, *each, pictured) for each in heads[:shown])
        yield ClassGroup(label, MEANING[label], len(heads), thumbs, len(heads) - shown)


def _thumb(
    results: StackResults, place: Place, found: HeadClass, pictured: Mapping[Place, str]
) -> Thumb:
    spread, column, offset = (number(value(results, PATTERN, x, place)) for x in SHARES[:3])
    return Thumb(
        *_name(results, place),
        picture=pictured.get(place, ""),
        detail=detail(found),
        numbers=(spread, column, offset),
    )


def _rows(results: StackResults, classes: Classes) -> Iterator[PatternRow]:
    for place, found in classes.items():
        if found is not None:
            about = detail(found)
            shares = ((x, value(results, PATTERN, x, place)) for x in SHARES)
            yield PatternRow(
                *_name(results, place),
                label=f"{found.label}, {about}" if about else found.label,
                shares=tuple(number(share, share=x in PARTS) for x, share in shares),
                sentence=parks(results, place),
            )


def _mixtures(results: StackResults, sentences: int) -> Iterator[Figure]:
    """Vertical, diagonal and rest of every head; none across two texts."""
    if not results.has(PATTERN, View.RAW, "vertical"):
        return
    stack, frames = results.stack, []
    for part in PARTS:
        shares = results.heads(PATTERN, View.RAW, part).value
        layer, place = np.nonzero(~np.isnan(shares))
        heads = [_name(results, at)[0] for at in zip(layer.tolist(), place.tolist(), strict=True)]
        columns = {"head": heads, "layer": layer, "number": place}
        frames.append(pd.DataFrame(columns | {"share": shares[layer, place], "part": part}))
    yield mixture_bars(
        f"patterns-{stack.name}",
        "What stripes and even attention, diagonals, and neither explain of every head's "
        f"attention, a bar a head; {STACKS[stack.name]}{results.some(sentences, ', on')}. Uniform "
        "attention is vertical throughout.",
        pd.concat(frames, ignore_index=True),
        n_heads=stack.n_heads,
    )
