"""Plots side by side in one figure, with one set of files."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import pandas as pd

from headbook.charts.plots import Plot, text
from headbook.report.wording import visible
from headbook.results.number import RowAddress

# Pixels of figures in papers.
PAGE_WIDTH = 500  # from which on two panels stand beside each other
MOST_BESIDE = 4  # panels from which on two stand beside each other on a page
GAP = 20  # between panels
TITLE_HEIGHT = 18  # of the line of a title
LINE_HEIGHT = 15  # of each line below a title
LETTER_WIDTH = 6.2  # mean of letters below a title


class PlotPanel(NamedTuple):
    """A plot of a figure with several.

    Attributes:
        title: heading of the plot.
        measure: description of the numbers that the plot shows.
        plot: the plot; its name and files are not used.
    """

    title: str
    measure: str
    plot: Plot


@dataclass(frozen=True, eq=False)
class PanelPlot(Plot):
    """Plots side by side: two or three on a page, four in two lines; two or one in papers.

    Attributes:
        panels: from left to right.
    """

    panels: tuple[PlotPanel, ...] = ()

    def html(self, address: Callable[[str | RowAddress], str]) -> str:
        """Return the plots as an element of a page, with their titles."""
        parts = "".join(
            f'<div><p class="panel-title">{escape(visible(title))}</p>'
            f'<p class="panel-measure">{escape(visible(measure))}</p>{plot.html(address)}</div>'
            for title, measure, plot in self.panels
        )
        beside = len(self.panels) if len(self.panels) < MOST_BESIDE else 2
        return f'<div class="grid{beside}">{parts}</div>'

    @property
    def printed_title(self) -> str:
        """No title: each of the plots has its own."""
        return ""

    def drawn(self, width: float) -> tuple[float, str]:
        """Return height and elements of all plots at a width in pixels, without links."""
        beside = 2 if width > PAGE_WIDTH and len(self.panels) > 1 else 1
        each = (width - GAP * (beside - 1)) / beside
        top, elements = 0.0, []
        for first in range(0, len(self.panels), beside):
            in_line = self.panels[first : first + beside]
            wrapped = [textwrap.wrap(p.measure, int(each / LETTER_WIDTH)) for p in in_line]
            head = TITLE_HEIGHT + LINE_HEIGHT * max(map(len, wrapped))
            heights = []
            for place, (panel, lines) in enumerate(zip(in_line, wrapped, strict=True)):
                height, plot = panel.plot.drawn(each)
                heights.append(height)
                words = text(panel.title, "0", TITLE_HEIGHT - 6, "b s") + "".join(
                    text(line, "0", TITLE_HEIGHT + LINE_HEIGHT * (n + 1) - 6)
                    for n, line in enumerate(lines)
                )
                at = f'x="{place * (each + GAP):.0f}" width="{each:.0f}" overflow="visible"'
                elements.append(
                    f'<svg {at} y="{top:.0f}" height="{head}">{words}</svg>'
                    f'<svg {at} y="{top + head:.0f}" height="{height:.0f}">{plot}</svg>'
                )
            top += head + max(heights) + GAP
        return top, "".join(elements)


def panel_plot(name: str, caption: str, panels: Sequence[PlotPanel]) -> PanelPlot | None:
    """Return the figure of some plots; None without any."""
    if not panels:
        return None
    rows = [panel.plot.rows.assign(panel=panel.title) for panel in panels]
    height = max(panel.plot.height for panel in panels)
    table = pd.concat(rows, ignore_index=True)
    return PanelPlot(name, caption, height, rows=table, panels=tuple(panels))
