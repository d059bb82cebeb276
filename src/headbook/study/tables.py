"""The sums of a study as tables: one row a number, with its interval and what stands behind it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Ratios
from headbook.analysis.arithmetic import Floats, divide
from headbook.metrics import all_metrics
from headbook.study.summaries.columns import HeadColumn, TokenColumn
from headbook.study.summaries.contrasts import PairDifferences
from headbook.study.summaries.sums import Distances, HeadSums, HeadTable, TokenSums
from headbook.study.summaries.typesums import STATES, TypeSums
from headbook.terms import HEADLINES, Spread, Twin

if TYPE_CHECKING:
    from headbook.study.study import Study

NUMBERS = ("value", "low", "high", "sentences", "events")
HEADS = ("stack", "layer", "head", "metric", "view", "label", *NUMBERS)
LAYERS = ("stack", "layer", "metric", "view", "label", *NUMBERS)
COMPARED = ("control", *HEADS)
GROUPS = ("column", "group", *HEADS)
MINIMAL_PAIRS = (
    "stack", "layer", "head", "metric", "view", "label", "first_member", "second_member",
    "first", "second", "value", "low", "high", "p", "pairs",
)  # fmt: skip
PAIRS = (
    "stack", "layer", "head", "other_layer", "other_head",
    "metric", "view", "value", "sentences", "rows",
)  # fmt: skip
TYPES = (
    "stack", "entry", "token", "layer", "state", "value", "spread", "count", "sentences",
)  # fmt: skip
WORDS = (
    "class", "stack", "layer", "state", "metric", "space", "value", "low", "high", "n_sentences",
    "n_observations",
)  # fmt: skip
# Tables that code above this folder computes from a study, by name; `headbook.report.tables` enters
# its own.
COMPUTED: dict[str, Callable[["Study"], pd.DataFrame]] = {}
UNIFORM = "uniform attention"
HELLINGER = "squared Hellinger distance"  # of heads, in the table of pairs
MOST_ROWS = 2_000_000  # of the table of groups
UNCOMPRESSED = 100_000  # bytes of most tables as CSV up to which it is not compressed
MOST_OF = {"tokens": 2_500_000, "nearest": 2_500_000}  # and from which there is Parquet alone


def heads_table(
    heads: Mapping[str, HeadTable], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Every number of every head.

    Args:
        layers: by stack, the layers that have attention.
    """
    frames = []
    for stack, sums in heads.items():
        present = list(layers[stack])
        n_heads = sums.heads.sums.shape[3]
        frame = _numbers(sums.heads[present], sums.columns)
        frame["head"] = np.tile(np.repeat(np.arange(n_heads), len(sums.columns)), len(present))
        frame["layer"] = np.repeat(present, n_heads * len(sums.columns))
        frame["stack"] = stack
        frames.append(frame[[*HEADS]])
    return pd.concat(frames, ignore_index=True)


def layers_table(
    heads: Mapping[str, HeadTable],
    tokens: Sequence[Mapping[str, TokenSums]],
    layers: Mapping[str, Sequence[int]],
) -> pd.DataFrame:
    """Every number of every layer: heads together, then tokens together.

    Labels of token metrics name state, space (where there is one) and class of tokens:
    ``mid/positional/NOUN``.
    """
    frames = [
        _of_layers(stack, sums.layers, sums.columns, layers[stack]) for stack, sums in heads.items()
    ]
    for token in tokens:
        for stack, token_sums in token.items():
            columns = [_as_head_column(column) for column in token_sums.columns]
            present = range(token_sums.layers.sums.shape[2])
            frames.append(_of_layers(stack, token_sums.layers, columns, present))
    return pd.concat(frames, ignore_index=True)


def words_table(tokens: Sequence[Mapping[str, TokenSums]]) -> pd.DataFrame:
    """Return the table of token metrics by class of words, state and vocabulary space.

    Classes without a token are left out.
    """
    frames = [_of_words(stack, sums) for by_stack in tokens for stack, sums in by_stack.items()]
    if not frames:
        return pd.DataFrame(columns=[*WORDS])
    table = pd.concat(frames, ignore_index=True)
    return table[table["value"].notna()].reset_index(drop=True)


def _of_words(stack: str, sums: TokenSums) -> pd.DataFrame:
    columns, n_layers = sums.columns, sums.layers.sums.shape[2]
    frame = _numbers(sums.layers, [_as_head_column(column) for column in columns])
    named = {
        "class": [column.label for column in columns],
        "state": [str(column.state) for column in columns],
        "space": [str(column.space or "") for column in columns],
    }
    frame = frame.assign(**{name: n_layers * values for name, values in named.items()})
    frame["layer"] = np.repeat(np.arange(n_layers), len(columns))
    frame = frame.rename(columns={"sentences": "n_sentences", "events": "n_observations"})
    return frame.assign(stack=stack)[[*WORDS]]


def uniform_table(
    heads: Mapping[str, HeadTable], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """The same measures taken on attention that looks everywhere alike."""
    frames = [
        _of_layers(stack, sums.uniform, sums.columns, layers[stack])
        for stack, sums in heads.items()
    ]
    table = pd.concat(frames, ignore_index=True)
    table.insert(0, "control", UNIFORM)
    return table


def compared_table(
    twins: Mapping[Twin, Mapping[str, HeadTable]], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """The same measures taken on what the model is compared with, by its name."""
    frames = []
    for twin, heads in twins.items():
        table = heads_table(heads, layers)
        table.insert(0, "control", str(twin))
        frames.append(table)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*COMPARED])


def groups_table(
    heads: Mapping[str, HeadSums], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Every number of every head by group of sentences; those without any data are left out.

    Where there would be more than `MOST_ROWS` of them, those of `HEADLINES` alone.
    """
    frames, few = [], _group_rows(heads) > MOST_ROWS
    for stack, sums in heads.items():
        there = dict.fromkeys(column.metric for column in sums.table.columns)
        kept = [name for name in there if name in HEADLINES] or [*there][:1] if few else there
        places = [n for n, column in enumerate(sums.table.columns) if column.metric in kept]
        columns = tuple(sums.table.columns[position] for position in places)
        for group in sums.groups:
            parts = (ratios[..., places] for ratios in (group.heads, group.layers, group.uniform))
            own = HeadTable(columns, *parts)
            table = heads_table({stack: own}, layers)
            table = table[table["sentences"] > 0].assign(column=group.column, group=group.value)
            frames.append(table[[*GROUPS]])
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*GROUPS])


def _group_rows(heads: Mapping[str, HeadSums]) -> int:
    """Numbers that groups have, with and without data."""
    sizes = ((len(sums.groups), sums.table.heads.value.size) for sums in heads.values())
    return sum(groups * size for groups, size in sizes)


def minimal_pairs_table(
    differences: Mapping[str, PairDifferences], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """What differs within pairs of sentences, for every head."""
    frames = []
    for stack, difference in differences.items():
        present = list(layers[stack])
        table = _numbers(difference.difference[present], difference.columns)
        low, high = (end[present] for end in difference.ends)
        n_heads, n_columns = difference.p.shape[1:]
        table = table.assign(
            stack=stack,
            layer=np.repeat(present, n_heads * n_columns),
            head=np.tile(np.repeat(np.arange(n_heads), n_columns), len(present)),
            first_member=difference.members[0],
            second_member=difference.members[1],
            first=difference.first[present].ravel(),
            second=difference.second[present].ravel(),
            low=low.ravel(),  # differences have bounds of their own
            high=high.ravel(),
            p=difference.p[present].ravel(),
            pairs=table["sentences"],
        )
        frames.append(table[[*MINIMAL_PAIRS]])
    if not frames:
        return pd.DataFrame(columns=[*MINIMAL_PAIRS])
    return pd.concat(frames, ignore_index=True)


def pairs_table(
    distances: Mapping[str, Distances], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Every number of every two heads, each pair once.

    Where not all pairs were compared, there are those that were, and `HELLINGER` of all.
    """
    frames = []
    for stack, sums in distances.items():
        n_heads = sums.total.shape[1] // len(layers[stack])
        for name, view, values, counts in _pair_values(sums):
            every = np.triu_indices(len(values), 1)
            there = counts[every] > (0 if sums.alike else -1)
            one, other = (place[there] for place in every)
            numbers = {"value": values[one, other], "rows": counts[one, other].astype(np.int64)}
            frame = pd.DataFrame(numbers)
            for name_of, place in (("", one), ("other_", other)):
                frame[f"{name_of}layer"] = np.take(layers[stack], place // n_heads)
                frame[f"{name_of}head"] = place % n_heads
            frame = frame.assign(stack=stack, metric=name, view=view, sentences=sums.sentences)
            frames.append(frame[[*PAIRS]])
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*PAIRS])


def _pair_values(sums: Distances) -> Iterator[tuple[str, str, Floats, Floats]]:
    """Name, view, values and rows behind them of everything known of pairs of heads."""
    for index, column in enumerate(sums.columns):
        values = divide(sums.total[index], sums.rows[index])
        yield column.metric, str(column.view), values, sums.rows[index]
    for index, column in enumerate(sums.columns if sums.alike else ()):
        assert sums.alike is not None
        yield HELLINGER, str(column.view), sums.alike.apart[index], sums.alike.rows[index]


def types_table(types: Mapping[str, TypeSums]) -> pd.DataFrame:
    """The mean path of every token type."""
    frames = []
    for stack, sums in types.items():
        n_types, n_layers, n_states = sums.total.shape
        frame = pd.DataFrame({"value": sums.mean.ravel(), "spread": sums.spread.ravel()})
        for name in ("ids", "names", "count", "sentences"):
            frame[name] = np.repeat(np.array(getattr(sums, name)), n_layers * n_states)
        frame["layer"] = np.tile(np.repeat(np.arange(n_layers), n_states), n_types)
        frame["state"] = np.tile([str(state) for state in STATES], n_types * n_layers)
        frame = frame.rename(columns={"ids": "entry", "names": "token"})[frame["value"].notna()]
        frames.append(frame.assign(stack=stack)[[*TYPES]])
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*TYPES])


def _of_layers(
    stack: str,
    ratios: Ratios,
    columns: Sequence[HeadColumn],
    present: Sequence[int],
) -> pd.DataFrame:
    frame = _numbers(ratios[list(present)], columns)
    frame["layer"] = np.repeat(list(present), len(columns))
    frame["stack"] = stack
    return frame[[*LAYERS]]


def _as_head_column(column: TokenColumn) -> HeadColumn:
    return HeadColumn(column.metric, "", column.words)  # type: ignore[arg-type]


def _numbers(ratios: Ratios, columns: Sequence[HeadColumn]) -> pd.DataFrame:
    """Flatten ratios whose last dimension holds ``columns``."""
    value = ratios.value
    least, most = np.array([_limits(column) for column in columns]).reshape(-1, 2).T
    low, high = ratios.interval((least, most), [_spread(column) for column in columns])
    names = pd.DataFrame(columns, columns=["metric", "view", "label"]).map(str)
    repeated = pd.concat([names] * int(np.prod(value.shape[:-1])), ignore_index=True)
    return repeated.assign(
        value=value.ravel(),
        low=low.ravel(),
        high=high.ravel(),
        sentences=ratios.sentences.ravel(),
        events=ratios.events.ravel(),
    )


def _limits(column: HeadColumn) -> tuple[float, float]:
    """Bounds of a metric; none for one that this version does not know."""
    metric = all_metrics().get(column.metric)
    return metric.limits if metric is not None else (-np.inf, np.inf)


def _spread(column: HeadColumn) -> Spread:
    """How its values vary from sentence to sentence."""
    metric = all_metrics().get(column.metric)
    return Spread.USUAL if metric is None else metric.spread(column.label)
