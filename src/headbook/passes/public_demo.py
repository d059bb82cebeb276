"""The computation of the public demo that explored RoBERTa, on one sentence, beside our own.

The demo (github.com/danavery/attention-encodings, commit 400b228) adds to a layer's input its own
recomputation of the attention output: it multiplies by the stored weights of values and outputs
without transposing them, and leaves out both biases. It compares the sums with word embeddings plus
the embedding of position 0, whatever the position of the token, without types and without a norm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.attention.views import ViewMasks
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.devices import read_weight
from headbook.model.embedding import Embedding
from headbook.model.head_weights import HeadWeights, find_head_weights
from headbook.model.load import Model
from headbook.model.vocabulary import MAX_BLOCK_SCORES, compare_with_vocabulary
from headbook.passes.observers import BatchObserver, PassResults
from headbook.schema import ResidualPoint, Side
from headbook.study.sentence_data import SentenceData
from headbook.text.batch import Batch

STACK = "self"
POSITIONS = "embeddings.position_embeddings"  # path from the base model in BERT and its relatives


class DemoWeights(NamedTuple):
    """Weights that the demo reads.

    Attributes:
        maps: maps of values and of outputs of each layer, with weights ``(width, width)``.
        encodings: encodings of the vocabulary. *Shape:* ``(entry, width)``.
    """

    maps: tuple[tuple[torch.nn.Linear, torch.nn.Linear], ...]
    encodings: torch.Tensor


def demo_weights(
    model: Model, architecture: Architecture, embeddings: Mapping[Side, Embedding]
) -> DemoWeights | None:
    """Return the weights that the demo reads; None for models that are not like BERT.

    The model needs two square maps in each layer, one for the values of all heads and one for their
    outputs, since others cannot be multiplied untransposed, and embeddings of positions.
    """
    stack, modules = architecture.stacks.get(STACK), dict(model.base_model.named_modules())
    positions, vocabulary = modules.get(POSITIONS), embeddings[Side.SOURCE].vocabulary
    if stack is None or stack.causal or vocabulary is None or not architecture.hooked:
        return None
    words = vocabulary.embedding
    if not isinstance(positions, torch.nn.Embedding):
        return None
    if positions.weight.shape[1] != words.shape[1]:
        return None
    found = find_head_weights(model, architecture)
    maps = [
        _square_maps(found[place], modules, words.shape[1])
        for place in architecture.calls
        if place.stack == STACK
    ]
    known = tuple(each for each in maps if each is not None)
    if len(known) != stack.n_layers:
        return None
    # Position 0 has the first row behind that of the padding.
    first = 0 if positions.padding_idx is None else positions.padding_idx + 1
    return DemoWeights(known, words + read_weight(positions)[first].detach().to(words))


def _square_maps(
    weights: HeadWeights, modules: Mapping[str, torch.nn.Module], width: int
) -> tuple[torch.nn.Linear, torch.nn.Linear] | None:
    """Return the maps of values and outputs of a layer; None unless both are plain and square."""
    if isinstance(weights.value_output, str):
        return None
    rows, output = weights.value_output
    value_map, output_map = modules[rows.name], modules[output]
    in_order = torch.equal(rows.rows.flatten().cpu(), torch.arange(width))
    if type(value_map) is not torch.nn.Linear or type(output_map) is not torch.nn.Linear:
        return None
    is_square = {value_map.weight.shape, output_map.weight.shape} == {(width, width)}
    return (value_map, output_map) if is_square and in_order else None


@dataclass(frozen=True)
class PublicDemo:
    """Observer that repeats the demo's computation on one sentence.

    Attributes:
        weights: weights that the demo reads.
        index: index of the sentence.
    """

    weights: DemoWeights
    index: int

    def observe(self, batch: Batch) -> BatchObserver | None:
        """Return callbacks that compute cosines and ranks; None without the sentence."""
        rows = np.flatnonzero(batch.index == self.index)
        if not len(rows):
            return None
        row, texts = int(rows[0]), batch.texts[Side.SOURCE]
        valid = texts.valid[row]
        ids, like = texts.ids[row, valid], texts.share
        state, attention = torch.empty(0), torch.empty(0)
        layers: list[NDArray[np.float32]] = []

        def attend(place: AttentionPlace, call: attention_hook.AttentionCall, _: ViewMasks) -> None:
            nonlocal attention
            if place.stack == STACK:
                attention = call.weights[row][:, valid][:, :, valid].to(like)

        def see(stack: str, layer: int, point: ResidualPoint, vectors: torch.Tensor) -> None:
            nonlocal state
            if stack == STACK and point is not ResidualPoint.MID:
                if point is ResidualPoint.POST:
                    sums = demo_sums(state, attention, *self.weights.maps[layer])
                    layers.append(self._compared(sums, ids))
                state = vectors[row, valid].to(like)

        def results() -> PassResults:
            found = {(STACK, self.index): np.stack(layers, 1)}
            return PassResults(sentence_data_parts=(SentenceData(public_demo=found),))

        return BatchObserver(results, attend, see)

    def _compared(self, sums: torch.Tensor, ids: torch.Tensor) -> NDArray[np.float32]:
        """Return cosine to the own encoding and number of nearer entries. *Shape:* ``(2, n)``."""
        encodings = torch.nn.functional.normalize(self.weights.encodings, dim=-1)
        size = max(1, MAX_BLOCK_SCORES // len(encodings))
        parts: list[Sequence[torch.Tensor]] = []
        for rows, own in zip(sums.split(size), ids.split(size), strict=True):
            scores = torch.nn.functional.normalize(rows, dim=-1) @ encodings.T
            cosine = scores.gather(1, own[:, None])[:, 0]
            parts.append((cosine, compare_with_vocabulary(scores, own, 1).ranks))
        both = torch.stack([torch.cat(each) for each in zip(*parts, strict=True)])
        return both.float().cpu().numpy()


def demo_sums(
    state: torch.Tensor,
    attention: torch.Tensor,
    value_map: torch.nn.Linear,
    output_map: torch.nn.Linear,
) -> torch.Tensor:
    """Return the layer's input plus the demo's attention output. *Shape:* ``(token, width)``.

    Args:
        state: input of the layer. *Shape:* ``(token, width)``.
        attention: attention weights. *Shape:* ``(head, token, token)``.
        value_map, output_map: maps of the layer; their weights are not transposed.
    """
    values = (state @ read_weight(value_map).detach().to(state)).unflatten(-1, (len(attention), -1))
    mixed = torch.einsum("hqk,khd->qhd", attention, values).flatten(1)
    return state + mixed @ read_weight(output_map).detach().to(state)
