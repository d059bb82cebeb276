"""Rules for the arrays of a stored study: shape, bounds and gaps of every array.

Each array field of the classes of a study has its rule in `RULES`. Conditions between several
fields of a record are in `field_agreements`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headbook.analysis.accumulators import FIELDS, N_SPLITS, HashSample, RatioSums, TopK
from headbook.attention.surface_rules import NO_SELECTION as NO_WORD
from headbook.attention.word_pairs import HAS_OTHERS, SEEN, TO_DEPENDENT, TO_HEAD
from headbook.schema import SEGMENTATION_RULES as END_RULES
from headbook.study.ablation.results import AblationResults, MissedToken
from headbook.study.corpus_sums import (
    HeadDistances,
    HeadSums,
    HeadTable,
    HellingerSums,
    PositionSums,
    SampleSums,
    TokenSums,
)
from headbook.study.groups import GroupSums, PairMembers
from headbook.study.sentence_data import (
    Exemplar,
    MappedSentence,
    QueriesAndKeys,
    SentenceData,
)
from headbook.study.sums.buckets import MAX_BUCKETS, HeadBuckets, SentenceSet, TokenBuckets
from headbook.study.sums.state_geometry import GeometrySums, StateMeans
from headbook.study.sums.token_sums import (
    ANY_TOKEN,
    MIN_SENTENCES,
    PATH_STATES,
    Affinities,
    Anchors,
    TokenTypeSums,
)
from headbook.study.sums.word_samples import (
    FLOW_CELLS,
    MAX_SENTENCE_WORDS,
    ClassFlows,
    StrongestWords,
)
from headbook.study.token_outputs import DEVIATION_BITS, NO_OUTPUT, TokenOutputs
from headbook.text.aligned_words import NO_SOURCE, AlignmentRow

MAX_VOCABULARY = 1 << 24  # vocabulary entries; no tokenizer has so many
MAX_CHARACTERS = 10**8  # characters of the tokens of one sentence
STACK_SIZES = {"layer", "head", "row", "state", "every_head"}  # sizes that the manifest fixes
COUNT_FIELDS = [FIELDS.index(name) for name in ("d", "sentences", "events", "present")]
SQUARE_FIELDS = [FIELDS.index(name) for name in ("nn", "dd")]
Sizes = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """Rule for an array, a number, or the cells of a `RatioSums`, `TopK` or `HashSample`.

    Attributes:
        shape: names or numbers of the dimensions, separated by spaces. A name whose size is not
            known takes the size found; ``a|1`` is one of two, ``*`` the cells of the owner's rule.
        low, high: bounds of all values, both included; a name is an upper bound that depends on the
            study.
        gaps: whether the array may hold NaN and infinite values.
        may_be_empty: whether an array without elements means "not measured".
        ascending: whether each value is larger than the one before.
    """

    shape: str = ""
    low: float = -math.inf
    high: float | str = math.inf
    gaps: bool = False
    may_be_empty: bool = False
    ascending: bool = False


RULES: Mapping[type, Mapping[str, Rule]] = {
    RatioSums: {"sums": Rule(f"{len(FIELDS)} {N_SPLITS}|1 *")},  # groups have both halves as one
    TopK: {
        "score": Rule("* rank", gaps=True),
        "index": Rule("* rank", -1, "place"),
        "content_hash": Rule("* rank"),
    },
    HashSample: {
        "content_hash": Rule("kept"),
        "index": Rule("kept", 0, "place"),
        "payload": Rule("kept *", gaps=True),
    },
    HeadTable: {
        "heads": Rule("layer head column"),
        "layers": Rule("layer column"),
        "uniform": Rule("layer column"),
    },
    HeadSums: {
        "strongest": Rule("layer head"),
        "sample": Rule("layer head"),
        "mass_off_sink": Rule("layer head"),
    },
    GroupSums: {
        "sentences": Rule("", 0, "sentences"),
        "heads": Rule("layer head column"),
        "layers": Rule("layer column"),
        "uniform": Rule("layer column"),
    },
    PairMembers: {
        "pair": Rule("kept"),
        "index": Rule("kept", 0, "place"),
        "values": Rule("kept layer head part", gaps=True),
    },
    StrongestWords: {
        "size": Rule("", 1),
        "content_hash": Rule("kept"),
        "index": Rule("kept", 0, "place"),
        "lengths": Rule("kept", 0, MAX_SENTENCE_WORDS),
        "strongest": Rule("word layer head", NO_WORD, MAX_SENTENCE_WORDS),
        "tag": Rule("word", high="last_tag"),
        "relation": Rule("word", high="last_relation"),
        "head": Rule("word"),
        "asked": Rule("word", 0, HAS_OTHERS | SEEN | TO_HEAD | TO_DEPENDENT),
    },
    PositionSums: {
        "total": Rule("layer head position position", 0),
        "count": Rule("position position", 0, "sentences"),
    },
    SampleSums: {"stats": Rule("layer row statistic")},
    ClassFlows: {
        "cells": Rule(f"6 layer head {len(FLOW_CELLS)}", 0),
        "totals": Rule("3 layer head", 0),
        "mean_cells": Rule(f"3 {len(FLOW_CELLS)}", 0),
        "mean_totals": Rule("2", 0),
        "sentences": Rule(f"{len(FLOW_CELLS)}", 0, "sentences"),
    },
    HellingerSums: {
        "total": Rule("column every_head every_head", 0),
        "rows": Rule("column every_head every_head", 0),
    },
    HeadDistances: {
        "total": Rule("column every_head every_head", 0),
        "rows": Rule("column every_head every_head", 0),
        "sentences": Rule("", 0, "sentences"),
    },
    TokenSums: {"layers": Rule("layer column")},
    GeometrySums: {
        "states": Rule("state column", gaps=True),
        "products": Rule("state state", may_be_empty=True),
        "minibatches": Rule("", 0),
        "dimensions": Rule("state width"),
        "weights": Rule("state", 0),
        "sentences": Rule("", 0, "sentences"),
        "tokens": Rule("", 0),
    },
    Anchors: {
        "token": Rule("columns 2 layer head", -1, MAX_VOCABULARY),
        "lift": Rule("columns 2 layer head", 0, gaps=True),
        "low": Rule("columns 2 layer head", gaps=True),
    },
    Affinities: {
        "entries": Rule("entry", 0, MAX_VOCABULARY, ascending=True),
        "query": Rule("item", ANY_TOKEN, MAX_VOCABULARY),
        "key": Rule("item", ANY_TOKEN, MAX_VOCABULARY),
        "looked": Rule("", 0, "sentences"),
        "counts": Rule("3 layer item", 0),
        "chance": Rule("layer item", 0),
        "sums": Rule("3 layer head item", 0),
        "texts": Rule(f"{MIN_SENTENCES} layer item"),
    },
    StateMeans: {
        "input": Rule("width"),
        "total": Rule(f"layer {len(PATH_STATES)} width"),
        "tokens": Rule("", 0, "tokens"),
    },
    TokenTypeSums: {
        "ids": Rule("type", 0, MAX_VOCABULARY, ascending=True),
        "count": Rule("type", 1, "tokens"),
        "sentences": Rule("type", 1, "sentences"),
        "total": Rule(f"type layer {len(PATH_STATES)}", gaps=True),
        "squares": Rule(f"type layer {len(PATH_STATES)}", gaps=True),
    },
    AblationResults: {
        "chosen": Rule("listed", 0, 2),
        "content_hash": Rule("sentence"),
        "counts": Rule("sentence", 0),
        "unablated": Rule("sentence"),
        "members": Rule("set listed"),
        "changes": Rule("sentence set", gaps=True),
        "direct": Rule("sentence listed", gaps=True),
        "estimates": Rule("listed column"),
        "top": Rule("3 sentence listed", gaps=True, may_be_empty=True),
        "text_hash": Rule("sentence", may_be_empty=True),
        "characters": Rule("sentence", 0, MAX_CHARACTERS, may_be_empty=True),
        "rounding": Rule("sentence"),
        "truth": Rule("sentence", 0),
    },
    MissedToken: {
        "head": Rule("", 0, "last_listed"),
        "rank": Rule("", 1),
        "sentence": Rule("", 0, "place"),
        "position": Rule("", 0, "limit"),
    },
    SentenceSet: {
        "sentences": Rule(str(MAX_BUCKETS), 0, "sentences"),
        "prints": Rule(str(MAX_BUCKETS)),
        "smallest": Rule("0"),
    },
    HeadBuckets: {
        "size": Rule("", 1, MAX_BUCKETS),
        "keys": Rule("bucket", 0, "last_bucket", ascending=True),
        "n": Rule("bucket layer head column"),
        "d": Rule("bucket layer head|1 column"),
    },
    TokenBuckets: {
        "size": Rule("", 1, MAX_BUCKETS),
        "keys": Rule("bucket", 0, "last_bucket", ascending=True),
        "n": Rule("bucket layer column"),
        "d": Rule("bucket layer|1 column"),
    },
    MappedSentence: {
        "index": Rule("", 0, "place"),
        "ids": Rule("own", 0, MAX_VOCABULARY),
        "maps": Rule("layer head query key", 0, 1.01),
    },
    Exemplar: {
        "rank": Rule("", 1, "sentences"),
        "query": Rule("", 0, "last_query"),
        "key": Rule("", 0, "last_key"),
        "attention": Rule("query key"),
        "norms": Rule("key", 0, may_be_empty=True),
    },
    QueriesAndKeys: {
        "queries": Rule("own_head query width"),  # layers of a stack may differ in heads
        "keys": Rule("own_key_head key width"),
        "scaling": Rule(""),
        "added": Rule("own_head query key", gaps=True, may_be_empty=True),
        "seen": Rule("query key", 0, 1),
    },
    TokenOutputs: {
        "mean": Rule("own_head"),
        "deviations": Rule("own_head query axis", NO_OUTPUT, 2**DEVIATION_BITS - 1),
    },
    SentenceData: {
        "maps": Rule("layer head query key"),
        "sources": Rule(f"{len(AlignmentRow)} layer head aligned", NO_SOURCE, "last_key"),
        "norms": Rule("layer head key", 0),
        "ends": Rule(f"layer {len(END_RULES)} query", 0, 1),
        "rollouts": Rule("query query"),
        "public_demo": Rule("2 layer query", -1.01),
    },
}


def sizes_of(value: Any) -> Sizes:
    """Return the sizes and upper bounds that the fields of a record fix, by name."""
    sizes: Sizes = {"column": len(value.columns)} if hasattr(value, "columns") else {}
    match value:
        case HeadSums():  # the groups in the sums have the columns of the table
            sizes["column"] = len(value.table.columns)
        case SampleSums():
            sizes["statistic"] = sum(column.width for column in value.columns)
        case StrongestWords():
            sizes["last_tag"] = len(value.scheme.tags) - 1
            sizes["last_relation"] = len(value.scheme.relations) - 1
        case PairMembers():
            sizes["part"] = len(value.places)
        case Affinities():
            sizes["entry"] = len(value.names)
        case TokenTypeSums():
            sizes["type"] = len(value.names)
        case Anchors():
            sizes["columns"] = len(value.columns)
        case HeadBuckets() | TokenBuckets():
            sizes["last_bucket"] = value.size - 1
        case AblationResults():
            listed = len(value.heads)
            sizes |= {"listed": listed, "last_listed": listed - 1, "set": len(value.sets)}
    return sizes


def field_agreements(  # noqa: C901 - one branch for each kind of record
    value: Any, sizes: Sizes
) -> Iterator[tuple[bool, str]]:
    """Yield the conditions between fields of a record: whether each holds, and its description."""
    if isinstance(value, RatioSums):
        yield not (value.sums[SQUARE_FIELDS] < 0).any(), "squares from 0"
        yield bool((value.sums[COUNT_FIELDS] >= 0).all()), "counts from 0"
    elif isinstance(value, HeadSums | TokenSums):
        ratios = value.table.heads if isinstance(value, HeadSums) else value.layers
        max_sentences = sizes["sentences"]
        yield (
            ratios.n_sentences.max(initial=0) <= max_sentences,
            f"sums of at most {max_sentences} sentences",
        )
    elif isinstance(value, TopK):
        yield not np.isnan(value.score).any(), "scores, or minus infinity without one"
    elif isinstance(value, HashSample):
        yield len(value.index) <= value.size, f"at most {value.size} sentences"
    elif isinstance(value, StrongestWords):
        words = len(value.strongest)
        yield int(value.lengths.sum()) == words, f"lengths that sum to {words} words"
        n_words = np.repeat(value.lengths, value.lengths)[:, None, None]
        yield bool((value.strongest < n_words).all()), "words of the same sentence"
    elif isinstance(value, PairMembers):
        yield {*value.places} <= {*range(sizes["column"])}, "columns of the table"
        yield {*map(len, value.labels.values())} <= {len(value.index)}, "a label for each sentence"
    elif isinstance(value, Affinities):
        items = np.union1d(value.query, value.key)
        yield bool(np.isin(items, [ANY_TOKEN, *value.entries]).all()), "items of known entries"
    elif isinstance(value, Anchors):
        yield {*map(str, np.unique(value.token))} - {"-1"} <= {*value.names}, "names of all tokens"
    elif isinstance(value, AblationResults):
        rows = len(value.content_hash)
        yield {*map(len, value.facets.values())} <= {rows}, "a value of each column for each row"
    elif isinstance(value, HeadBuckets | TokenBuckets):
        yield MAX_BUCKETS % value.size == 0, f"a divisor of {MAX_BUCKETS} as number of buckets"
