"""Colours of charts: paper at 0, and both ways from 0 where values have signs."""

import re
from collections.abc import Sequence

import altair as alt
import pandas as pd
import pytest

from headbook.charts import Figure, heat_map, layer_curve
from headbook.charts.axes import styled_spec
from headbook.charts.figure import svg_of
from headbook.charts.theme import DIVERGING, STOPS, text_colour_rule


def mapped(values: Sequence[float], ends: tuple[float, float]) -> Figure:
    rows = pd.DataFrame({"head": range(len(values)), "layer": 0, "value": values})
    rows = rows.assign(view="raw", label="", low=rows["value"], high=rows["value"])
    return heat_map("n", "Caption.", rows, title="title", domain=ends)


@pytest.mark.parametrize(
    ("values", "ends", "stops"),
    [
        ((0.0, 0.1, 0.2), (0.0, 0.2), (STOPS[0], STOPS[3], STOPS[6])),
        ((-0.3, 0.0, 0.3), (-0.3, 0.3), (DIVERGING[0], DIVERGING[3], DIVERGING[6])),
    ],
)
def test_cells_have_the_colours_of_the_design(
    values: Sequence[float], ends: tuple[float, float], stops: Sequence[str]
) -> None:
    """In one group, which dark pages turn round; files have them as they are."""
    for svg in (
        mapped(values, ends).svg,
        mapped(values, ends).paper(columns=True)[".svg"].decode(),
    ):
        group = re.search(r'<g class="ink">.*?</g>', svg)
        assert group is not None
        found = re.findall(r'fill="(#[^"]*)"', group[0])
        assert found == [*stops]


def test_numbers_on_cells_change_their_ink_with_the_cell() -> None:
    """Black on pale cells as the page's letters, black on middle ones, white on dark ones."""
    table = pd.DataFrame({"place": range(4), "value": [0.05, 0.5, 0.55, 1.0]})
    numbers = (
        alt.Chart(table)
        .mark_text()
        .encode(
            x="place:O",
            text=alt.Text("value:Q", format=".2f"),
            color=text_colour_rule("value", (0, 1)),
        )
    )
    svg = svg_of(styled_spec(numbers), "n", "Caption.")
    for value, ink in (("0.05", "currentColor"), ("0.50", "black"), ("1.00", "white")):
        text = re.search(rf"<text([^>]*)>{value}</text>", svg)
        assert text is not None
        assert f'fill="{ink}"' in text[1]


def curve(values: Sequence[float], title: str = "title") -> Figure:
    rows = pd.DataFrame({"layer": range(len(values)), "series": "model", "value": values})
    rows = rows.assign(view="raw", low=rows["value"] - 0.01, high=rows["value"] + 0.01)
    return layer_curve("n", "Caption.", rows, title=title)


def written(figure: Figure) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", figure.svg)


def test_axes_of_values_begin_at_zero_so_that_no_baseline_looks_like_it() -> None:
    assert "0.0" in written(curve([0.5, 0.6]))


def test_titles_and_ends_of_scales_are_whole() -> None:
    """However long a title is, and whatever the largest value is."""
    title = "dependency alignment beyond what the distances of the head explain"
    assert title in written(curve([0.1, 0.2], title))
    figure = mapped((0.0, 10.0, 15.7), (0.0, 15.7))
    assert {"0", "7.85", "15.7"} <= {*written(figure)}


def test_the_largest_value_of_a_scale_has_a_name() -> None:
    figure = mapped((-0.2, 0.0, 0.25), (-0.25, 0.25))
    assert {"−0.25", "0", "0.25"} <= {*written(figure)}
