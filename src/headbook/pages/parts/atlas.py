"""The atlas: every head of a stack as a tile with its mean attention and function."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headbook.analysis.arrays import Floats
from headbook.charts import images
from headbook.charts.theme import ink_steps, rgba_ramp
from headbook.pages.parts.all_heads import MANY, MAX_LINKED
from headbook.pages.parts.page import StackSection
from headbook.report.facts.functions import FunctionFamily, HeadFunction
from headbook.report.results import StackResults
from headbook.report.wording import count_text
from headbook.results.formats import head_name, head_page
from headbook.schema import AttentionStack, HeadName, Place

TileNote = Callable[[HeadName], tuple[str, str]]  # further classes of a tile, and words


def no_note(_: HeadName) -> tuple[str, str]:
    """Return no further classes and no words."""
    return "", ""


@dataclass(frozen=True)
class Tile:
    """A head in the atlas.

    Attributes:
        name, href: the head and its page.
        label: name and function, for readers who cannot see the tile.
        function: name of the function; empty if unknown.
        style: classes of the colours; empty without a family.
    """

    name: str
    href: str
    label: str
    function: str
    style: str


@dataclass(frozen=True)
class LegendLine:
    """A family with the number of its heads."""

    style: str
    name: str
    heads: int


@dataclass(frozen=True)
class Atlas(StackSection):
    """All heads of a stack as tiles.

    Attributes:
        sheet: address of the picture of all maps.
        side: positions on each side of a map.
        small: whether tiles are small.
        heads: head numbers, the table's columns.
        rows: layer numbers with their tiles.
        legend: families in their order; empty if functions are unknown.
        about: content of the maps, in words.
    """

    sheet: str
    side: int
    small: bool
    heads: tuple[int, ...]
    rows: tuple[tuple[int, tuple[Tile, ...]], ...]
    legend: tuple[LegendLine, ...]
    about: str


@dataclass(frozen=True)
class MeanMaps:
    """Mean attention by position of every head.

    Attributes:
        maps: mean weights; NaN if no sentence is long enough. *Shape:*
            ``(layer, head, query, key)``.
        over: sentences and positions behind the means, in words.
        _pictures: cache of image addresses.
    """

    maps: Floats
    over: str
    _pictures: dict[Place, str] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """Content of the maps in words."""
        return f"mean attention over {self.over}"

    def picture(self, place: Place) -> str:
        """Return one head's map as an image address.

        The address is cached, since the map is printed on the pages of several heads.
        """
        if place not in self._pictures:
            self._pictures[place] = images.inline_map(ink_steps(self.maps[place]), rgba_ramp())
        return self._pictures[place]


def mean_maps(results: StackResults) -> MeanMaps:
    """Return the mean maps of a stack."""
    sums = results.study.corpus_sums.heads[results.stack.name].positions
    most, side = (
        count_text(int(sums.count.max(initial=0)), results.study.manifest.text_noun),
        len(sums.count),
    )
    return MeanMaps(sums.mean, f"{most}, the first {side} positions")


def atlas_of(
    stack: AttentionStack,
    functions: Mapping[HeadName, HeadFunction],
    families: Mapping[FunctionFamily, str],
    *,
    sheet: str,
    side: int,
    about: str,
    page: Callable[[HeadName], str] = head_page,
    note: TileNote = no_note,
) -> Atlas:
    """Return an atlas from its parts.

    Args:
        functions: functions of the heads; empty if unknown.
        families: names of the families that have heads.
        sheet: address of the picture of all maps, ``side`` positions each.
        about: content of the maps, in words.
        page: address of a head.
        note: returns further classes and words of a tile.
    """
    heads = tuple(range(stack.n_heads))

    def tile(layer: int, number: int) -> Tile:
        head = HeadName(stack.name, layer, number)
        return _tile(head, functions.get(head), page(head), note(head))

    return Atlas(
        stack=stack.name,
        sheet=sheet,
        side=side,
        small=stack.n_heads >= MANY,
        heads=heads,
        rows=tuple(
            (layer, tuple(tile(layer, head) for head in heads)) for layer in stack.attention_layers
        ),
        legend=tuple(_legend(functions, families)),
        about=about,
    )


def many_heads(results: StackResults) -> bool:
    """Whether a model has so many heads that pages must say less of each."""
    stacks = results.study.manifest.stacks
    return sum(len(stack.attention_layers) * stack.n_heads for stack in stacks) > MAX_LINKED


def mean_map_sheet(results: StackResults) -> bytes:
    """Return the mean maps of all heads of a stack as one picture."""
    cells = results.cached(mean_maps).maps[[*results.stack.attention_layers]]
    return images.sprite(ink_steps(cells), rgba_ramp())


MAX_OPAQUE_WEIGHT = 0.5  # mean weight from which on a small map has its full colour


def map_style(stack: AttentionStack, layer: int, head: int) -> str:
    """Return the classes by which a page shows the mean map of a head; see `map_sheets`."""
    return f"m-{stack.name} x{head} y{stack.attention_layers.index(layer)}"


def map_sheets(results: Iterable[StackResults]) -> str:
    """Return the style sheet with the mean maps of all heads, one picture of opacities a stack.

    The picture has no colour, so pages tint each map by its family on light and on dark paper.
    It is part of the sheet, since browsers load no masks from other files of a folder.
    """
    return "".join(
        _sheet_rule(result.stack, result.cached(mean_maps).maps[[*result.stack.attention_layers]])
        for result in results
    )


def one_map_sheet(results: StackResults, layer: int, head: int) -> tuple[str, str]:
    """Return the style sheet with the mean map of one head, and the classes that show the map."""
    cells = results.cached(mean_maps).maps[[layer], head : head + 1]
    return _sheet_rule(results.stack, cells), f"m-{results.stack.name} x0 y0"


def _sheet_rule(stack: AttentionStack, cells: Floats) -> str:
    picture = images.opacity_sheet(ink_steps(cells / MAX_OPAQUE_WEIGHT))
    n_layers, n_heads, n_positions = cells.shape[:3]
    sizes = f"--mw:{n_heads};--mh:{n_layers};--mp:{n_positions}"
    return f".m-{stack.name}{{--sheet:url({picture});{sizes}}}\n"


def _tile(head: HeadName, function: HeadFunction | None, href: str, note: tuple[str, str]) -> Tile:
    classes, words = note
    name, noun = head_name(head), function.noun if function else ""
    label = ", ".join(filter(None, (name, noun, words)))
    style = " ".join(filter(None, (function.style if function else "", classes)))
    return Tile(name, href, label, noun, style)


def _legend(
    functions: Mapping[HeadName, HeadFunction], families: Mapping[FunctionFamily, str]
) -> Iterator[LegendLine]:
    """Yield the families of heads with their numbers of heads."""
    counts = Counter(function.family for function in functions.values())
    for family, name in families.items():
        yield LegendLine(f"f-{family}", name, counts[family])
