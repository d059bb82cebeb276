"""The page of heads of two models that attend alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.charts import Figure, images
from headbook.charts.comparison import layer_pairs, pair_points
from headbook.charts.theme import STEPS, rgba_ramp
from headbook.comparison.matching import MatchedHeads
from headbook.pages.comparison.metricpair_heads import depth
from headbook.pages.comparison.parts import StackComparison
from headbook.pages.parts.page import TemplatePage
from headbook.pages.parts.table import PageTable, Row
from headbook.report.linked_rows import Parts
from headbook.report.wording import count_text, number_word
from headbook.results.formats import THIN, head_name, number, percent
from headbook.results.sentence import head_link
from headbook.schema import HeadName

TO_THE_OTHER = 0.1  # of the depth: within it, a match counts as at the same depth


def matched_summary(both: StackComparison, found: MatchedHeads) -> Iterator[Parts]:
    """Sentences with links: counterparts, stability, depth and the best match."""
    if both.found is not None:
        yield (_same_number(both, found),)
    yield (_counterparts(both, found),)
    if not np.isnan(found.stability):
        again = percent(found.stability)
        yield (
            f"Matched on one half of the sentences, {again} of the matches are found again on the "
            "other half.",
        )
    if both.found is None:
        yield (_deep(both, found),)
    best = _best(found)
    if best is not None:
        place, value = best
        partner = found.b[found.matching.partner[place]]
        yield (
            "Most alike are ",
            head_link(found.a[place]),
            f" and {head_name(partner)} of {both.names[1]}: similarity {number(value)}.",
        )


def _same_number(both: StackComparison, found: MatchedHeads) -> str:
    """Return how many heads are most like the head of the same number, in words."""
    same = sum(
        found.b[best].layer == head.layer and found.b[best].head == head.head
        for head, best in zip(found.a, found.matching.best.tolist(), strict=True)
        if best >= 0
    )
    return (
        f"Of {count_text(len(found.a), 'head')} of {both.names[0]}, {same:,} are most like the "
        "head "
        f"of the same number in {both.names[1]}."
    )


def _counterparts(both: StackComparison, found: MatchedHeads) -> str:
    """Return how many heads have a counterpart, and the criterion, in words."""
    matching, total = found.matching, count_text(len(found.a), "head")
    there = int(matching.counterpart.sum())
    mutual = _mutual(int((matching.mutual & matching.counterpart).sum()))
    if not found.tested:
        return (
            f"Of {total} of {both.names[0]}, {_mutual(int(matching.mutual.sum()))} in a pair "
            f"with one of {both.names[1]} in which each is the other's most similar head. Whether "
            "a match is more than chance was not tested: no model with random weights was compared "
            "(--untrained)."
        )
    return (
        f"Of {total} of {both.names[0]}, {there:,} have a counterpart in {both.names[1]}: a match "
        f"more alike than 95{THIN}% of heads are to those of random weights (similarity "
        f"{number(matching.threshold)}). Of them, {mutual} in a pair in which each is the "
        "other's most similar head."
    )


def _mutual(amount: int) -> str:
    return f"{number_word(amount)} {'is' if amount == 1 else 'are'}"


def _deep(both: StackComparison, found: MatchedHeads) -> str:
    """Return how close the relative depths of matched heads are, in words."""
    matching = found.matching
    gaps = np.array([
        abs(depth(both.pair.a, head.layer) - depth(both.pair.b, found.b[partner].layer))
        for head, partner in zip(found.a, matching.partner.tolist(), strict=True)
        if partner >= 0
    ])  # fmt: skip
    near = percent(float((gaps <= TO_THE_OTHER).mean()))
    return (
        f"Matches stand {number(float(np.median(gaps)))} of the depth apart (median); {near} are "
        f"within {TO_THE_OTHER} of it."
    )


def _best(found: MatchedHeads) -> tuple[int, float] | None:
    value = found.matching.similarity
    if np.isnan(value).all():
        return None
    place = int(np.nanargmax(value))
    return place, float(value[place])


MOST_HEADS = 300  # of the list; the files have them all
SIDE = 256  # cells of a side of the picture, at most
WEAK = "weak"


@dataclass(frozen=True)
class MatchedSection:
    """One kind of attention of each model.

    Attributes:
        title: the kinds of attention.
        summary: what matching found, in sentences.
        cut: whether one of the two sees earlier words only.
        picture: similarity of every two heads, ordered by depth; an image's address.
        rows, columns: numbers of heads, which are those of the picture's cells.
        most: the largest similarity, where colours end.
        figures: maxima of layers, and depth of each match.
        heads: each head of the first model with its match; ``left_out`` more are in the files.
        alone: heads of either model without a counterpart, by model.
    """

    title: str
    summary: tuple[Parts, ...]
    cut: bool
    picture: str
    rows: int
    columns: int
    most: str
    figures: tuple[Figure, ...]
    heads: PageTable
    left_out: int
    alone: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class MatchedPage(TemplatePage):
    """Heads of two models that attend alike.

    Attributes:
        names: of the models.
        apart: why heads do not correspond by number; empty where they do.
        sections: by kind of attention.
    """

    template: ClassVar[str] = "comparison/matched.html"
    styles = ("comparison",)
    names: tuple[str, str]
    apart: str
    sections: tuple[MatchedSection, ...]


def matched_page(stacks: Sequence[StackComparison], apart: str) -> MatchedPage | None:
    """Return the page of matching; None if no heads were compared.

    Args:
        apart: why heads do not correspond by number; empty where they do.
    """
    sections = tuple(
        _section(both, both.matched) for both in stacks if both.matched and _known(both.matched)
    )
    if not sections:
        return None
    names = stacks[0].names
    return MatchedPage(
        path="matched.html",
        title="Matched heads",
        description=f"Which heads of {names[0]} and {names[1]} attend alike, whatever their "
        "numbers are.",
        names=names,
        apart=apart,
        sections=sections,
    )


def _known(found: MatchedHeads) -> bool:
    return not bool(np.isnan(found.similarity).all())


def _section(both: StackComparison, found: MatchedHeads) -> MatchedSection:
    value = np.nan_to_num(found.similarity)
    largest = float(value.max()) or 1.0
    steps = np.rint(value / largest * (STEPS - 1)).astype(np.uint8)
    return MatchedSection(
        title=both.title,
        summary=tuple(matched_summary(both, found)),
        cut=found.cut,
        picture=images.inline_map(images.shrunk(steps, SIDE), rgba_ramp()),
        rows=len(found.a),
        columns=len(found.b),
        most=number(largest),
        figures=(_layers(both, found), _depths(both, found)),
        heads=PageTable(
            ("Head", both.names[1], "similarity", "mutual", "margin", "most similar"),
            tuple(_rows(found))[:MOST_HEADS],
            style="numbers",
        ),
        left_out=max(0, len(found.a) - MOST_HEADS),
        alone=tuple(_alone(both, found)),
    )


def _layers(both: StackComparison, found: MatchedHeads) -> Figure:
    """Draw the largest similarity of every two layers."""
    rows = pd.DataFrame({
        "layer": np.repeat([head.layer for head in found.a], len(found.b)),
        "other_layer": np.tile([head.layer for head in found.b], len(found.a)),
        "value": found.similarity.reshape(-1),
    })  # fmt: skip
    largest = rows.groupby(["layer", "other_layer"])["value"].max().reset_index()
    return layer_pairs(
        f"matched-{both.stack}-layers",
        f"The largest similarity of a head of each layer of {both.names[0]} (down) to a head of "
        f"each layer of {both.names[1]} (across).",
        largest.dropna(),
        titles=tuple(f"layer of {name}" for name in both.names),
        legend="largest similarity",
    )


def _depths(both: StackComparison, found: MatchedHeads) -> Figure:
    """Draw the relative depth of each head beside that of its match."""
    mine, theirs = both.pair.a, both.pair.b
    rows = [
        {
            "name": f"{head_name(head)} and {head_name(partner)}",
            "view": "",
            "label": "",
            "a": depth(mine, head.layer),
            "b": depth(theirs, partner.layer),
            "supported": found.tested and bool(found.matching.counterpart[place]),
        }
        for place, head, partner in _matches(found)
    ]
    filled = "Filled: a counterpart; hollow: none." if found.tested else "Hollow: not tested."
    return pair_points(
        f"matched-{both.stack}-depth",
        f"Relative depth of each head of {both.names[0]} and of its match in {both.names[1]}; "
        f"dashed line: the same depth. {filled}",
        pd.DataFrame(rows),
        titles=tuple(f"relative depth in {name}" for name in both.names),
    )


def _matches(found: MatchedHeads) -> Iterator[tuple[int, HeadName, HeadName]]:
    """Each head that is matched with another, whether that is a counterpart or not."""
    for place, head in enumerate(found.a):
        if found.matching.partner[place] >= 0:
            yield place, head, found.b[found.matching.partner[place]]


def _rows(found: MatchedHeads) -> Iterator[Row]:
    """Yield the best matches first; matches that are no counterparts are grey."""
    matching = found.matching
    order = np.argsort(-np.nan_to_num(matching.similarity, nan=-1), kind="stable")
    for place in order.tolist():
        best, partner = matching.best[place], matching.partner[place]
        there = partner >= 0 and (not found.tested or bool(matching.counterpart[place]))
        yield Row(
            head_link(found.a[place]),
            (
                head_name(found.b[partner]) if there else "no counterpart",
                number(float(matching.similarity[place])),
                "yes" if matching.mutual[place] else "no",
                number(float(matching.margin[place])),
                head_name(found.b[best]) if best >= 0 else "–",
            ),
            "" if there and found.tested else WEAK,
        )


def _alone(both: StackComparison, found: MatchedHeads) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Heads without a counterpart, by model; nothing where that was not tested."""
    if not found.tested:
        return
    matching = found.matching
    taken = {int(matching.partner[n]) for n in np.flatnonzero(matching.counterpart)}
    mine = [h for n, h in enumerate(found.a) if not matching.counterpart[n]]
    theirs = [h for n, h in enumerate(found.b) if n not in taken]
    for name, heads in zip(both.names, (mine, theirs), strict=True):
        if heads:
            yield name, tuple(head_name(head) for head in heads)
