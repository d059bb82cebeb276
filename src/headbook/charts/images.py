"""Attention maps as small images and as text; no other module imports Pillow."""

import base64
import io
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headbook.charts.theme import PAPER, STEPS

Map = NDArray[np.uint8]
Ink = Sequence[tuple[int, int, int, int]]
MAX_PREVIEW_PIXELS = 64  # largest side of a preview, in pixels
BANNER_SIZE = (1200, 630)  # width and height of pictures that stand for links, in pixels
MARGIN = 45  # around and between the tables of a banner, in pixels
MIN_FILTERED_WEIGHTS = 4_096  # larger maps are compressed with the strategy ``Z_FILTERED``
COMPRESSION_LEVEL = 5  # of PNGs: as few bytes as 9, in a fifth of the time


def map_preview(cells: Map, ink: Ink) -> str:
    """Return a map as a ``data:`` address, one pixel a weight.

    Maps with a side over `MAX_PREVIEW_PIXELS` are shrunk by the largest weight of each block, so
    that no strong link is lost.

    Args:
        ink: red, green, blue and opacity of each step.
    """
    return inline_map(shrunk(cells, MAX_PREVIEW_PIXELS), ink)


def shrunk(cells: Map, most: int) -> Map:
    """Return a map of at most ``most`` cells a side, by the largest weight of each block."""
    return _largest(cells, -(-max(cells.shape) // most))


def map_sheet(maps: Map, ink: Ink, *, side: int) -> bytes:
    """Draw all heads' maps of a sentence on one sheet: rows are layers, columns are heads.

    Maps that are wider than twice ``side`` are shrunk by the largest weight of each block.

    Args:
        maps: steps of ``ink``. *Shape:* ``(layer, head, query, key)``.
        side: pixels that a map has on the screen.

    Returns:
        A PNG.
    """
    tiles = np.array([[shrunk(cell, 2 * side) for cell in row] for row in maps])
    return sprite(tiles, ink)


def banner(tables: Sequence[Map], palette: Sequence[str]) -> bytes:
    """Draw tables of colours side by side on one picture, cells as squares of one size.

    Args:
        tables: *Shape:* ``(row, column)`` each: places in the palette counted from 1, 0 for paper.
    """
    width, height = BANNER_SIZE
    columns = sum(table.shape[1] for table in tables)
    rows = max(table.shape[0] for table in tables)
    free_width = width - MARGIN * (len(tables) + 1)
    side = max(min(free_width // columns, (height - 2 * MARGIN) // rows), 1)
    gap = side // 10  # of paper between two cells
    canvas = np.zeros((height, width), dtype=np.uint8)
    left = (width - columns * side - MARGIN * (len(tables) - 1)) // 2
    for table in tables:
        cells = _zoomed(table, side)
        inside_squares = [np.arange(size) % side < side - gap for size in cells.shape]
        top = (height - cells.shape[0]) // 2
        region = canvas[top : top + cells.shape[0], left : left + cells.shape[1]]
        region[:] = (cells * np.outer(*inside_squares))[: region.shape[0], : region.shape[1]]
        left += cells.shape[1] + MARGIN
    colours = [tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in (PAPER, *palette)]
    return inked(canvas, [(r, g, b, 255) for r, g, b in colours])


def _largest(cells: Map, block: int) -> Map:
    """Return the largest weight of each block of ``block`` by ``block`` cells."""
    if block == 1:
        return cells
    pad = [(0, -size % block) for size in cells.shape]
    padded = np.pad(cells, pad)
    rows, columns = (size // block for size in padded.shape)
    blocks: Map = padded.reshape(rows, block, columns, block).max((1, 3))
    return blocks


def _zoomed(cells: Map, zoom: int) -> Map:
    return cells.repeat(zoom, 0).repeat(zoom, 1)


def sprite(maps: Map, ink: Ink) -> bytes:
    """Draw maps of all heads on one picture, one pixel a weight and one between two maps.

    Args:
        maps: steps of ``ink``. *Shape:* ``(layer, head, query, key)``.
        ink: red, green, blue and opacity of each step.

    Returns:
        A PNG.
    """
    layers, heads, rows, columns = maps.shape
    canvas = np.zeros((layers, rows + 1, heads, columns + 1), dtype=np.uint8)
    canvas[:, :rows, :, :columns] = maps.transpose(0, 2, 1, 3)
    return inked(canvas.reshape(layers * (rows + 1), -1), ink)


def opacity_sheet(maps: Map) -> str:
    """Return maps of all heads as one black picture whose opacity is the weight, inline.

    Args:
        maps: steps of the ink, 0 to ``STEPS - 1``. *Shape:* ``(layer, head, query, key)``.
    """
    layers, heads, rows, columns = maps.shape
    cells = maps.transpose(0, 2, 1, 3).reshape(layers * rows, heads * columns)
    ink = [(0, 0, 0, round(255 * step / (STEPS - 1))) for step in range(STEPS)]
    encoded = base64.b64encode(inked(cells, ink)).decode("ascii")
    return f"data:image/png;base64,{encoded}"


def inked(cells: Map, ink: Ink) -> bytes:
    """Return a map as a PNG whose palette has only the colours of the map."""
    steps, places = np.unique(cells, return_inverse=True)
    palette = [ink[step] for step in steps.tolist()]
    image = Image.fromarray(places.reshape(cells.shape).astype(np.uint8), mode="P")
    image.putpalette([part for colour in palette for part in colour[:3]])
    opacity = bytes(colour[3] for colour in palette)
    transparency = {"transparency": opacity} if min(opacity) < 255 else {}
    strategy = zlib.Z_FILTERED if cells.size > MIN_FILTERED_WEIGHTS else zlib.Z_DEFAULT_STRATEGY
    stream = io.BytesIO()
    image.save(
        stream,
        format="PNG",
        compress_level=COMPRESSION_LEVEL,
        compress_type=strategy,
        **transparency,
    )
    return stream.getvalue()


def inline_map(cells: Map, ink: Ink) -> str:
    """Return a map as a ``data:`` address of a WebP picture, one pixel a weight."""
    return _webp(Image.fromarray(np.array(ink, np.uint8)[cells], mode="RGBA"))


def inline(picture: bytes) -> str:
    """Return a picture as a ``data:`` address of a WebP, a third smaller than a small PNG."""
    return _webp(Image.open(io.BytesIO(picture)).convert("RGBA"))


def _webp(image: Image.Image) -> str:
    stream = io.BytesIO()
    image.save(stream, format="WebP", lossless=True)
    return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
