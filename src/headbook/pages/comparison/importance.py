"""Where one model depends on a head more than the other does."""

import numpy as np

from headbook.pages.metricpair.named import compared_metric
from headbook.pages.parts.both import BothStacks
from headbook.pages.parts.groupvalues import difference_cell
from headbook.pages.parts.table import Row, Table
from headbook.report.findings.finding import head_link
from headbook.report.numbers.results import Estimate, descending
from headbook.report.wording import counted, counted_if, number, p_text
from headbook.study.importancetables import EFFECT
from headbook.study.sentencedata import HeadName

MOST = 8  # heads that the overview lists
SCALE = 1000.0  # changes are small: thousandths


def importance_table(both: BothStacks) -> Table | None:
    """Heads whose importance differs most; None where a study has none, or all are equal."""
    metric, found = compared_metric(EFFECT), both.found
    columns = [n for n, c in enumerate(found.columns) if c.metric == EFFECT] if found else []
    if found is None or metric is None or not columns:
        return None
    at = columns[0]
    value, sure = found.value[..., at], found.supported[..., at]
    if not np.nan_to_num(value).any():
        return None  # exactly equal, as the list of metrics says
    chosen = descending(np.abs(np.where(sure, value, np.nan))) or descending(np.abs(value))
    rows = []
    for place in chosen[:MOST]:
        gap, low, high = (
            float(part[*place, at]) * SCALE for part in (found.value, found.low, found.high)
        )
        cell = difference_cell(Estimate(gap, low, high, 0, 0.0), share=False, behind="")
        values = (number(float(part[*place, at]) * SCALE) for part in (found.a, found.b))
        name = head_link(HeadName(both.pair.a.name, *place))
        style = "" if sure[place] else "weak"
        rows.append(Row(name, (*values, cell, p_text(float(found.p[*place, at]))), style))
    counts = f"{int(sure.sum()):,} of {counted(int((~np.isnan(value)).sum()), 'head')} differ"
    label, floor = metric.label(found.columns[at].label), float(found.floors[at]) * SCALE
    return Table(
        ("Head", *both.names, "difference", "p"),
        tuple(rows),
        f"In thousandths: {label}. {counts} ({counted_if(floor, share=False)}).",
    )
