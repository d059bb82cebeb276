"""Token metrics as their definitions read, from a bare model's own activations.

A metric's twin is found by the metric's id in `NAIVE_TOKENS`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bare_model import Bare
from naive import TAGS
from single_head import Text

Floats = NDArray[np.float64]
CONTENT = {"ADJ", "ADV", "INTJ", "NOUN", "NUM", "PROPN", "VERB"}
FUNCTION = {"ADP", "AUX", "CCONJ", "DET", "PART", "PRON", "SCONJ"}
CLASSES = (
    "all", "content", "function", "initial", "continuation", "special", "start", "separator", *TAGS,
)  # fmt: skip

# By model type and stack: the list of layers, the module whose output is added to a residual, and
# the module whose output that residual is, "" for what the layer takes. T5 adds inside the module.
PLACES = {
    ("bert", "self"): ("encoder.layer", "attention.output.dense", ""),
    ("gpt2", "self"): ("h", "attn", ""),
    ("llama", "self"): ("layers", "self_attn", ""),
    ("gemma3_text", "self"): ("layers", "post_attention_layernorm", ""),
    ("gpt_neox", "self"): ("layers", "attention", ""),
    ("t5", "encoder"): ("encoder.block", "layer.0", None),
    ("t5", "decoder"): ("decoder.block", "layer.0", None),
    ("t5", "cross"): ("decoder.block", "layer.1", None),
    ("bart", "encoder"): ("encoder.layers", "self_attn", ""),
    ("bart", "decoder"): ("decoder.layers", "self_attn", ""),
    ("bart", "cross"): ("decoder.layers", "encoder_attn", "self_attn_layer_norm"),
}


class Path(NamedTuple):
    """One stack's states of a sentence; each ``(token, width)``.

    Attributes:
        start: what enters layer 0.
        states: by layer and name of the state.
    """

    start: Floats
    states: dict[tuple[int, str], Floats]


def paths(bare: Bare, rows: Sequence[Sequence[int]]) -> dict[str, Path]:
    """Return the states of every stack, by its name."""
    taken, given = record(bare, rows)
    found = {}
    for (family, stack), (layers, block, residual) in PLACES.items():
        if family != bare.network.config.model_type:
            continue
        states = {}
        for layer in range(2):
            name = f"{layers}.{layer}"
            states[layer, "mid"] = given[f"{name}.{block}"]
            if residual is not None:
                added = given[f"{name}.{residual}"] if residual else taken[name]
                states[layer, "mid"] = states[layer, "mid"] + added
            if stack != "cross":
                states[layer, "out"] = given[name]
        found[stack] = Path(taken[f"{layers}.0"], states)
    return found


def record(
    bare: Bare, rows: Sequence[Sequence[int]]
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return what every module of the model took and gave, by its name."""
    taken: dict[str, Floats] = {}
    given: dict[str, Floats] = {}

    def listen(name: str) -> Callable[..., None]:
        def hook(_: Any, args: Any, kwargs: Any, output: Any) -> None:
            into = args[0] if args else kwargs.get("hidden_states")
            out = output if isinstance(output, torch.Tensor) else output[0]
            if isinstance(into, torch.Tensor):
                taken[name] = into.squeeze(0).numpy()
            given[name] = out.squeeze(0).numpy()

        return hook

    handles = [
        module.register_forward_hook(listen(name), with_kwargs=True)
        for name, module in bare.network.base_model.named_modules()
        if name
    ]
    try:
        bare.run(rows)
    finally:
        for handle in handles:
            handle.remove()
    return taken, given


def originals(bare: Bare, rows: Sequence[Sequence[int]], side: int) -> Floats:
    """Every entry at every position of one side, put there and taken where it enters layer 0.

    *Shape:* ``(token, entry, width)``.
    """
    family = bare.network.config.model_type
    stack = "decoder" if side else "encoder" if len(rows) == 2 else "self"
    first = bare.network.base_model.get_submodule(f"{PLACES[family, stack][0]}.0")
    handle = first.register_forward_pre_hook(_stop, with_kwargs=True)
    n_entries = len(bare.tokenizer)
    names = ("input_ids", "decoder_input_ids")
    per_place = []
    try:
        for position in range(len(rows[side])):
            ids = [torch.tensor([row]).repeat(n_entries, 1) for row in rows]
            ids[side][:, position] = torch.arange(n_entries)
            with torch.no_grad(), pytest.raises(Entered) as entered:
                bare.network.base_model(**dict(zip(names, ids, strict=False)))
            per_place.append(entered.value.vectors[:, position].numpy())
    finally:
        handle.remove()
    return np.stack(per_place)


class Entered(Exception):  # noqa: N818 - it carries what was looked for
    """Layer 0 has been reached; the rest of the pass is not needed."""

    def __init__(self, vectors: torch.Tensor) -> None:
        super().__init__()
        self.vectors = vectors


def _stop(_: Any, args: Any, kwargs: Any) -> None:
    raise Entered(args[0] if args else kwargs["hidden_states"])


def raw_table(bare: Bare) -> Floats:
    """Return the word embeddings of the tokenizer's entries."""
    weights: Floats = bare.network.get_input_embeddings().weight.detach().numpy()
    return weights[: len(bare.tokenizer)]


def cosines(state: Floats, table: Floats) -> Floats:
    """Cosine of a vector to every row."""
    found: Floats = table @ state / np.linalg.norm(table, axis=1) / np.linalg.norm(state)
    return found


class At(NamedTuple):
    """One state of one token.

    Attributes:
        table: the encodings to compare with, ``(entry, width)``; empty where none are needed.
        own: the token's own entry.
        before: the token's state of the same kind one layer earlier; of layer 0 what enters it.
        other: another token of the sentence in the same state, and the encodings at its place;
            None where there is no other.
    """

    state: Floats
    start: Floats
    table: Floats
    own: int
    before: Floats
    other: tuple[Floats, Floats] | None


def outlier_dimensions(vectors: list[Floats]) -> list[int]:
    """Dimensions whose mean over tokens is over 6 robust deviations from the median of means."""
    means = [float(np.mean([vector[d] for vector in vectors])) for d in range(len(vectors[0]))]
    middle = float(np.median(means))
    deviation = 1.4826 * float(np.median([abs(mean - middle) for mean in means]))
    far = [d for d, mean in enumerate(means) if abs(mean - middle) > 6 * deviation]
    return far if deviation else []


class Outliers(NamedTuple):
    """Outlier dimensions of a state, and of the state of the same kind one layer earlier."""

    here: list[int]
    before: list[int]


def without(at: At, outliers: Outliers, metric: Callable[[At], float]) -> float:
    """Return a metric without outlier dimensions; each state lacks its own ones."""
    if metric is neighbour_overlap:
        here, before = (
            nearest_hundred(np.delete(state, lacking), np.delete(at.table, lacking, axis=1))
            for state, lacking in ((at.state, outliers.here), (at.before, outliers.before))
        )
        return len(here & before) / min(100, len(at.table))
    state, start = (np.delete(vector, outliers.here) for vector in (at.state, at.start))
    table = np.delete(at.table, outliers.here, axis=1)
    return metric(at._replace(state=state, start=start, table=table))


def cosine_to_input(at: At) -> float:
    return float(cosines(at.state, at.start[None])[0])


def vocabulary_rank(at: At) -> float:
    found = cosines(at.state, at.table)
    return float(sum(found > found[at.own]))


def nearest_tokens(at: At) -> float:
    return float(max(cosines(at.state, at.table)))


def nearest_hundred(state: Floats, table: Floats) -> set[int]:
    return set(np.argsort(-cosines(state, table))[:100].tolist())


def neighbour_overlap(at: At) -> float:
    here, before = (nearest_hundred(state, at.table) for state in (at.state, at.before))
    return len(here & before) / min(100, len(at.table))


def neighbour_overlap_random(at: At) -> float:
    if at.other is None:
        return float("nan")
    shared = nearest_hundred(at.state, at.table) & nearest_hundred(*at.other)
    return len(shared) / min(100, len(at.table))


def neighbour_overlap_chance(at: At) -> float:
    return min(100, len(at.table)) / len(at.table)


def companion(text: Text, place: int) -> int | None:
    """Return the place of another token that is not special, by the sum of the sentence's ids."""
    inside = [i for i, token in enumerate(text.tokens) if not token.special]
    others = [i for i in inside if i != place]
    if not others:
        return None
    steps = 1 + sum(token.id for token in text.tokens) % max(len(inside) - 1, 1)
    before = sum(i <= place for i in inside)  # tokens up to here, this one among them
    return inside[(before - 1 + steps) % len(inside)]


NAIVE_TOKENS: dict[str, Callable[[At], float]] = {
    metric.__name__: metric
    for metric in (
        cosine_to_input,
        vocabulary_rank,
        nearest_tokens,
        neighbour_overlap,
        neighbour_overlap_random,
        neighbour_overlap_chance,
    )
}
AVERAGED: dict[str, Callable[[float], float]] = {
    "vocabulary_rank": lambda rank: float(np.log10(1 + rank))
}


def classes(text: Text) -> list[set[str]]:
    """Return the classes that each token of a text is averaged in."""
    found = []
    before: int | None = None
    for place, token in enumerate(text.tokens):
        names = {"all", token.tag} - {""}
        if token.special:
            names = {"special", "separator" if token.separator and place else "start"}
        names |= {"content"} if token.tag in CONTENT else set()
        names |= {"function"} if token.tag in FUNCTION else set()
        if token.word is not None:
            names.add("continuation" if token.word == before else "initial")
        before = token.word
        found.append(names)
    return found
