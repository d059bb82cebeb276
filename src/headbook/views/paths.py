"""The paths of a sentence's tokens through the layers, as the script of its page draws them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from headbook.metrics import all_metrics
from headbook.metrics.base import TokenMetric
from headbook.numbers.results import StackResults
from headbook.stored.shown import ShownSentence
from headbook.terms import CONTENT, FUNCTION, Space, State
from headbook.wording import SPACES, STATES, visible

MOST_TOKENS = 48  # of a sentence that are drawn; the tables have them all
START = {"cosine_to_input": 1.0, "vocabulary_rank": 0.0}  # the input state's own, where it has one
AXES = {
    "cosine_to_input": "cosine to the input embedding",
    "vocabulary_rank": "vocabulary tokens nearer than its own",
    "neighbour_overlap": "share of neighbours kept",
    "logit_lens_rank": "vocabulary tokens more probable than the true token",
    "mixing_ratio": "context-mixing ratio",
    "logit_lens_kl": "nats from the final distribution",
}
RANKS = {"vocabulary_rank", "logit_lens_rank"}
BESIDE = {  # what stands beside paths, as the sentence's mean
    "neighbour_overlap_random": "another token (mean)",
    "neighbour_overlap_chance": "expected by chance",
}
CLASSES = {"content": "content words", "function": "function words"}


def drawn_metrics(rows: pd.DataFrame) -> tuple[str, ...]:
    """The metrics that have something to draw: ranks only where one is above 0.

    Args:
        rows: of `headbook.stored.shown.TOKENS`, of one stack and sentence.
    """
    known = rows[rows["value"].notna()]
    largest = known.groupby("metric")["value"].max()
    there = [metric for metric in AXES if metric in largest.index]
    return tuple(metric for metric in there if metric not in RANKS or largest[metric] > 0)


def paths_data(
    results: StackResults, sentence: ShownSentence, rows: pd.DataFrame
) -> dict[str, Any] | None:
    """What the script reads of one stack; None where there is nothing to draw.

    Args:
        rows: of `headbook.stored.shown.TOKENS`, of that stack and sentence.

    Returns:
        ``kinds`` of the tokens (see `token_kind`), their ``names``, and ``metrics``: each with
        ``title``, ``axis``, ``start`` (where all paths begin, or None), ``ranks``, and ``views``:
        name, ``layers``,
        ``values`` (a list a token, by layer), ``classes`` (means over all sentences by word class)
        and ``beside`` (what the paths are set against).
    """
    rows = rows[rows["value"].notna() & (rows["position"] < MOST_TOKENS)]
    metrics = drawn_metrics(rows)
    if not metrics:
        return None
    text = sentence.texts[results.stack.queries]
    kinds = [token_kind(*each) for each in zip(text.tags, text.special, strict=True)]
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
                "views": [*_views(results, rows, metric)],
            }
            for metric in metrics
        ],
    }


def _views(results: StackResults, every: pd.DataFrame, metric: str) -> Iterator[dict[str, Any]]:
    """A metric's numbers by state and space, the first of each first."""
    rows = every[every["metric"] == metric]
    for space in _there(rows["space"], [*Space, ""]):
        for state in _there(rows["state"], [State.OUT, *State, ""]):
            own = rows[(rows["state"] == state) & (rows["space"] == space)]
            if own.empty:
                continue
            table = own.pivot(index="position", columns="layer", values="value")
            layers = [int(layer) for layer in table.columns]
            names = [SPACES[Space(space)]] if space else []
            names += [STATES[State(state)]] if state else []
            yield {
                "name": ", ".join(names),
                "layers": layers,
                "values": [_numbers(line) for line in table.to_numpy(float)],
                "classes": _classes(results, metric, state, space, layers),
                "beside": _beside(every, metric, state, space),
            }


def _there(values: pd.Series, order: list[Any]) -> list[str]:
    found = set(values.fillna(""))
    return [each for each in dict.fromkeys(map(str, order)) if each in found]


def _numbers(values: "np.typing.NDArray[np.float64]") -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.4g}") for value in values]


def _classes(
    results: StackResults, metric: str, state: str, space: str, layers: list[int]
) -> dict[str, list[float | None]]:
    """Means over all sentences by word class and layer, where they are known."""
    table = results.study.layers
    mine = table[(table["stack"] == results.stack.name) & (table["metric"] == metric)]
    mine = mine[mine["view"].fillna("") == ""]
    found = {}
    for label, name in CLASSES.items():
        wanted = "/".join(part for part in (state, space, label) if part)
        of_class = mine[mine["label"] == wanted].set_index("layer")["value"]
        values = of_class.reindex(layers).to_numpy(float)
        if not np.isnan(values).all():
            found[name] = _numbers(values)
    return found


def _beside(every: pd.DataFrame, metric: str, state: str, space: str) -> dict[str, Any]:
    """What a metric is set against: means over the sentence's tokens, by layer."""
    known = all_metrics()[metric]
    found = {}
    for name in known.beside if isinstance(known, TokenMetric) else ():
        of_it = every[(every["metric"] == name) & (every["state"] == state)]
        spaces = set(of_it["space"])
        of_it = of_it[of_it["space"] == (space if space in spaces else min(spaces, default=""))]
        if len(of_it):
            found[BESIDE[name]] = _numbers(of_it.groupby("layer")["value"].mean().to_numpy(float))
    return found


def token_kind(tag: str, special: bool) -> str:
    """What a token is drawn as: a content word, a function word, a mark or something else."""
    if tag == "PUNCT":
        return "punctuation"
    if special or not tag:
        return "other"
    return "content word" if tag in CONTENT else "function word" if tag in FUNCTION else "other"
