"""Walls of the heads of two models: their difference, both models, and the heads that changed."""

from collections.abc import Callable, Iterator

import numpy as np

from headbook.charts import images
from headbook.comparison.claims import divergence_row
from headbook.comparison.drift import DriftSummary, divergence_text, nats_interval
from headbook.pages.comparison.headpair import largest_difference
from headbook.pages.comparison.parts import StackComparison
from headbook.pages.overview_parts.claims import Lit, lit_classes
from headbook.pages.overview_parts.differences import (
    ChangedHead,
    SideAtlas,
    bar_class,
    difference_atlas,
    map_triple,
)
from headbook.pages.parts.atlas import (
    TileNote,
    atlas_of,
    many_heads,
    mean_map_sheet,
    mean_maps,
    no_note,
)
from headbook.report.facts.functions import families_of, functions_of
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults, heads_by_value
from headbook.report.wording import capital, count_text
from headbook.results.formats import head_page
from headbook.results.sentence import head_link
from headbook.schema import HeadName


def side_atlases(stack: StackComparison, lit: Lit) -> Iterator[SideAtlas]:
    """Yield the atlases of both models; claims light heads of the first, if heads do not match."""
    large = many_heads(stack.a) or many_heads(stack.b)

    def lights(head: HeadName) -> tuple[str, str]:
        return lit_classes(lit, head), ""

    if stack.differences is None:
        yield _tiles(stack, stack.a, head_page, "a" * large, lights)
    else:
        yield _tiles(stack, stack.a, head_page, "a" * large)
    yield _tiles(stack, stack.b, _second(stack), "b" * large)


def _address(stack: StackComparison, picture: bytes, file: str) -> str:
    """Return the address of a picture: in the page, or a file if there are many heads."""
    return f"data/atlas-{stack.stack}-{file}.png" if file else images.inline(picture)


def _second(stack: StackComparison) -> Callable[[HeadName], str]:
    """Return a function that gives the page of a head of the second model, that of its pair."""
    if stack.differences is not None:
        return head_page
    matched, pages = stack.matched, {}
    for place, head in enumerate(matched.a if matched else ()):
        partner = matched.partner(place) if matched else None
        if partner is not None:
            pages[partner] = head_page(head)
    return lambda head: pages.get(head, "matched.html")


def _tiles(
    stack: StackComparison,
    results: StackResults,
    page: Callable[[HeadName], str],
    file: str,
    note: TileNote = no_note,
) -> SideAtlas:
    """Return the maps of all heads of one model.

    Args:
        page: returns the page of a head.
        file: part of the name of the picture if it is a file.
        note: returns further classes and words of a tile.
    """
    maps, picture = results.cached(mean_maps), mean_map_sheet(results)
    tiles = atlas_of(
        results.stack,
        functions_of(results),
        families_of(results),
        sheet=_address(stack, picture, file),
        side=maps.maps.shape[-1],
        about=maps.about,
        page=page,
        note=note,
    )
    name = stack.names[results is stack.b]
    return SideAtlas(name, tiles, signed=False, end="1", picture=picture if file else b"")


def difference_wall(stack: StackComparison, summary: DriftSummary | None, lit: Lit) -> SideAtlas:
    """Return all heads as differences of mean maps, with bars of their divergence."""
    large = many_heads(stack.a) or many_heads(stack.b)
    largest = float(np.nanmax(summary.value)) if summary is not None else 0.0

    def note(head: HeadName) -> tuple[str, str]:
        value = float(summary.value[head.layer, head.head]) if summary is not None else np.nan
        classes = (lit_classes(lit, head), bar_class(value, largest))
        words = "" if np.isnan(value) else f"divergence {divergence_text(value)} nats"
        return " ".join(filter(None, classes)), words

    sentences = count_text(stack.a.study.manifest.counts["sentences"], "sentence")
    return difference_atlas(
        stack.pair.a,
        (stack.a.cached(mean_maps).maps, stack.b.cached(mean_maps).maps),
        names=stack.names,
        about=f"mean attention over {sentences} at most",
        address=lambda picture: _address(stack, picture, "difference" * large),
        page=head_page,
        note=note,
    )


MAX_CHANGED_HEADS = 6  # heads that stand with both maps


def changed_heads(stack: StackComparison, summary: DriftSummary) -> Iterator[ChangedHead]:
    """Yield the heads whose attention differs most, with both maps; none within rounding."""
    assert stack.differences is not None
    above = summary.above if summary.above is not None else summary.value > 0
    maps = [results.cached(mean_maps).maps for results in (stack.a, stack.b)]
    if maps[0].shape != maps[1].shape:
        return
    functions = [functions_of(results) for results in (stack.a, stack.b)]
    places = [place for place in heads_by_value(summary.value) if above[place]]
    for place in places[:MAX_CHANGED_HEADS]:
        head = HeadName(stack.pair.a.name, *place)
        ends = nats_interval(float(summary.low[place]), float(summary.high[place]))
        number_of_head = divergence_text(float(summary.value[place]))
        row = divergence_row(stack.stack, *place)
        nouns = " → ".join(dict.fromkeys(by_head[head].noun for by_head in functions))
        largest = largest_difference(stack.differences, head)
        texts = (nouns, largest and f"largest supported difference: {largest}")
        yield ChangedHead(
            head_link(head),
            (LinkedNumber(number_of_head, "differences", row), f" nats {ends}".rstrip()),
            (capital("; ".join(filter(None, texts))),),
            map_triple(maps[0][place], maps[1][place], stack.names, "difference"),
        )
