"""The comparison of two studies: differences, medians, matching and losses, and its tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, prod
from typing import Any, NamedTuple

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
from headbook.comparison.drift import ModelDrift, head_drifts, layer_drift, rounding_drift
from headbook.comparison.matching import MatchedHeads, matched_heads
from headbook.comparison.study_pair import StackPair, StudyPair, pair_studies
from headbook.metrics import all_metrics
from headbook.schema import AblationTarget, HeadCorrespondence
from headbook.study.ablation.results import AblationResults
from headbook.study.study import Study
from headbook.study.tables import (
    HEAD_COLUMNS,
    LAYER_COLUMNS,
    MAX_PLAIN_CSV_BYTES,
    METRIC_COLUMNS,
    TableSpec,
)
from headbook.written_site import Site, show_site

DepthMedians = Mapping[ComparedColumn, Medians]


def depth_medians(sides: StudyPair, pair: StackPair) -> DepthMedians:
    """Return medians over all heads, or layers, of every number that both models have.

    Labels of token metrics are as in ``layers.csv``, without a view.
    """
    return dict(_medians(sides, pair))


def _medians(sides: StudyPair, pair: StackPair) -> Iterator[tuple[ComparedColumn, Medians]]:
    """Yield the medians of each number of heads, then of each number of tokens."""
    for sums in head_sums(sides, pair):
        for index, column in enumerate(sums.columns):
            yield column, _bounded_medians(column, _cells(sums.a, index), _cells(sums.b, index))
    for token_keys, _, a, b in token_sums(sides, pair):
        for index, token_key in enumerate(token_keys):
            column = ComparedColumn(token_key.metric, "", token_key.words)
            yield column, _bounded_medians(column, _cells(a, index), _cells(b, index))


def _cells(sums: ClusterSums, index: int) -> ClusterSums:
    """Return one column, with all cells in one dimension."""
    n_cells = prod(sums.n.shape[1:-1])
    return ClusterSums(*(part[..., index].reshape(len(part), n_cells) for part in sums))


def _bounded_medians(column: ComparedColumn, a: ClusterSums, b: ClusterSums) -> Medians:
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
    ablations = [study.corpus_sums.ablation for study in (sides.a, sides.b)]
    with_loss = [
        ablation
        for ablation in ablations
        if ablation and AblationTarget.LOSS in ablation.unablated and len(ablation.text_hash)
    ]
    if len(with_loss) < len(ablations):
        return None
    _, *rows = np.intersect1d(with_loss[0].text_hash, with_loss[1].text_hash, return_indices=True)
    if not len(rows[0]):
        return None
    a, b = (_loss_sums(ablation, row) for ablation, row in zip(with_loss, rows, strict=True))
    return Losses(differences(a.bits, b.bits), differences(a.nats, b.nats), len(rows[0]))


class _LossSums(NamedTuple):
    """Losses of one model by sentence: bits over characters, and nats over tokens."""

    bits: ClusterSums
    nats: ClusterSums


def _loss_sums(ablation: AblationResults, rows: Ints) -> _LossSums:
    """Return the losses of one model on some sentences of its ablation sample."""
    loss = ablation.unablated[AblationTarget.LOSS][rows]
    characters = ablation.characters[rows].astype(np.float64)
    return _LossSums(
        ClusterSums(np.where(characters > 0, loss, 0) / log(2), characters),
        ClusterSums(loss, ablation.counts[AblationTarget.LOSS][rows]),
    )


DIFFERENCES_TABLE: "TableSpec[Comparison]" = TableSpec(
    "differences",
    "What every number of every head, and of the tokens of every layer, is in both models, and how "
    "they differ: pairs of the same sentences, the second model minus the first.",
    LAYER_COLUMNS
    | {
        "head": "counted from 0; empty for layers: pattern_drift is the mean over their heads, "
        "other numbers are of tokens, with the labels of layers.csv: state, space where there is "
        "one, and class of tokens (mid/positional/content)"
    }
    | METRIC_COLUMNS
    | {
        "a": "value in the first model; empty where a number is of both",
        "b": "value in the second model",
        "difference": "b minus a; of pattern_drift how far the attention of both is apart, in nats",
        "low": "lower end of the 95 % confidence interval of the difference; paired by sentence",
        "high": "upper end",
        "p": "two-sided, of this difference alone: the larger one of bootstrap-t and the interval; "
        "1 where both models are exactly equal, empty without an interval or with fewer than 20 "
        "sentences (or buckets of them) in a model",
        "q": "p adjusted for all heads (or layers) and labels of the metric and view, for the "
        "false discovery rate (Benjamini-Hochberg); or, if that is smaller, the larger p of both "
        "halves of the sentences, adjusted for the ten differences with the largest t of the other "
        "half (Holm)",
        "n_sentences": "sentences behind it, in the model where they are fewer",
        "floor": "rounding floor: three times the largest difference over heads (or layers) that "
        "another number format of the first model makes in this number, or in the median label of "
        "the metric and view if that is larger; empty if not measured",
        "beyond_floor": "whether the interval lies above the floor, or below minus the floor; "
        "empty if no floor was measured",
        "supported": "whether pages count the difference: q < 0.05 and an interval beyond the "
        "floor, or beyond 0 if no floor was measured",
    },
    lambda comparison: comparison.differences,
    optional=True,
    plain_csv_limit=MAX_PLAIN_CSV_BYTES,
)
MEDIANS_TABLE: "TableSpec[Comparison]" = TableSpec(
    "medians",
    "Medians over all heads of each model, of metrics of tokens over all layers, and how they "
    "differ, for models whose heads do not correspond.",
    {"stack": "kind of attention"}
    | METRIC_COLUMNS
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
OTHER_HEAD_COLUMNS = {
    "other_layer": "of the head of the second model",
    "other_head": "its number there",
}
MATCHING_TABLE: "TableSpec[Comparison]" = TableSpec(
    "matching",
    "Which head of the second model each head of the first attends most like, one to one.",
    HEAD_COLUMNS
    | OTHER_HEAD_COLUMNS
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
SIMILARITY_TABLE: "TableSpec[Comparison]" = TableSpec(
    "head_similarity",
    "How alike every head of the first model and every head of the second attend.",
    HEAD_COLUMNS | OTHER_HEAD_COLUMNS | {"similarity": "as in matching; empty below 30 words"},
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
        site: the site that was written, or None.
    """

    sides: StudyPair
    heads: Mapping[str, HeadDifferences] = field(default_factory=dict)
    matched: Mapping[str, MatchedHeads] = field(default_factory=dict)
    losses: Losses | None = None
    missing: tuple[str, ...] = ()
    layers: Mapping[str, LayerDifferences] = field(default_factory=dict)
    depths: Mapping[str, DepthMedians] = field(default_factory=dict)
    floor_sentences: int = 0
    site: Site | None = None

    def __repr__(self) -> str:
        """Return lines on the two models and the sentences."""
        sides = self.sides
        return (
            f"Comparison of {sides.names[0]} and {sides.names[1]} on {sides.sentences:,} sentences"
            + ("" if self.site is None else f"\n{self.site.index}")
        )

    def _repr_html_(self) -> str:
        """Return the overview of the comparison as HTML, for notebooks."""
        from headbook.notebook.views import comparison_html  # noqa: PLC0415

        return comparison_html(self)

    def show(self) -> None:
        """Show the site, as `Site.show` does.

        Raises:
            ConfigError: no site was written.
        """
        show_site(self.site)

    @property
    def differences(self) -> pd.DataFrame:
        """Table with a row for each number of each head and of each layer.

        Numbers of layers are the mean divergence of their heads and those of tokens.

        Columns are as in ``differences.csv``.
        """
        pairs = {pair.name: pair for pair in self.sides.stacks}
        frames = [_head_rows(pairs[name], differences) for name, differences in self.heads.items()]
        drifts = {name: layer_drift(differences) for name, differences in self.heads.items()}
        frames += [_layer_rows(name, drift) for name, drift in drifts.items() if drift is not None]
        frames += [_layer_rows(name, differences) for name, differences in self.layers.items()]
        return pd.concat(frames, ignore_index=True) if frames else DIFFERENCES_TABLE.empty

    @property
    def medians(self) -> pd.DataFrame:
        """Table with a row for each number of both models; columns as in ``medians.csv``."""
        rows = [
            (stack, *column, *of_column.a, *of_column.b, *of_column.difference)
            for stack, by_column in self.depths.items()
            for column, of_column in by_column.items()
        ]
        table = pd.DataFrame(rows, columns=[*MEDIANS_TABLE.columns])
        return table[table["difference"].notna()].reset_index(drop=True)

    @property
    def matching(self) -> pd.DataFrame:
        """Table with a row for each head of the first model; columns as in ``matching.csv``."""
        rows = [
            row for stack, matched in self.matched.items() for row in _matching_rows(stack, matched)
        ]
        return pd.DataFrame(rows, columns=[*MATCHING_TABLE.columns])

    @property
    def similarity(self) -> pd.DataFrame:
        """Table with a row for every two heads; columns as in ``head_similarity.csv``."""
        frames = [_similarity_rows(stack, matched) for stack, matched in self.matched.items()]
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
        a: study of the first model.
        b: study of the second model.
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
    sides = pair_studies(a, b, heads, names)
    untrained_pair = pair_studies(a, null) if null is not None else None
    matched = {
        pair.name: matched_heads(sides, pair, untrained_pair)
        for pair in sides.stacks
        if not (pair.a.crosses or pair.b.crosses)
    }
    if not sides.same_heads:
        depths = {pair.name: depth_medians(sides, pair) for pair in sides.stacks}
        return Comparison(sides, {}, matched, losses(sides), (), depths=depths)
    exact_rounded = pair_studies(a, rounded, HeadCorrespondence.SAME) if rounded else None
    formats = pair_studies(*twice, HeadCorrespondence.SAME) if twice else None
    drift = drift or ModelDrift()
    return Comparison(
        sides,
        {
            pair.name: _head_differences(sides, pair, drift, exact_rounded, formats)
            for pair in sides.stacks
        },
        matched,
        losses(sides),
        (*drift.missing, *_generated_targets_gap(sides)),
        dict(_layer_differences(sides, formats)),
        floor_sentences=0 if formats is None else formats.sentences,
    )


def _generated_targets_gap(sides: StudyPair) -> Iterator[str]:
    """Yield what cannot be compared if each model generated its own target texts."""
    if any(text.generated for sentence, _ in sides.mapped() for text in sentence.texts.values()):
        yield (
            "divergence of attention in decoder and cross-attention: no target texts were given, "
            "so that each model wrote its own"
        )


def _head_differences(
    sides: StudyPair,
    pair: StackPair,
    drift: ModelDrift,
    exact_rounded: StudyPair | None,
    formats: StudyPair | None,
) -> HeadDifferences:
    """Return all differences of the heads of one stack, with their rounding floors.

    Args:
        sides: the two studies.
        pair: stacks that are compared.
        drift: drift of weights and outputs.
        exact_rounded: the first model with exact and with rounded weights; None if not measured.
        formats: the first model in two number formats, for the floors; None if not measured.
    """
    parts = [head_differences(sides, pair), *head_drifts(sides, pair)]
    if exact_rounded is not None:
        parts += rounding_drift(exact_rounded, pair)
    joined = HeadDifferences.join_columns([*parts, *drift.of(pair.name)])
    return joined if formats is None else joined.above(head_floors(formats, pair))


def _layer_differences(
    sides: StudyPair, formats: StudyPair | None
) -> Iterator[tuple[str, LayerDifferences]]:
    """Yield the differences of the tokens of each stack that has any, with rounding floors."""
    for pair in sides.stacks:
        differences_of_stack = layer_differences(sides, pair)
        if differences_of_stack is None:
            continue
        if formats is not None:
            differences_of_stack = differences_of_stack.above(layer_floors(formats, pair))
        yield pair.name, differences_of_stack


def _head_rows(pair: StackPair, differences: HeadDifferences) -> pd.DataFrame:
    """Return the rows of a pair of stacks for the heads of layers with attention."""
    _, n_heads, n_columns = differences.value.shape
    layers = [*pair.a.attention_layers]
    positions = {
        "layer": np.repeat(layers, n_heads * n_columns),
        "head": np.tile(np.repeat(np.arange(n_heads), n_columns), len(layers)),
    }
    return _table_rows(pair.name, differences, positions, layers)


def _layer_rows(stack: str, differences: LayerDifferences) -> pd.DataFrame:
    """Return the rows of a pair of stacks for the tokens of layers."""
    n_layers, n_columns = differences.value.shape
    positions = {"layer": np.repeat(np.arange(n_layers), n_columns), "head": None}
    return _table_rows(stack, differences, positions, [*range(n_layers)])


def _table_rows(
    stack: str, differences: ModelDifferences, positions: dict[str, Any], layers: Sequence[int]
) -> pd.DataFrame:
    """Return a row for each cell and column of some layers.

    Args:
        positions: layer and head of each row.
    """
    n_cells = differences.value[layers].size // len(differences.columns)
    names = {
        name: np.tile(
            np.array([getattr(column, name) for column in differences.columns], object), n_cells
        )
        for name in ("metric", "view", "label")
    }
    arrays = {
        "a": differences.a,
        "b": differences.b,
        "difference": differences.value,
        "low": differences.low,
        "high": differences.high,
        "p": differences.p,
        "q": differences.q,
        "n_sentences": differences.sentences,
        "floor": np.broadcast_to(differences.floors, differences.value.shape),
        "beyond_floor": differences.beyond,
        "supported": differences.supported,
    }
    numbers = {name: array[layers].reshape(-1) for name, array in arrays.items()}
    table = pd.DataFrame({"stack": stack, **positions, **names, **numbers})[
        [*DIFFERENCES_TABLE.columns]
    ]
    table["head"] = table["head"].astype("Int64")
    table["beyond_floor"] = table["beyond_floor"].astype("boolean").mask(table["floor"].isna())
    return table[table["difference"].notna()].reset_index(drop=True)


def _matching_rows(stack: str, heads: MatchedHeads) -> Iterator[dict[str, Any]]:
    """Yield a row for each head of the first model, with its match."""
    matching = heads.matching
    for index, head in enumerate(heads.a):
        partner, best = (
            None if head_index == UNMATCHED else heads.b[head_index]
            for head_index in (matching.partner[index], matching.best[index])
        )
        yield {
            "stack": stack, "layer": head.layer, "head": head.head,
            "other_layer": partner and partner.layer, "other_head": partner and partner.head,
            "similarity": matching.similarity[index],
            "counterpart": bool(matching.counterpart[index]) if heads.tested else None,
            "mutual": bool(matching.mutual[index]),
            "best_layer": best and best.layer, "best_head": best and best.head,
            "margin": matching.margin[index], "n_sentences": heads.sentences,
        }  # fmt: skip


def _similarity_rows(stack: str, matched: MatchedHeads) -> pd.DataFrame:
    """Return the similarity of every two heads as rows."""
    n_heads_a, n_heads_b = len(matched.a), len(matched.b)
    return pd.DataFrame({
        "stack": stack,
        "layer": np.repeat([head.layer for head in matched.a], n_heads_b),
        "head": np.repeat([head.head for head in matched.a], n_heads_b),
        "other_layer": np.tile([head.layer for head in matched.b], n_heads_a),
        "other_head": np.tile([head.head for head in matched.b], n_heads_a),
        "similarity": matched.similarity.reshape(-1),
    })  # fmt: skip
