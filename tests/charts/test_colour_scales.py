"""Colours of charts: paper at 0, and both ways from 0 where values have signs."""

import re
from collections.abc import Sequence

import pandas as pd
import pytest

from headbook.charts import Figure, heat_map, layer_curve, state_curves, state_matrix
from headbook.charts.theme import DIVERGING, STOPS


def mapped(values: Sequence[float], ends: tuple[float, float]) -> Figure:
    rows = pd.DataFrame({"head": range(len(values)), "layer": 0, "value": values})
    rows = rows.assign(view="raw", label="", low=rows["value"], high=rows["value"])
    show = {"view": "raw", "label": ""}
    return heat_map("n", "Caption.", rows, title="title", domain=ends, show=show)


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
    states = ["0", "1"]
    rows = [("0", "0", 0.05), ("0", "1", 0.5), ("1", "0", 0.55), ("1", "1", 1.0)]
    table = pd.DataFrame(rows, columns=["state", "other", "value"])
    svg = state_matrix("n", "Caption.", table, states=states, title="CKA").svg
    for value, ink in (("0.05", "currentColor"), ("0.50", "black"), ("1.00", "white")):
        text = re.search(rf"<text([^>]*)>{value}</text>", svg)
        assert text is not None
        assert f'fill="{ink}"' in text[1]


def curve(values: Sequence[float], title: str = "title") -> Figure:
    rows = pd.DataFrame({"layer": range(len(values)), "series": "model", "value": values})
    rows = rows.assign(view="raw", low=rows["value"] - 0.01, high=rows["value"] + 0.01)
    return layer_curve("n", "Caption.", rows, title=title, show={"view": "raw"})


def written(figure: Figure) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", figure.svg)


def test_axes_of_values_begin_at_zero_so_that_no_baseline_looks_like_it() -> None:
    assert "0.0" in written(curve([0.5, 0.6]))
    panels = [("one", 0.6), ("two", 0.1)]
    rows = pd.DataFrame(
        [(p, "cosine", "s", False, x, v) for p, v in panels for x in ("0", "1")],
        columns=["panel", "title", "series", "baseline", "state", "value"],
    ).assign(low=float("nan"), high=float("nan"))
    texts = written(state_curves("n", "C.", rows, states=["0", "1"], panels=["one", "two"]))
    assert texts.count("0.0") == texts.count("0.6") == 2  # panels of one unit share their axis


def test_titles_and_ends_of_scales_are_whole() -> None:
    """However long a title is, and whatever the largest value is."""
    title = "dependency alignment beyond what the distances of the head explain"
    assert title in written(curve([0.1, 0.2], title))
    figure = mapped((0.0, 10.0, 15.7), (0.0, 15.7))
    assert {"0", "7.85", "15.7"} <= {*written(figure)}


def test_the_largest_value_of_a_scale_has_a_name() -> None:
    figure = mapped((-0.2, 0.0, 0.25), (-0.25, 0.25))
    assert {"−0.25", "0", "0.25"} <= {*written(figure)}
