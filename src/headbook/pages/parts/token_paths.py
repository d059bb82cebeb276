"""The paths of tokens through the layers, as data of the script of a sentence's page."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headbook.metrics import all_metrics, ids
from headbook.metrics.base import TokenMetric
from headbook.report.results import StackResults
from headbook.report.wording import SPACES, STATES, TOKEN_CLASSES, visible
from headbook.schema import CONTENT, FUNCTION, EmbeddingSpace, ResidualPoint
from headbook.study.sentence_data import StoredSentence

MOST_TOKENS = 48  # tokens of a sentence that are drawn; files have all of them
# Values of the input state, from which all paths of a metric begin.
START = {ids.COSINE_TO_INPUT: 1.0, ids.VOCABULARY_RANK: 0.0}
AXES = {
    ids.COSINE_TO_INPUT: "cosine to the input embedding",
    ids.VOCABULARY_RANK: "vocabulary tokens nearer than its own",
    ids.NEIGHBOUR_OVERLAP: "share of neighbours kept",
    ids.LOGIT_LENS_RANK: "vocabulary tokens more probable than the true token",
    ids.MIXING_RATIO: "context-mixing ratio",
    ids.LOGIT_LENS_KL: "nats from the final distribution",
}
RANKS = {ids.VOCABULARY_RANK, ids.LOGIT_LENS_RANK}
BESIDE = {  # names of the metrics beside paths, drawn as the sentence's mean
    ids.NEIGHBOUR_OVERLAP_RANDOM: "another token (mean)",
    ids.NEIGHBOUR_OVERLAP_CHANCE: "expected by chance",
}
CLASSES = ("content", "function")


class PathTable(NamedTuple):
    """Numbers of tokens (rows) by layer (columns); NaN for missing numbers."""

    layers: list[int]
    values: "np.typing.NDArray[np.float64]"


def drawn_metrics(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the metrics with paths to draw; of ranks only if one is above 0.

    Args:
        rows: rows of one stack and sentence, with the columns
            `headbook.study.sentence_data.TOKEN_COLUMNS`.
    """
    known = rows[rows["value"].notna()]
    largest = known.groupby("metric")["value"].max()
    there = [metric for metric in AXES if metric in largest.index]
    return tuple(metric for metric in there if metric not in RANKS or largest[metric] > 0)


def paths_data(
    results: StackResults, sentence: StoredSentence, rows: pd.DataFrame
) -> dict[str, Any] | None:
    """Return the paths of a sentence in one stack; None without paths.

    Args:
        rows: rows of that stack and sentence, with the columns
            `headbook.study.sentence_data.TOKEN_COLUMNS`.

    Returns:
        ``kinds`` of the tokens (see `token_kind`), their ``names``, and ``metrics``: each with
        ``title``, ``axis``, ``start`` (value at which all paths begin, or None), ``ranks``, and
        ``views``: name, ``layers``, ``values`` (a list for each token, by layer), ``classes``
        (means over all sentences by word class, of ranks geometric ones) and ``beside`` (means
        of other metrics).
    """
    rows = rows[rows["value"].notna() & (rows["position"] < MOST_TOKENS)]
    metrics = drawn_metrics(rows)
    if not metrics:
        return None
    tables, text = _tables(rows), sentence.texts[results.stack.queries]
    kinds = [token_kind(*pair) for pair in zip(text.tags, text.special, strict=True)]
    return {
        "kinds": kinds[:MOST_TOKENS],
        "names": [visible(piece) for piece in text.pieces[:MOST_TOKENS]],
        "metrics": [
            {
                "id": metric,
                "title": all_metrics()[metric].title,
                "axis": AXES[metric],
                "start": START.get(metric),
                "ranks": metric in RANKS,
                "views": [*_views(results, tables, metric)],
            }
            for metric in metrics
        ],
    }


def _tables(rows: pd.DataFrame) -> dict[tuple[str, str, str], PathTable]:
    """Return the numbers of each metric, state and space by position and layer.

    Tables of pandas would take ten times as long for so few numbers.
    """
    cells: dict[tuple[str, str, str], list[tuple[int, int, float]]] = {}
    names = ("metric", "state", "space", "position", "layer", "value")
    for metric, state, space, *cell in zip(*(rows[name].tolist() for name in names), strict=True):
        place, layer, value = cell
        cells.setdefault((metric, state, space), []).append((int(place), int(layer), float(value)))
    return {key: _table(each) for key, each in cells.items()}


def _table(cells: list[tuple[int, int, float]]) -> PathTable:
    places, layers, values = (np.array(each) for each in zip(*cells, strict=True))
    rows, row = np.unique(places, return_inverse=True)
    columns, column = np.unique(layers, return_inverse=True)
    table = np.full((len(rows), len(columns)), np.nan)
    table[row, column] = values
    return PathTable([int(layer) for layer in columns], table)


def _views(
    results: StackResults, tables: Mapping[tuple[str, str, str], PathTable], metric: str
) -> Iterator[dict[str, Any]]:
    """Yield a metric's numbers by state and space, the main state and space first."""
    own = {key[1:]: table for key, table in tables.items() if key[0] == metric}
    for space in dict.fromkeys([*map(str, EmbeddingSpace), ""]):
        for state in dict.fromkeys(map(str, [ResidualPoint.POST, *ResidualPoint, ""])):
            if (state, space) not in own:
                continue
            layers, values = own[state, space]
            names = [SPACES[EmbeddingSpace(space)]] if space else []
            names += [STATES[ResidualPoint(state)]] if state else []
            yield {
                "name": ", ".join(names),
                "layers": layers,
                "values": [_numbers(line) for line in values],
                "classes": _classes(results, metric, state, space, layers),
                "beside": _beside(tables, metric, state, space),
            }


def _numbers(values: "np.typing.NDArray[np.float64]") -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.4g}") for value in values]


def _classes(
    results: StackResults, metric: str, state: str, space: str, layers: list[int]
) -> dict[str, list[float | None]]:
    """Return means over all sentences by word class and layer, for the classes with numbers."""
    means, by_class = results.cached(_class_means), {}
    for label in CLASSES:
        by_layer = means.get((metric, "/".join(part for part in (state, space, label) if part)), {})
        values = np.array([by_layer.get(layer, np.nan) for layer in layers], float)
        if metric in RANKS:  # averages are of log10(1 + rank)
            values = 10**values - 1
        if not np.isnan(values).all():
            by_class[TOKEN_CLASSES[label]] = _numbers(values)
    return by_class


def _class_means(results: StackResults) -> dict[tuple[str, str], dict[int, float]]:
    """Return the numbers of layers without a view, by metric and label, then by layer."""
    table = results.study.layers
    table = table[(table["stack"] == results.stack.name) & (table["view"].fillna("") == "")]
    class_means: dict[tuple[str, str], dict[int, float]] = {}
    columns = (table[name].tolist() for name in ("metric", "label", "layer", "value"))
    for metric, label, layer, value in zip(*columns, strict=True):
        class_means.setdefault((metric, label), {})[int(layer)] = float(value)
    return class_means


def _beside(
    tables: Mapping[tuple[str, str, str], PathTable], metric: str, state: str, space: str
) -> dict[str, Any]:
    """Return the metrics to compare a metric with: means over the sentence's tokens, by layer."""
    known = all_metrics()[metric]
    by_name = {}
    for name in known.beside if isinstance(known, TokenMetric) else ():
        spaces = {key[2] for key in tables if key[:2] == (name, state)}
        chosen = space if space in spaces else min(spaces, default="")
        if (name, state, chosen) in tables:
            means = np.nanmean(tables[name, state, chosen].values, axis=0)
            by_name[BESIDE[name]] = _numbers(means)
    return by_name


def token_kind(tag: str, special: bool) -> str:
    """Return the kind of a token: content word, function word, punctuation or other."""
    if tag == "PUNCT":
        return "punctuation"
    if special or not tag:
        return "other"
    return "content word" if tag in CONTENT else "function word" if tag in FUNCTION else "other"
