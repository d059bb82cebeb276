"""Maps, exemplars, queries and keys of the sentences with pages, and maps for comparisons."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.attention.head_outputs import HeadOutputs
from headbook.attention.views import ViewMasks
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.passes.observers import BatchObserver, PassResults
from headbook.passes.queries_and_keys import SoftmaxInput, layer_queries_and_keys
from headbook.passes.token_outputs import token_outputs
from headbook.schema import AttentionStack, SinkView
from headbook.study.exemplars import ExemplarChoice
from headbook.study.sentence_data import (
    MAX_MAPPED_SENTENCES,
    MAX_SAMPLE_BYTES,
    Exemplar,
    LayerKey,
    MappedSentence,
    MapSample,
    QueriesAndKeys,
    SentenceData,
    StoredSentence,
    StoredText,
    complete_layers,
    to_uint8,
)
from headbook.study.token_outputs import MAX_OUTPUT_BYTES, TokenOutputs, output_bytes
from headbook.text.aligned_words import NO_SOURCE, AlignmentRow, strongest_sources
from headbook.text.batch import Batch, text_hash
from headbook.text.tokens import TokenizedSentence

WEIGHT_BYTES = 2  # of a stored attention weight


class MapSampler:
    """Collector of whole attention maps of a sample of sentences, over all batches of a pass.

    Args:
        items: candidate sentences; those with the smallest hashes are kept, within
            `MAX_SAMPLE_BYTES`.
    """

    def __init__(
        self, stacks: Mapping[str, AttentionStack], items: Iterable[TokenizedSentence]
    ) -> None:
        self._stacks = stacks
        by_key = {text_hash(item.texts): item for item in items}
        self._keys: dict[int, int] = {}  # by index
        self._maps: dict[tuple[int, str], NDArray[np.float16]] = {}
        self._items: dict[int, TokenizedSentence] = {}
        free_bytes = MAX_SAMPLE_BYTES
        for key in sorted(by_key)[:MAX_MAPPED_SENTENCES]:
            item = by_key[key]
            free_bytes -= sum(
                WEIGHT_BYTES * int(np.prod(self._shape(stack, item))) for stack in stacks.values()
            )
            if free_bytes < 0:
                break
            self._keys[item.sentence.index] = key

    @property
    def indices(self) -> frozenset[int]:
        """Indices of the sampled sentences in the input."""
        return frozenset(self._keys)

    def observe(self, batch: Batch) -> BatchObserver | None:
        """Store the maps of a batch's sampled sentences, or return None if the batch has none."""
        rows = {
            row: item for row, item in enumerate(batch.items) if item.sentence.index in self._keys
        }
        self._items.update({item.sentence.index: item for item in rows.values()})

        def attend(
            place: AttentionPlace, attention: attention_hook.AttentionCall, _: ViewMasks
        ) -> None:
            stack = self._stacks[place.stack]
            weights = attention.weights.float().cpu().numpy()
            for row, item in rows.items():
                shape = self._shape(stack, item)
                part = weights[row, :, : shape[2], : shape[3]]
                name = item.sentence.index, place.stack
                array = self._maps.setdefault(name, np.zeros(shape, np.float16))
                array[place.layer, : len(part)] = part

        return BatchObserver(PassResults, attend) if rows else None

    def sample(self) -> MapSample:
        """Return the stored maps of all sampled sentences."""
        by_key = {key: index for index, key in self._keys.items()}
        return MapSample({key: self._sentence(by_key[key]) for key in sorted(by_key)})

    def _sentence(self, index: int) -> MappedSentence:
        tokens = self._items[index].tokens
        return MappedSentence(
            index,
            {side: StoredText.of(text) for side, text in tokens.items()},
            {side: text.ids for side, text in tokens.items()},
            {name: self._maps[index, name] for name in self._stacks if (index, name) in self._maps},
        )

    @staticmethod
    def _shape(stack: AttentionStack, item: TokenizedSentence) -> tuple[int, int, int, int]:
        queries, keys = item.tokens[stack.queries], item.tokens[stack.keys]
        return stack.n_layers, stack.n_heads, len(queries), len(keys)


class SentencePass:
    """Observer that stores texts and attention maps of the sentences with pages.

    Args:
        paged: indices of the sentences that pages show; other sentences are skipped.
        listed: indices of the sentences with a page of their own, of which all maps are stored.
        choices: exemplars; of a sentence without a page, only maps of these heads are stored.
        alike: whether to store the ends of sentences that head outputs mark in listed passages.
        traced: indices of the sentences whose queries and keys are stored.
    """

    def __init__(
        self,
        architecture: Architecture,
        paged: Collection[int],
        listed: Collection[int],
        choices: Iterable[ExemplarChoice],
        *,
        alike: bool = False,
        traced: Collection[int] = (),
    ) -> None:
        self.architecture, self._paged, self.listed = architecture, paged, listed
        self.alike, self.traced = alike, traced
        self._choices: dict[tuple[str, int, int], list[ExemplarChoice]] = defaultdict(list)
        for choice in choices:
            self._choices[choice.head.stack, choice.head.layer, choice.index].append(choice)

    def observe(self, batch: Batch) -> BatchObserver | None:
        """Return callbacks that store a batch's maps, or None if no sentence has a page."""
        items = {
            row: item for row, item in enumerate(batch.items) if item.sentence.index in self._paged
        }
        if not items:
            return None
        maps = _SentenceMaps(self, batch, items)
        return BatchObserver(
            maps.results, maps.attend, within=maps.softmax if maps.traced else None
        )

    def kept(self, place: AttentionPlace, index: int) -> Sequence[ExemplarChoice]:
        """Return the exemplars that heads of one layer have in a sentence."""
        return self._choices.get((place.stack, place.layer, index), ())


class _SentenceMaps:
    """The texts, maps and exemplars of one batch, filled by layer.

    Attributes:
        traced: whether queries and keys of a sentence are stored.
        softmax: keeps the input of the model's softmax.
    """

    def __init__(
        self, sentence_pass: SentencePass, batch: Batch, items: Mapping[int, TokenizedSentence]
    ) -> None:
        self._sentence_pass, self._batch, self._items = sentence_pass, batch, items
        self._stacks = sentence_pass.architecture.stacks
        self._maps = self._empty_maps()
        self._sentences = {
            item.sentence.index: StoredSentence.of(
                item,
                listed=item.sentence.index in sentence_pass.listed,
                half=int(batch.half[row]),
            )
            for row, item in items.items()
        }
        self._sources: dict[tuple[str, int], NDArray[np.int32]] = {}
        self._norms: dict[tuple[str, int], NDArray[np.float32]] = {}
        self._ends: dict[tuple[str, int], NDArray[np.uint8]] = {}
        self._exemplars: list[Exemplar] = []
        self._queries_and_keys: dict[LayerKey, QueriesAndKeys] = {}
        self._outputs: dict[LayerKey, TokenOutputs] = {}
        self.traced = any(item.sentence.index in sentence_pass.traced for item in items.values())
        self.softmax = SoftmaxInput()

    def attend(
        self, place: AttentionPlace, attention: attention_hook.AttentionCall, scopes: ViewMasks
    ) -> None:
        """Store the maps, exemplars, queries and keys of one layer."""
        stack = self._stacks[place.stack]
        views = scopes.views(place.stack, attention)
        if self.traced:
            softmax_input, frame = self.softmax.last, views[SinkView.RAW].frame
            wanted = self._sentence_pass.traced
            self._queries_and_keys.update(
                layer_queries_and_keys(
                    place, attention, softmax_input, frame, self._batch, wanted=wanted
                )
            )
        outputs = HeadOutputs(views[SinkView.RAW])
        if self._sentence_pass.alike and not stack.crosses and attention.value is not None:
            self._mark_ends(place, outputs)
        weights = attention.weights.float().cpu().numpy()
        map_bytes = to_uint8(weights)
        for row, item in self._items.items():
            n_queries, n_keys = len(item.tokens[stack.queries]), len(item.tokens[stack.keys])
            cells = map_bytes[row, :, :n_queries, :n_keys]
            # With a gate, the norm of a value depends on the query, so that none is stored.
            norms = views[SinkView.RAW].maps.value_norms if attention.factor is None else None
            lengths = None if norms is None else norms[row, :, :n_keys].float().cpu().numpy()
            self._keep_maps(place, item.sentence.index, cells, lengths)
            self._keep_outputs(place, row, outputs)
            if stack.crosses:
                self._keep_sources(place, row, weights[row, :, :n_queries, :n_keys])
            has_choice = views[SinkView.NOSINK].scope.has_choice[row]
            self._keep_exemplars(place, row, cells, lengths, outputs, has_choice=has_choice)

    def _keep_maps(
        self, place: AttentionPlace, index: int, cells: NDArray[np.uint8], lengths: Floats | None
    ) -> None:
        """Store the maps and value norms of all heads for a listed sentence."""
        if (place.stack, index) not in self._maps:
            return
        maps = self._maps[place.stack, index]
        maps[place.layer, : len(cells)] = cells
        if lengths is not None:
            empty = np.zeros((*maps.shape[:2], maps.shape[3]), np.float32)
            array = self._norms.setdefault((place.stack, index), empty)
            array[place.layer, : len(cells)] = lengths

    def _keep_outputs(self, place: AttentionPlace, row: int, outputs: HeadOutputs) -> None:
        """Store the outputs of all heads of a layer for a listed sentence, unless too large."""
        item, stack = self._items[row], self._stacks[place.stack]
        name, n_queries = (place.stack, item.sentence.index), len(item.tokens[stack.queries])
        if name in self._maps and output_bytes(stack, n_queries) <= MAX_OUTPUT_BYTES:
            found = token_outputs(outputs, row, n_queries)
            if found is not None:
                self._outputs[(*name, place.layer)] = found

    def _keep_sources(self, place: AttentionPlace, row: int, weights: NDArray[np.float32]) -> None:
        """Store the source word with the largest weight of each target word of a listed sentence.

        Stored maps are too coarse for it: two keys may have the same step.
        """
        index, stack = self._items[row].sentence.index, self._stacks[place.stack]
        name = place.stack, index
        if name not in self._maps:
            return
        target, source = (self._sentences[index].aligned(s) for s in (stack.queries, stack.keys))
        shape = len(AlignmentRow), stack.n_layers, stack.n_heads, len(target.names)
        sources = self._sources.setdefault(name, np.full(shape, NO_SOURCE, np.int32))
        sources[:, place.layer, : len(weights)] = strongest_sources(weights, target, source)

    def _keep_exemplars(
        self,
        place: AttentionPlace,
        row: int,
        cells: NDArray[np.uint8],
        lengths: Floats | None,
        outputs: HeadOutputs,
        *,
        has_choice: torch.Tensor,
    ) -> None:
        """Store the map of every head of a layer for which a sentence is an exemplar."""
        choices = self._sentence_pass.kept(place, self._items[row].sentence.index)
        by_head: dict[int, Exemplar] = {}  # a head's rankings share the arrays of one exemplar
        for choice in choices:
            head = choice.head.head
            if head not in by_head:
                exemplar = _exemplar(
                    choice, outputs.layer.maps.kept[row, head], has_choice, cells[head]
                )
                if lengths is not None:
                    exemplar = replace(exemplar, norms=lengths[head].copy())
                by_head[head] = exemplar
            self._exemplars.append(
                replace(by_head[head], ranking=choice.ranking, rank=choice.rank, score=choice.score)
            )

    def _mark_ends(self, place: AttentionPlace, outputs: HeadOutputs) -> None:
        """Store which tokens of listed passages one layer marks as sentence ends."""
        stack = self._stacks[place.stack]
        joined = outputs.frame.queries.joined.squeeze(1).tolist()
        if not any(joined):
            return
        marks = outputs.ends_by_token().cpu().numpy()
        for row, item in self._items.items():
            index, n_queries = item.sentence.index, len(item.tokens[stack.queries])
            if joined[row] and index in self._sentence_pass.listed:
                empty = np.zeros((stack.n_layers, marks.shape[1], n_queries), np.uint8)
                self._ends.setdefault((stack.name, index), empty)[place.layer] = marks[
                    row, :, :n_queries
                ]

    def _empty_maps(self) -> dict[tuple[str, int], NDArray[np.uint8]]:
        """Return empty maps of all heads for the listed sentences."""
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

    def results(self) -> PassResults:
        """Return the stored data of this batch."""
        sentence_data = SentenceData(
            sentences=self._sentences,
            maps=self._maps,
            sources=self._sources,
            norms=self._norms,
            ends=self._ends,
            exemplars=tuple(self._exemplars),
            queries_and_keys=complete_layers(self._queries_and_keys, self._stacks),
            outputs=complete_layers(self._outputs, self._stacks),
        )
        return PassResults(sentence_data_parts=(sentence_data,))


def _exemplar(
    choice: ExemplarChoice,
    nosink: torch.Tensor,
    has_choice: torch.Tensor,
    steps: NDArray[np.uint8],
) -> Exemplar:
    """Return the exemplar of a head with its strongest query and key outside the sink.

    Args:
        nosink: weights with the sink masked. *Shape:* ``(query, key)``.
        has_choice: queries that count, unless none does. *Shape:* ``(query,)``, boolean.
    """
    counted = nosink.masked_fill(~has_choice[:, None], 0) if has_choice.any() else nosink
    query, key = divmod(int(counted.argmax()), nosink.shape[1])
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
