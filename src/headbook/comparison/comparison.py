"""The comparison of two studies: differences, medians, matching and losses, and its tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, prod
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.arrays import Ints
from headbook.analysis.head_matching import UNMATCHED
from headbook.analysis.paired import ClusterSums, Medians, PairedDifferences, differences, medians
from headbook.comparison.differences import (
    ComparedColumn,
    HeadDifferences,
    LayerDifferences,
    ModelDifferences,
    head_differences,
    head_floors,
    head_sums,
    layer_differences,
    layer_floors,
    token_sums,
)
from headbook.comparison.drift import ModelDrift, head_drifts, rounding_drift
from headbook.comparison.matching import MatchedHeads, matched_heads
from headbook.comparison.study_pair import StackPair, StudyPair, pair_studies
from headbook.metrics import all_metrics
from headbook.schema import AblationTarget, HeadCorrespondence
from headbook.study.ablation import AblationResults
from headbook.study.study import Study
from headbook.study.tables import HEAD, METRIC, MOST_USED, PLACE, Table

DepthMedians = Mapping[ComparedColumn, Medians]


def depth_medians(sides: StudyPair, pair: StackPair) -> DepthMedians:
    """Return medians over all heads, or layers, of every number that both models have.

    Labels of token metrics are as in ``layers.csv``, without a view.
    """
    return dict(_medians(sides, pair))


def _medians(sides: StudyPair, pair: StackPair) -> Iterator[tuple[ComparedColumn, Medians]]:
    for each in head_sums(sides, pair):
        for place, column in enumerate(each.columns):
            yield column, _of(column, *(_cells(sums, place) for sums in (each.a, each.b)))
    for columns, *sums in token_sums(sides, pair):
        for place, token in enumerate(columns):
            column = ComparedColumn(token.metric, "", token.words)
            yield column, _of(column, *(_cells(each, place) for each in sums))


def _cells(sums: ClusterSums, place: int) -> ClusterSums:
    """Return one column, with all cells in one dimension."""
    size = prod(sums.n.shape[1:-1])
    return ClusterSums(*(part[..., place].reshape(len(part), size) for part in sums))


def _of(column: ComparedColumn, a: ClusterSums, b: ClusterSums) -> Medians:
    """Return the medians of a column, within the bounds of its metric."""
    metric = all_metrics()[column.metric]
    return medians(a, b, metric.spread(column.label), metric.limits)


@dataclass(frozen=True, eq=False)
class Losses:
    """Loss of both models on the sentences that both ablation samples share.

    Attributes:
        bits: bits per character of the predicted text; comparable between tokenizers.
        nats: nats per token.
        sentences: number of sentences.
    """

    bits: PairedDifferences
    nats: PairedDifferences
    sentences: int


def losses(sides: StudyPair) -> Losses | None:
    """Return both models' losses; None if one of them does not predict text from left to right."""
    parts = [study.corpus_sums.ablation for study in (sides.a, sides.b)]
    known = [
        part
        for part in parts
        if part and AblationTarget.LOSS in part.unablated and len(part.text_hash)
    ]
    if len(known) < len(parts):
        return None
    _, *rows = np.intersect1d(known[0].text_hash, known[1].text_hash, return_indices=True)
    if not len(rows[0]):
        return None
    sums = [_sums(part, row) for part, row in zip(known, rows, strict=True)]
    bits, nats = (differences(one, other) for one, other in zip(*sums, strict=True))
    return Losses(bits, nats, len(rows[0]))


def _sums(part: AblationResults, rows: Ints) -> tuple[ClusterSums, ClusterSums]:
    """Return sums of bits by characters, and of nats by tokens, for each sentence."""
    loss = part.unablated[AblationTarget.LOSS][rows]
    characters = part.characters[rows].astype(np.float64)
    return (
        ClusterSums(np.where(characters > 0, loss, 0) / log(2), characters),
        ClusterSums(loss, part.counts[AblationTarget.LOSS][rows]),
    )


DIFFERENCES_TABLE: "Table[Comparison]" = Table(
    "differences",
    "What every number of every head, and of the tokens of every layer, is in both models, and how "
    "they differ: pairs of the same sentences, the second model minus the first.",
    PLACE
    | {
        "head": "counted from 0; empty for tokens, whose labels are those of layers.csv: state, "
        "space where there is one, and class of tokens (mid/positional/content)"
    }
    | METRIC
    | {
        "a": "value in the first model; empty where a number is of both",
        "b": "value in the second model",
        "difference": "b minus a; of pattern_drift how far the attention of both is apart, in nats",
        "low": "lower end of the 95 % confidence interval of the difference; paired by sentence",
        "high": "upper end",
        "p": "two-sided, family-wise over all heads (or layers) and labels of a metric and view; 1 "
        "where both models are exactly equal, empty where there is no interval",
        "n_sentences": "sentences behind it, in the model where they are fewer",
        "floor": "rounding floor: twice the largest difference over heads (or layers) that another "
        "number format of the first model makes in this number; empty if not measured",
        "beyond_floor": "whether the interval lies above the floor, or below minus the floor; "
        "empty if no floor was measured. Pages count rows with p < 0.05 that are beyond it",
    },
    lambda comparison: comparison.differences,
    optional=True,
    plain_csv_limit=MOST_USED,
)
MEDIANS_TABLE: "Table[Comparison]" = Table(
    "medians",
    "Medians over all heads of each model, of metrics of tokens over all layers, and how they "
    "differ, for models whose heads do not correspond.",
    {"stack": "kind of attention"}
    | METRIC
    | {
        "a": "median of the first model",
        "a_low": "lower end of its 95 % confidence interval, for other sentences; empty below ten "
        "effective sentences (twenty for classes of tokens)",
        "a_high": "upper end",
        "b": "median of the second model",
        "b_low": "lower end of its interval",
        "b_high": "upper end",
        "difference": "b minus a",
        "low": "lower end of its 95 % confidence interval; paired by sentence",
        "high": "upper end",
    },
    lambda comparison: comparison.medians,
    optional=True,
)
OTHER = {"other_layer": "of the head of the second model", "other_head": "its number there"}
MATCHING_TABLE: "Table[Comparison]" = Table(
    "matching",
    "Which head of the second model each head of the first attends most like, one to one.",
    HEAD
    | OTHER
    | {
        "similarity": "mean over words of the sum of the square roots of products of weights, sink "
        "masked and renormalised: 0 (no word in common) to 1 (the same)",
        "counterpart": "whether that is not below the 95th percentile of what heads have with "
        "random weights; empty where no such model was compared",
        "mutual": "whether each is the other's most similar head",
        "best_layer": "layer of the most similar head, which several heads may share",
        "best_head": "its number there",
        "margin": "similarity to the most similar head less that to the second",
        "n_sentences": "sentences that were compared",
    },
    lambda comparison: comparison.matching,
    optional=True,
)
SIMILARITY_TABLE: "Table[Comparison]" = Table(
    "head_similarity",
    "How alike every head of the first model and every head of the second attend.",
    HEAD | OTHER | {"similarity": "as in matching; empty below 30 words"},
    lambda comparison: comparison.similarity,
    optional=True,
)
COMPARISON_TABLES = (DIFFERENCES_TABLE, MEDIANS_TABLE, MATCHING_TABLE, SIMILARITY_TABLE)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The comparison of two models on the same sentences.

    Attributes:
        sides: the two studies, and whether heads correspond by their numbers.
        heads: differences of corresponding heads, by name of the pair of stacks; empty if heads do
            not correspond.
        layers: differences of the tokens of corresponding layers, by name of the pair of stacks;
            empty if heads do not correspond, or without sums of tokens by bucket.
        depths: medians over all heads, or layers, of both models, by name of the pair of stacks;
            empty if heads correspond.
        matched: heads that attend alike, by name of the pair of stacks; without cross-attention.
        losses: losses of both models, if both predict text from left to right.
        missing: numbers that could not be compared, with reasons, in words.
        floor_sentences: number of sentences behind the rounding floors; 0 without floors.
    """

    sides: StudyPair
    heads: Mapping[str, HeadDifferences] = field(default_factory=dict)
    matched: Mapping[str, MatchedHeads] = field(default_factory=dict)
    losses: Losses | None = None
    missing: tuple[str, ...] = ()
    layers: Mapping[str, LayerDifferences] = field(default_factory=dict)
    depths: Mapping[str, DepthMedians] = field(default_factory=dict)
    floor_sentences: int = 0

    @property
    def differences(self) -> pd.DataFrame:
        """Table with a row for each number of each head, and of the tokens of each layer.

        Columns are as in ``differences.csv``.
        """
        pairs = {pair.name: pair for pair in self.sides.stacks}
        frames = [_rows(pairs[name], found) for name, found in self.heads.items()]
        frames += [_layer_rows(name, found) for name, found in self.layers.items()]
        return pd.concat(frames, ignore_index=True) if frames else DIFFERENCES_TABLE.empty

    @property
    def medians(self) -> pd.DataFrame:
        """Table with a row for each number of both models; columns as in ``medians.csv``."""
        rows = [
            (stack, *column, *found.a, *found.b, *found.difference)
            for stack, every in self.depths.items()
            for column, found in every.items()
        ]
        table = pd.DataFrame(rows, columns=[*MEDIANS_TABLE.columns])
        return table[table["difference"].notna()].reset_index(drop=True)

    @property
    def matching(self) -> pd.DataFrame:
        """Table with a row for each head of the first model; columns as in ``matching.csv``."""
        rows = [row for stack, found in self.matched.items() for row in _matching(stack, found)]
        return pd.DataFrame(rows, columns=[*MATCHING_TABLE.columns])

    @property
    def similarity(self) -> pd.DataFrame:
        """Table with a row for every two heads; columns as in ``head_similarity.csv``."""
        frames = [_similarity(stack, found) for stack, found in self.matched.items()]
        return pd.concat(frames, ignore_index=True) if frames else SIMILARITY_TABLE.empty


def compare(
    a: Study,
    b: Study,
    heads: HeadCorrespondence = HeadCorrespondence.AUTO,
    *,
    names: tuple[str, str] = ("", ""),
    rounded: Study | None = None,
    null: Study | None = None,
    drift: ModelDrift | None = None,
    twice: tuple[Study, Study] | None = None,
) -> Comparison:
    """Compare two studies of the same sentences; differences are ``b`` minus ``a``.

    Args:
        heads: how heads of the two models correspond.
        names: names of the models on pages; by default their own names.
        rounded: the first model in bfloat16, for the effect of rounding alone.
        null: the second model with random weights, for the similarity of untrained heads.
        drift: drift of weights and outputs, if the models themselves were compared.
        twice: the first model as it is and in another number format, both on the same sentences,
            for the rounding floor of every number.

    Raises:
        StudyError: the studies are of different sentences, or heads do not correspond although
            ``heads`` is ``same``.
    """
    both = pair_studies(a, b, heads, names)
    nothing = pair_studies(a, null) if null is not None else None
    matched = {
        pair.name: matched_heads(both, pair, nothing)
        for pair in both.stacks
        if not (pair.a.crosses or pair.b.crosses)
    }
    if not both.same_heads:
        depths = {pair.name: depth_medians(both, pair) for pair in both.stacks}
        missing = tuple(_token_states(both))
        return Comparison(both, {}, matched, losses(both), missing, depths=depths)
    below = pair_studies(a, rounded, HeadCorrespondence.SAME) if rounded is not None else None
    drift = drift or ModelDrift()
    formats = pair_studies(*twice, HeadCorrespondence.SAME) if twice is not None else None
    found, layers = {}, {}
    for pair in both.stacks:
        heads_found = HeadDifferences.join_columns(
            [*_heads(both, pair, below), *drift.of(pair.name)]
        )
        tokens_found = layer_differences(both, pair)
        if formats is not None:
            heads_found = heads_found.above(head_floors(formats, pair))
            tokens_found = tokens_found and tokens_found.above(layer_floors(formats, pair))
        found[pair.name], layers[pair.name] = heads_found, tokens_found
    return Comparison(
        both,
        found,
        matched,
        losses(both),
        (*drift.missing, *_own_targets(both), *_token_states(both)),
        {name: each for name, each in layers.items() if each is not None},
        floor_sentences=0 if formats is None else formats.sentences,
    )


def _own_targets(both: StudyPair) -> Iterator[str]:
    """Yield what cannot be compared if each model generated its own target texts."""
    if any(text.generated for one, _ in both.mapped() for text in one.texts.values()):
        yield (
            "divergence of attention in decoder and cross-attention: no target texts were given, "
            "so that each model wrote its own"
        )


def _token_states(both: StudyPair) -> Iterator[str]:
    """Yield what cannot be compared with studies of earlier versions."""
    studies = both.a, both.b
    if all(each.corpus_sums.tokens for each in studies) and not all(
        each.corpus_sums.token_buckets for each in studies
    ):
        yield (
            "differences of token states: a study was collected by an earlier version, which kept "
            "no sums for them"
        )


def _heads(both: StudyPair, pair: StackPair, below: StudyPair | None) -> Iterator[HeadDifferences]:
    """Yield the differences of a stack's heads that the studies alone give."""
    yield head_differences(both, pair)
    yield from head_drifts(both, pair)
    if below is not None:
        yield from rounding_drift(below, pair)


def _rows(pair: StackPair, found: HeadDifferences) -> pd.DataFrame:
    """Return the rows of a pair of stacks for the heads of layers with attention."""
    _, n_heads, n_columns = found.value.shape
    present = [*pair.a.attention_layers]
    places = {
        "layer": np.repeat(present, n_heads * n_columns),
        "head": np.tile(np.repeat(np.arange(n_heads), n_columns), len(present)),
    }
    return _numbers(pair.name, found, places, present)


def _layer_rows(stack: str, found: LayerDifferences) -> pd.DataFrame:
    """Return the rows of a pair of stacks for the tokens of layers."""
    n_layers, n_columns = found.value.shape
    places = {"layer": np.repeat(np.arange(n_layers), n_columns), "head": None}
    return _numbers(stack, found, places, [*range(n_layers)])


def _numbers(
    stack: str, found: ModelDifferences, places: dict[str, Any], present: Sequence[int]
) -> pd.DataFrame:
    """Return a row for each cell and column of some layers.

    Args:
        places: layer and head of each row.
    """
    size = found.value[present].size // len(found.columns)
    names = {
        name: np.tile(np.array([getattr(c, name) for c in found.columns], object), size)
        for name in ("metric", "view", "label")
    }
    parts = {
        "a": found.a, "b": found.b, "difference": found.value, "low": found.low,
        "high": found.high, "p": found.p, "n_sentences": found.sentences,
        "floor": np.broadcast_to(found.floors, found.value.shape), "beyond_floor": found.beyond,
    }  # fmt: skip
    numbers = {name: part[present].reshape(-1) for name, part in parts.items()}
    table = pd.DataFrame({"stack": stack, **places, **names, **numbers})[
        [*DIFFERENCES_TABLE.columns]
    ]
    table["head"] = table["head"].astype("Int64")
    table["beyond_floor"] = table["beyond_floor"].astype("boolean").mask(table["floor"].isna())
    return table[table["difference"].notna()].reset_index(drop=True)


def _matching(stack: str, found: MatchedHeads) -> Iterator[dict[str, Any]]:
    """Yield a row for each head of the first model, with its match."""
    matched = found.matching
    for place, head in enumerate(found.a):
        partner, best = (
            None if number == UNMATCHED else found.b[number]
            for number in (matched.partner[place], matched.best[place])
        )
        yield {
            "stack": stack, "layer": head.layer, "head": head.head,
            "other_layer": partner and partner.layer, "other_head": partner and partner.head,
            "similarity": matched.similarity[place],
            "counterpart": bool(matched.counterpart[place]) if found.tested else None,
            "mutual": bool(matched.mutual[place]),
            "best_layer": best and best.layer, "best_head": best and best.head,
            "margin": matched.margin[place], "n_sentences": found.sentences,
        }  # fmt: skip


def _similarity(stack: str, found: MatchedHeads) -> pd.DataFrame:
    """Return the similarity of every two heads as rows."""
    sizes = len(found.a), len(found.b)
    return pd.DataFrame({
        "stack": stack,
        "layer": np.repeat([head.layer for head in found.a], sizes[1]),
        "head": np.repeat([head.head for head in found.a], sizes[1]),
        "other_layer": np.tile([head.layer for head in found.b], sizes[0]),
        "other_head": np.tile([head.head for head in found.b], sizes[0]),
        "similarity": found.similarity.reshape(-1),
    })  # fmt: skip
