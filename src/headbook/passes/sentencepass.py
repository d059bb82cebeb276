"""The sentence pass: a second pass over the sentences that pages show, keeping their attention."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats
from headbook.attention.outputs import HeadOutputs
from headbook.attention.scopes import Scopes
from headbook.model import hook
from headbook.model.architecture import Architecture, Call
from headbook.passes.retrace import SoftmaxInput, layer_queries_and_keys
from headbook.passes.watch import PassResults, Watch
from headbook.study.exemplars import Choice
from headbook.study.querykeys import Place, QueriesAndKeys, complete
from headbook.study.sentencedata import Exemplar, Ranking, SentenceData, StoredSentence, to_steps
from headbook.terms import View
from headbook.text.batch import Batch
from headbook.text.tokens import Encoded

FIRST = (Ranking.STRONGEST, 1)  # the exemplars of which it is kept what heads write


class SentencePass:
    """Keeps texts and attention maps of batches.

    Args:
        paged: indices of the sentences that pages show; others are passed over.
        listed: indices of the sentences with a page of their own; all their maps are kept.
        choices: the exemplars; of other sentences only the heads' maps that chose them are kept.
        alike: whether to keep for which tokens of its first exemplar a head writes the same.
        traced: indices of the sentences whose queries and keys are kept.
    """

    def __init__(
        self,
        architecture: Architecture,
        paged: Collection[int],
        listed: Collection[int],
        choices: Iterable[Choice],
        *,
        alike: bool = False,
        traced: Collection[int] = (),
    ) -> None:
        self.architecture, self._paged, self.listed = architecture, paged, listed
        self.alike, self.traced = alike, traced
        self._choices: dict[tuple[str, int, int], list[Choice]] = defaultdict(list)
        for choice in choices:
            self._choices[choice.head.stack, choice.head.layer, choice.index].append(choice)

    def watch(self, batch: Batch) -> Watch | None:
        """What pages show of a batch's attention."""
        items = {row: i for row, i in enumerate(batch.items) if i.sentence.index in self._paged}
        if not items:
            return None
        seen = _Seen(self, batch, items)
        return Watch(seen.found, seen.attend, within=seen.softmax if seen.traced else None)

    def kept(self, place: Call, index: int) -> Sequence[Choice]:
        """The exemplars that heads of one layer have in a sentence."""
        return self._choices.get((place.stack, place.layer, index), ())


class _Seen:
    """What pages show of one batch, filled layer by layer.

    Attributes:
        traced: whether queries and keys of a sentence are kept.
        softmax: tells what the model's softmax was given.
    """

    def __init__(
        self, sentence_pass: SentencePass, batch: Batch, items: Mapping[int, Encoded]
    ) -> None:
        self._sentence_pass, self._batch, self._items = sentence_pass, batch, items
        self._stacks = sentence_pass.architecture.stacks
        self._maps = self._empty_maps()
        self._norms: dict[tuple[str, int], NDArray[np.float32]] = {}
        self._ends: dict[tuple[str, int], NDArray[np.uint8]] = {}
        self._exemplars: list[Exemplar] = []
        self._queries_and_keys: dict[Place, QueriesAndKeys] = {}
        self.traced = any(item.sentence.index in sentence_pass.traced for item in items.values())
        self.softmax = SoftmaxInput()

    def attend(self, place: Call, attention: hook.Attention, scopes: Scopes) -> None:
        """Take in one layer."""
        stack = self._stacks[place.stack]
        views = scopes.views(place.stack, attention)
        if self.traced:
            given, frame = self.softmax.last, views[View.RAW].frame
            wanted = self._sentence_pass.traced
            self._queries_and_keys.update(
                layer_queries_and_keys(place, attention, given, frame, self._batch, wanted=wanted)
            )
        outputs = HeadOutputs(views[View.RAW])
        if self._sentence_pass.alike and not stack.crosses and attention.value is not None:
            self._mark_ends(place, outputs)
        steps = to_steps(attention.weights.float().cpu().numpy())
        for row, item in self._items.items():
            n_queries, n_keys = len(item.tokens[stack.queries]), len(item.tokens[stack.keys])
            cells = steps[row, :, :n_queries, :n_keys]
            # Behind a gate there is no one length for all queries.
            norms = views[View.RAW].maps.value_norms if attention.factor is None else None
            lengths = None if norms is None else norms[row, :, :n_keys].float().cpu().numpy()
            self._keep_maps(place, item.sentence.index, cells, lengths)
            self._keep_exemplars(place, row, cells, lengths, outputs)

    def _keep_maps(
        self, place: Call, index: int, cells: NDArray[np.uint8], lengths: Floats | None
    ) -> None:
        """All heads of a listed sentence."""
        if (place.stack, index) not in self._maps:
            return
        maps = self._maps[place.stack, index]
        maps[place.layer, : len(cells)] = cells
        if lengths is not None:
            empty = np.zeros((*maps.shape[:2], maps.shape[3]), np.float32)
            room = self._norms.setdefault((place.stack, index), empty)
            room[place.layer, : len(cells)] = lengths

    def _keep_exemplars(
        self,
        place: Call,
        row: int,
        cells: NDArray[np.uint8],
        lengths: Floats | None,
        outputs: HeadOutputs,
    ) -> None:
        """The heads of a layer that chose a sentence."""
        choices = self._sentence_pass.kept(place, self._items[row].sentence.index)
        first = {c.head.head for c in choices if (c.ranking, c.rank) == FIRST}
        by_head: dict[int, Exemplar] = {}  # however many rankings chose one, its arrays are shared
        for choice in choices:
            head = choice.head.head
            if head not in by_head:
                exemplar = _exemplar(choice, outputs.layer.maps.kept[row, head], cells[head])
                if lengths is not None:
                    exemplar = replace(exemplar, norms=lengths[head].copy())
                if self._sentence_pass.alike and head in first:
                    alike = to_steps((outputs.alike(row, head) + 1) / 2)
                    exemplar = replace(exemplar, written=alike)
                by_head[head] = exemplar
            self._exemplars.append(
                replace(by_head[head], ranking=choice.ranking, rank=choice.rank, score=choice.score)
            )

    def _mark_ends(self, place: Call, outputs: HeadOutputs) -> None:
        """Keep where the sentences of listed passages may end, by one layer."""
        stack = self._stacks[place.stack]
        joined = outputs.frame.queries.joined.squeeze(1).tolist()
        if not any(joined):
            return
        marks = outputs.ends_by_token().cpu().numpy()
        for row, item in self._items.items():
            index, n = item.sentence.index, len(item.tokens[stack.queries])
            if joined[row] and index in self._sentence_pass.listed:
                empty = np.zeros((stack.n_layers, marks.shape[1], n), np.uint8)
                self._ends.setdefault((stack.name, index), empty)[place.layer] = marks[row, :, :n]

    def _empty_maps(self) -> dict[tuple[str, int], NDArray[np.uint8]]:
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
            for name, stack in self._stacks.items()
            for item in self._items.values()
            if item.sentence.index in self._sentence_pass.listed
        }

    def found(self) -> PassResults:
        """All that is kept."""
        listed = self._sentence_pass.listed
        sentence_data = SentenceData(
            sentences={
                item.sentence.index: StoredSentence.of(item, listed=item.sentence.index in listed)
                for item in self._items.values()
            },
            maps=self._maps,
            norms=self._norms,
            ends=self._ends,
            exemplars=tuple(self._exemplars),
            queries_and_keys=complete(self._queries_and_keys, self._stacks),
        )
        return PassResults(sentence_data_parts=(sentence_data,))


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
