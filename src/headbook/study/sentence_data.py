"""Data of single sentences for pages: texts, maps, exemplars, token tables, queries and keys.

Also the sample of maps for comparisons. Its sentences are chosen by the hashes of their texts, so
that studies of the same sentences by different models have maps of the same ones.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.arrays import Ints
from headbook.analysis.rounded_vectors import RoundedVectors, rounded_vectors
from headbook.inputs import Region
from headbook.schema import PAIR_REGIONS, SPECIAL_ROLES, AttentionStack, HeadName, Side
from headbook.study.token_outputs import TokenOutputs
from headbook.text.aligned_words import GOLD, AlignedText, aligned_text
from headbook.text.tokens import TokenizedSentence, TokenizedText

MAX_QUERY_KEY_BYTES = 16_000_000  # bytes of a sentence's queries and keys in one stack
BASE64 = 4 / 3  # bytes of a file of scripts for each byte of numbers
FLOAT32_BYTES = np.dtype(np.float32).itemsize

T = TypeVar("T")
LayerKey = tuple[str, int, int]  # stack, index of the sentence, layer


@dataclass(frozen=True)
class QueriesAndKeys:
    """Queries and keys of one layer for one sentence, to compute its attention weights again.

    The weight of a pair is the softmax, over the keys that its query sees, of query times key
    times ``scaling`` plus ``added``.

    Attributes:
        queries: queries after rotary positions, in float32. *Shape:* ``(head, query, width)``.
        keys: keys after rotary positions, in float32; key head ``head * n_key_heads // n_heads``
            serves a head. *Shape:* ``(key_head, key, width)``.
        scaling: factor of the products. *Shape:* ``()``.
        added: bias that the model adds to scaled products, such as a position bias; empty without
            one. *Shape:* ``(head, query, key)``.
        seen: mask of the keys that a query sees, 0 or 1. *Shape:* ``(query, key)``.
    """

    queries: NDArray[np.float32]
    keys: NDArray[np.float32]
    scaling: NDArray[np.float64]
    added: NDArray[np.float32]
    seen: NDArray[np.uint8]

    def rounded(self) -> RoundedVectors:
        """Return queries and keys as the integers that pages have."""
        return rounded_vectors(self.queries, self.keys, float(self.scaling), self.added, self.seen)

    @property
    def site_bytes(self) -> float:
        """Bytes of the file that pages read."""
        return BASE64 * (self.rounded().n_bytes + self.added.nbytes + self.seen.nbytes)


def bytes_needed(stack: AttentionStack, n_queries: int, n_keys: int) -> int:
    """Return the bytes of a sentence's queries and keys in all layers, from its token counts."""
    rows = stack.n_heads * n_queries + stack.n_key_heads * n_keys
    return len(stack.attention_layers) * rows * stack.head_width * FLOAT32_BYTES


def complete_layers(
    by_layer: Mapping[LayerKey, T], stacks: Mapping[str, AttentionStack]
) -> dict[LayerKey, T]:
    """Return the numbers of layers of the sentences and stacks that have all layers."""
    all_layers = {name: set(stack.attention_layers) for name, stack in stacks.items()}
    stored_layers: dict[tuple[str, int], set[int]] = {}
    for name, index, layer in by_layer:
        stored_layers.setdefault((name, index), set()).add(layer)
    return {
        key: of_layer
        for key, of_layer in by_layer.items()
        if stored_layers[key[:2]] == all_layers[key[0]]
    }


UINT8_STEPS = 255  # steps between 0 and 1 in which attention weights are stored
APART = "‖"  # between the two texts of a pair in one line
# Columns of the tables of single sentences: place of a state, then its numbers.
STATE_COLUMNS = ("sentence", "position", "token", "stack", "layer", "state")
TOKEN_COLUMNS = (*STATE_COLUMNS, "metric", "space", "value")
NEAREST_COLUMNS = (*STATE_COLUMNS, "space", "rank", "neighbour", "cosine", "mark")
# Two uses of a word, by the number of a sentence and the position of the word in it.
USE_COLUMNS = (
    "word", "sentence", "position", "other_sentence", "other_position", "stack", "layer", "cosine",
    "different_words",
)  # fmt: skip
MAX_USES = 4  # uses of a word that are compared two by two: those in the first sentences
OWN, SPECIAL = "own", "special"  # marks of nearest tokens: the token itself, special tokens
NUMBER_COLUMNS = ("sentence", "other_sentence")  # columns with the number of a sentence
# Columns by which tables of tokens are sorted, as far as a table has them.
SORT_COLUMNS = (
    "sentence", "stack", "position", "other_sentence", "layer", "state", "metric", "space", "rank",
)  # fmt: skip
LOGIT_LENS_SPACE = "logits"  # space of tokens from the logit lens; `cosine` is their probability


class Ranking(StrEnum):
    """Rankings and quantiles by which exemplars are chosen.

    The first four share a ranking, by the largest single weight without the sink.
    """

    STRONGEST = "strongest"
    Q90 = "q90"
    Q75 = "q75"
    MEDIAN = "median"
    MASS = "mass"
    """Mean attention of queries to keys outside the sink."""
    VARIABILITY = "variability"
    """Share of the sentence in the head's attention variability."""


BY_WEIGHT = (Ranking.STRONGEST, Ranking.Q90, Ranking.Q75, Ranking.MEDIAN)


@dataclass(frozen=True)
class StoredText:
    """The text of one side of a sentence, with a value for each token in most fields.

    Attributes:
        text: the text itself.
        pieces: tokens in the text's own spelling.
        spans: character offsets of each token.
        special: whether each token is a special token.
        words: index of each token's word, -1 without one.
        tags: part of speech of each token's word, empty without one.
        lost: number of tokens cut off at the end.
        generated: whether the model wrote the text.
        heads: index of each word's syntactic head, `NO_HEAD` without one; empty without a tree.
        relations: relation of each word to its head; empty without a tree.
        parts: start and end of each sentence of a passage; empty for a single sentence.
        left_out: number of characters behind the cut tokens, which were not tokenized.
        separators: positions of special tokens that end a sentence, such as ``[SEP]``.
        regions: named parts of the text, such as the two texts of a pair.
    """

    text: str
    pieces: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    words: tuple[int, ...]
    tags: tuple[str, ...]
    lost: int
    generated: bool
    heads: tuple[int, ...] = ()
    relations: tuple[str, ...] = ()
    parts: tuple[tuple[int, int], ...] = ()
    left_out: int = 0
    separators: tuple[int, ...] = ()
    regions: tuple[Region, ...] = ()

    @classmethod
    def of(cls, tokens: TokenizedText) -> "StoredText":
        """Return the stored part of a tokenised text."""
        words = [int(w) for w in tokens.word]
        annotated = tokens.words if any(w.relation for w in tokens.words) else ()
        return cls(
            text=tokens.text,
            pieces=tokens.pieces,
            spans=tuple((int(start), int(end)) for start, end in tokens.spans),
            special=tuple(map(bool, tokens.special)),
            words=tuple(words),
            tags=tuple(tokens.words[w].upos if w >= 0 else "" for w in words),
            lost=tokens.lost,
            generated=tokens.generated,
            heads=tuple(w.head for w in annotated),
            relations=tuple(w.relation for w in annotated),
            parts=tokens.parts,
            left_out=tokens.left_out,
            separators=tuple(np.flatnonzero(tokens.separator).tolist()),
            regions=tokens.regions,
        )

    def role(self, position: int) -> str:
        """Return the role of a special token, as in `SPECIAL_ROLES`."""
        start, separator = SPECIAL_ROLES
        return separator if position in self.separators and position else start

    def whole_words(self, *, causal: bool) -> Iterator[int]:
        """Yield the positions of tokens that are whole words.

        In causal attention the first token is left out: its state is the same in every sentence.
        """
        n_tokens = Counter(self.words)
        for position in range(int(causal), len(self.pieces)):
            word = self.words[position]
            is_whole = word >= 0 and n_tokens[word] == 1 and self.pieces[position].strip()
            if is_whole and not self.special[position]:
                yield position

    @property
    def of_pair(self) -> tuple[tuple[int, int], ...]:
        """Character spans of the two texts of a pair; empty for another text."""
        is_pair = tuple(region.name for region in self.regions) == PAIR_REGIONS
        return tuple((region.start, region.end) for region in self.regions) if is_pair else ()

    @property
    def apart(self) -> str:
        """The text in one line, with `APART` between the two texts of a pair."""
        texts = [self.text[start:end] for start, end in self.of_pair]
        return f" {APART} ".join(texts or [self.text])

    def region_of(self, position: int) -> str:
        """Return the name of the region of a token; empty for special and other tokens."""
        start = self.spans[position][0]
        names = (region.name for region in self.regions if region.start <= start < region.end)
        return "" if self.special[position] else next(names, "")

    def sink(self, *, causal: bool) -> NDArray[np.bool_]:
        """Return the mask of sink tokens: special ones and, in a causal stack, the first."""
        mask = np.array(self.special, dtype=bool)
        mask[:1] |= causal
        return mask


@dataclass(frozen=True)
class StoredSentence:
    """A sentence with a page.

    Attributes:
        index: place in the input, counted from 0; pages and tables print ``index + 1``.
        id: name of the sentence in the input.
        metadata: values of the sentence by metadata column.
        texts: texts of the sentence by side.
        listed: whether the page has all heads; other pages have the heads that cite the sentence.
        half: split of the sentence, as of all numbers of heads.
    """

    index: int
    id: str
    metadata: Mapping[str, str]
    texts: Mapping[Side, StoredText]
    listed: bool
    half: int = 0

    @property
    def number(self) -> int:
        """Number of the sentence in tables and addresses."""
        return self.index + 1

    @classmethod
    def of(cls, item: TokenizedSentence, *, listed: bool, half: int) -> "StoredSentence":
        """Return the stored part of a tokenised sentence."""
        return cls(
            index=item.sentence.index,
            id=item.sentence.id,
            metadata=dict(item.sentence.metadata),
            texts={side: StoredText.of(tokens) for side, tokens in item.tokens.items()},
            listed=listed,
            half=half,
        )

    def aligned(self, side: Side) -> AlignedText:
        """Return the words of a side between which cross-attention is aligned."""
        text, by_space = self.texts[side], bool(self.metadata.get(GOLD))
        return aligned_text(
            text.text, text.pieces, text.spans, text.special, text.words, by_space=by_space
        )


@dataclass(frozen=True)
class Exemplar:
    """A sentence on the page of a head.

    Attributes:
        head: the head.
        ranking: ranking from which the sentence was chosen.
        rank: place in this ranking, from 1.
        index: place of the sentence in the input.
        score: number by which the ranking is ordered.
        query, key: positions of the largest single weight without the sink, for every ranking.
        attention: weights of the head in the raw view, in steps of 1/255. *Shape:*
            ``(query, key)``.
        norms: norm of each key's value after the head's part of W_O; empty if not known.
    """

    head: HeadName
    ranking: Ranking
    rank: int
    index: int
    score: float
    query: int
    key: int
    attention: NDArray[np.uint8]
    norms: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(frozen=True)
class SentenceData:
    """Data of single sentences for pages.

    Attributes:
        sentences: sentences with a page, by index.
        maps: attention of listed sentences in the raw view, by stack and index, in steps of 1/255.
            *Shape:* ``(layer, head, query, key)``.
        sources: source word with the largest weight of each target word of listed sentences, by
            stack and index, for cross-attention only, by the rows of
            `headbook.text.aligned_words.AlignmentRow`; `NO_SOURCE` if all weights are 0. *Shape:*
            ``(row, layer, head, word)``.
        exemplars: exemplars of all heads.
        tokens: a row for each number of a token; columns `TOKEN_COLUMNS`.
        nearest: a row for each nearest vocabulary token of a state; columns `NEAREST_COLUMNS`.
        uses: a row for every two uses of a word in listed sentences; columns `USE_COLUMNS`.
        norms: norm of each key's value after the head's part of W_O, for listed sentences, by
            stack and index; empty if not known. *Shape:* ``(layer, head, key)``.
        ends: tokens of a listed passage after which a sentence may end, by stack and index, 0 or 1;
            rules as in `headbook.schema.SEGMENTATION_RULES`. *Shape:* ``(layer, rule, token)``.
        rollouts: shares of all tokens in the last state of each token of a listed sentence, by
            stack, index and `RolloutKind`, in steps of 1/255. *Shape:* ``(token, token)``.
        queries_and_keys: queries and keys of the first listed sentences, by stack, index and layer.
        outputs: head outputs of listed sentences, by stack, index and layer.
        public_demo: for the first listed sentence, by stack and index, the cosine of each token to
            its own encoding and the number of nearer vocabulary entries, both by the computation
            of `headbook.passes.public_demo`. *Shape:* ``(2, layer, token)``.
    """

    sentences: Mapping[int, StoredSentence] = field(default_factory=dict)
    maps: Mapping[tuple[str, int], NDArray[np.uint8]] = field(default_factory=dict)
    sources: Mapping[tuple[str, int], NDArray[np.int32]] = field(default_factory=dict)
    exemplars: tuple[Exemplar, ...] = ()
    tokens: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*TOKEN_COLUMNS]))
    nearest: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*NEAREST_COLUMNS]))
    uses: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*USE_COLUMNS]))
    norms: Mapping[tuple[str, int], NDArray[np.float32]] = field(default_factory=dict)
    ends: Mapping[tuple[str, int], NDArray[np.uint8]] = field(default_factory=dict)
    rollouts: Mapping[tuple[str, int, str], NDArray[np.uint8]] = field(default_factory=dict)
    queries_and_keys: Mapping[LayerKey, QueriesAndKeys] = field(default_factory=dict)
    outputs: Mapping[LayerKey, TokenOutputs] = field(default_factory=dict)
    public_demo: Mapping[tuple[str, int], NDArray[np.float32]] = field(default_factory=dict)

    @property
    def listed(self) -> list[StoredSentence]:
        """Sentences with a page of all heads, in order."""
        return [sentence for sentence in self.sentences.values() if sentence.listed]

    @property
    def by_weight(self) -> list[Exemplar]:
        """Exemplars by the largest weight, which pages show; tables have all rankings."""
        return [exemplar for exemplar in self.exemplars if exemplar.ranking in BY_WEIGHT]

    @property
    def paged(self) -> list[StoredSentence]:
        """Sentences with a page, in order: listed sentences and those of exemplars by weight."""
        cited = {exemplar.index for exemplar in self.by_weight}
        stored = self.sentences.values()
        return [sentence for sentence in stored if sentence.listed or sentence.index in cited]

    @classmethod
    def join(cls, parts: "Sequence[SentenceData]") -> "SentenceData":
        """Return the data of several parts together."""
        field_names, all_parts = [f.name for f in fields(cls)], [cls(), *parts]
        return cls(
            **{
                name: _join_field([getattr(part, name) for part in all_parts])
                for name in field_names
            }
        )

    def __add__(self, other: "SentenceData") -> "SentenceData":
        return self.join([self, other])

    def sorted(self) -> "SentenceData":
        """Return the data in the order of tables and pages, for any batching of sentences."""
        return SentenceData(**{name: _sort_field(value) for name, value in vars(self).items()})

    def shifted(self, by: int) -> "SentenceData":
        """Return the data with sentence indices increased by ``by``."""
        return SentenceData(**{name: _shift_field(value, by) for name, value in vars(self).items()})


def _join_field(values: list[Any]) -> Any:
    """Return one field of several parts together; the first part is empty."""
    if isinstance(values[0], pd.DataFrame):
        not_empty = [table for table in values if len(table)]
        return pd.concat(not_empty, ignore_index=True) if not_empty else values[0]
    if isinstance(values[0], tuple):
        return tuple(chain.from_iterable(values))
    merged: dict[Any, Any] = {}
    for mapping in values:
        merged |= mapping
    return merged


def _sort_field(value: Any) -> Any:
    """Return one field with its rows, exemplars or keys in order."""
    if isinstance(value, pd.DataFrame):
        columns = [name for name in SORT_COLUMNS if name in value.columns]
        return value.sort_values(columns, kind="stable", ignore_index=True)
    if isinstance(value, tuple):
        return tuple(
            sorted(
                value,
                key=lambda exemplar: (
                    exemplar.head,
                    [*Ranking].index(exemplar.ranking),
                    exemplar.rank,
                ),
            )
        )
    return dict(sorted(value.items()))


def _shift_field(value: Any, by: int) -> Any:
    """Return one field with sentence indices increased by ``by``."""
    if isinstance(value, pd.DataFrame):
        columns = [name for name in NUMBER_COLUMNS if name in value.columns]
        return value.assign(**{name: value[name] + by for name in columns})
    if isinstance(value, tuple):
        return tuple(replace(exemplar, index=exemplar.index + by) for exemplar in value)
    if all(isinstance(key, int) for key in value):  # sentences by index
        return {key + by: replace(part, index=key + by) for key, part in value.items()}
    return {
        (stack, index + by, *rest_of_key): part
        for (stack, index, *rest_of_key), part in value.items()
    }


def to_uint8(weights: NDArray[Any]) -> NDArray[np.uint8]:
    """Return weights between 0 and 1, rounded to steps of 1/255."""
    steps: NDArray[np.uint8] = np.rint(np.clip(weights, 0, 1) * UINT8_STEPS).astype(np.uint8)
    return steps


def rows_by_sentence(table: pd.DataFrame) -> Callable[[int], pd.DataFrame]:
    """Return a function from a sentence's number to a copy of its rows."""
    row_indices = table.groupby("sentence", sort=False).indices
    no_rows = np.zeros(0, np.intp)
    return lambda sentence_number: table.iloc[row_indices.get(sentence_number, no_rows)]


MAX_MAPPED_SENTENCES = 64  # sentences in the sample of maps
MAX_SAMPLE_BYTES = 1 << 26  # bytes of all maps of the sample


@dataclass(frozen=True, eq=False)
class MappedSentence:
    """A sentence with its attention maps in all heads.

    Attributes:
        index: place of the sentence in the input.
        texts: text of each side.
        ids: vocabulary entries of each side's tokens.
        maps: attention in the raw view by stack, in half precision. *Shape:*
            ``(layer, head, query, key)``.
    """

    index: int
    texts: Mapping[Side, StoredText]
    ids: Mapping[Side, Ints]
    maps: Mapping[str, NDArray[np.float16]]


@dataclass(frozen=True, eq=False)
class MapSample:
    """Attention maps of the sentences with the smallest hashes, by which models are compared.

    Attributes:
        sentences: sentences by the hash of their texts, ascending.
    """

    sentences: Mapping[int, MappedSentence] = field(default_factory=dict)

    def __add__(self, other: "MapSample") -> "MapSample":
        merged = {**other.sentences, **self.sentences}
        return MapSample({key: merged[key] for key in sorted(merged)[:MAX_MAPPED_SENTENCES]})

    def shifted(self, by: int) -> "MapSample":
        """Return the sample with sentence indices increased by ``by``."""
        return MapSample(
            {
                key: MappedSentence(
                    sentence.index + by, sentence.texts, sentence.ids, sentence.maps
                )
                for key, sentence in self.sentences.items()
            }
        )
