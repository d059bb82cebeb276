"""All rows of single heads as CSV, in a file for each layer, from which a script makes one head's.

A browser cannot read ``heads.csv`` from disk, and a file for each head would repeat the names of
all numbers. Rows are those of the table ``heads`` with the number of uniform attention beside them.
"""

import csv
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from headbook.results.formats import head_file
from headbook.schema import HeadName
from headbook.site.export import CSV_DIGITS, csv_rows, spreadsheet_safe
from headbook.study.study import Study

LAYER, KEY = ["stack", "layer"], ["metric", "view", "label"]
BASELINE = "uniform"  # column of the number under uniform attention


def layer_rows(study: Study) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of the heads of each layer, with the name of the layer's file.

    The value has ``columns``; ``start``: stack and layer; ``keys``: metric, view and label of each
    row; ``heads``: by head, the numbers of each row, empty where it has none; ``uniform``: the
    baseline of each row. All are parts of lines of CSV.
    """
    heads = study.heads.reset_index(drop=True)
    numbers = [name for name in heads if name not in {*LAYER, "head", *KEY}]
    lines = np.array(csv_rows(heads[numbers], header=False).decode().splitlines(), object)
    controls = study.controls.set_index([*LAYER, *KEY])["value"]
    place: Any
    for place, rows in heads.groupby(LAYER, sort=False):
        stack, layer = place
        keys = pd.MultiIndex.from_frame(rows[KEY].drop_duplicates())
        places = keys.get_indexer(pd.MultiIndex.from_frame(rows[KEY]))
        of_heads = np.full((int(rows["head"].max()) + 1, len(keys)), "", object)
        of_heads[rows["head"], places] = lines[rows.index]
        uniform = controls.reindex([(stack, layer, *key) for key in keys])
        yield (
            layer_file(HeadName(stack, layer, 0)),
            {
                "columns": ",".join([*heads, BASELINE]),
                "start": f"{stack},{layer}",
                "keys": [*_lines(spreadsheet_safe(keys.to_frame()))],
                "heads": of_heads.tolist(),
                "uniform": ["" if np.isnan(v) else f"{v:.{CSV_DIGITS}g}" for v in uniform],
            },
        )


def layer_file(head: HeadName) -> str:
    """Return the name of the file with the rows of a head's layer."""
    return head_file(head).rpartition("-")[0]


def _lines(table: pd.DataFrame) -> Iterator[str]:
    """Yield rows of texts as lines of CSV, which may contain line feeds."""
    for row in table.itertuples(index=False):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(row)
        yield line.getvalue()
