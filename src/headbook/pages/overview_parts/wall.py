"""The wall of heads on the overview: every head of a stack as its mean map, tinted by family."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from headbook.pages.overview_parts.claims import Lit, lit_classes
from headbook.pages.parts.atlas import map_style
from headbook.pages.parts.page import StackSection
from headbook.report.answers.overview.head_losses import LOST, HeadLosses, LayerLoss
from headbook.report.facts.functions import families_of, functions_of
from headbook.report.results import StackResults
from headbook.results.formats import head_name, head_page
from headbook.schema import HeadName
from headbook.study.corpus_sums import MANY_HEADS, kept_positions

MANY_LAYERS = 17  # layers from which on a mosaic of families is above the wall
MIN_STRENGTH, MAX_STRENGTH = 3, 10  # steps of opacity of the cells of a mosaic


@dataclass(frozen=True)
class WallTile:
    """A head on the wall.

    Attributes:
        href: its page.
        label: name, also that by the author, function and effect of ablation.
        function: name of its function.
        style: classes of its map, of its family, and of the claims that light it.
        family: class of its family, and of the claims; for the mosaic.
        bar: length of its bar, 0 to 20; -1 without one.
        exact: whether the head was replaced.
    """

    href: str
    label: str
    function: str
    style: str
    family: str
    bar: int
    exact: bool

    @property
    def strength(self) -> int:
        """Step of opacity of its cell in a mosaic."""
        if self.bar < 0:
            return MAX_STRENGTH
        return max(MIN_STRENGTH, round(MIN_STRENGTH + 7 * self.bar / 20))


@dataclass(frozen=True)
class Wall(StackSection):
    """All heads of a stack on the wall.

    Attributes:
        deep: whether layers run to the right, since there are more than twice as many as heads.
        mosaic: whether the first screen has a mosaic of families, with the maps below.
        side: positions on each side of a map.
        heads: number of heads of a layer.
        layers: numbers of the layers.
        tiles: the heads, layer by layer.
        losses: effect of ablating each layer; empty if not measured.
        legend: family, name and number of heads.
    """

    deep: bool
    mosaic: bool
    side: int
    heads: int
    layers: tuple[int, ...]
    tiles: tuple[tuple[WallTile, ...], ...]
    losses: Mapping[int, LayerLoss]
    legend: tuple[tuple[str, str, int], ...]

    @property
    def rows(self) -> tuple[tuple[int, tuple[WallTile, ...]], ...]:
        """Rows of the table with their numbers: layers, or heads if layers run to the right."""
        if self.deep:
            return tuple(enumerate(zip(*self.tiles, strict=True)))
        return tuple(zip(self.layers, self.tiles, strict=True))

    @property
    def columns(self) -> tuple[int, ...]:
        """Numbers of the columns: heads, or layers if layers run to the right."""
        return self.layers if self.deep else tuple(range(self.heads))

    @property
    def n_heads(self) -> int:
        """Number of heads of the stack."""
        return self.heads * len(self.layers)


def tile_style(results: StackResults, head: HeadName) -> str:
    """Return the classes of a head's map, with the colour of its family."""
    style = map_style(results.stack, head.layer, head.head)
    return " ".join(filter(None, (style, functions_of(results)[head].style)))


def wall_of(
    results: StackResults, losses: HeadLosses | None, layers: Mapping[int, LayerLoss], lit: Lit
) -> Wall:
    """Return the wall of one stack.

    Args:
        losses: effects of ablating each head; None if not measured.
        layers: effects of ablating each layer.
        lit: the claims that light each head.
    """
    stack, names = results.stack, families_of(results)
    deep = len(stack.attention_layers) > 2 * stack.n_heads
    counts = Counter(function.family for function in functions_of(results).values())
    return Wall(
        stack=stack.name,
        deep=deep,
        mosaic=stack.n_heads >= MANY_HEADS
        or (len(stack.attention_layers) >= MANY_LAYERS and not deep),
        side=kept_positions(stack),
        heads=stack.n_heads,
        layers=tuple(stack.attention_layers),
        tiles=tuple(
            tuple(
                _tile(results, HeadName(stack.name, layer, head), losses, lit)
                for head in range(stack.n_heads)
            )
            for layer in stack.attention_layers
        ),
        losses=layers,
        legend=tuple((str(family), name, counts[family]) for family, name in names.items()),
    )


def _tile(results: StackResults, head: HeadName, losses: HeadLosses | None, lit: Lit) -> WallTile:
    """Return the tile of a head, labelled with function and effect of ablation."""
    function = functions_of(results)[head]
    claims = f" {lit_classes(lit, head)}".rstrip()
    loss = losses.heads.get(head) if losses else None
    parts = [function.noun]
    bar, exact = -1, True
    if losses is not None and loss is not None and not math.isnan(loss.value):
        bar, exact = losses.step(head), loss.exact
        about = "" if exact else "about "
        parts.append(f"without it {LOST[losses.target]} {about}{losses.unit.text(loss.value)}")
    name = " ".join(filter(None, (head_name(head), results.study.manifest.note_on(head).quoted)))
    return WallTile(
        head_page(head),
        f"{name}: {'; '.join(parts)}",
        function.noun,
        tile_style(results, head) + claims,
        function.style + claims,
        bar,
        exact,
    )
