"""Scatter plots of heads: a point for each head, with both numbers, beside uniform attention."""

import numpy as np

from headbook.charts.heads import ScatterAxis, scatter_plot
from headbook.charts.plots import PlotMark
from headbook.results.number import PLAIN, Number, RowAddress
from headbook.schema import HeadName

HEADS = [HeadName("self", 0, head) for head in range(3)]


def axis(title: str, values: list[float], uniform: float, factor: float = 1.0) -> ScatterAxis:
    row = RowAddress("heads", ())
    return ScatterAxis(title, [Number(value, PLAIN, row) for value in values], uniform, factor)


def test_each_head_is_a_point_on_scales_that_hold_all() -> None:
    across = axis("distance (tokens)", [1.0, 2.0, 3.5], 2.0)
    up = axis("alignment (%)", [0.1, 0.3, 0.2], 0.4, factor=100.0)
    assert (across.ends, up.ends) == ((0.0, 3.5), (0.0, 40.0))
    plot = scatter_plot("scatter", "Heads.", HEADS, across, up)
    *heads, uniform = (mark for mark in plot.marks if isinstance(mark, PlotMark))
    assert [mark.x for mark in heads] == sorted(mark.x for mark in heads)
    assert np.argsort([-mark.y for mark in heads]).tolist() == [0, 2, 1]
    assert uniform.y == min(mark.y for mark in (*heads, uniform))
    assert heads[1].x == uniform.x
    assert plot.rows.to_numpy().tolist() == [[0, 0, 1.0, 0.1], [0, 1, 2.0, 0.3], [0, 2, 3.5, 0.2]]


def test_unknown_uniform_attention_is_not_drawn() -> None:
    across, up = axis("x", [1.0, 2.0, 3.0], np.nan), axis("y", [1.0, 2.0, 3.0], np.nan)
    plot = scatter_plot("scatter", "Heads.", HEADS, across, up)
    assert len([mark for mark in plot.marks if isinstance(mark, PlotMark)]) == len(HEADS)
