"""Vocabulary tokens nearest to the states of tokens: their own one, and those that words share.

The averages of token metrics by class are in the table `words`. The share of tokens whose
`vocabulary_rank` is 0 cannot be computed from an average rank, so it is computed from the tokens of
sentences with a page.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import Estimates, RatioSums
from headbook.analysis.arrays import Floats
from headbook.metrics import ids
from headbook.report.results import StackResults
from headbook.report.wording import first_option
from headbook.results.formats import word_list
from headbook.schema import (
    CONTENT,
    FUNCTION,
    SPECIAL_ROLES,
    EmbeddingSpace,
    IntervalRule,
    ResidualPoint,
)
from headbook.study.sentence_data import LOGIT_LENS_SPACE, MAX_USES, OWN, SPECIAL, StoredText

WORD_CLASSES = ("content", "function", "punctuation", *SPECIAL_ROLES)
WORD_CLASS_NAMES = {
    "all": "all tokens",
    "content": "content words",
    "function": "function words",
    "punctuation": "punctuation",
    "start": "start tokens",
    "separator": "separators",
    "other": "other tokens",
}
MAX_ROLE_NAMES = 2  # special tokens of a role that are named
Cell = tuple[int, int]  # number of a sentence, and position of a token in it


class OwnTokens(NamedTuple):
    """Shares of tokens that are nearest to their own vocabulary token.

    Attributes:
        space: encoding of the vocabulary that states are compared with.
        shares: share by layer for each class of tokens; ``all`` has no special tokens. *Shape:*
            ``(layer,)`` each.
        sentences: number of sentences whose tokens are counted.
    """

    space: EmbeddingSpace
    shares: Mapping[str, Estimates]
    sentences: int


def class_of_tag(tag: str) -> str:
    """Return the class of words of a part of speech; ``other`` for symbols and unknown tags."""
    if tag in CONTENT:
        return "content"
    if tag in FUNCTION:
        return "function"
    return "punctuation" if tag == "PUNCT" else "other"


def token_classes(results: StackResults) -> Mapping[Cell, str]:
    """Return the class of each token of a stack's queries in the sentences with a page."""
    return results.cached(_token_classes)


def _token_classes(results: StackResults) -> Mapping[Cell, str]:
    side = results.stack.queries
    return {
        (sentence.number, position): kind
        for sentence in results.study.sentence_data.sentences.values()
        if side in sentence.texts
        for position, kind in enumerate(_classes_of(sentence.texts[side]))
    }


def _classes_of(text: StoredText) -> list[str]:
    return [
        text.role(position) if special else class_of_tag(tag)
        for position, (special, tag) in enumerate(zip(text.special, text.tags, strict=True))
    ]


def class_name(results: StackResults, kind: str) -> str:
    """Return the name of a class of tokens; of special tokens those that have the role."""
    return results.cached(_names_of_roles).get(kind, WORD_CLASS_NAMES[kind])


def _names_of_roles(results: StackResults) -> Mapping[str, str]:
    """Return the special tokens of each role by name, of roles with one or two tokens."""
    side, names = results.stack.queries, dict[str, dict[str, None]]()
    for sentence in results.study.sentence_data.sentences.values():
        text = sentence.texts.get(side)
        for position in np.flatnonzero(text.special).tolist() if text else ():
            assert text is not None
            names.setdefault(text.role(position), {})[text.pieces[position]] = None
    few = {role: [*pieces] for role, pieces in names.items() if len(pieces) <= MAX_ROLE_NAMES}
    return {role: word_list(pieces) for role, pieces in few.items()}


def own_tokens(results: StackResults) -> OwnTokens | None:
    """Return the shares of tokens nearest to their own vocabulary token; None if not measured."""
    return results.cached(_own_tokens)


def _own_tokens(results: StackResults) -> OwnTokens | None:
    stack, tokens = results.stack, results.study.tokens
    rows = tokens[
        (tokens["metric"] == ids.VOCABULARY_RANK)
        & (tokens["stack"] == stack.name)
        & (tokens["state"] == str(ResidualPoint.POST))
        & tokens["value"].notna()
    ]
    space = first_option(rows["space"], EmbeddingSpace)
    rows = rows[rows["space"] == space]
    if rows.empty:
        return None
    classes = token_classes(results)
    cells = zip(rows["sentence"].tolist(), rows["position"].tolist(), strict=True)
    kinds = np.array([classes[cell] for cell in cells])
    sentences, sentence = np.unique(rows["sentence"], return_inverse=True)
    layer, is_own = rows["layer"].to_numpy(int), rows["value"].to_numpy() == 0
    shares = {}
    for name in ("all", *WORD_CLASSES):
        of_class = ~np.isin(kinds, SPECIAL_ROLES) if name == "all" else kinds == name
        if of_class.any():
            places = sentence[of_class], layer[of_class]
            n_own, n_counted = np.zeros((2, len(sentences), stack.n_layers))
            np.add.at(n_own, places, is_own[of_class])
            np.add.at(n_counted, places, 1.0)
            sums = RatioSums.of(n_own, n_counted, n_counted, np.zeros(len(sentences), np.int64))
            shares[name] = Estimates.of(sums, (0.0, 1.0), IntervalRule.CLASSES)
    return OwnTokens(EmbeddingSpace(space), shares, len(sentences))


MAX_HUB_SHARE = 0.1  # of the states of a layer; a token nearest to more of them is a hub
N_NEAREST = 10  # vocabulary tokens that are compared, without the token itself
MIN_SENTENCES = 2  # with an occurrence of a word
CLASSES_OF_WORDS = ("content", "function", "punctuation")


class RecurringWord(NamedTuple):
    """A word that occurs in several sentences.

    Attributes:
        text: the word in the text's own spelling.
        kind: class of most of its occurrences; ``all`` if no word is annotated.
        tag: part of speech of most of its occurrences; empty if no word is annotated.
        cells: its occurrences, one of each sentence.
        shared: mean number of vocabulary tokens that two occurrences share. *Shape:* ``(layer,)``.
    """

    text: str
    kind: str
    tag: str
    cells: tuple[Cell, ...]
    shared: Floats

    @property
    def uses(self) -> tuple[Cell, ...]:
        """First occurrences of the word, which stand side by side."""
        return self.cells[:MAX_USES]


class SharedNeighbours(NamedTuple):
    """Shared neighbours of all recurring words of a stack.

    Attributes:
        space: encoding of the vocabulary that states are compared with.
        words: those in most sentences first.
        means: means over the words of a class, with intervals over words; ``all`` without
            annotation. *Shape:* ``(layer,)`` each.
        different: mean number that the first occurrences of two different words share. *Shape:*
            ``(layer,)``.
        names: names of vocabulary tokens.
        special: places in ``names`` of special tokens.
        nearest: places in ``names`` of the nearest other tokens of each occurrence, -1 if there are
            fewer. *Shape:* ``(layer, N_NEAREST)`` each.
    """

    space: EmbeddingSpace
    words: tuple[RecurringWord, ...]
    means: Mapping[str, Estimates]
    different: Floats
    names: tuple[str, ...]
    special: frozenset[int]
    nearest: Mapping[Cell, NDArray[np.int64]]

    def shared(self, one: Cell, other: Cell) -> NDArray[np.int64]:
        """Return the number of tokens that two occurrences share. *Shape:* ``(layer,)``."""
        pairs = zip(self.nearest[one], self.nearest[other], strict=True)
        return np.array([len(np.intersect1d(a[a >= 0], b[b >= 0])) for a, b in pairs])

    def least_similar(self, word: RecurringWord) -> tuple[Cell, Cell]:
        """Return the two of a word's uses that share the fewest tokens after all layers."""
        tokens = np.stack([self.nearest[cell][-1] for cell in word.uses])
        codes, place = np.unique(tokens, return_inverse=True)
        near = np.zeros((len(tokens), len(codes)))
        near[np.arange(len(tokens))[:, None], place.reshape(tokens.shape)] = (
            codes[place.reshape(tokens.shape)] >= 0
        )
        pairs = np.triu_indices(len(tokens), 1)
        least = int((near @ near.T)[pairs].argmin())
        return word.uses[pairs[0][least]], word.uses[pairs[1][least]]


def mean_shared(nearest: NDArray[np.int64]) -> Floats:
    """Return the mean number of tokens that two occurrences share, over all pairs.

    A token that is near to c of n occurrences is shared by c (c - 1) / 2 of n (n - 1) / 2 pairs.

    Args:
        nearest: *Shape:* ``(occurrence, layer, N_NEAREST)``.

    Returns:
        *Shape:* ``(layer,)``; NaN with a single occurrence.
    """
    pairs = len(nearest) * (len(nearest) - 1) / 2
    if not pairs:
        return np.full(nearest.shape[1], np.nan)
    shared = []
    for layer in range(nearest.shape[1]):
        tokens = nearest[:, layer].ravel()
        _, counts = np.unique(tokens[tokens >= 0], return_counts=True)
        shared.append(float((counts * (counts - 1) / 2).sum()) / pairs)
    return np.array(shared)


class WholeWord(NamedTuple):
    """A token that is a whole word.

    Attributes:
        cell: its sentence and position.
        text: the word in the text's own spelling.
        tag: part of speech, empty without one.
    """

    cell: Cell
    text: str
    tag: str


def whole_words(results: StackResults) -> Iterator[WholeWord]:
    """Yield the tokens of a stack's queries that are whole words, in sentences with a page."""
    side, causal = results.stack.queries, results.stack.causal
    for sentence in results.study.sentence_data.sentences.values():
        if side in sentence.texts:
            text = sentence.texts[side]
            for position in text.whole_words(causal=causal):
                cell, piece = (sentence.number, position), text.pieces[position].strip()
                yield WholeWord(cell, piece, text.tags[position])


def shared_neighbours(results: StackResults) -> SharedNeighbours | None:
    """Return the shared neighbours of recurring words; None if there are none to compare."""
    return results.cached(_shared_neighbours)


def _shared_neighbours(results: StackResults) -> SharedNeighbours | None:
    table = results.study.nearest
    rows = table[
        (table["stack"] == results.stack.name) & (table["state"] == str(ResidualPoint.POST))
    ]
    space = first_option(rows["space"], EmbeddingSpace)
    if not space:
        return None
    rows = rows[rows["space"] == space]
    names, places, nearest = _nearest_others(rows, results.stack.n_layers)
    words = _recurring_words(results, places, nearest)
    if not words:
        return None
    firsts = nearest[[places[word.cells[0]] for word in words]]
    kinds = dict.fromkeys(word.kind for word in words)
    return SharedNeighbours(
        EmbeddingSpace(space),
        words,
        {kind: _class_means([w for w in words if w.kind == kind]) for kind in kinds},
        mean_shared(firsts),
        names,
        frozenset(map(names.index, rows[rows["mark"] == SPECIAL]["neighbour"].unique())),
        {cell: nearest[place] for cell, place in places.items()},
    )


def _nearest_others(
    rows: pd.DataFrame, n_layers: int
) -> tuple[tuple[str, ...], Mapping[Cell, int], NDArray[np.int64]]:
    """Return names of vocabulary tokens, the place of each token, and its nearest other tokens.

    The token itself is left out, as it does not count as its own neighbour.

    Args:
        rows: rows of `headbook.study.sentence_data.NEAREST_COLUMNS`.

    Returns:
        The nearest tokens as places among the names, -1 if there are fewer. *Shape:* ``(token,
        layer, N_NEAREST)``.
    """
    names, code = np.unique(rows["neighbour"].to_numpy(str), return_inverse=True)
    cells = [*zip(rows["sentence"].tolist(), rows["position"].tolist(), strict=True)]
    places = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
    index, layer = np.array([places[cell] for cell in cells]), rows["layer"].to_numpy(int)
    rank, is_own = rows["rank"].to_numpy(int), rows["mark"].to_numpy(str) == OWN
    own_rank = np.full((len(places), n_layers), len(rows))
    own_rank[index[is_own], layer[is_own]] = rank[is_own]
    rank = rank - (own_rank[index, layer] < rank)
    is_kept = ~is_own & (rank <= N_NEAREST)
    nearest = np.full((len(places), n_layers, N_NEAREST), -1)
    nearest[index[is_kept], layer[is_kept], rank[is_kept] - 1] = code[is_kept]
    return tuple(names.tolist()), places, nearest


# Names of hubs with the share of states, by state, space and layer.
Hubs = Mapping[tuple[str, str, int], Mapping[str, float]]


def hubs(results: StackResults) -> Hubs:
    """Return the hubs: vocabulary tokens among the ten nearest of many states of a layer.

    Of more than `MAX_HUB_SHARE` of the states of sentences with a page. The token itself does not
    count as its own neighbour.
    """
    table = results.study.nearest
    table = table[(table["stack"] == results.stack.name) & (table["space"] != LOGIT_LENS_SPACE)]
    is_own, cell = table["mark"] == OWN, ["state", "space", "layer", "sentence", "position"]
    n_own = is_own.groupby([table[name] for name in cell], sort=False).cumsum()
    nearest = table[~is_own & (table["rank"] - n_own <= N_NEAREST)]
    n_states = table[cell].drop_duplicates().groupby(cell[:3]).size()
    counts = nearest.groupby([*cell[:3], "neighbour"]).size()
    table = counts.rename("n").reset_index()
    of_states = n_states.rename("n_states").reset_index()
    table = table.merge(of_states, on=cell[:3])
    large = table[table["n"] > MAX_HUB_SHARE * table["n_states"]]
    by_place: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in large.to_dict("records"):
        place = str(row["state"]), str(row["space"]), int(row["layer"])
        by_place.setdefault(place, {})[str(row["neighbour"])] = row["n"] / row["n_states"]
    return by_place


def _recurring_words(
    results: StackResults, places: Mapping[Cell, int], nearest: NDArray[np.int64]
) -> tuple[RecurringWord, ...]:
    """Return the words of known classes with occurrences in enough sentences."""
    classes = token_classes(results)
    annotated = any(kind in CLASSES_OF_WORDS for kind in classes.values())
    words = []
    occurrences: dict[str, dict[int, WholeWord]] = {}
    for word in whole_words(results):
        if word.cell in places:
            occurrences.setdefault(word.text, {}).setdefault(word.cell[0], word)
    for text, by_sentence in occurrences.items():
        cells = tuple(word.cell for word in by_sentence.values())
        kind = _most([classes[cell] for cell in cells]) if annotated else "all"
        if len(cells) >= MIN_SENTENCES and kind in {"all", *CLASSES_OF_WORDS}:
            tag = _most([word.tag for word in by_sentence.values()])
            shared = mean_shared(nearest[[places[cell] for cell in cells]])
            words.append(RecurringWord(text, kind, tag, cells, shared))
    return tuple(sorted(words, key=lambda word: (-len(word.cells), word.text)))


def _most(names: Sequence[str]) -> str:
    """Return the most frequent of several names, of equally frequent ones the first."""
    return Counter(names).most_common(1)[0][0]


def _class_means(words: Sequence[RecurringWord]) -> Estimates:
    """Return the means over words, each of which counts once."""
    shared = np.stack([word.shared for word in words])
    ones = np.ones_like(shared)
    sums = RatioSums.of(shared, ones, ones, np.zeros(len(words), np.int64))
    means = Estimates.of(sums, (0.0, float(N_NEAREST)))
    sentences = len({sentence for word in words for sentence, _ in word.cells})
    return means._replace(sentences=np.full(len(means.value), sentences))


def classes_by_name(results: StackResults) -> Mapping[str, str]:
    """Return the class of most occurrences of each whole word, by its text in small letters."""
    counts: dict[str, Counter[str]] = {}
    for word in whole_words(results):
        counts.setdefault(word.text.lower(), Counter())[class_of_tag(word.tag)] += 1
    return {name: kinds.most_common(1)[0][0] for name, kinds in counts.items()}
