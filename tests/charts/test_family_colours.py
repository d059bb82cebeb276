"""Colours of families are told apart by readers with any colour vision, on either paper.

Differences are CIEDE2000 (Sharma, Wu & Dalal 2005); dichromats see colours as Machado, Oliveira &
Fernandes (2009) have it, severity 1.0.
"""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from headbook.charts.theme import FAMILY_COLOURS, FAMILY_TEXT, luminance
from headbook.report.facts.functions import FunctionFamily

Colour = NDArray[np.float64]
MIN_DIFFERENCE = 12.0
MIN_CONTRAST, MIN_TEXT_CONTRAST = 3.0, 4.5  # WCAG 2: of marks, and of letters
MIN_CHROMA = 5.0  # chroma from which on a colour has a hue; below it is a grey
BROWNS = (30.0, 75.0)  # hues that no family has, in degrees: orange and brown
PAPERS = {"light": "#ffffff", "dark": "#16181c"}
THEMES = [*PAPERS]
WHITE = np.array([0.95047, 1.0, 1.08883])  # D65
TO_XYZ = np.array([
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
])  # fmt: skip
VISIONS = {
    "normal": np.eye(3),
    "protan": np.array([
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]),
    "deutan": np.array([
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]),
    "tritan": np.array([
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ]),
}  # fmt: skip


def lab(colour: str, vision: str = "normal") -> Colour:
    """CIELAB of a colour as some vision has it."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(VISIONS[vision] @ linear, 0, 1) / WHITE
    root = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = root
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def chroma_and_hue(colour: str) -> tuple[float, float]:
    """Chroma and hue in degrees, CIELCh."""
    _, a, b = lab(colour)
    return float(np.hypot(a, b)), float(np.degrees(np.arctan2(b, a)) % 360)


def difference(one: Colour, other: Colour) -> float:
    """CIEDE2000 of two colours in CIELAB."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_chroma = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = (1 - np.sqrt(mean_chroma**7 / (mean_chroma**7 + 25.0**7))) / 2
    c1, c2 = np.hypot((1 + g) * a1, b1), np.hypot((1 + g) * a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, (1 + g) * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2))
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    mean_hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    t = (
        1
        - 0.17 * np.cos(np.radians(mean_hue - 30))
        + 0.24 * np.cos(np.radians(2 * mean_hue))
        + 0.32 * np.cos(np.radians(3 * mean_hue + 6))
        - 0.20 * np.cos(np.radians(4 * mean_hue - 63))
    )
    s_l = 1 + 0.015 * (lightness - 50) ** 2 / np.sqrt(20 + (lightness - 50) ** 2)
    s_c, s_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    rotation = -np.sin(np.radians(60 * np.exp(-(((mean_hue - 275) / 25) ** 2))))
    r = rotation * 2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7))
    d_l, d_c, d_h = (l2 - l1) / s_l, (c2 - c1) / s_c, hue / s_h
    return float(np.sqrt(d_l**2 + d_c**2 + d_h**2 + r * d_c * d_h))


def contrast(one: str, other: str) -> float:
    """Contrast of two colours by WCAG 2."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, -1.3802, -84.2814), (50.0, 0.0, -82.7485), 1.0),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0011), 7.2195),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((6.7747, -0.2908, -2.4247), (5.8714, -0.0985, -2.2286), 0.6377),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
    ],
)
def test_differences_are_those_of_the_published_pairs(
    one: tuple[float, float, float], other: tuple[float, float, float], expected: float
) -> None:
    """Pairs of Sharma, Wu & Dalal (2005), table 1."""
    assert difference(np.array(one), np.array(other)) == pytest.approx(expected, abs=1e-4)
    assert difference(np.array(other), np.array(one)) == pytest.approx(expected, abs=1e-4)


def test_every_family_has_a_colour_of_marks_and_of_letters() -> None:
    assert [*FAMILY_COLOURS] == [*FAMILY_TEXT] == [*map(str, FunctionFamily)]


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", THEMES)
def test_every_two_families_differ(theme: str, vision: str) -> None:
    colours = {
        family: lab(pair[THEMES.index(theme)], vision) for family, pair in FAMILY_COLOURS.items()
    }
    differences = {
        (one, other): difference(colours[one], colours[other])
        for one, other in combinations(colours, 2)
    }
    assert {pair: d for pair, d in differences.items() if d < MIN_DIFFERENCE} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_marks_and_letters_stand_out_from_the_paper(theme: str) -> None:
    for family in FAMILY_COLOURS:
        mark, letters = (pairs[family][THEMES.index(theme)] for pairs in (
            FAMILY_COLOURS, FAMILY_TEXT))  # fmt: skip
        assert contrast(mark, PAPERS[theme]) >= MIN_CONTRAST, family
        assert contrast(letters, PAPERS[theme]) >= MIN_TEXT_CONTRAST, family


@pytest.mark.parametrize("pairs", [FAMILY_COLOURS, FAMILY_TEXT])
@pytest.mark.parametrize("theme", THEMES)
def test_no_family_is_orange_or_brown(theme: str, pairs: dict[str, tuple[str, str]]) -> None:
    """Hue counts from a chroma of `MIN_CHROMA` on: greys have none."""
    for family, pair in pairs.items():
        chroma, hue = chroma_and_hue(pair[THEMES.index(theme)])
        assert chroma < MIN_CHROMA or not BROWNS[0] <= hue <= BROWNS[1], family
