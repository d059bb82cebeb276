"""The bars of attention by offset."""

import math
from xml.etree import ElementTree as ET

import pytest

from headbook.charts import Drawing, OffsetBar, offset_profile
from headbook.charts.attention import HEIGHT, MAX_PROFILE_TICKS, TOP
from headbook.charts.figure import SVG

BARS = [
    OffsetBar(-1, 0.5, 0.4, 0.6, 0.3),
    OffsetBar(0, 0.25, 0.2, 0.3, 0.4),
    OffsetBar(1, 0.05, 0.0, 0.1, 0.3),
]


def parts(drawing: Drawing, name: str) -> list[ET.Element]:
    return list(ET.fromstring(drawing.svg).iter(f"{{{SVG}}}{name}"))  # noqa: S314


def heights(drawing: Drawing) -> list[float]:
    return [float(bar.attrib["height"]) for bar in parts(drawing, "rect")]


def labels(drawing: Drawing) -> list[str]:
    return [text.text or "" for text in parts(drawing, "text")]


def test_bars_are_as_high_as_their_shares_on_the_axis() -> None:
    drawing = offset_profile("a", "caption", BARS)
    top = max(float(text[:-1]) for text in labels(drawing) if text.endswith("%")) / 100
    assert top >= 0.6  # the end of the longest interval
    expected = [HEIGHT * bar.value / top for bar in BARS]
    assert heights(drawing) == pytest.approx(expected, abs=0.06)
    feet = [float(b.attrib["y"]) + float(b.attrib["height"]) for b in parts(drawing, "rect")]
    assert feet == pytest.approx([TOP + HEIGHT] * 3, abs=0.11)


def test_each_bar_says_its_numbers() -> None:
    message = [title.text for title in parts(offset_profile("a", "caption", BARS), "title")]
    assert message == [
        "−1: 50.0\u202f% [40.0, 60.0]",
        "0: 25.0\u202f% [20.0, 30.0]",
        "+1: 5.0\u202f% [0.0, 10.0]",
    ]


def test_missing_shares_have_no_bar_and_missing_intervals_no_line() -> None:
    nan = math.nan
    bars = [OffsetBar(-1, nan, nan, nan, 0.5), OffsetBar(0, 0.2, nan, nan, 0.5)]
    drawing = offset_profile("a", "caption", bars)
    assert len(parts(drawing, "rect")) == 1
    assert [title.text for title in parts(drawing, "title")] == ["0: 20.0\u202f%"]


@pytest.mark.parametrize("most", [1e-4, 0.003, 0.04, 0.05, 0.0501, 0.2, 0.333, 0.9, 1.0])
def test_axis_has_few_round_ticks_and_holds_all_bars(most: float) -> None:
    drawing = offset_profile("a", "caption", [OffsetBar(0, most, most, most, most / 2)])
    ticks = [float(text[:-1]) / 100 for text in labels(drawing) if text.endswith("%")]
    assert 2 <= len(ticks) <= MAX_PROFILE_TICKS + 1
    assert ticks[-1] >= most * (1 - 1e-9)
    assert max(heights(drawing)) <= HEIGHT


def test_nothing_but_zeros_still_has_an_axis() -> None:
    drawing = offset_profile("a", "caption", [OffsetBar(0, 0.0, 0.0, 0.0, 0.0)])
    assert heights(drawing) == [0.0]
