"""The portrait: a second pass over the sentences that pages show, keeping their attention."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.measures.layerview import layer_views
from headbook.measures.maps import Maps
from headbook.measures.outputs import HeadOutputs
from headbook.network import hook
from headbook.network.anatomy import Anatomy, Call
from headbook.network.capture import Scopes, forward
from headbook.network.model import Model
from headbook.passes.retrace import SoftmaxInput, layer_scores
from headbook.stored.exemplars import Choice
from headbook.stored.scores import Place, Scores, complete
from headbook.stored.shown import Exemplar, Portrait, Ranking, ShownSentence, to_steps
from headbook.terms import View
from headbook.text.batch import Batch

FIRST = (Ranking.STRONGEST, 1)  # the exemplars of which it is kept what heads write


class Portrayer:
    """Keeps texts and attention maps of batches.

    Args:
        listed: indices of the sentences with a page of their own; all their maps are kept.
        choices: the exemplars; of other sentences only the heads' maps that chose them are kept.
        alike: whether to keep for which tokens of its first exemplar a head writes the same.
        traced: indices of the sentences whose queries and keys are kept.
    """

    def __init__(
        self,
        model: Model,
        anatomy: Anatomy,
        listed: Collection[int],
        choices: Iterable[Choice],
        *,
        alike: bool = False,
        traced: Collection[int] = (),
    ) -> None:
        self._model, self._anatomy, self._listed = model, anatomy, listed
        self._alike, self._traced = alike, traced
        self._choices: dict[tuple[str, int, int], list[Choice]] = defaultdict(list)
        for choice in choices:
            self._choices[choice.head.stack, choice.head.layer, choice.index].append(choice)

    def portray(self, batch: Batch) -> Portrait:
        """What pages show of a batch's attention."""
        scopes = Scopes(batch, self._anatomy.stacks)
        maps = self._empty_maps(batch)
        carried: dict[tuple[str, int], NDArray[np.float32]] = {}
        ends: dict[tuple[str, int], NDArray[np.uint8]] = {}
        exemplars: list[Exemplar] = []
        scores: dict[Place, Scores] = {}
        traced = any(item.sentence.index in self._traced for item in batch.items)
        softmax = SoftmaxInput()

        def on_attention(place: Call, attention: hook.Attention) -> None:
            stack = self._anatomy.stacks[place.stack]
            steps = to_steps(attention.weights.float().cpu().numpy())
            found = scopes.get(place.stack, attention)
            layer = Maps(found[View.NOSINK], attention)
            norms = layer.value_norms
            if traced:
                frame = found[View.RAW].frame
                given = softmax.last
                scores.update(
                    layer_scores(place, attention, given, frame, batch, wanted=self._traced)
                )
            outputs = HeadOutputs(layer_views(found, layer)[View.RAW])
            if self._alike and not stack.crosses and outputs.outputs is not None:
                self._mark_ends(ends, batch, place, outputs)
            for row, item in enumerate(batch.items):
                index = item.sentence.index
                n_queries, n_keys = len(item.tokens[stack.queries]), len(item.tokens[stack.keys])
                cells = steps[row, :, :n_queries, :n_keys]
                if (place.stack, index) in maps:
                    maps[place.stack, index][place.layer, : len(cells)] = cells
                    if norms is not None:
                        empty = np.zeros((stack.n_layers, stack.n_heads, n_keys), np.float32)
                        room = carried.setdefault((place.stack, index), empty)
                        room[place.layer, : len(cells)] = norms[row, :, :n_keys].float().cpu()
                choices = self._choices.get((place.stack, place.layer, index), ())
                first = {c.head.head for c in choices if (c.ranking, c.rank) == FIRST}
                for choice in choices:
                    head = choice.head.head
                    exemplar = _exemplar(choice, layer.kept[row, head], cells[head])
                    if norms is not None:
                        lengths = norms[row, head, :n_keys].float().cpu().numpy().copy()
                        exemplar = replace(exemplar, norms=lengths)
                    if self._alike and head in first:
                        alike = to_steps((outputs.alike(row, head) + 1) / 2)
                        exemplar = replace(exemplar, written=alike)
                    exemplars.append(exemplar)

        with softmax if traced else nullcontext():
            forward(self._model, self._anatomy, batch, on_attention)
        return Portrait(
            sentences={
                item.sentence.index: ShownSentence.of(
                    item, listed=item.sentence.index in self._listed
                )
                for item in batch.items
            },
            maps=maps,
            norms=carried,
            ends=ends,
            exemplars=tuple(exemplars),
            scores=complete(scores, self._anatomy.stacks),
        )

    def _mark_ends(
        self,
        ends: dict[tuple[str, int], NDArray[np.uint8]],
        batch: Batch,
        place: Call,
        outputs: HeadOutputs,
    ) -> None:
        """Keep where the sentences of listed passages may end, by one layer."""
        stack = self._anatomy.stacks[place.stack]
        joined = outputs.frame.queries.joined.squeeze(1).tolist()
        if not any(joined):
            return
        marks = outputs.ends_by_token().cpu().numpy()
        for row, item in enumerate(batch.items):
            index, n = item.sentence.index, len(item.tokens[stack.queries])
            if joined[row] and index in self._listed:
                empty = np.zeros((stack.n_layers, marks.shape[1], n), np.uint8)
                ends.setdefault((stack.name, index), empty)[place.layer] = marks[row, :, :n]

    def _empty_maps(self, batch: Batch) -> dict[tuple[str, int], NDArray[np.uint8]]:
        """Room for all heads of the listed sentences."""
        return {
            (name, item.sentence.index): np.zeros(
                (
                    stack.n_layers,
                    stack.n_heads,
                    len(item.tokens[stack.queries]),
                    len(item.tokens[stack.keys]),
                ),
                dtype=np.uint8,
            )
            for name, stack in self._anatomy.stacks.items()
            for item in batch.items
            if item.sentence.index in self._listed
        }


def _exemplar(choice: Choice, nosink: torch.Tensor, steps: NDArray[np.uint8]) -> Exemplar:
    """Find the strongest pair of one head in one sentence."""
    query, key = divmod(int(nosink.argmax()), nosink.shape[1])
    return Exemplar(
        head=choice.head,
        ranking=choice.ranking,
        rank=choice.rank,
        index=choice.index,
        score=choice.score,
        query=query,
        key=key,
        attention=steps.copy(),
    )
