"""Mean attention by position as small pictures, from the statistics of sampled sentences."""

from collections.abc import Mapping

import numpy as np

from headbook.analysis.arithmetic import Floats
from headbook.charts.base import images
from headbook.charts.base.ink import ink
from headbook.metrics import ids
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.typeshares import Place
from headbook.study.summaries.finish import ABOUT
from headbook.terms import View

METRIC = ids.VARIABILITY  # keeps the weights between the first tokens of each sentence
COLOURS = 16  # a picture carries its palette


def mean_maps(results: StackResults) -> dict[Place, Floats]:
    """The mean weight between the first positions, by layer and head; empty where not kept.

    *Shape:* ``(query, key)`` each. Positions that never look, or are never seen, are left out:
    special tokens do not look. A pair that no sentence has is 0 as a masked one.
    """
    sums = results.study.corpus_sums.sampled.get(results.stack.name)
    start = 0
    for name, view, width in sums.columns if sums else ():
        if (name, view) == (METRIC, View.RAW):
            payload = sums.stats.payload[..., start : start + width] if sums else None
            break
        start += width
    else:
        return {}
    assert payload is not None
    total = payload.sum(0, dtype=np.float64)
    side = round(width**0.5)
    found = {}
    for layer in results.stack.attention_layers:
        there = total[layer, ABOUT].reshape(side, side)
        rows, columns = there.any(1), there.any(0)
        for head in range(results.stack.n_heads):
            mean = total[layer, head].reshape(side, side) / np.maximum(there, 1)
            found[layer, head] = mean[rows][:, columns]
    return {cell: each for cell, each in found.items() if each.size}


def pictures(results: StackResults) -> Mapping[Place, str]:
    """The same as addresses of images; colours run with the square root of the weight."""
    palette = ink(COLOURS)
    return {
        cell: images.preview(
            np.rint(np.sqrt(mean_map.clip(0, 1)) * (COLOURS - 1)).astype(np.uint8), palette
        )
        for cell, mean_map in mean_maps(results).items()
    }
