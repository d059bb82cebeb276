"""Bars of the parts of attention: how much distance, the key and the pair explain."""

from headbook.charts.drawing import Drawing
from headbook.metrics import ids
from headbook.pages.parts.blocks import Table, row
from headbook.report.results import StackResults
from headbook.results.number import Number
from headbook.results.sentence import Sentence, listed, say
from headbook.schema import HeadKey, SinkView

PARTS = {"distance": "distance", "key": "the key", "pair": "the pair of query and key"}
FILLS = {"distance": "f-position", "key": "f-broadcast", "pair": "c-control"}


def part_key(part: str) -> HeadKey:
    """Return metric, view and label of a part of attention."""
    return HeadKey(ids.ATTENTION_PARTS, SinkView.RENORM, part)


def parts_of(results: StackResults, layer: int, head: int | None = None) -> dict[str, Number]:
    """Return the parts of a head, or of all heads of a layer together, that were measured."""
    numbers = {
        part: results.number(part_key(part), layer, head)
        for part in PARTS
        if results.has_value(*part_key(part))
    }
    return {part: number for part, number in numbers.items() if number.known}


def widths(parts: dict[str, Number]) -> tuple[float, float]:
    """Return the widths of distance and key in per cent; the pair has the rest, nothing below 0."""
    distance = min(max(parts["distance"].value, 0.0), 1.0) if "distance" in parts else 0.0
    key = min(max(parts["key"].value, 0.0), 1 - distance)
    return 100 * distance, 100 * key


def parts_bar(parts: dict[str, Number]) -> Drawing:
    """Return a bar of three parts."""
    distance, key = widths(parts)
    ends = (0.0, distance), (distance, key), (distance + key, 100 - distance - key)
    bars = "".join(
        f'<rect class="{FILLS[part]}" x="{start:.1f}%" width="{width:.1f}%" height="100%"/>'
        for part, (start, width) in zip(PARTS, ends, strict=True)
    )
    shares = (f"{PARTS[part]} {number.as_text('whole')}" for part, number in parts.items())
    caption = ", ".join(shares)
    svg = f'<svg class="parts" role="img" aria-label="{caption}">{bars}</svg>'
    return Drawing("", caption, svg)


def parts_sentence(parts: dict[str, Number]) -> Sentence:
    """Return what explains the departure of a head's attention from uniform attention."""
    shares = [say("{part} {share:interval}", part=PARTS[part], share=share)
              for part, share in parts.items()]  # fmt: skip
    return say("Explains its preference among keys: {shares}.", shares=listed(shares))


def parts_table(results: StackResults) -> Table:
    """Return the parts of each layer's heads together, as bars and numbers."""
    rows = []
    for layer in results.stack.attention_layers:
        if parts := parts_of(results, layer):
            numbers = (parts.get(part) for part in PARTS)
            rows.append(row(f"layer {layer}", parts_bar(parts), *numbers))
    return Table(
        ("", "", *PARTS.values()), tuple(rows),
        label="Parts of the departure from even attention, by layer",
    )  # fmt: skip
