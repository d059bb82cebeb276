"""The paths of a sentence's tokens through the layers, as charts."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from headbook.charts import BASELINE, Figure, trajectories
from headbook.metrics import all_metrics
from headbook.metrics.base import TokenMetric
from headbook.stored.shown import ShownText
from headbook.terms import CONTENT, FUNCTION, Space, Stack, State
from headbook.views.text import distinct
from headbook.wording import STACKS, first_of, option_name, sentence_file, visible

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
AFTER = 1_000_000  # place of the first of them among the tokens


def figures(
    rows: pd.DataFrame, stack: Stack, sentence_number: int, text: ShownText
) -> Iterator[Figure]:
    """The paths of the tokens: one chart a metric.

    Args:
        rows: of `headbook.stored.shown.TOKENS`, of one stack and sentence.
    """
    rows = rows[rows["value"].notna()]
    there = set(rows["metric"])
    for metric in [metric for metric in AXES if metric in there]:
        yield _paths(rows, metric, stack, sentence_number, text)


def _paths(every: pd.DataFrame, metric: str, stack: Stack, number: int, text: ShownText) -> Figure:
    rows = every[every["metric"] == metric]
    layers = sorted({int(layer) for layer in rows["layer"]})
    kinds = np.array(list(map(token_kind, text.tags, text.special)))
    names = np.array([visible(piece) for piece in distinct(text.pieces)])
    position = rows["position"].to_numpy(int)
    frame = pd.DataFrame(
        {
            "position": position,
            "token": names[position],
            "kind": kinds[position],
            "step": rows["layer"].astype(int).astype(str).to_numpy(),
            "value": rows["value"].to_numpy(float).round(4),
            "state": rows["state"].to_numpy(str),
            "space": rows["space"].to_numpy(str),
        }
    )
    beside = _beside(every, frame, metric)
    frame = pd.concat([frame, *beside], ignore_index=True)
    steps = [*map(str, layers)]
    if metric in START:
        frame = pd.concat([_inputs(frame, START[metric]), frame], ignore_index=True)
        steps = [str(State.INPUT), *steps]
    shown = {"state": first_of(frame["state"], State), "space": first_of(frame["space"], Space)}
    about = ", ".join(option_name(key, value) for key, value in shown.items() if value)
    caption = (
        f"{all_metrics()[metric].title} of each token of sentence {number} through the layers "
        f"({STACKS[stack.name]}; {about})."
    )
    if beside:
        caption += " Dashed: overlap with another token (mean), and expected by chance."
    name = f"{metric}-{stack.name}-{sentence_file(number)}"
    title, ranks = AXES[metric], metric in RANKS
    return trajectories(name, caption, frame, title=title, steps=steps, show=shown, ranks=ranks)


def _beside(every: pd.DataFrame, frame: pd.DataFrame, metric: str) -> list[pd.DataFrame]:
    """What a metric is set against, as paths of their own; in every space of the metric."""
    known = all_metrics()[metric]
    companions = known.beside if isinstance(known, TokenMetric) else ()
    found = []
    for place, name in enumerate(companions):
        of_it = every[every["metric"] == name]
        means = of_it.groupby(["layer", "state", "space"], as_index=False)["value"].mean()
        if set(means["space"]) != set(frame["space"]):
            means = means.drop(columns="space").merge(frame[["space"]].drop_duplicates(), "cross")
        if len(means):
            means["value"] = means["value"].round(4)
            means["step"] = means["layer"].astype(int).astype(str)
            means = means.assign(position=AFTER + place, token=BESIDE[name], kind=BASELINE)
            found.append(means[[*frame.columns]])
    return found


def _inputs(frame: pd.DataFrame, value: float) -> pd.DataFrame:
    """Where every path begins: the input state itself."""
    first = frame.drop_duplicates(["position", "state", "space"])
    return first.assign(step=str(State.INPUT), value=value)


def token_kind(tag: str, special: bool) -> str:
    """What a token is drawn as: a content word, a function word, a mark or something else."""
    if tag == "PUNCT":
        return "punctuation"
    if special or not tag:
        return "other"
    return "content word" if tag in CONTENT else "function word" if tag in FUNCTION else "other"
