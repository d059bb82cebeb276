"""The table `few_sentences`: numbers that a few sentences decide, with their value without them."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from headbook.report.results import StackResults, stack_results
from headbook.schema import HeadKey
from headbook.study.study import Study
from headbook.study.tables import LAYER_COLUMNS, METRIC_COLUMNS, TableSpec


def few_table(study: Study) -> pd.DataFrame:
    """Return all numbers of heads and of layers that a few sentences decide."""
    frames = [
        frame
        for results in stack_results(study).values()
        for metric in results.metrics
        for view in metric.views
        for label in results.labels(metric.id)
        if results.has_value(*(key := HeadKey(metric.id, view, label)))
        for frame in _few_rows(results, key)
    ]
    if not frames:
        return FEW_SENTENCES.empty
    table = pd.concat(frames, ignore_index=True)[[*FEW_SENTENCES.columns]]
    return table.astype({"head": "Int64"})


def _few_rows(results: StackResults, key: HeadKey) -> Iterator[pd.DataFrame]:
    """Yield the rows of the heads of a number, then those of its layers."""
    for of_layers in (False, True):
        few = results.few_arrays(key, of_layers=of_layers)
        places = np.nonzero(few.sentences)
        if len(places[0]):
            layer, head = (places[0], np.nan) if of_layers else places
            yield pd.DataFrame({
                "stack": results.stack.name, "layer": layer, "head": head,
                "metric": key.metric, "view": str(key.view), "label": key.label,
                "few": few.sentences[places], "few_share": few.share[places],
                "without": few.without[places],
            })  # fmt: skip


FEW_SENTENCES: TableSpec[Study] = TableSpec(
    "few_sentences",
    "Numbers of heads and of layers of which at most five sentences, or 5 % of a large corpus, "
    "hold more than a third of the numerator, with their value without these sentences.",
    LAYER_COLUMNS
    | {"head": "counted from 0; empty for all heads of the layer together"}
    | METRIC_COLUMNS
    | {
        "few": "number of these sentences",
        "few_share": "share of the numerator that they hold",
        "without": "value without them, in the metric's unit; shares from 0 to 1",
    },
    few_table,
    optional=True,
)
