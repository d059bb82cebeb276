"""Numbers are written by their unit and a format, and know their row."""

import math

import pytest

from headbook.results.number import NATS, PLAIN, SHARE, TIMES, Number, RowAddress, Unit, difference

ROW = RowAddress("heads", (("layer", 3), ("head", 1)))
THIN = "\u202f"


@pytest.mark.parametrize(
    ("value", "unit", "format_name", "text"),
    [
        (0.1234, SHARE, "", f"12.3{THIN}%"),
        (0.1234, SHARE, "bare", "12.3"),
        (0.1234, SHARE, "whole", f"12{THIN}%"),
        (0.1234, SHARE, "interval", f"12.3{THIN}% [10.0, 15.0]"),
        (1.704, TIMES, "", "1.70×"),
        (1.704, TIMES, "times", "1.70 times"),
        (1.704, TIMES, ".1f", "1.7"),
        (0.0002, NATS, "", f"<{THIN}0.001 nats"),
        (0.0277, Unit(" thousandths", factor=1000), "short", "28 thousandths"),
        (0.0277, Unit(" thousandths", factor=1000), "interval", "27.7 thousandths [100, 150]"),
        (math.nan, PLAIN, "interval", "–"),
    ],
)
def test_a_number_is_written_by_its_unit_and_a_format(
    value: float, unit: Unit, format_name: str, text: str
) -> None:
    assert Number(value, unit, ROW, low=0.1, high=0.15).as_text(format_name) == text


def test_a_bound_and_an_estimate_say_so() -> None:
    assert Number(0.3, NATS, ROW, sign="≤").as_text() == f"≤{THIN}0.300 nats"


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(KeyError):
        Number(0.3, NATS, ROW).as_text("percents")


def test_the_digits_of_a_difference_follow_from_its_interval() -> None:
    gap = difference(0.0564, 0.036, 0.075, ROW, share=True, sentences=9)
    assert gap.as_text("interval") == "+5.6 points [+3.6, +7.5]"
    nothing = difference(0.0, math.nan, math.nan, ROW, share=False, sentences=9)
    assert nothing.as_text() == "0.0"


def test_a_number_knows_the_columns_of_its_row() -> None:
    assert Number(0.3, NATS, ROW).place("layer") == 3
