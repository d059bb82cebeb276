"""A metric of tokens of two models whose layers do not correspond: over relative depth."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from headbook.charts.vega.pairs import depth_curves
from headbook.comparison.modeldifferences import ComparedColumn
from headbook.comparison.sides import same_vocabulary
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerwiseMetric
from headbook.pages.metricpair.depth import OF_LAYERS, DepthSection, depth, median_table
from headbook.pages.metricpair.layers import choice, column_words, first_of, token_columns
from headbook.pages.metricpair.named import ComparedMetric
from headbook.pages.parts.both import BothStacks
from headbook.study.summaries.columns import TokenColumn

VOCABULARIES = "The vocabularies differ, and with them ranks and what chance gives."


def token_depth_section(both: BothStacks, metric: ComparedMetric) -> DepthSection | None:
    """Both models over relative depth; None where one of them has no numbers."""
    known = all_metrics().get(metric.id)
    if not isinstance(known, LayerwiseMetric):
        return None
    columns = [column for column in token_columns(known) if _known(both, column)]
    if not columns:
        return None
    first = first_of(columns)
    words = column_words(first)
    figure = depth_curves(
        f"{metric.id}-{both.stack}-depth",
        f"{metric.title}, {words}, over relative depth: mean over tokens; bands: 95 % intervals, "
        "sentences as clusters.",
        pd.concat([*_curves(both, columns)], ignore_index=True),
        title=metric.unit_title,
        show=choice(first),
    )
    named = [(column_words(c), ComparedColumn(c.metric, "", c.words)) for c in columns]
    table = median_table(both, metric, named, OF_LAYERS + "s")
    models = (results.study.manifest.model for results in (both.a, both.b))
    note = VOCABULARIES if known.spaces and not same_vocabulary(*models) else ""
    return DepthSection(both.title, words, figure, table, OF_LAYERS + "s", note)


def _known(both: BothStacks, column: TokenColumn) -> bool:
    return all(results.tokens(*column) is not None for results in (both.a, both.b))


def _curves(both: BothStacks, columns: Sequence[TokenColumn]) -> Iterator[pd.DataFrame]:
    """Both models under every choice."""
    for name, results in zip(both.names, (both.a, both.b), strict=True):
        for column in columns:
            numbers = results.tokens(*column)
            assert numbers is not None
            there = np.flatnonzero(~np.isnan(numbers.value))
            frame = pd.DataFrame({
                "depth": [depth(results.stack, layer) for layer in there.tolist()],
                **{part: getattr(numbers, part)[there] for part in ("value", "low", "high")},
            })  # fmt: skip
            yield frame.assign(series=name, kind=OF_LAYERS, **choice(column))
