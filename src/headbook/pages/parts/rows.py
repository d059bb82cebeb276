"""Lines of charts that several pages share."""

import pandas as pd

from headbook.report.numbers.results import Estimates


def layer_frame(numbers: Estimates, series: str) -> pd.DataFrame:
    """The numbers of all layers, as one line of a chart."""
    frame = pd.DataFrame({"layer": range(len(numbers.value)), "series": series})
    for name in ("value", "low", "high"):
        frame[name] = getattr(numbers, name)
    return frame
