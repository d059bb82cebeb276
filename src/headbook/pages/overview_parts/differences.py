"""Differences of mean maps on sites of several models: the wall of all heads, and single heads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.charts import images
from headbook.charts.theme import DIVERGING, STEPS, ink_steps, rgba_ramp
from headbook.pages.parts.atlas import Atlas, TileNote, atlas_of
from headbook.report.linked_rows import Parts
from headbook.results.formats import number
from headbook.results.sentence import Link
from headbook.schema import AttentionStack, HeadName
from headbook.study.sentence_data import to_uint8

SIGNED = 33  # colours of a difference; one of them is 0
BAR_STEPS = 20  # lengths of the bar under a tile


class MapPicture(NamedTuple):
    """A map as an image address.

    Attributes:
        title: model, checkpoint or difference that it shows.
        image: address of the image.
        side: ``a``, ``b`` or ``difference``.
    """

    title: str
    image: str
    side: str


@dataclass(frozen=True)
class SideAtlas:
    """An atlas with a name.

    Attributes:
        name: of the model, or of the difference.
        atlas: the tiles.
        signed: whether colours run both ways from 0.
        end: of the colour scale, in words.
        picture: the tiles' picture, if it is a file of its own; else empty.
    """

    name: str
    atlas: Atlas
    signed: bool
    end: str
    picture: bytes = b""


@dataclass(frozen=True)
class ChangedHead:
    """A head among those that changed most.

    Attributes:
        head: link to its page or row.
        value: how much it changed.
        text: what changed, in words and links; empty if not known.
        pictures: mean map of each side, and the difference.
    """

    head: Link
    value: Parts
    text: Parts
    pictures: tuple[MapPicture, ...]


def bar_class(value: float, largest: float) -> str:
    """Return the classes of a bar and its length, by the square root of a value; empty for NaN."""
    if np.isnan(value) or not largest > 0:
        return ""
    return f"diff b{round(BAR_STEPS * float(np.sqrt(min(1.0, max(0.0, value) / largest))))}"


def difference_atlas(
    stack: AttentionStack,
    maps: tuple[Floats, Floats],
    *,
    names: tuple[str, str],
    about: str,
    address: Callable[[bytes], str],
    page: Callable[[HeadName], str],
    note: TileNote,
) -> SideAtlas:
    """Return the wall of the second side's mean maps minus those of the first.

    Args:
        maps: mean maps of both sides. *Shape:* ``(layer, head, query, key)`` each.
        names: names of both sides.
        about: where the maps come from, in words.
        address: returns the address of the picture of all tiles.
        page: returns the address of a head.
        note: returns further classes and words of a tile.
    """
    side = min(of_side.shape[-1] for of_side in maps)
    one, other = (of_side[..., :side, :side] for of_side in maps)
    gap = np.nan_to_num(other - one)
    end = float(np.abs(gap).max(initial=0.0)) or 1.0
    picture = difference_sheet(gap[[*stack.attention_layers]] / end)
    place = address(picture)
    name = " minus ".join(reversed(names))
    tiles = atlas_of(
        stack,
        {},
        {},
        sheet=place,
        side=side,
        about=f"{name}, {about}, the first {side} positions",
        page=page,
        note=note,
    )
    largest = number(end) if gap.any() else "0"
    is_file = not place.startswith("data:")
    return SideAtlas(name, tiles, signed=True, end=largest, picture=picture if is_file else b"")


def difference_sheet(gap: Floats) -> bytes:
    """Return differences of all heads as one picture; colours by the square root of their size.

    Args:
        gap: -1 to 1. *Shape:* ``(layer, head, query, key)``.
    """
    steps = np.rint((np.sign(gap) * np.sqrt(np.abs(gap)) + 1) / 2 * STEPS).astype(np.uint8)
    return images.sprite(steps + 1, ((0, 0, 0, 0), *rgba_ramp(STEPS + 1, DIVERGING)))


def map_triple(
    one: Floats, other: Floats, names: tuple[str, str], difference: str
) -> tuple[MapPicture, ...]:
    """Return the mean map of a head on both sides, and the second minus the first.

    Args:
        one, other: weights. *Shape:* ``(query, key)`` each; one size.
        names: names of both sides.
        difference: name of the difference.
    """
    drawn = [
        MapPicture(name, images.inline_map(ink_steps(weights), rgba_ramp()), side)
        for name, weights, side in zip(names, (one, other), "ab", strict=True)
    ]
    gap = np.nan_to_num(other - one)
    return (*drawn, MapPicture(difference, signed_picture(gap), "difference"))


def signed_picture(difference: Floats) -> str:
    """Return a difference of maps as an image address; colours by the square root of its size."""
    up, down = (
        images.shrunk(to_uint8(np.maximum(part, 0)), images.MAX_PREVIEW_PIXELS).astype(np.float64)
        / 255
        for part in (difference, -difference)
    )
    signed = np.where(up >= down, np.sqrt(up), -np.sqrt(down))
    steps = np.rint((1 + signed) / 2 * (SIGNED - 1)).astype(np.uint8)
    return images.inline_map(steps, rgba_ramp(SIGNED, DIVERGING))
