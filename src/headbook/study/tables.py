"""The registry of tables (name, description, columns, builder) and the builders of heads.

Layers, controls, pairs, groups, tokens, types, geometry.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import Floats, divide
from headbook.metrics import all_metrics
from headbook.schema import MAIN_METRICS, BaselineRun, HeadKey, IntervalRule, TokenKey
from headbook.study.ablation_tables import DESCRIBED
from headbook.study.contrasts import PairDifferences
from headbook.study.corpus_sums import HeadDistances, HeadSums, HeadTable, TokenSums
from headbook.study.state_geometry import CKA, OUTLIERS, GeometrySums, short_names, state_names
from headbook.study.token_sums import KINDS, STATES, Affinities, TokenTypeSums, favoured_tokens

if TYPE_CHECKING:
    from headbook.study.study import Study


LISTED = 10  # dimensions of a state in the table
TABLE = (
    "stack", "layer", "state", "metric", "label",
    "value", "low", "high", "n_sentences", "n_observations",
)  # fmt: skip


def shape_table(geometry: Mapping[str, GeometrySums]) -> pd.DataFrame:
    """Every number of every state; the other state, or the dimension, stands in ``label``."""
    frames = [
        pd.DataFrame(rows, columns=[*TABLE[1:]]).assign(stack=stack)
        for stack, sums in geometry.items()
        for rows in (_state_rows(sums), _alike(sums), _dimensions(sums))
        if rows
    ]
    if not frames:
        return pd.DataFrame(columns=[*TABLE])
    table = pd.concat(frames, ignore_index=True)
    return table.astype({"layer": "Int64", "n_sentences": "int64"})[[*TABLE]]


def _state_rows(sums: GeometrySums) -> list[tuple[object, ...]]:
    parts = (sums.states.value, *sums.ends, sums.states.n_sentences, sums.states.n_observations)
    return [
        (layer, str(state), *column, *(part[row, index] for part in parts))
        for row, (layer, state) in enumerate(state_names(len(sums.weights)))
        for index, column in enumerate(sums.columns)
    ]


def _alike(sums: GeometrySums) -> list[tuple[object, ...]]:
    names, others = state_names(len(sums.weights)), short_names(len(sums.weights))
    behind = (np.nan, np.nan, sums.sentences, float(sums.minibatches))
    return [
        (layer, str(state), CKA, other, value, *behind)
        for (layer, state), row in zip(names, sums.cka, strict=True)
        for other, value in zip(others, row, strict=True)
        if sums.products.size
    ]


def _dimensions(sums: GeometrySums) -> list[tuple[object, ...]]:
    """The dimensions that add most, in each state."""
    asked = any(column.metric == OUTLIERS for column in sums.columns)
    behind = (np.nan, np.nan, sums.sentences, float(sums.tokens))
    return [
        (
            layer,
            str(state),
            OUTLIERS,
            f"dimension {position}",
            sums.contributions[row, position],
            *behind,
        )
        for row, (layer, state) in enumerate(state_names(len(sums.weights)))
        for position in sums.largest(row, LISTED)
        if asked
    ]


ESTIMATE_COLUMNS = ("value", "low", "high", "n_sentences", "n_observations")
HEADS = ("stack", "layer", "head", "metric", "view", "label", *ESTIMATE_COLUMNS)
LAYERS = ("stack", "layer", "metric", "view", "label", *ESTIMATE_COLUMNS)
COMPARED = ("baseline", *HEADS)
GROUPS = ("facet", "group", *HEADS)
MINIMAL_PAIRS = (
    "stack", "layer", "head", "metric", "view", "label", "first_member", "second_member",
    "first", "second", "value", "low", "high", "p", "pairs",
)  # fmt: skip
PAIRS = (
    "stack", "layer", "head", "other_layer", "other_head",
    "metric", "view", "value", "n_sentences", "rows",
)  # fmt: skip
TYPES = (
    "stack", "entry", "token", "layer", "state", "value", "std", "count", "n_sentences",
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
        frame = _estimate_rows(sums.heads[present], sums.columns)
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
    frame = _estimate_rows(sums.layers, [_as_head_column(column) for column in columns])
    named = {
        "class": [column.label for column in columns],
        "state": [str(column.state) for column in columns],
        "space": [str(column.space or "") for column in columns],
    }
    frame = frame.assign(**{name: n_layers * values for name, values in named.items()})
    frame["layer"] = np.repeat(np.arange(n_layers), len(columns))
    return frame.assign(stack=stack)[[*WORDS]]


def controls_table(
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
    baseline_runs: Mapping[BaselineRun, Mapping[str, HeadTable]],
    layers: Mapping[str, Sequence[int]],
) -> pd.DataFrame:
    """The same measures taken on what the model is compared with, by its name."""
    frames = []
    for baseline_run, heads in baseline_runs.items():
        table = heads_table(heads, layers)
        table.insert(0, "baseline", str(baseline_run))
        frames.append(table)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*COMPARED])


def groups_table(
    heads: Mapping[str, HeadSums], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Every number of every head by group of sentences; those without any data are left out.

    Where there would be more than `MOST_ROWS` of them, those of `MAIN_METRICS` alone.
    """
    frames, few = [], _group_rows(heads) > MOST_ROWS
    for stack, sums in heads.items():
        there = dict.fromkeys(column.metric for column in sums.table.columns)
        kept = [name for name in there if name in MAIN_METRICS] or [*there][:1] if few else there
        places = [n for n, column in enumerate(sums.table.columns) if column.metric in kept]
        columns = tuple(sums.table.columns[position] for position in places)
        for group in sums.groups:
            parts = (ratios[..., places] for ratios in (group.heads, group.layers, group.uniform))
            own = HeadTable(columns, *parts)
            table = heads_table({stack: own}, layers)
            table = table[table["n_sentences"] > 0].assign(facet=group.column, group=group.value)
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
        table = _estimate_rows(difference.difference[present], difference.columns)
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
            pairs=table["n_sentences"],
        )
        frames.append(table[[*MINIMAL_PAIRS]])
    if not frames:
        return pd.DataFrame(columns=[*MINIMAL_PAIRS])
    return pd.concat(frames, ignore_index=True)


def pairs_table(
    distances: Mapping[str, HeadDistances], layers: Mapping[str, Sequence[int]]
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
            frame = frame.assign(stack=stack, metric=name, view=view, n_sentences=sums.sentences)
            frames.append(frame[[*PAIRS]])
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*PAIRS])


def _pair_values(sums: HeadDistances) -> Iterator[tuple[str, str, Floats, Floats]]:
    """Name, view, values and rows behind them of everything known of pairs of heads."""
    for index, column in enumerate(sums.columns):
        values = divide(sums.total[index], sums.rows[index])
        yield column.metric, str(column.view), values, sums.rows[index]
    for index, column in enumerate(sums.columns if sums.alike else ()):
        assert sums.alike is not None
        yield HELLINGER, str(column.view), sums.alike.apart[index], sums.alike.rows[index]


def types_table(types: Mapping[str, TokenTypeSums]) -> pd.DataFrame:
    """The mean path of every token type."""
    frames = []
    for stack, sums in types.items():
        n_types, n_layers, n_states = sums.total.shape
        frame = pd.DataFrame({"value": sums.mean.ravel(), "std": sums.spread.ravel()})
        for name in ("ids", "names", "count", "sentences"):
            frame[name] = np.repeat(np.array(getattr(sums, name)), n_layers * n_states)
        frame["layer"] = np.tile(np.repeat(np.arange(n_layers), n_states), n_types)
        frame["state"] = np.tile([str(state) for state in STATES], n_types * n_layers)
        frame = frame.rename(
            columns={"ids": "entry", "names": "token", "sentences": "n_sentences"}
        )[frame["value"].notna()]
        frames.append(frame.assign(stack=stack)[[*TYPES]])
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*TYPES])


def _of_layers(
    stack: str,
    ratios: RatioSums,
    columns: Sequence[HeadKey],
    present: Sequence[int],
) -> pd.DataFrame:
    frame = _estimate_rows(ratios[list(present)], columns)
    frame["layer"] = np.repeat(list(present), len(columns))
    frame["stack"] = stack
    return frame[[*LAYERS]]


def _as_head_column(column: TokenKey) -> HeadKey:
    return HeadKey(column.metric, "", column.words)  # type: ignore[arg-type]


def _estimate_rows(ratios: RatioSums, columns: Sequence[HeadKey]) -> pd.DataFrame:
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
        n_sentences=ratios.n_sentences.ravel(),
        n_observations=ratios.n_observations.ravel(),
    )


def _limits(column: HeadKey) -> tuple[float, float]:
    """Bounds of a metric; none for one that this version does not know."""
    metric = all_metrics().get(column.metric)
    return metric.limits if metric is not None else (-np.inf, np.inf)


def _spread(column: HeadKey) -> IntervalRule:
    """How its values vary from sentence to sentence."""
    metric = all_metrics().get(column.metric)
    return IntervalRule.USUAL if metric is None else metric.spread(column.label)


NUMBER_COLUMNS = {
    "value": "ratio of sums over sentences; empty where there is no observation",
    "low": "lower end of the 95 % confidence interval, clustered by sentence",
    "high": "upper end",
    "n_sentences": "sentences that contribute",
    "n_observations": "observations behind the value, for example query tokens",
}
PLACE = {"stack": "self; or encoder, decoder, cross", "layer": "counted from 0"}
METRIC = {
    "metric": "as in the addresses of the metrics' pages",
    "view": "keys: raw (all), nosink (sink masked) or renorm (sink masked and renormalised); "
    "empty for token metrics",
    "label": "what the value is about where a metric has several; else empty",
}
TOKEN = {
    "sentence": "number in the input, counted from 1",
    "position": "of the token in the sequence, counted from 0",
    "token": "in the text's own spelling",
    **PLACE,
    "state": "mid: after attention; out: after the layer",
}


class Table(NamedTuple):
    """A table of the site: what it holds and what its columns mean."""

    what: str
    columns: Mapping[str, str]


TABLES = {
    "heads": Table(
        "Every number of every head.", PLACE | {"head": "counted from 0"} | METRIC | NUMBER_COLUMNS
    ),
    "layers": Table(
        "The same for the heads of a layer together, and token metrics averaged over the tokens "
        "of a layer (label: state/space/class of tokens).",
        PLACE | METRIC | NUMBER_COLUMNS,
    ),
    "controls": Table(
        "The same metrics on uniform attention: equal weights on all visible keys.",
        {"control": "which comparison"} | PLACE | METRIC | NUMBER_COLUMNS,
    ),
    "pairs": Table(
        "Metrics of every two heads of an attention type, each pair once; with more than 144 heads "
        "of similar pairs only, and beside them the squared Hellinger distance of all pairs.",
        PLACE
        | {
            "head": "counted from 0",
            "other_layer": "the other head's layer",
            "other_head": "its number there",
            "metric": "as in the addresses of the metrics' pages, or squared Hellinger distance",
            "view": "raw or renorm",
            "value": "mean over rows; empty where there is none",
            "n_sentences": "sentences that were compared",
            "rows": "query tokens whose rows count in both heads",
        },
    ),
    "alignments": Table(
        "How each head of cross-attention aligns the target and source tokens of the sentences "
        "that have a page.",
        PLACE
        | {
            "head": "counted from 0",
            "measure": "monotone: Kendall's tau-b; diagonal, same_form: shares of target tokens; "
            "aer, precision, recall, f1: against gold alignments, where there are any",
        }
        | NUMBER_COLUMNS
        | {
            "uniform": "the same if every source token were chosen equally often; empty without one"
        },
    ),
    "groups": Table(
        "The same numbers of every head by group of sentences; those without any data are left "
        f"out. Where there would be more than {MOST_ROWS:,}, those that groups are compared by.",
        {"facet": "metadata column of the input", "group": "what the sentences have in it"}
        | PLACE
        | {"head": "counted from 0"}
        | METRIC
        | NUMBER_COLUMNS,
    ),
    "minimal_pairs": Table(
        "What differs within pairs of sentences (column pair_id of the input), for every head.",
        PLACE
        | {"head": "counted from 0"}
        | METRIC
        | {
            "first_member": "what the first member of each pair has in the column that tells "
            "members apart; or first",
            "second_member": "the same of the second one; or second",
            "first": "mean over pairs of the first member's own value",
            "second": "the same of the second one",
            "value": "first minus second; empty where there is no pair",
            "low": "lower end of the 95 % confidence interval over pairs",
            "high": "upper end",
            "p": "two-sided, by flips of signs; family-wise over all rows of a stack",
            "pairs": "pairs in which both members have a value",
        },
    ),
    "geometry": Table(
        "Every number of the states of a layer: input and output of each layer, on a sample.",
        {
            "stack": PLACE["stack"],
            "layer": "counted from 0; empty for the input",
            "state": "input: what enters layer 0; out: layer output",
            "metric": METRIC["metric"],
            "label": "as on the metric's page; for layer_cka the other state, input or the number "
            "of its layer; for outlier_dimensions also the ten largest by name",
            "value": "see the metric's page; empty where there is none",
            "low": "lower end of the 95 % confidence interval, a jackknife over sentences",
            "high": "upper end",
            "n_sentences": "sentences of the sample",
            "n_observations": "tokens, vocabulary tokens, or minibatches behind the value",
        },
    ),
    "compared": Table(
        "The same metrics of every head on what the model is compared with: the same "
        "architecture with random weights, and the same words in random order.",
        {"baseline": "what the model is compared with, and its seed"}
        | PLACE
        | {"head": "counted from 0"}
        | METRIC
        | NUMBER_COLUMNS,
    ),
    "top_tokens": Table(
        "Query tokens, key tokens and pairs of both to which each head gives most against uniform "
        "attention, the sink masked: up to 50 of each that occur in at least 5 different sentences "
        "of the sample. Those whose interval lies above uniform attention and above the mean head "
        "come first, then the larger ratio.",
        PLACE
        | {
            "head": "counted from 0",
            "role": "query: attention of the token to all keys off the sink; key: attention it "
            "receives from all queries; pair: attention of the query to the key",
            "query": "vocabulary token; empty for all",
            "key": "the same of the key",
            "count": "occurrences",
            "n_sentences": "sentences with at least one",
            "mean": "mean attention of an occurrence",
            "low": NUMBER_COLUMNS["low"],
            "high": "upper end",
            "uniform": "the same on uniform attention",
            "ratio": "mean over uniform",
            "mean_head": "the same of the mean over all heads",
            "mean_head_ratio": "mean over mean_head",
        },
    ),
    "tokens": Table(
        "Token metrics of every token of the sentences that have a page.",
        TOKEN
        | {
            "metric": "as in the addresses of the metrics' pages",
            "space": "positional (token + position embedding), raw (token embedding), or empty",
            "value": "see the metric's page",
        },
    ),
    "types": Table(
        "Mean cosine to the input embedding of every vocabulary token of the corpus, by layer.",
        {
            "stack": PLACE["stack"],
            "entry": "number in the vocabulary",
            "token": "the vocabulary token in letters",
            "layer": "counted from 0",
            "state": TOKEN["state"],
            "value": "mean over occurrences",
            "std": "standard deviation over occurrences; empty for a single one",
            "count": "occurrences",
            "n_sentences": "sentences with at least one",
        },
    ),
    "nearest": Table(
        "The nearest vocabulary tokens of each of those tokens in each layer.",
        TOKEN
        | {
            "space": "positional or raw; logits: what the logit lens gives",
            "rank": "1: nearest, or most probable",
            "neighbour": "vocabulary token",
            "cosine": "of its embedding to the state; in space logits its probability",
        },
    ),
}
TABLES |= {name: Table(*pair) for name, pair in DESCRIBED.items()}
# Columns of texts from outside.
TEXTS = (
    "token", "query", "key", "neighbour", "facet", "group", "first_member", "second_member",
)  # fmt: skip
# Tables that are left out where nobody asked for their numbers.
OPTIONAL = {
    "alignments",
    "compared",
    "effect_tokens",
    "geometry",
    "groups",
    "head_groups",
    "importance",
    "minimal_pairs",
    "pairs",
    "pruning",
    "tests",
    "top_tokens",
    "types",
    "words",
}
EXEMPLARS = {
    "stack, layer, head": "the head",
    "ranking, rank": "why it is shown, and the place in that ranking, from 1. strongest, q90, q75, "
    "median: by the largest single weight, sink masked, from the top and near the 90th, 75th "
    "and 50th percentile; mass: by the mean attention off the sink; variability: by the share of "
    "the head's attention variability",
    "sentence, id": "number in the input, counted from 1, and the input's own name for it",
    "score": "number of the ranking",
    "weight": "the largest weight, sink masked, in steps of 1/255",
    "query, key": "positions of query and key of the largest weight, sink masked",
    "query_token, key_token": "the same in letters",
    "texts": "the sentence's texts by side",
    "metadata": "other columns of the input",
}


TOP_TOKENS = (
    "stack", "layer", "head", "role", "query", "key",
    "count", "n_sentences", "mean", "low", "high", "uniform", "ratio",
    "mean_head", "mean_head_ratio",
)  # fmt: skip


def top_tokens_table(
    affinities: Mapping[str, Affinities], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """The first rows of each kind and head.

    Args:
        layers: by stack, the layers that have attention.
    """
    frames = [
        frame
        for stack, sums in affinities.items()
        for layer in layers[stack]
        for frame in _of_layer(stack, layer, sums)
    ]
    if not frames:
        return pd.DataFrame(columns=[*TOP_TOKENS])
    table = pd.concat(frames, ignore_index=True)
    kind = pd.Categorical(table["role"], KINDS)
    order = np.lexsort((kind.codes, table["head"], table["layer"]))
    stack = pd.Categorical(table["stack"], [*affinities]).codes
    order = order[np.argsort(stack[order], kind="stable")]
    return table.iloc[order].reset_index(drop=True)[[*TOP_TOKENS]]


def _of_layer(stack: str, layer: int, sums: Affinities) -> Iterator[pd.DataFrame]:
    for what in KINDS:
        found = favoured_tokens(sums, layer, what)
        heads, rows = found.item.shape
        if not rows:
            continue
        item = found.item.ravel()
        columns = {
            "query": sums.named(sums.query[item]),
            "key": sums.named(sums.key[item]),
            **{name: getattr(found, name).ravel() for name in TOP_TOKENS[6:]},
        }
        head = np.repeat(np.arange(heads), rows)
        yield pd.DataFrame(columns).assign(stack=stack, layer=layer, head=head, role=what)
