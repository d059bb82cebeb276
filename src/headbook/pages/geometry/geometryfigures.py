"""The figures of the geometry of states."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from headbook.analysis.clouds import MINIBATCH
from headbook.charts import Figure, state_curves, state_matrix
from headbook.metrics import all_metrics, ids
from headbook.report.numbers.results import Estimates, StackResults
from headbook.report.wording import counted
from headbook.study.summaries.shapes import GeometrySums, StateColumn, short_names


class Line(NamedTuple):
    """A number in a panel; its axis is the panel's."""

    panel: str
    axis: str
    series: str
    metric: str
    label: str = "raw"
    baseline: bool = False


SIMILAR, ONE, RANK = "Similarity of tokens", "Best single direction", "Effective rank"
COSINE, PATH = "Cosine of two tokens", "Cosine to the input embedding"
SHAPES = (
    Line(SIMILAR, "cosine", "same token", ids.SELF_SIMILARITY),
    Line(SIMILAR, "cosine", "same sentence", ids.INTRA_SENTENCE_SIMILARITY),
    Line(SIMILAR, "cosine", "any two", ids.ANISOTROPY, baseline=True),
    Line(ONE, "share", "same token", ids.MAXIMUM_EXPLAINABLE_VARIANCE),
    Line(
        ONE, "share", "random tokens", ids.MAXIMUM_EXPLAINABLE_VARIANCE, "baseline", baseline=True
    ),
    Line(RANK, f"dimensions ({MINIBATCH} tokens)", "rank", ids.EFFECTIVE_RANK, ""),
)
TREATED = tuple(
    Line(panel, "cosine", series, metric, label)
    for panel, metric in ((COSINE, ids.ANISOTROPY), (PATH, ids.STANDARDISED_COSINE))
    for label, series in {
        "raw": "unchanged",
        "without_outliers": "without three",
        "standardised": "standardised",
    }.items()
)


def figures(results: StackResults, sums: GeometrySums) -> Iterator[Figure]:
    """All figures of one stack that have something to show."""
    stack = results.stack.name
    behind = f"{counted(sums.tokens, 'token')}{results.some(sums.sentences, ' of')}"
    ranked = StateColumn(ids.EFFECTIVE_RANK, "") in sums.columns and sums.minibatches
    rank = " Right: effective rank." if ranked else ""
    captions = {
        f"geometry-{stack}": (
            SHAPES,
            "Cosine of occurrences of one vocabulary token in different sentences, of tokens with "
            "the mean of their sentence, and of any two tokens (grey: baseline). Variance along "
            "the best single direction: one vocabulary token, and as many random tokens (grey)."
            f"{rank} Bands: 95 % intervals.",
        ),
        f"geometry-dimensions-{stack}": (
            TREATED,
            "Cosine of two tokens of different sentences, and of each token to its input "
            "embedding: unchanged, without the three dimensions that add most to it, and with "
            "every dimension standardised. Where lines differ, a few dimensions dominate.",
        ),
    }
    for name, (lines, caption) in captions.items():
        rows = _rows(sums, lines)
        if len(rows):
            panels = list(dict.fromkeys(rows["panel"]))
            yield state_curves(
                name,
                f"{caption} {behind}.",
                rows,
                states=short_names(len(sums.weights)),
                panels=panels,
            )
    if not np.isnan(sums.cka).all():
        yield _matrix(f"geometry-cka-{stack}", sums)


def _rows(sums: GeometrySums, lines: tuple[Line, ...]) -> pd.DataFrame:
    states, frames = short_names(len(sums.weights)), []
    for line in lines:
        metric = all_metrics()[line.metric]
        of = sums.of(line.metric, line.label)
        numbers = Estimates.of(of, metric.limits, metric.spread(line.label))
        frame = pd.DataFrame(
            {"state": states, "value": numbers.value, "low": numbers.low, "high": numbers.high}
        )
        labels = {"panel": line.panel, "title": line.axis, "series": line.series}
        frames.append(frame.assign(**labels, baseline=line.baseline).dropna(subset="value"))
    frames = [frame for frame in frames if len(frame)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _matrix(name: str, sums: GeometrySums) -> Figure:
    states = short_names(len(sums.weights))
    rows = [
        {"state": state, "other": other, "value": float(value)}
        for state, row in zip(states, sums.cka, strict=True)
        for other, value in zip(states, row, strict=True)
        if not np.isnan(value)
    ]
    caption = (
        "Similarity of every two layers by linear CKA, unbiased (1: the same up to rotation and "
        f"scale), over {counted(sums.minibatches, 'minibatch', 'minibatches')} of "
        f"{MINIBATCH} tokens."
    )
    return state_matrix(name, caption, pd.DataFrame(rows), states=states, title="CKA")
