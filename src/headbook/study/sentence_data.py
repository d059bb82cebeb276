"""What pages show of single sentences.

Texts, maps, exemplars, token tables, queries and keys, maps for comparisons.

Which sentences these are follows from their texts alone, so that studies of the same sentences keep
the same ones, whatever their models are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.arrays import Ints
from headbook.schema import AttentionStack, Side
from headbook.text.tokens import TokenizedSentence, TokenizedText

MAX_QUERY_KEY_BYTES = 16_000_000  # of a sentence's queries and keys in one stack
NUMBER = np.dtype(np.float32).itemsize

Place = tuple[str, int, int]  # stack, index of the sentence, layer


@dataclass(frozen=True)
class QueriesAndKeys:
    """One layer of one stack over one sentence, so that its weights can be computed again.

    The weight of a pair is the softmax, over the keys that its query sees, of query times key
    times ``scaling`` plus ``added``.

    Attributes:
        queries: after rotary positions, in float32. *Shape:* ``(head, query, width)``.
        keys: likewise; key head ``head * n_key_heads // n_heads`` serves a head.
            *Shape:* ``(key_head, key, width)``.
        scaling: of the products, as the model has it. *Shape:* ``()``.
        added: by what the model changes scaled products before its softmax, such as a position
            bias; empty where it changes nothing. *Shape:* ``(head, query, key)``.
        seen: which keys a query sees, 0 or 1. *Shape:* ``(query, key)``.
    """

    queries: NDArray[np.float32]
    keys: NDArray[np.float32]
    scaling: NDArray[np.float64]
    added: NDArray[np.float32]
    seen: NDArray[np.uint8]


def bytes_needed(stack: AttentionStack, n_queries: int, n_keys: int) -> int:
    """Bytes of the queries and keys of a sentence with so many tokens, in all layers."""
    rows = stack.n_heads * n_queries + stack.n_key_heads * n_keys
    return len(stack.attention_layers) * rows * stack.head_width * NUMBER


def complete_layers(
    kept: Mapping[Place, QueriesAndKeys], stacks: Mapping[str, AttentionStack]
) -> dict[Place, QueriesAndKeys]:
    """Those of sentences of which a stack has all its layers."""
    known = {name: set(stack.attention_layers) for name, stack in stacks.items()}
    found: dict[tuple[str, int], set[int]] = {}
    for name, index, layer in kept:
        found.setdefault((name, index), set()).add(layer)
    return {
        place: queries_and_keys
        for place, queries_and_keys in kept.items()
        if found[place[:2]] == known[place[0]]
    }


UINT8_STEPS = 255  # an attention map's weights are stored in steps of 1/255
OF_A_STATE = ("sentence", "position", "token", "stack", "layer", "state")
TOKENS = (*OF_A_STATE, "metric", "space", "value")
NEAREST = (*OF_A_STATE, "space", "rank", "neighbour", "cosine")
# What tables of tokens are sorted by, each by those that it has.
ORDER = ("sentence", "stack", "position", "layer", "state", "metric", "space", "rank")
LOGITS = "logits"  # the space of entries that the logit lens gives; their number is a probability


class Ranking(StrEnum):
    """How an exemplar was chosen: from which ranking, and from where in it.

    The first four share a ranking, by the largest single weight without the sink.
    """

    STRONGEST = "strongest"
    Q90 = "q90"
    Q75 = "q75"
    MEDIAN = "median"
    MASS = "mass"
    """By the mean of what queries give to keys off the sink."""
    VARIABILITY = "variability"
    """By the share of the head's variability that the sentence makes."""


class HeadName(NamedTuple):
    """One head of a model; layer and head count from 0."""

    stack: str
    layer: int
    head: int


def heads_of(stack: AttentionStack) -> list[HeadName]:
    """The heads of a stack, layer by layer; layers without attention have none."""
    heads = range(stack.n_heads)
    return [HeadName(stack.name, layer, head) for layer in stack.attention_layers for head in heads]


@dataclass(frozen=True)
class StoredText:
    """One side of a sentence; lists are by token unless said otherwise.

    Attributes:
        pieces: tokens in the text's own spelling.
        spans: character offsets.
        words: the word of each token, -1 without one.
        tags: part of speech of each token's word, empty without one.
        lost: tokens cut off at the end.
        left_out: characters behind those tokens, which were not tokenized.
        generated: whether the model wrote the text.
        heads, relations: by word, the index of its head, `NO_HEAD` without one, and the relation to
            it; both empty for a text without a tree.
        parts: where the sentences of a passage begin and end; empty where it is all one.
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

    @classmethod
    def of(cls, tokens: TokenizedText) -> "StoredText":
        """The lasting part of a tokenised text."""
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
        )

    def sink(self, *, causal: bool) -> NDArray[np.bool_]:
        """Which tokens are a sink: special ones and, in a causal stack, the first."""
        found = np.array(self.special, dtype=bool)
        found[:1] |= causal
        return found


@dataclass(frozen=True)
class StoredSentence:
    """A sentence that pages show.

    Attributes:
        index: place in the input, counted from 0; pages and tables call it ``index + 1``.
        listed: whether its page has all heads; pages of others have those that cite it.
    """

    index: int
    id: str
    metadata: Mapping[str, str]
    texts: Mapping[Side, StoredText]
    listed: bool

    @property
    def number(self) -> int:
        """The sentence's number in tables and addresses."""
        return self.index + 1

    @classmethod
    def of(cls, item: TokenizedSentence, *, listed: bool) -> "StoredSentence":
        """The lasting part of a tokenised sentence."""
        return cls(
            index=item.sentence.index,
            id=item.sentence.id,
            metadata=dict(item.sentence.metadata),
            texts={side: StoredText.of(tokens) for side, tokens in item.tokens.items()},
            listed=listed,
        )


@dataclass(frozen=True)
class Exemplar:
    """A sentence on the page of a head.

    Attributes:
        rank: place in its ranking, from 1.
        score: what its ranking is by: mostly the largest single weight without the sink.
        query, key: the tokens that this weight runs from and to, whatever the ranking.
        attention: the head's weights before any view, in steps of 1/255; ``(query, key)``.
        norms: length of each key's value after the head's part of W_O; empty where not known.
        written: how alike what the head writes for every two tokens that count is, and how alike
            their rows of attention are, in steps of 1/255 from -1 to 1; of the strongest sentence
            only, empty where it is not known. *Shape:* ``(2, token, token)``.
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
    written: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((2, 0, 0), np.uint8))


@dataclass(frozen=True)
class SentenceData:
    """Everything that pages show of single sentences.

    Attributes:
        sentences: by index.
        maps: attention of listed sentences before any view, by stack and index;
            *Shape:* ``(layer, head, query, key)``, in steps of 1/255.
        tokens: a row for each number of a token; columns `TOKENS`.
        nearest: a row for each near vocabulary entry of a token's state; columns `NEAREST`.
        norms: length of each key's value after the head's part of W_O, for listed sentences, by
            stack and index; *Shape:* ``(layer, head, key)``. Nothing where it is not known.
        ends: after which tokens of a listed passage a sentence may end, by stack and index;
            *Shape:* ``(layer, rule, token)``, 0 or 1, rules as in
            `headbook.schema.SEGMENTATION_RULES`.
        rollouts: what the last state of each token of a listed sentence is made of, by stack,
            index and kind of `RolloutKind`; *Shape:* ``(token, token)``, in steps of 1/255.
        queries_and_keys: queries and keys of the first listed sentences, by stack, index and layer.
    """

    sentences: Mapping[int, StoredSentence] = field(default_factory=dict)
    maps: Mapping[tuple[str, int], NDArray[np.uint8]] = field(default_factory=dict)
    exemplars: tuple[Exemplar, ...] = ()
    tokens: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*TOKENS]))
    nearest: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*NEAREST]))
    norms: Mapping[tuple[str, int], NDArray[np.float32]] = field(default_factory=dict)
    ends: Mapping[tuple[str, int], NDArray[np.uint8]] = field(default_factory=dict)
    rollouts: Mapping[tuple[str, int, str], NDArray[np.uint8]] = field(default_factory=dict)
    queries_and_keys: Mapping[Place, QueriesAndKeys] = field(default_factory=dict)

    @property
    def listed(self) -> list[StoredSentence]:
        """The sentences with a page of all heads, in order."""
        return [sentence for sentence in self.sentences.values() if sentence.listed]

    @property
    def paged(self) -> list[StoredSentence]:
        """The sentences with any page, in order: the listed ones, and all that exemplars cite."""
        cited = {exemplar.index for exemplar in self.exemplars}
        every = self.sentences.values()
        return [sentence for sentence in every if sentence.listed or sentence.index in cited]

    @classmethod
    def join(cls, parts: "Sequence[SentenceData]") -> "SentenceData":
        """Everything that the parts hold."""
        names, every = [f.name for f in fields(cls)], [cls(), *parts]
        return cls(**{name: _joined([getattr(part, name) for part in every]) for name in names})

    def __add__(self, other: "SentenceData") -> "SentenceData":
        return self.join([self, other])

    def sorted(self) -> "SentenceData":
        """Everything in the order of tables and pages, however sentences were batched."""
        return SentenceData(**{name: _in_order(held) for name, held in vars(self).items()})

    def shifted(self, by: int) -> "SentenceData":
        """The same for sentences that come ``by`` places later."""
        return SentenceData(**{name: _later(held, by) for name, held in vars(self).items()})


def _joined(held: list[Any]) -> Any:
    """One field of several parts; the first part is empty."""
    if isinstance(held[0], pd.DataFrame):
        filled = [table for table in held if len(table)]
        return pd.concat(filled, ignore_index=True) if filled else held[0]
    if isinstance(held[0], tuple):
        return tuple(each for part in held for each in part)
    return {key: each for part in held for key, each in part.items()}


def _in_order(held: Any) -> Any:
    """One field with its rows, exemplars or keys in order."""
    if isinstance(held, pd.DataFrame):
        columns = [name for name in ORDER if name in held.columns]
        return held.sort_values(columns, kind="stable", ignore_index=True)
    if isinstance(held, tuple):
        return tuple(sorted(held, key=lambda e: (e.head, [*Ranking].index(e.ranking), e.rank)))
    return dict(sorted(held.items()))


def _later(held: Any, by: int) -> Any:
    """One field, its sentences ``by`` places later."""
    if isinstance(held, pd.DataFrame):
        return held.assign(sentence=held["sentence"] + by)
    if isinstance(held, tuple):
        return tuple(replace(exemplar, index=exemplar.index + by) for exemplar in held)
    if all(isinstance(key, int) for key in held):  # sentences by index
        return {key + by: replace(each, index=key + by) for key, each in held.items()}
    return {(stack, index + by, *more): each for (stack, index, *more), each in held.items()}


def to_uint8(weights: NDArray[Any]) -> NDArray[np.uint8]:
    """Weights between 0 and 1, rounded to steps of 1/255."""
    steps: NDArray[np.uint8] = np.rint(np.clip(weights, 0, 1) * UINT8_STEPS).astype(np.uint8)
    return steps


def rows_by_sentence(table: pd.DataFrame) -> Callable[[int], pd.DataFrame]:
    """What finds the rows of a sentence by its number; they are copied only when asked for."""
    places = table.groupby("sentence", sort=False).indices
    none = np.zeros(0, np.intp)
    return lambda sentence_number: table.iloc[places.get(sentence_number, none)]


SENTENCES = 64  # that are kept at most
MAX_SAMPLE_BYTES = 1 << 26  # of all maps together


@dataclass(frozen=True, eq=False)
class MappedSentence:
    """A sentence whose maps are kept.

    Attributes:
        index: its place in the input.
        texts, ids: each side's text, and its tokens' vocabulary entries.
        maps: attention before any view, by stack. *Shape:* ``(layer, head, query, key)``, in half
            precision.
    """

    index: int
    texts: Mapping[Side, StoredText]
    ids: Mapping[Side, Ints]
    maps: Mapping[str, NDArray[np.float16]]


@dataclass(frozen=True, eq=False)
class MapSample:
    """The sentences with the smallest hashes, as far as there is room.

    Attributes:
        sentences: by the hash of their texts, ascending.
    """

    sentences: Mapping[int, MappedSentence] = field(default_factory=dict)

    def __add__(self, other: "MapSample") -> "MapSample":
        both = {**other.sentences, **self.sentences}
        return MapSample({key: both[key] for key in sorted(both)[:SENTENCES]})

    def shifted(self, by: int) -> "MapSample":
        """The same for sentences that come ``by`` places later."""
        return MapSample(
            {
                key: MappedSentence(each.index + by, each.texts, each.ids, each.maps)
                for key, each in self.sentences.items()
            }
        )
