"""The atlas: every head of a stack as a tile of its mean attention, with its type."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headbook.analysis.arrays import Floats
from headbook.charts import images
from headbook.charts.theme import ink_steps, rgba_ramp
from headbook.pages.parts.page import StackSection
from headbook.report.families import in_page_words, kinds_of, letters_of, style_of
from headbook.report.head_types import HeadType, Place
from headbook.report.results import StackResults
from headbook.report.wording import count_text, head_name, head_page
from headbook.schema import AttentionStack
from headbook.study.sentence_data import HeadName

MANY_HEADS = 400  # of all stacks, beyond which the picture is a file and single numbers no links
MANY = 24  # heads of a layer from which on tiles are small and bear no letters


@dataclass(frozen=True)
class Tile:
    """A head in the atlas.

    Attributes:
        name, href: the head and its page.
        label: name and type, for who cannot see the tile.
        letters: of its type, one or two.
        style: classes of its colours; empty without a type.
    """

    name: str
    href: str
    label: str
    letters: str
    style: str


@dataclass(frozen=True)
class LegendLine:
    """A type with the number of its heads."""

    style: str
    letters: str
    name: str
    heads: int


@dataclass(frozen=True)
class Atlas(StackSection):
    """All heads of a stack.

    Attributes:
        sheet: address of the picture of all maps.
        side: positions on each side of a map.
        small: whether tiles are too small for letters.
        heads: head numbers, the table's columns.
        rows: layer numbers with their tiles.
        legend: types, the most frequent first; empty where they are not known.
        about: what is drawn.
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
        maps: NaN where no sentence is long enough. *Shape:* ``(layer, head, query, key)``.
        over: what they are the mean of.
        _pictures: those that were asked for before.
    """

    maps: Floats
    over: str
    _pictures: dict[Place, str] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """What they are."""
        return f"mean attention over {self.over}"

    def picture(self, place: Place) -> str:
        """One head's map as an image address, made once: it stands on the pages of several."""
        if place not in self._pictures:
            self._pictures[place] = images.inline_map(ink_steps(self.maps[place]), rgba_ramp())
        return self._pictures[place]


def mean_maps(results: StackResults) -> MeanMaps:
    """The mean maps of a stack."""
    sums = results.study.corpus_sums.heads[results.stack.name].positions
    most, side = count_text(int(sums.count.max(initial=0)), "sentence"), len(sums.count)
    return MeanMaps(sums.mean, f"{most}, the first {side} positions")


def atlas_of(
    stack: AttentionStack,
    types: Mapping[Place, HeadType | None],
    *,
    sheet: str,
    side: int,
    about: str,
    page: Callable[[HeadName], str] = head_page,
) -> Atlas:
    """An atlas from its parts.

    Args:
        sheet: address of the picture of all maps, ``side`` positions each.
        about: what is drawn.
        page: address of a head.
    """
    heads = tuple(range(stack.n_heads))

    def tile(layer: int, number: int) -> Tile:
        head = HeadName(stack.name, layer, number)
        return _tile(head, types.get((layer, number)), page(head))

    return Atlas(
        stack=stack.name,
        sheet=sheet,
        side=side,
        small=stack.n_heads >= MANY,
        heads=heads,
        rows=tuple(
            (layer, tuple(tile(layer, head) for head in heads)) for layer in stack.attention_layers
        ),
        legend=tuple(_legend(types)),
        about=about,
    )


def many_heads(results: StackResults) -> bool:
    """Whether a model has so many heads that pages must say less of each."""
    stacks = results.study.manifest.stacks
    return sum(len(stack.attention_layers) * stack.n_heads for stack in stacks) > MANY_HEADS


def mean_map_sheet(results: StackResults) -> bytes:
    """The mean maps of all heads of a stack as one picture."""
    cells = results.cached(mean_maps).maps[[*results.stack.attention_layers]]
    return images.sprite(ink_steps(cells), rgba_ramp())


MAX_OPAQUE_WEIGHT = 0.5  # mean weight from which on a small map has its full colour


def map_style(stack: AttentionStack, layer: int, head: int) -> str:
    """Return the classes by which a page shows the mean map of a head; see `map_sheets`."""
    return f"m-{stack.name} x{head} y{stack.attention_layers.index(layer)}"


def map_sheets(results: Iterable[StackResults]) -> str:
    """Return the style sheet with the mean maps of all heads, a picture of opacities a stack.

    The picture has no colour, so pages tint each map by its family on light and on dark paper.
    Browsers do not load masks from other files of a folder, so it stands in the sheet.
    """
    rules = []
    for result in results:
        cells = result.cached(mean_maps).maps[[*result.stack.attention_layers]]
        picture = images.opacity_sheet(ink_steps(cells / MAX_OPAQUE_WEIGHT))
        n_layers, n_heads, n_positions = cells.shape[:3]
        sizes = f"--mw:{n_heads};--mh:{n_layers};--mp:{n_positions}"
        rules.append(f".m-{result.stack.name}{{--sheet:url({picture});{sizes}}}\n")
    return "".join(rules)


def _tile(head: HeadName, found: HeadType | None, href: str) -> Tile:
    name = head_name(head)
    if found is None:
        return Tile(name, href, name, "", "")
    return Tile(
        name, href, f"{name}, {in_page_words(found.name)}", letters_of(found), style_of(found)
    )


def _legend(types: Mapping[Place, HeadType | None]) -> Iterator[LegendLine]:
    """Combinations of kinds, the most frequent first."""
    pairs = [(kinds_of(kind), style_of(kind)) for kind in types.values() if kind is not None]
    for (kinds, style), number in Counter(pairs).most_common():
        name = " + ".join(kind.name for kind in kinds)
        yield LegendLine(style, "".join(kind.letter for kind in kinds), name, number)
