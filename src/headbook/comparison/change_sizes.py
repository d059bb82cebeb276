"""Sizes of differences, by which changes of different numbers are ranked, and numbers in words.

The size of a difference is a multiple of the standard deviation of the number among the heads of
both models. A size in standard errors would rank numbers by how precisely they are measured. Labels
that few heads attend to vary little, so that the standard deviation is at least the median one of
the metric's labels in the same view.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats, divide
from headbook.comparison.differences import ComparedColumn, HeadDifferences
from headbook.metrics import all_metrics, ids
from headbook.report.wording import is_share, label_name, unbroken
from headbook.results.formats import number
from headbook.schema import AttentionStack, Place
from headbook.study.ablation_tables import EFFECT


class HeadNumberChange(NamedTuple):
    """A supported difference of one number of one head.

    Attributes:
        place: layer and number of the head.
        column: index of the number among the columns.
        size: size of the difference, without sign.
    """

    place: Place
    column: int
    size: float


def change_sizes(differences: HeadDifferences) -> Floats:
    """Return the size of each difference, without sign; NaN for numbers that no head has alone.

    *Shape:* ``(layer, head, column)``.
    """
    count = len(differences.columns)
    values = np.concatenate([part.reshape(-1, count) for part in (differences.a, differences.b)])
    known = ~np.isnan(values)
    n_known = known.sum(0)
    mean = divide(np.where(known, values, 0).sum(0), n_known)
    deviation = np.sqrt(divide(np.where(known, (values - mean) ** 2, 0).sum(0), n_known))
    families = [(column.metric, column.view) for column in differences.columns]
    scale = deviation.copy()
    for family in dict.fromkeys(families):
        at = [index for index, other in enumerate(families) if other == family]
        if not np.isnan(deviation[at]).all():
            scale[at] = np.fmax(deviation[at], np.nanmedian(deviation[at]))
    return divide(np.abs(differences.value), scale)


def largest_changes(
    differences: HeadDifferences, stack: AttentionStack
) -> Iterator[HeadNumberChange]:
    """Yield the largest supported difference of each head that has one, the largest first.

    Of metrics with several views, the view that pages show first counts.
    """
    default, views = str(stack.default_view), dict[str, set[str]]()
    for column in differences.columns:
        views.setdefault(column.metric, set()).add(column.view)
    in_view = [
        (column.view == default or default not in views[column.metric])
        and column.metric != ids.TYPE_SHARES  # behind functions, which stand beside the change
        for column in differences.columns
    ]
    sizes = np.where(differences.supported & in_view, np.nan_to_num(change_sizes(differences)), 0.0)
    largest = sizes.max(-1, initial=0.0)
    for flat in np.argsort(-largest, axis=None, kind="stable").tolist():
        layer, head = (int(index) for index in np.unravel_index(flat, largest.shape))
        if largest[layer, head] == 0:
            return
        column_index = int(sizes[layer, head].argmax())
        yield HeadNumberChange((layer, head), column_index, float(largest[layer, head]))


def number_title(column: ComparedColumn) -> str:
    """Return metric and label of a number in words: ``Relation accuracy: obj (head → dependent)``.

    The unit follows in brackets.
    """
    metric, label = all_metrics().get(column.metric), unbroken(label_name(column.label))
    title = "Change without the head" if column.metric == EFFECT else column.metric
    unit = f" ({metric.unit})" if metric and metric.unit else ""
    return f"{metric.title if metric else title}{f': {label}' if label else ''}{unit}"


def value_text(column: ComparedColumn, value: float) -> str:
    """Return a value of a number in few digits; shares in per cent."""
    metric = all_metrics().get(column.metric)
    return number(value, share=metric is not None and is_share(metric))
