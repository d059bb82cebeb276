"""One sentence as a public demonstration computes it, beside the model's own activations.

The demonstration (D. Avery's exploration of RoBERTa, 2024-25) multiplies by value and output
matrices without transposing them, leaves out both biases, and compares with word embeddings plus
the embedding of position 0, for every token and without the embedding norm. Attention weights and
the inputs of layers are the model's own in both computations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

from headbook.metrics import ids as metric_ids
from headbook.model import hook
from headbook.model.architecture import Architecture, Call
from headbook.model.capture import forward, tapped
from headbook.model.model import Model, word_embedding
from headbook.model.vocabulary.vocabulary import Vocabulary
from headbook.model.weights.offload import weight_of
from headbook.study.sentencedata import AROUND, DEMONSTRATION, OWN, PUBLIC, SentenceData
from headbook.terms import Side, Space, State
from headbook.text.batch import Batch
from headbook.text.texts import Texts

VALUE, OUTPUT = "attention.self.value", "attention.output.dense"
POSITIONS = "embeddings.position_embeddings"
# Metrics that this is an aside to.
NEEDED = (metric_ids.COSINE_TO_INPUT, metric_ids.VOCABULARY_RANK)


def refusal(model: Model, architecture: Architecture) -> str:
    """Why the demonstration's computation does not fit a model; empty where it does."""
    kind = model.config.model_type
    if not architecture.hooked or list(architecture.layers) != ["self"]:
        return f"it is made for encoders like BERT, which '{kind}' is not"
    if len(architecture.ends.sites) < len(architecture.calls):
        return f"where attention blocks of '{kind}' end was not found"
    try:
        matrices = [
            m.get_submodule(p) for m in architecture.layers["self"] for p in (VALUE, OUTPUT)
        ]
        model.body.get_submodule(POSITIONS)
    except AttributeError:
        return f"'{kind}' keeps values, outputs or positions elsewhere than BERT does"
    words = word_embedding(model.body)
    width = 0 if words is None else words.shape[1]
    weights = [next(matrix.parameters()) for matrix in matrices]  # a linear module's first
    if any(weight.shape != (width, width) for weight in weights):
        return "value and output matrices are not as wide as word embeddings"
    return ""


@dataclass(eq=False)
class _Seen:
    """What both computations start from; *Shape:* ``(1, token, width)`` each, by layer.

    Attributes:
        attention: *Shape:* ``(1, head, token, token)``.
    """

    taken: list[torch.Tensor] = field(default_factory=list)
    mids: list[torch.Tensor] = field(default_factory=list)
    attention: list[torch.Tensor] = field(default_factory=list)


def demonstrate(
    model: Model, architecture: Architecture, batch: Batch, own: Vocabulary
) -> SentenceData:
    """Both computations of the one sentence of a batch.

    Args:
        own: the model's original encodings, with positions.
    """
    texts = batch.texts[Side.SOURCE]
    seen = _look(model, architecture, batch)
    embedding = own.embedding.to(texts.share)
    positions = model.body.get_submodule(POSITIONS)
    first = 0 if positions.padding_idx is None else positions.padding_idx + 1
    public = Vocabulary(embedding + weight_of(positions)[first].detach().to(embedding))
    demonstrated = torch.stack([*_public(architecture.layers["self"], seen)])
    start = public.embedding[texts.ids]
    frames = [
        _frame(PUBLIC, demonstrated, start, public, (texts, Space.RAW)),
        _frame(OWN, torch.stack(seen.mids), seen.taken[0], own, (texts, Space.POSITIONAL)),
    ]
    table = pd.concat(frames, ignore_index=True)
    pieces = np.array(batch.items[0].tokens[Side.SOURCE].pieces, dtype=object)
    table["token"] = pieces[table["position"]]
    table["sentence"] = batch.items[0].sentence.index + 1
    return SentenceData(demonstration=table[[*DEMONSTRATION]])


def _look(model: Model, architecture: Architecture, batch: Batch) -> _Seen:
    """One pass over the sentence."""
    seen, dtype = _Seen(), batch.texts[Side.SOURCE].share

    def on_attention(_: Call, call: hook.Attention) -> None:
        seen.attention.append(call.weights.to(dtype))

    def on_state(_: str, __: int, state: State, vectors: torch.Tensor) -> None:
        (seen.mids if state is State.MID else seen.taken).append(vectors.to(dtype))

    with tapped(model, architecture, on_state):
        forward(model, architecture, batch, on_attention)
    return seen


def _public(layers: Sequence[torch.nn.Module], seen: _Seen) -> Iterator[torch.Tensor]:
    """The states of the demonstration: nothing transposed, no bias."""
    # What the last layer gives is taken by none.
    for module, taken, weights in zip(layers, seen.taken, seen.attention, strict=False):
        value, output = (_weight(module, path, taken) for path in (VALUE, OUTPUT))
        heads = (taken @ value).unflatten(-1, (weights.shape[1], -1)).transpose(1, 2)
        yield taken + (weights @ heads).transpose(1, 2).flatten(2) @ output


def _weight(module: Any, path: str, like: torch.Tensor) -> torch.Tensor:
    return weight_of(module.get_submodule(path)).detach().to(like)


def _frame(
    computation: str,
    states: torch.Tensor,
    start: torch.Tensor,
    vocabulary: Vocabulary,
    where: tuple[Texts, Space],
) -> pd.DataFrame:
    """Cosine to the start, rank of the own entry, and neighbours kept, by layer and token.

    Args:
        states: *Shape:* ``(layer, 1, token, width)``.
    """
    near = vocabulary.compare(states, *where, min(AROUND, len(vocabulary.embedding)))
    ids = near.ids[:, 0]
    stayed = (ids[1:, :, :, None] == ids[:-1, :, None, :]).any(-1).double().mean(-1)
    values = {
        "cosine": torch.nn.functional.cosine_similarity(states, start[None], dim=-1)[:, 0],
        "rank": near.ranks[:, 0],
        "kept": torch.cat([torch.full_like(stayed[:1], torch.nan), stayed]),
    }
    n_layers, n_tokens = ids.shape[:2]
    frames = [
        pd.DataFrame(
            {
                "layer": np.repeat(np.arange(n_layers), n_tokens),
                "position": np.tile(np.arange(n_tokens), n_layers),
                "measure": name,
                "value": table.double().cpu().numpy().ravel(),
            }
        )
        for name, table in values.items()
    ]
    return pd.concat(frames, ignore_index=True).assign(computation=computation)
