"""Pictures of one head: attention between classes of words, and its effect among all heads.

Colours are those of the head's family, which the style sheet of pages sets on an element around
(``--c`` for marks, ``--t`` for letters).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.charts.drawing import Drawing
from headbook.report.wording import visible

# Picture of flows: pixels of the view box, of which the page shows as many as it has room for.
WIDTH, HEIGHT = 480.0, 312.0
LEFT, RIGHT, NODE = 158.0, 326.0, 9.0  # places of both columns of nodes, and their width
GAP = 6.0  # between the nodes of a column
MIN_GROUND_SHARE = 0.025  # share below which a flow that does not stand out is not drawn
MIN_RIBBON_NUMBER = 6.0  # height from which on a flow bears its ratio
MAX_RIBBON_NUMBERS = 4
MIN_NUMBER_DISTANCE = 14.0  # from one ratio to the next, so that they do not touch
MIN_TOKENS_HEIGHT = 27.0  # height of a node from which on its tokens stand below its name


class FlowNode(NamedTuple):
    """A class of words on one side.

    Attributes:
        name: name of the class.
        share: share of the attention.
        label: name with the share.
        note: tokens below the label; empty for none.
        title: the class with all its numbers.
        stands_out: whether the head has clearly more than the mean head.
    """

    name: str
    share: float
    label: str
    note: str
    title: str
    stands_out: bool


class FlowRibbon(NamedTuple):
    """Attention from a class of queries to a class of keys.

    Attributes:
        query, key: names of both classes.
        share: share of the attention.
        ratio: ratio to the mean head, as text.
        title: the flow with all its numbers.
        stands_out: whether the head has clearly more than the mean head.
    """

    query: str
    key: str
    share: float
    ratio: str
    title: str
    stands_out: bool


class _Box(NamedTuple):
    """Top and height of a node, in pixels."""

    top: float
    height: float


def flow_picture(
    name: str,
    caption: str,
    queries: Sequence[FlowNode],
    keys: Sequence[FlowNode],
    ribbons: Sequence[FlowRibbon],
) -> Drawing:
    """Draw attention from classes of queries on the left to classes of keys on the right.

    Heights are shares of the attention; flows and classes of which the head has clearly more than
    the mean head have the colour of its family. Other flows are grey, and drawn from a share of
    `MIN_GROUND_SHARE` on: threads of dozens of small flows would hide the rest.
    """
    scale = (HEIGHT - GAP * (max(len(queries), len(keys)) - 1)) / max(
        sum(node.share for node in queries), sum(node.share for node in keys)
    )
    boxes = [_boxes(side, scale) for side in (queries, keys)]
    drawn = [*_ribbons(queries, keys, ribbons, boxes, scale)]
    ground = [path for path, ribbon, _ in drawn if not ribbon.stands_out]
    above = [path for path, ribbon, _ in drawn if ribbon.stands_out]
    nodes = [
        part
        for side, of_side, box in zip((0, 1), (queries, keys), boxes, strict=True)
        for node in of_side
        for part in _node(node, box[node.name], side=side)
    ]
    svg = (
        f'<svg class="flows" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" '
        f'aria-label="{escape(visible(caption))}">{"".join([*ground, *above])}'
        f"{''.join(_ratios(drawn))}{''.join(nodes)}</svg>"
    )
    return Drawing(name, caption, svg)


def _boxes(nodes: Sequence[FlowNode], scale: float) -> dict[str, _Box]:
    """Return the place of each node of a column, from the top."""
    boxes, top = {}, 0.0
    for node in nodes:
        boxes[node.name] = _Box(top, node.share * scale)
        top += node.share * scale + GAP
    return boxes


def _ribbons(
    queries: Sequence[FlowNode],
    keys: Sequence[FlowNode],
    ribbons: Sequence[FlowRibbon],
    boxes: Sequence[Mapping[str, _Box]],
    scale: float,
) -> Iterator[tuple[str, FlowRibbon, _Box]]:
    """Yield the path of each drawn flow, the flow, and its place beside the query."""
    by_ends = {(ribbon.query, ribbon.key): ribbon for ribbon in ribbons}
    left = {node.name: boxes[0][node.name].top for node in queries}
    tops: dict[tuple[str, str], float] = {}
    for query in queries:  # flows leave a node in the order of the keys, and reach it likewise
        for key in keys:
            ribbon = by_ends.get((query.name, key.name))
            if ribbon is not None:
                tops[query.name, key.name] = left[query.name]
                left[query.name] += ribbon.share * scale
    right = {node.name: boxes[1][node.name].top for node in keys}
    x1, x2 = LEFT + NODE + 1, RIGHT - 1
    middle = (x1 + x2) / 2
    for key in keys:
        for query in queries:
            ribbon = by_ends.get((query.name, key.name))
            if ribbon is None:
                continue
            y1, y2, size = tops[query.name, key.name], right[key.name], ribbon.share * scale
            right[key.name] += size
            if not ribbon.stands_out and ribbon.share < MIN_GROUND_SHARE:
                continue
            path = (
                f'<path class="flow{" hi" if ribbon.stands_out else ""}" d="M{x1:.0f} {y1:.1f}'
                f"C{middle:.0f} {y1:.1f} {middle:.0f} {y2:.1f} {x2:.0f} {y2:.1f}v{size:.1f}"
                f"C{middle:.0f} {y2 + size:.1f} {middle:.0f} {y1 + size:.1f} {x1:.0f} "
                f'{y1 + size:.1f}z">{_title(ribbon.title)}</path>'
            )
            yield path, ribbon, _Box(y1, size)


def _ratios(drawn: Sequence[tuple[str, FlowRibbon, _Box]]) -> Iterator[str]:
    """Yield the ratios of the largest flows that stand out, where these leave the queries."""
    places: list[float] = []
    for _, ribbon, box in sorted(drawn, key=lambda each: -each[1].share):
        y = box.top + box.height / 2 + 4
        wanted = ribbon.stands_out and ribbon.ratio and box.height >= MIN_RIBBON_NUMBER
        if wanted and all(abs(y - other) >= MIN_NUMBER_DISTANCE for other in places):
            places.append(y)
            yield f'<text class="x" x="{LEFT + NODE + 5:.0f}" y="{y:.1f}">{ribbon.ratio}</text>'
        if len(places) == MAX_RIBBON_NUMBERS:
            return


def _node(node: FlowNode, box: _Box, *, side: int) -> Iterator[str]:
    """Yield the bar of a class, its label, and its tokens if there is room."""
    out = " hi" if node.stands_out else ""
    x, label_x, anchor = (LEFT, LEFT - 7, " e") if side == 0 else (RIGHT, RIGHT + NODE + 7, "")
    note = node.note if box.height >= MIN_TOKENS_HEIGHT else ""
    middle = box.top + box.height / 2 + 4.5 - (7 if note else 0)
    yield (
        f'<rect class="node{out}" x="{x:.0f}" y="{box.top:.1f}" width="{NODE:.0f}" '
        f'height="{max(1.0, box.height):.1f}">{_title(node.title)}</rect>'
        f'<text class="l{anchor}{" b" if node.stands_out else ""}" x="{label_x:.0f}" '
        f'y="{middle:.1f}">{escape(visible(node.label))}</text>'
    )
    if note:
        yield (
            f'<text class="{anchor.strip() or "s"}" x="{label_x:.0f}" y="{middle + 15:.1f}">'
            f"{escape(visible(note))}</text>"
        )


def _title(text: str) -> str:
    return f"<title>{escape(visible(text))}</title>" if text else ""


EFFECTS_HEIGHT, BASE = 92.0, 64.0  # pixels of the picture, and of its axis from the top
ROWS = 4  # rows of dots over the axis
ROW_PIXELS = 6.0
SIDE = 3.0  # per cent of the width at either end
UNITS = 1000  # units of the width in which dots are placed
TICK_STEPS = (1, 2, 5)


class EffectScale(NamedTuple):
    """A logarithmic axis of effects from the left to the right, in per cent of the width.

    Attributes:
        low, high: ends of the axis, both above 0.
    """

    low: float
    high: float

    @classmethod
    def of(cls, values: Floats) -> "EffectScale | None":
        """Return the axis of values; None if fewer than two of them are above 0.

        It begins at a thousandth of the largest value at the lowest.
        """
        known = values[np.isfinite(values) & (values > 0)]
        if len(known) < 2 or known.min() == known.max():
            return None
        high = float(known.max())
        return cls(max(float(known.min()), high / 1000) / 1.15, high * 1.15)

    def cut(self, values: Iterable[float]) -> bool:
        """Whether any of some values lies below the axis."""
        return any(value < self.low for value in values)

    def __call__(self, value: float) -> float:
        """Return the place of a value; one below the axis stands at its beginning."""
        at = min(max(value, self.low), self.high)
        share = math.log(at / self.low) / math.log(self.high / self.low)
        return SIDE + (100 - 2 * SIDE) * share

    @property
    def ticks(self) -> list[float]:
        """Round values on the axis: 1, 2 and 5 times powers of ten, or the powers alone."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = TICK_STEPS if len(powers) <= 4 else (1,)
        values = (step * 10.0**power for power in powers for step in steps)
        return [value for value in values if self.low <= value <= self.high]


def effect_dots(scale: EffectScale, values: Floats, exact: NDArray[np.bool_]) -> str:
    """Return all heads as dots over an axis with its ticks, for `effect_picture`.

    Args:
        values: effect of each head. *Shape:* ``(head,)``.
        exact: whether the effect is no estimate. *Shape:* ``(head,)``.
    """
    paths = []
    for style, chosen in (("est", ~exact), ("exact", exact)):
        dots = [
            f"M{scale(values[index]) * UNITS / 100:.0f} "
            f"{BASE - 9 - ROW_PIXELS * (index % ROWS):.0f}h0"
            for index in np.flatnonzero(chosen & np.isfinite(values)).tolist()
        ]
        if dots:
            paths.append(f'<path class="{style}" d="{"".join(dots)}"/>')
    ticks = "".join(
        f'<line class="ax" x1="{scale(value):.2f}%" x2="{scale(value):.2f}%" y1="{BASE:.0f}" '
        f'y2="{BASE + 5:.0f}"/><text class="s mid" x="{scale(value):.2f}%" y="{BASE + 19:.0f}">'
        f"{value:g}</text>"
        for value in scale.ticks
    )
    return (
        f'<line class="ax" x1="0" x2="100%" y1="{BASE:.0f}" y2="{BASE:.0f}"/>{ticks}'
        f'<svg width="100%" height="{EFFECTS_HEIGHT:.0f}" viewBox="0 0 {UNITS} '
        f'{EFFECTS_HEIGHT:.0f}" preserveAspectRatio="none">{"".join(paths)}</svg>'
    )


MARGIN_DISTANCE = 14  # per cent of the width by which two labels over the axis do not touch


def _margin(scale: EffectScale, margin: float, x: float) -> str:
    """Return the margin of verdicts as a dashed line; named if the head at ``x`` is not near."""
    if not scale.low < margin < scale.high:
        return ""
    at = scale(margin)
    line = f'<line class="lim" x1="{at:.2f}%" x2="{at:.2f}%" y1="18" y2="{BASE:.0f}"/>'
    if abs(at - x) < MARGIN_DISTANCE:
        return line
    anchor = "" if at < 12 else " end" if at > 88 else " mid"
    return f'{line}<text class="s{anchor}" x="{at:.2f}%" y="13">margin</text>'


def effect_picture(
    name: str,
    caption: str,
    scale: EffectScale,
    dots: str,
    *,
    label: str,
    value: float,
    ends: tuple[float, float],
    margin: float = math.nan,
) -> Drawing:
    """Draw the effect of one head among all heads on a logarithmic axis.

    Args:
        dots: all heads, from `effect_dots`.
        label: name of the head.
        value: effect of the head.
        ends: interval of the effect; NaN for an estimate, which has a hollow mark.
        margin: margin of verdicts, drawn if it lies on the axis; NaN without one.
    """
    x = scale(value)
    interval = ""
    if not math.isnan(ends[0]):
        low, high = (scale(end) for end in ends)
        interval = (
            f'<line class="own" x1="{low:.2f}%" x2="{high:.2f}%" y1="{BASE:.0f}" y2="{BASE:.0f}"/>'
        )
    hollow = " o" if math.isnan(ends[0]) else ""
    anchor = "" if x < 12 else " end" if x > 88 else " mid"
    svg = (
        f'<svg class="effects" width="100%" height="{EFFECTS_HEIGHT:.0f}" role="img" '
        f'aria-label="{escape(visible(caption))}">{dots}{_margin(scale, margin, x)}{interval}'
        f'<line class="lead" x1="{x:.2f}%" x2="{x:.2f}%" y1="18" y2="{BASE - 8:.0f}"/>'
        f'<circle class="mk{hollow}" cx="{x:.2f}%" cy="{BASE:.0f}" r="6.5"/>'
        f'<text class="b{anchor}" x="{x:.2f}%" y="13">{escape(visible(label))}</text></svg>'
    )
    return Drawing(name, caption, svg)
