"""Numbers of layers, as lines of charts and as rows of tables."""

from collections.abc import Iterable, Sequence

import pandas as pd

from headbook.metrics.base import Metric
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.table import Row, Table, Title
from headbook.report.numbers.results import Estimates


def layer_frame(numbers: Estimates, series: str) -> pd.DataFrame:
    """The numbers of all layers, as one line of a chart."""
    frame = pd.DataFrame({"layer": range(len(numbers.value)), "series": series})
    for name in ("value", "low", "high"):
        frame[name] = getattr(numbers, name)
    return frame


def layer_table(
    layers: Iterable[int],
    columns: Sequence[tuple[Title, Estimates, Metric]],
    caption: str = "",
    before: str = "",
) -> Table:
    """Some numbers of each layer.

    Args:
        columns: title, numbers by layer, and whose they are.
        before: letters before a layer's number.
    """
    rows = []
    for layer in layers:
        cells = (Cell.of(numbers.at(layer), metric) for _, numbers, metric in columns)
        rows.append(Row(f"{before}{layer}", tuple(cells)))
    return Table(("Layer", *(title for title, *_ in columns)), tuple(rows), caption)
