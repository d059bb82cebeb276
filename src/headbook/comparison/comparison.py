"""A whole comparison: everything that two studies of the same sentences say of each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.matching import NONE
from headbook.comparison.depthmedians import DepthMedians, depth_medians
from headbook.comparison.drift import drifts, floor
from headbook.comparison.headdifferences import HeadDifferences, head_differences, head_floors
from headbook.comparison.layerdifferences import LayerDifferences, layer_differences, layer_floors
from headbook.comparison.losses import Losses, losses
from headbook.comparison.matched import MatchedHeads, matched_heads
from headbook.comparison.modeldifferences import ModelDifferences
from headbook.comparison.modeldrift import ModelDrift
from headbook.comparison.sides import Sides, StackPair, sides
from headbook.study.study import Study
from headbook.terms import Heads

DIFFERENCES = (
    "stack", "layer", "head", "metric", "view", "label", "a", "b", "difference", "low", "high",
    "p", "sentences", "floor", "beyond_floor",
)  # fmt: skip
MEDIANS = (
    "stack", "metric", "view", "label", "a", "a_low", "a_high", "b", "b_low", "b_high",
    "difference", "low", "high",
)  # fmt: skip
MATCHING = (
    "stack", "layer", "head", "other_layer", "other_head", "similarity", "counterpart", "mutual",
    "best_layer", "best_head", "margin", "sentences",
)  # fmt: skip
ALIKE = ("stack", "layer", "head", "other_layer", "other_head", "similarity")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two models on the same sentences.

    Attributes:
        sides: the studies, and whether heads correspond by their numbers.
        heads: differences of corresponding heads, by the name of the pair of stacks; empty where
            heads do not correspond.
        layers: differences of the tokens of corresponding layers, by the same name; empty likewise,
            and of studies that have no sums of tokens by groups of sentences.
        depths: medians over all heads, or layers, of both models, by the same name; only where
            heads do not correspond.
        matched: which heads attend alike, by the same name; not of cross-attention.
        losses: of both models, where both predict texts from left to right.
        missing: what could not be compared, and why, in words.
        floor_sentences: sentences that rounding floors were measured on; 0 if they were not.
    """

    sides: Sides
    heads: Mapping[str, HeadDifferences] = field(default_factory=dict)
    matched: Mapping[str, MatchedHeads] = field(default_factory=dict)
    losses: Losses | None = None
    missing: tuple[str, ...] = ()
    layers: Mapping[str, LayerDifferences] = field(default_factory=dict)
    depths: Mapping[str, DepthMedians] = field(default_factory=dict)
    floor_sentences: int = 0

    @property
    def differences(self) -> pd.DataFrame:
        """A row for each number of each head, and of the tokens of each layer.

        Columns as in ``differences.csv``.
        """
        pairs = {pair.name: pair for pair in self.sides.stacks}
        frames = [_rows(pairs[name], found) for name, found in self.heads.items()]
        frames += [_layer_rows(name, found) for name, found in self.layers.items()]
        return (
            pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*DIFFERENCES])
        )

    @property
    def medians(self) -> pd.DataFrame:
        """A row for each number of both models; columns as in ``medians.csv``."""
        rows = [
            (stack, *column, *found.a, *found.b, *found.difference)
            for stack, every in self.depths.items()
            for column, found in every.items()
        ]
        table = pd.DataFrame(rows, columns=[*MEDIANS])
        return table[table["difference"].notna()].reset_index(drop=True)

    @property
    def matching(self) -> pd.DataFrame:
        """A row for each head of the first model; columns as in ``matching.csv``."""
        rows = [row for stack, found in self.matched.items() for row in _matching(stack, found)]
        return pd.DataFrame(rows, columns=[*MATCHING])

    @property
    def similarity(self) -> pd.DataFrame:
        """A row for every two heads of both models; columns as in ``head_similarity.csv``."""
        frames = [_similarity(stack, found) for stack, found in self.matched.items()]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*ALIKE])


def compare(
    a: Study,
    b: Study,
    heads: Heads = Heads.AUTO,
    *,
    names: tuple[str, str] = ("", ""),
    rounded: Study | None = None,
    null: Study | None = None,
    drift: ModelDrift | None = None,
    twice: tuple[Study, Study] | None = None,
) -> Comparison:
    """Compare two studies of the same sentences; differences are what ``b`` has more.

    Args:
        heads: which heads are held against each other.
        names: what pages call the models; by default their own names.
        rounded: the first model in bfloat16, for what rounding alone does.
        drift: of weights and outputs, where the models themselves were compared.
        null: the second model with random weights, for how alike heads are that learned nothing.
        twice: the first model as it is and in another number format, both on the same sentences,
            for the rounding floor of every number.

    Raises:
        StudyError: the studies are of different sentences, or heads do not correspond although
            that was asked for.
    """
    both = sides(a, b, heads, names)
    nothing = sides(a, null) if null is not None else None
    matched = {
        pair.name: matched_heads(both, pair, nothing)
        for pair in both.stacks
        if not (pair.a.crosses or pair.b.crosses)
    }
    if not both.same_heads:
        depths = {pair.name: depth_medians(both, pair) for pair in both.stacks}
        missing = tuple(_token_states(both))
        return Comparison(both, {}, matched, losses(both), missing, depths=depths)
    below = sides(a, rounded, Heads.SAME) if rounded is not None else None
    drift = drift or ModelDrift()
    formats = sides(*twice, Heads.SAME) if twice is not None else None
    found, layers = {}, {}
    for pair in both.stacks:
        heads_found = HeadDifferences.beside([*_heads(both, pair, below), *drift.of(pair.name)])
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


def _own_targets(both: Sides) -> Iterator[str]:
    """What cannot be compared where each model wrote its own target texts."""
    if any(text.generated for one, _ in both.mapped() for text in one.texts.values()):
        yield (
            "divergence of attention in decoder and cross-attention: no target texts were given, "
            "so that each model wrote its own"
        )


def _token_states(both: Sides) -> Iterator[str]:
    """What studies of earlier versions lack."""
    studies = both.a, both.b
    if all(each.corpus_sums.tokens for each in studies) and not all(
        each.corpus_sums.token_buckets for each in studies
    ):
        yield (
            "differences of token states: a study was collected by an earlier version, which kept "
            "no sums for them"
        )


def _heads(both: Sides, pair: StackPair, below: Sides | None) -> Iterator[HeadDifferences]:
    """What studies alone say of the heads of a stack."""
    yield head_differences(both, pair)
    yield from drifts(both, pair)
    if below is not None:
        yield from floor(below, pair)


def _rows(pair: StackPair, found: HeadDifferences) -> pd.DataFrame:
    """The numbers of the heads of one pair of stacks, those that there are."""
    _, n_heads, n_columns = found.value.shape
    present = [*pair.a.attention_layers]
    places = {
        "layer": np.repeat(present, n_heads * n_columns),
        "head": np.tile(np.repeat(np.arange(n_heads), n_columns), len(present)),
    }
    return _numbers(pair.name, found, places, present)


def _layer_rows(stack: str, found: LayerDifferences) -> pd.DataFrame:
    """The numbers of the tokens of one pair of stacks; of no head."""
    n_layers, n_columns = found.value.shape
    places = {"layer": np.repeat(np.arange(n_layers), n_columns), "head": None}
    return _numbers(stack, found, places, [*range(n_layers)])


def _numbers(
    stack: str, found: ModelDifferences, places: dict[str, Any], present: Sequence[int]
) -> pd.DataFrame:
    """A row for each cell and column of some layers.

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
        "high": found.high, "p": found.p, "sentences": found.sentences,
        "floor": np.broadcast_to(found.floors, found.value.shape), "beyond_floor": found.beyond,
    }  # fmt: skip
    numbers = {name: part[present].reshape(-1) for name, part in parts.items()}
    table = pd.DataFrame({"stack": stack, **places, **names, **numbers})[[*DIFFERENCES]]
    table["head"] = table["head"].astype("Int64")
    table["beyond_floor"] = table["beyond_floor"].astype("boolean").mask(table["floor"].isna())
    return table[table["difference"].notna()].reset_index(drop=True)


def _matching(stack: str, found: MatchedHeads) -> Iterator[dict[str, Any]]:
    """Each head of the first model with the one it is matched with."""
    matched = found.matching
    for place, head in enumerate(found.a):
        partner, best = (
            None if number == NONE else found.b[number]
            for number in (matched.partner[place], matched.best[place])
        )
        yield {
            "stack": stack, "layer": head.layer, "head": head.head,
            "other_layer": partner and partner.layer, "other_head": partner and partner.head,
            "similarity": matched.similarity[place],
            "counterpart": bool(matched.counterpart[place]) if found.tested else None,
            "mutual": bool(matched.mutual[place]),
            "best_layer": best and best.layer, "best_head": best and best.head,
            "margin": matched.margin[place], "sentences": found.sentences,
        }  # fmt: skip


def _similarity(stack: str, found: MatchedHeads) -> pd.DataFrame:
    """Every two heads."""
    sizes = len(found.a), len(found.b)
    return pd.DataFrame({
        "stack": stack,
        "layer": np.repeat([head.layer for head in found.a], sizes[1]),
        "head": np.repeat([head.head for head in found.a], sizes[1]),
        "other_layer": np.tile([head.layer for head in found.b], sizes[0]),
        "other_head": np.tile([head.head for head in found.b], sizes[0]),
        "similarity": found.similarity.reshape(-1),
    })  # fmt: skip
