"""Drawings of sentences: every line is there, says what it shows, and reads in both themes."""

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from headbook.charts import Arc, Drawing, arc_diagram
from headbook.charts.language import MAX_LINE_PIXELS, TEXT_PIXELS
from headbook.charts.theme import GREY, INK

WORDS = ("The", "old", "gardener", "<&", "\"sings'", "猫猫猫猫")
TREE = (Arc(2, 0, label="det"), Arc(2, 1, label="amod"), Arc(4, 2, None, True, "nsubj"))
LOOKS = (Arc(2, 4, 1.0, True), Arc(0, 5, 0.25), Arc(5, 0, 0.5))


def parts(drawing: Drawing, tag: str) -> list[ET.Element]:
    """Elements of a drawing by their tag."""
    return [e for e in ET.fromstring(drawing.svg).iter() if e.tag.endswith(f"}}{tag}")]  # noqa: S314


def lines(drawing: Drawing) -> list[ET.Element]:
    return [e for e in parts(drawing, "path") if e.get("fill") == "none"]


def test_every_word_stands_once_in_order_and_apart_from_its_neighbours() -> None:
    drawing = arc_diagram("a", "What.", WORDS, TREE, LOOKS)
    texts = [e for e in parts(drawing, "text") if e.get("font-size") == str(TEXT_PIXELS)]
    assert tuple(e.text for e in texts) == WORDS
    places = [float(e.attrib["x"]) for e in texts]
    assert all(b - a > 20 for a, b in pairwise(places))
    width = float(ET.fromstring(drawing.svg).attrib["width"])  # noqa: S314
    assert 0 < places[0] < places[-1] < width


def test_a_line_is_as_wide_as_its_weight_and_marked_ones_are_dark_and_last() -> None:
    drawn = [
        (e.attrib["stroke"], float(e.attrib["stroke-width"]))
        for e in lines(arc_diagram("a", "What.", WORDS, TREE, LOOKS))
    ]
    above, below = drawn[:3], drawn[3:]
    assert [ink for ink, _ in above] == [GREY, GREY, INK]
    assert [ink for ink, _ in below] == [GREY, GREY, INK]
    wanted = [MAX_LINE_PIXELS * part for part in (0.25, 0.5, 1)]
    assert [size for _, size in below] == pytest.approx(wanted, abs=0.06)


def test_labels_of_arcs_are_named() -> None:
    drawing = arc_diagram("a", "What.", WORDS, TREE, ())
    assert {e.text for e in parts(drawing, "text")} == {*WORDS, "det", "amod", "nsubj"}


def test_an_arc_over_others_rises_above_them() -> None:
    """Peaks, from the words."""
    drawing = arc_diagram("a", "What.", ("a",) * 5, [Arc(0, 4), Arc(1, 3), Arc(1, 2)], ())
    starts = [re.match(r"M\S+ (\S+)C\S+ (\S+)", e.attrib["d"]) for e in lines(drawing)]
    heights = [float(m[1]) - float(m[2]) for m in starts if m]
    assert heights == sorted(heights, reverse=True)
    assert len(set(heights)) == 3


def test_a_drawing_is_a_picture_with_its_caption_as_name() -> None:
    root = ET.fromstring(arc_diagram("a", 'Of "it" & <b>.', WORDS, TREE, LOOKS).svg)  # noqa: S314
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == 'Of "it" & <b>.'


def test_no_character_that_html_forbids_is_left() -> None:
    drawing = arc_diagram("a", "What.", ("a\x00", "\x07b"), (), ())
    ET.fromstring(drawing.svg)  # noqa: S314
    assert "\x00" not in drawing.svg


def test_a_sentence_without_lines_or_words_is_drawn() -> None:
    assert len(lines(arc_diagram("a", "What.", ("a",), (), ()))) == 0
    ET.fromstring(arc_diagram("b", "What.", (), (), ()).svg)  # noqa: S314
