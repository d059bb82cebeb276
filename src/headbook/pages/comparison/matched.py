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
from headbook.report.wording import count_text, number_word, tied_places
from headbook.results.formats import MISSING, THIN, head_name, number, percent
from headbook.results.sentence import head_link
from headbook.schema import HeadName

TO_THE_OTHER = 0.1  # of the depth: within it, a match counts as at the same depth


def matched_summary(stack: StackComparison, matched: MatchedHeads) -> Iterator[Parts]:
    """Sentences with links: counterparts, stability, depth and the best match."""
    if stack.differences is not None:
        yield (_same_number(stack, matched),)
    yield (_counterparts(stack, matched),)
    if not np.isnan(matched.stability):
        again = percent(matched.stability)
        yield (
            f"Matched on one half of the sentences, {again} of the matches are found again on the "
            "other half.",
        )
    if stack.differences is None:
        yield (_deep(stack, matched),)
    yield from _best(stack, matched)


def _same_number(stack: StackComparison, matched: MatchedHeads) -> str:
    """Return how many heads are most like the head of the same number, in words."""
    same = sum(
        matched.b[best].layer == head.layer and matched.b[best].head == head.head
        for head, best in zip(matched.a, matched.matching.best.tolist(), strict=True)
        if best >= 0
    )
    return (
        f"Of {count_text(len(matched.a), 'head')} of {stack.names[0]}, {same:,} are most like the "
        "head "
        f"of the same number in {stack.names[1]}."
    )


def _counterparts(stack: StackComparison, matched: MatchedHeads) -> str:
    """Return how many heads have a counterpart, and the criterion, in words."""
    matching, total = matched.matching, count_text(len(matched.a), "head")
    n_counterparts = int(matching.counterpart.sum())
    mutual = _mutual(int((matching.mutual & matching.counterpart).sum()))
    if not matched.tested:
        return (
            f"Of {total} of {stack.names[0]}, {_mutual(int(matching.mutual.sum()))} in a pair "
            f"with one of {stack.names[1]} in which each is the other's most similar head. Whether "
            "a match is more than chance was not tested: no model with random weights was compared "
            "(--untrained)."
        )
    return (
        f"Of {total} of {stack.names[0]}, {n_counterparts:,} have a counterpart in "
        f"{stack.names[1]}: a match more alike than 95{THIN}% of heads are to those of random "
        "weights (similarity "
        f"{number(matching.threshold)}). Of them, {mutual} in a pair in which each is the "
        "other's most similar head."
    )


def _mutual(amount: int) -> str:
    return f"{number_word(amount)} {'is' if amount == 1 else 'are'}"


def _deep(stack: StackComparison, matched: MatchedHeads) -> str:
    """Return how close the relative depths of matched heads are, in words."""
    matching = matched.matching
    gaps = np.array([
        abs(depth(stack.pair.a, head.layer) - depth(stack.pair.b, matched.b[partner].layer))
        for head, partner in zip(matched.a, matching.partner.tolist(), strict=True)
        if partner >= 0
    ])  # fmt: skip
    near = percent(float((gaps <= TO_THE_OTHER).mean()))
    return (
        f"Matches stand {number(float(np.median(gaps)))} of the depth apart (median); {near} are "
        f"within {TO_THE_OTHER} of it."
    )


def _best(stack: StackComparison, matched: MatchedHeads) -> Iterator[Parts]:
    """Yield the match of highest similarity, or how many are alike to the digits printed."""
    matching = matched.matching
    matches = tied_places(matching.similarity, number)
    if not matches:
        return
    place = matches[0][0]
    value = number(float(matching.similarity[place]))
    if len(matches) > 1:
        yield (f"{len(matches):,} matches have the highest similarity, {value}.",)
        return
    yield (
        "The highest similarity, not tested against the others, is that of ",
        head_link(matched.a[place]),
        f" and {head_name(matched.b[matching.partner[place]])} of {stack.names[1]}: {value}.",
    )


MOST_HEADS = 300  # of the list; the files have them all
SIDE = 256  # cells of a side of the picture, at most
WEAK = "weak"
YES_NO = ("no", "yes")


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
        _section(stack, stack.matched)
        for stack in stacks
        if stack.matched and _known(stack.matched)
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


def _known(matched: MatchedHeads) -> bool:
    return not bool(np.isnan(matched.similarity).all())


def _section(stack: StackComparison, matched: MatchedHeads) -> MatchedSection:
    value = np.nan_to_num(matched.similarity)
    largest = float(value.max()) or 1.0
    steps = np.rint(value / largest * (STEPS - 1)).astype(np.uint8)
    return MatchedSection(
        title=stack.title,
        summary=tuple(matched_summary(stack, matched)),
        cut=matched.cut,
        picture=images.inline_map(images.shrunk(steps, SIDE), rgba_ramp()),
        rows=len(matched.a),
        columns=len(matched.b),
        most=number(largest),
        figures=(_layers(stack, matched), _depths(stack, matched)),
        heads=PageTable(
            (
                "Head",
                f"match in {stack.names[1]}",
                "similarity",
                "counterpart",
                "mutual",
                "margin",
                "most similar",
            ),
            tuple(_rows(matched))[:MOST_HEADS],
            style="numbers",
        ),
        left_out=max(0, len(matched.a) - MOST_HEADS),
        alone=tuple(_alone(stack, matched)),
    )


def _layers(stack: StackComparison, matched: MatchedHeads) -> Figure:
    """Draw the largest similarity of every two layers."""
    rows = pd.DataFrame({
        "layer": np.repeat([head.layer for head in matched.a], len(matched.b)),
        "other_layer": np.tile([head.layer for head in matched.b], len(matched.a)),
        "value": matched.similarity.reshape(-1),
    })  # fmt: skip
    largest = rows.groupby(["layer", "other_layer"])["value"].max().reset_index()
    return layer_pairs(
        f"matched-{stack.stack}-layers",
        f"The largest similarity of a head of each layer of {stack.names[0]} (down) to a head of "
        f"each layer of {stack.names[1]} (across).",
        largest.dropna(),
        titles=tuple(f"layer of {name}" for name in stack.names),
        legend="largest similarity",
    )


def _depths(stack: StackComparison, matched: MatchedHeads) -> Figure:
    """Draw the relative depth of each head beside that of its match."""
    of_a, of_b = stack.pair.a, stack.pair.b
    rows = [
        {
            "name": f"{head_name(head)} and {head_name(partner)}",
            "view": "",
            "label": "",
            "a": depth(of_a, head.layer),
            "b": depth(of_b, partner.layer),
            "supported": matched.tested and bool(matched.matching.counterpart[place]),
        }
        for place, head, partner in _matches(matched)
    ]
    filled = "Filled: a counterpart; hollow: none." if matched.tested else "Hollow: not tested."
    return pair_points(
        f"matched-{stack.stack}-depth",
        f"Relative depth of each head of {stack.names[0]} and of its match in {stack.names[1]}; "
        f"dashed line: the same depth. {filled}",
        pd.DataFrame(rows),
        titles=tuple(f"relative depth in {name}" for name in stack.names),
    )


def _matches(matched: MatchedHeads) -> Iterator[tuple[int, HeadName, HeadName]]:
    """Each head that is matched with another, whether that is a counterpart or not."""
    for place, head in enumerate(matched.a):
        if matched.matching.partner[place] >= 0:
            yield place, head, matched.b[matched.matching.partner[place]]


def _rows(matched: MatchedHeads) -> Iterator[Row]:
    """Yield the best matches first; matches that are no counterparts are grey."""
    matching = matched.matching
    order = np.argsort(-np.nan_to_num(matching.similarity, nan=-1), kind="stable")
    for place in order.tolist():
        best, partner = matching.best[place], matching.partner[place]
        is_counterpart = bool(matching.counterpart[place])
        yield Row(
            head_link(matched.a[place]),
            (
                head_name(matched.b[partner]) if partner >= 0 else MISSING,
                number(float(matching.similarity[place])),
                YES_NO[is_counterpart] if matched.tested else "not tested",
                YES_NO[bool(matching.mutual[place])],
                number(float(matching.margin[place])),
                head_name(matched.b[best]) if best >= 0 else MISSING,
            ),
            "" if is_counterpart and matched.tested else WEAK,
        )


def _alone(stack: StackComparison, matched: MatchedHeads) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Heads without a counterpart, by model; nothing where that was not tested."""
    if not matched.tested:
        return
    matching = matched.matching
    taken = {int(matching.partner[n]) for n in np.flatnonzero(matching.counterpart)}
    of_a = [h for n, h in enumerate(matched.a) if not matching.counterpart[n]]
    of_b = [h for n, h in enumerate(matched.b) if n not in taken]
    for name, heads in zip(stack.names, (of_a, of_b), strict=True):
        if heads:
            yield name, tuple(head_name(head) for head in heads)
