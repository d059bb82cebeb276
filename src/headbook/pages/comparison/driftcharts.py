"""Divergence of attention by head and by layer, beside rounding and unrelated heads."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from headbook.analysis.arithmetic import Floats
from headbook.charts import Figure, heat_map, layer_curve
from headbook.comparison.drift import PATTERN_DRIFT, ROUNDED, SHUFFLED
from headbook.comparison.driftsummary import by_layer
from headbook.comparison.headdifferences import HeadDifferences
from headbook.pages.parts.both import BothStacks
from headbook.terms import View

SERIES = {"": "same head", ROUNDED: "bfloat16 rounding", SHUFFLED: "another head"}
TITLE = "divergence of attention (nats)"


def drift_map(both: BothStacks, found: HeadDifferences) -> Figure:
    """Every head's divergence; colours begin at 0, below which rounding lies."""
    rows = pd.concat([
        _cells(found, view).assign(view=str(view), label="") for view in _views(found)
    ], ignore_index=True)  # fmt: skip
    return heat_map(
        f"drift-{both.stack}",
        f"Divergence of the attention of each head of {both.names[0]} and the same head of "
        f"{both.names[1]}, all keys. Rows: layers, columns: heads.",
        rows,
        title=TITLE,
        domain=(0.0, float(rows["value"].max()) or 1.0),
        show={"view": str(View.RAW), "label": ""},
    )


def drift_curve(both: BothStacks, found: HeadDifferences) -> Figure:
    """The median head of each layer with the middle half, rounding and unrelated heads."""
    rows = pd.concat([*_lines(found)], ignore_index=True)
    floor = ROUNDED in {column.label for column in found.columns}
    return layer_curve(
        f"drift-{both.stack}-layers",
        "Divergence by layer, all keys: the median head; band: the middle half of the heads. "
        "Another head: the next one of the layer in the other model, as a ceiling"
        f"{'; rounding: the first model against itself in bfloat16, as a floor' if floor else ''}.",
        rows,
        title=TITLE,
        show={"view": str(View.RAW), "label": ""},
    )


def _views(found: HeadDifferences) -> list[View]:
    there = [view for view in View if found.column(PATTERN_DRIFT, str(view)) is not None]
    return [view for view in there if not np.isnan(_values(found, view, "")).all()]


def _values(found: HeadDifferences, view: View, label: str) -> Floats:
    place = found.column(PATTERN_DRIFT, str(view), label)
    assert place is not None
    return found.value[..., place]


def _cells(found: HeadDifferences, view: View) -> pd.DataFrame:
    place = found.column(PATTERN_DRIFT, str(view))
    assert place is not None
    there = ~np.isnan(found.value[..., place])
    layers, heads = np.nonzero(there)
    parts = {n: getattr(found, n)[..., place][there] for n in ("value", "low", "high")}
    return pd.DataFrame({"layer": layers, "head": heads, **parts})


def _lines(found: HeadDifferences) -> Iterator[pd.DataFrame]:
    for view in _views(found):
        for label, series in SERIES.items():
            if found.column(PATTERN_DRIFT, str(view), label) is None:
                continue
            low, value, high = by_layer(_values(found, view, label))
            known = np.flatnonzero(~np.isnan(value))
            frame = pd.DataFrame({"layer": known, "series": series, "view": str(view)})
            yield frame.assign(label="", value=value[known], low=low[known], high=high[known])
