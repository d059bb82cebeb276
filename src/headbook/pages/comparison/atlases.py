"""The atlases of two models and of their difference, all on one scale."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from headbook.charts.base import images
from headbook.charts.base.ink import DIVERGING, STEPS, ink
from headbook.pages.parts.both import BothStacks
from headbook.pages.widgets.atlas import Atlas, MeanMaps, atlas_of, many_heads, mean_maps, sheet
from headbook.report.numbers.headtypes import head_types
from headbook.report.numbers.results import StackResults
from headbook.report.wording import counted, head_page, number
from headbook.study.sentencedata import HeadName


@dataclass(frozen=True)
class SideAtlas:
    """An atlas with a name.

    Attributes:
        name: of the model, or of the difference.
        atlas: the tiles.
        signed: whether colours run both ways from 0.
        end: of the colour scale, in words.
        picture: the tiles' picture, where it is a file of its own; else empty.
    """

    name: str
    atlas: Atlas
    signed: bool
    end: str
    picture: bytes = b""


def side_atlases(both: BothStacks) -> Iterator[SideAtlas]:
    """Both models, and their difference where heads correspond."""
    large = many_heads(both.a) or many_heads(both.b)
    yield _tiles(both, both.a, head_page, "a" * large)
    yield _tiles(both, both.b, _second(both), "b" * large)
    if both.found is not None:
        yield _difference(both, "difference" * large)


def _address(both: BothStacks, picture: bytes, file: str) -> str:
    """Where a picture stands: in the page, or in a file where there are many heads."""
    return f"data/atlas-{both.stack}-{file}.png" if file else images.inline(picture)


def _second(both: BothStacks) -> Callable[[HeadName], str]:
    """Pages of the second model's heads: those of the heads that they correspond to, or matched."""
    if both.found is not None:
        return head_page
    found, pages = both.matched, {}
    for place, head in enumerate(found.a if found else ()):
        partner = found.partner(place) if found else None
        if partner is not None:
            pages[partner] = head_page(head)
    return lambda head: pages.get(head, "matched.html")


def _tiles(
    both: BothStacks, results: StackResults, page: Callable[[HeadName], str], file: str
) -> SideAtlas:
    """One model; ``file``: part of the picture's name, where it is a file."""
    maps, picture = results.once(mean_maps), sheet(results)
    tiles = atlas_of(
        results.stack,
        head_types(results),
        sheet=_address(both, picture, file),
        side=maps.maps.shape[-1],
        about=maps.about,
        page=page,
    )
    name = both.names[results is both.b]
    return SideAtlas(name, tiles, signed=False, end="1", picture=picture if file else b"")


def _difference(both: BothStacks, file: str) -> SideAtlas:
    """What the second model gives more to each pair of positions; square-root scale both ways."""
    parts: list[MeanMaps] = [each.once(mean_maps) for each in (both.a, both.b)]
    side = min(each.maps.shape[-1] for each in parts)
    one, other = (each.maps[..., :side, :side] for each in parts)
    gap = np.nan_to_num(other - one)
    end = float(np.abs(gap).max()) or 1.0
    steps = np.rint((np.sign(gap) * np.sqrt(np.abs(gap) / end) + 1) / 2 * STEPS).astype(np.uint8)
    layers = [*both.pair.a.attention_layers]
    picture = images.sprite(steps[layers] + 1, ((0, 0, 0, 0), *ink(STEPS + 1, DIVERGING)))
    largest = number(end) if gap.any() else "0"
    tiles = atlas_of(
        both.pair.a,
        {},
        sheet=_address(both, picture, file),
        side=side,
        about=f"{both.names[1]} minus {both.names[0]}, mean attention over "
        f"{counted(both.a.study.manifest.counts['sentences'], 'sentence')} at most, the first "
        f"{side} positions",
    )
    name = f"{both.names[1]} minus {both.names[0]}"
    return SideAtlas(name, tiles, signed=True, end=largest, picture=picture if file else b"")
