"""Tables of tokens and states: each entry with its columns, and below the entry its builder."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats
from headbook.analysis.state_vectors import outliers_by_mean, robust_deviations
from headbook.metrics import ids
from headbook.schema import EmbeddingSpace, ResidualPoint, Side
from headbook.study.corpus_sums import TokenSums
from headbook.study.sentence_data import SentenceData
from headbook.study.sums.state_geometry import (
    CKA,
    OUTLIERS,
    GeometrySums,
    StateMeans,
    short_names,
    state_names,
)
from headbook.study.sums.token_sums import (
    KINDS,
    MIN_SENTENCES,
    PATH_STATES,
    Affinities,
    TokenTypeSums,
    favoured_tokens,
)
from headbook.study.sums.word_samples import FLOW_CELLS, ClassFlows
from headbook.study.tables import (
    ESTIMATE_COLUMNS,
    HEAD_COLUMNS,
    LAYER_COLUMNS,
    MAX_PLAIN_CSV_BYTES,
    METRIC_COLUMNS,
    TableSpec,
    as_head_key,
    estimate_rows,
)

if TYPE_CHECKING:
    from headbook.study.study import Study

STACK_COLUMN = {"stack": LAYER_COLUMNS["stack"]}
STATE_COLUMN = {"state": "mid: after attention; out: after the layer"}
TOKEN_COLUMNS = {
    "sentence": "number in the input, counted from 1",
    "position": "of the token in the sequence, counted from 0",
    "token": "in the text's own spelling",
    **LAYER_COLUMNS,
    **STATE_COLUMN,
}
MAX_CSV_BYTES = (
    2_500_000  # bytes of CSV, above which tables of single tokens have the Parquet file alone
)
MAX_DIMENSIONS = 10  # dimensions of a state in the table of geometry


TOKENS: "TableSpec[Study]" = TableSpec(
    "tokens",
    "Token metrics of every token of the sentences that have a page.",
    TOKEN_COLUMNS
    | {
        "metric": METRIC_COLUMNS["metric"],
        "space": "positional (token + position embedding), raw (token embedding), or empty",
        "value": "see the metric's page",
    },
    lambda study: study.sentence_data.tokens,
    csv_limit=MAX_CSV_BYTES,
)
NEAREST: "TableSpec[Study]" = TableSpec(
    "nearest",
    "The nearest vocabulary tokens of each of those tokens in each layer.",
    TOKEN_COLUMNS
    | {
        "space": "positional or raw; logits: what the logit lens gives",
        "rank": "1: nearest, or most probable; to 11 of the nearest, so that ten are left without "
        "the token itself",
        "neighbour": "vocabulary token",
        "cosine": "of its embedding to the state; in space logits its probability",
        "mark": "own: the token itself; special: a special token; empty for others",
    },
    lambda study: study.sentence_data.nearest,
    csv_limit=MAX_CSV_BYTES,
)
USES: "TableSpec[Study]" = TableSpec(
    "uses",
    "Every two uses of a word in several of the sentences that have a page, in each layer: uses in "
    "the first four of them, the first in each sentence.",
    {
        "word": "in the text's own spelling",
        "sentence": TOKEN_COLUMNS["sentence"],
        "position": TOKEN_COLUMNS["position"],
        "other_sentence": "that of the other use",
        "other_position": "that of the other use",
        **LAYER_COLUMNS,
        "cosine": "of both states after the layer",
        "different_words": "mean cosine of the first uses of every two different words",
    },
    lambda study: study.sentence_data.uses,
    optional=True,
    csv_limit=MAX_CSV_BYTES,
)
PUBLIC_DEMO: "TableSpec[Study]" = TableSpec(
    "public_demo",
    "Every token of the first sentence that has a page after attention, as the public demo "
    "computes it and as this study does; see the page on methods. Models like BERT only.",
    {
        **{name: text for name, text in TOKEN_COLUMNS.items() if name != "state"},
        "demo_cosine": "cosine to the token's own encoding by the demo's computation",
        "demo_nearer": "vocabulary tokens nearer than its own by the demo's computation",
        "cosine": "cosine_to_input of the table tokens, state mid",
        "nearer": "vocabulary_rank of the table tokens, state mid, space positional",
    },
    lambda study: public_demo_table(study.sentence_data),
    optional=True,
)


def public_demo_table(data: SentenceData) -> pd.DataFrame:
    """Return cosine and rank of each token by the public demo, beside those of the study.

    Each part of a merged study has a first sentence; the table has that of the first part.
    """
    if not data.public_demo:
        return PUBLIC_DEMO.empty
    stack, index = min(data.public_demo, key=lambda place: place[1])
    cosine, nearer = data.public_demo[stack, index].astype(float)
    pieces = data.sentences[index].texts[Side.SOURCE].pieces
    layer, position = (part.ravel() for part in np.indices(cosine.shape))
    table = pd.DataFrame({
        "sentence": index + 1, "position": position,
        "token": [pieces[place] for place in position], "stack": stack, "layer": layer,
        "demo_cosine": cosine.ravel(), "demo_nearer": nearer.ravel(),
    })  # fmt: skip
    keys = ["sentence", "position", "stack", "layer"]
    tokens = data.tokens[data.tokens["state"] == str(ResidualPoint.MID)]
    for name, metric, space in (
        ("cosine", ids.COSINE_TO_INPUT, ""),
        ("nearer", ids.VOCABULARY_RANK, str(EmbeddingSpace.POSITIONAL)),
    ):
        rows = tokens[(tokens["metric"] == metric) & (tokens["space"] == space)]
        own = rows[[*keys, "value"]].rename(columns={"value": name})
        table = table.merge(own, on=keys, how="left", validate="one_to_one")
    return table[[*PUBLIC_DEMO.columns]]


WORDS: "TableSpec[Study]" = TableSpec(
    "words",
    "Token metrics by class of words, averaged over the tokens of a layer; classes without a "
    "token are left out.",
    {
        "class": "all, content, function, initial or continuation subword tokens, special "
        "tokens, start (special tokens that begin a text), separator (those that end a sentence), "
        "a part of speech (UPOS), or no_outliers "
        "(all without the outlier dimensions of each state, on a sample of sentences)",
        **LAYER_COLUMNS,
        **STATE_COLUMN,
        "metric": METRIC_COLUMNS["metric"],
        "space": TOKENS.columns["space"],
        "value": "mean over tokens; of ranks the mean of log10(1 + rank)",
        "low": f"{ESTIMATE_COLUMNS['low']}; empty without one",
        "high": "upper end",
        "n_sentences": "sentences that contribute",
        "n_observations": "observations behind the value, for example words or query tokens",
    },
    lambda study: words_table(study.token_sums),
    optional=True,
    plain_csv_limit=MAX_PLAIN_CSV_BYTES,
)


def words_table(token_sums: Sequence[Mapping[str, TokenSums]]) -> pd.DataFrame:
    """Return the table of token metrics by class of words, state and vocabulary space.

    Classes without a token are left out.
    """
    frames = [
        _word_rows(stack, sums) for by_stack in token_sums for stack, sums in by_stack.items()
    ]
    if not frames:
        return WORDS.empty
    table = pd.concat(frames, ignore_index=True)
    return table[table["value"].notna()].reset_index(drop=True)


def _word_rows(stack: str, sums: TokenSums) -> pd.DataFrame:
    columns, n_layers = sums.columns, sums.layers.sums.shape[2]
    frame = estimate_rows(sums.layers, [as_head_key(column) for column in columns])
    keys = {
        "class": [column.label for column in columns],
        "state": [str(column.state) for column in columns],
        "space": [str(column.space or "") for column in columns],
    }
    frame = frame.assign(**{name: n_layers * values for name, values in keys.items()})
    frame["layer"] = np.repeat(np.arange(n_layers), len(columns))
    return frame.assign(stack=stack)[[*WORDS.columns]]


TYPES: "TableSpec[Study]" = TableSpec(
    "types",
    "Mean cosine to the input embedding of every vocabulary token of the corpus, by layer.",
    {
        **STACK_COLUMN,
        "entry": "number in the vocabulary",
        "token": "the vocabulary token in letters",
        "layer": "counted from 0",
        **STATE_COLUMN,
        "value": "mean over occurrences",
        "std": "standard deviation over occurrences; empty for a single one",
        "count": "occurrences",
        "n_sentences": "sentences with at least one",
    },
    lambda study: types_table(study.corpus_sums.types),
    optional=True,
)


def types_table(types: Mapping[str, TokenTypeSums]) -> pd.DataFrame:
    """Return the mean cosine of every token type to its input embedding, by layer and state."""
    frames = []
    for stack, sums in types.items():
        n_types, n_layers, n_states = sums.total.shape
        frame = pd.DataFrame({"value": sums.mean.ravel(), "std": sums.spread.ravel()})
        for name in ("ids", "names", "count", "sentences"):
            frame[name] = np.repeat(np.array(getattr(sums, name)), n_layers * n_states)
        frame["layer"] = np.tile(np.repeat(np.arange(n_layers), n_states), n_types)
        frame["state"] = np.tile([str(state) for state in PATH_STATES], n_types * n_layers)
        frame = frame.rename(
            columns={"ids": "entry", "names": "token", "sentences": "n_sentences"}
        )[frame["value"].notna()]
        frames.append(frame.assign(stack=stack)[[*TYPES.columns]])
    return pd.concat(frames, ignore_index=True) if frames else TYPES.empty


TOP_TOKENS: "TableSpec[Study]" = TableSpec(
    "top_tokens",
    "Query tokens, key tokens and pairs of both to which each head gives most against uniform "
    "attention, the sink masked: up to 50 of each that occur in at least 5 different sentences "
    "of the sample. Those whose interval lies above uniform attention and above the mean head "
    "come first, then the larger ratio.",
    HEAD_COLUMNS
    | {
        "role": "query: attention of the token to all keys off the sink; key: attention it "
        "receives from all queries; pair: attention of the query to the key",
        "query": "vocabulary token; empty for all",
        "key": "the same of the key",
        "count": "occurrences",
        "n_sentences": "sentences with at least one",
        "mean": "mean attention of an occurrence",
        "low": ESTIMATE_COLUMNS["low"],
        "high": "upper end",
        "uniform": "the same on uniform attention",
        "ratio": "mean over uniform",
        "mean_head": "the same of the mean over all heads",
        "mean_head_ratio": "mean over mean_head",
    },
    lambda study: top_tokens_table(study.corpus_sums.affinities, study.attention_layers),
    optional=True,
)


def top_tokens_table(
    affinities: Mapping[str, Affinities], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return the tokens and pairs that each head favours: the first rows of each role and head.

    Args:
        layers: by stack, the layers that have attention.
    """
    frames = [
        frame
        for stack, sums in affinities.items()
        for layer in layers[stack]
        for frame in _layer_favourites(stack, layer, sums)
    ]
    if not frames:
        return TOP_TOKENS.empty
    table = pd.concat(frames, ignore_index=True)
    roles = pd.Categorical(table["role"], KINDS)
    order = np.lexsort((roles.codes, table["head"], table["layer"]))
    stack = pd.Categorical(table["stack"], [*affinities]).codes
    order = order[np.argsort(stack[order], kind="stable")]
    return table.iloc[order].reset_index(drop=True)[[*TOP_TOKENS.columns]]


def _layer_favourites(stack: str, layer: int, sums: Affinities) -> Iterator[pd.DataFrame]:
    for role in KINDS:
        favoured = favoured_tokens(sums, layer, role)
        heads, rows = favoured.item.shape
        if not rows:
            continue
        item = favoured.item.ravel()
        columns = {
            "query": sums.named(sums.query[item]),
            "key": sums.named(sums.key[item]),
            **{name: getattr(favoured, name).ravel() for name in [*TOP_TOKENS.columns][6:]},
        }
        head = np.repeat(np.arange(heads), rows)
        yield pd.DataFrame(columns).assign(stack=stack, layer=layer, head=head, role=role)


CLASS_FLOWS: "TableSpec[Study]" = TableSpec(
    "class_flows",
    "Attention of each head between different words by their parts of speech, the sink masked, "
    "beside the mean head: the mean of the weights of all heads. Cells of at least 5 sentences.",
    HEAD_COLUMNS
    | {
        "query_class": "part of speech of the query (UPOS); empty for all",
        "key_class": "the same of the key",
        "share": "share of the head's attention between different words",
        "mean_head": "the same of the mean head",
        "ratio": "share over mean_head",
        "low": "lower end of the 95 % confidence interval of the ratio, an infinitesimal jackknife "
        "over sentences; empty below 10 sentences",
        "high": "upper end",
        "n_sentences": "sentences that hold such words",
    },
    lambda study: class_flows_table(study.corpus_sums.class_flows, study.attention_layers),
    optional=True,
)


def class_flows_table(
    flows: Mapping[str, ClassFlows], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return the attention of each head between classes of words, beside the mean head.

    Args:
        layers: by stack, the layers that have attention.
    """
    frames = []
    for stack, sums in flows.items():
        kept = np.flatnonzero(sums.sentences >= MIN_SENTENCES)
        numbers = sums.estimates()
        for layer in layers[stack]:
            parts = [part[layer][:, kept] for part in numbers]
            head, cell = np.nonzero(~np.isnan(parts[0]))
            names = [FLOW_CELLS[index] for index in kept[cell]]
            values = zip(
                [*CLASS_FLOWS.columns][5:], (part[head, cell] for part in parts), strict=True
            )
            keys = {
                "stack": stack, "layer": layer, "head": head,
                "query_class": [query for query, _ in names],
                "key_class": [key for _, key in names],
            }  # fmt: skip
            frames.append(pd.DataFrame({**keys, **dict(values)}))
    return pd.concat(frames, ignore_index=True) if frames else CLASS_FLOWS.empty


GEOMETRY: "TableSpec[Study]" = TableSpec(
    "geometry",
    "Every number of the states of a layer: input and output of each layer, on a sample.",
    {
        **STACK_COLUMN,
        "layer": "counted from 0; empty for the input",
        "state": "input: what enters layer 0; out: layer output",
        "metric": METRIC_COLUMNS["metric"],
        "label": "as on the metric's page; for layer_cka the other state, input or the number "
        "of its layer; for outlier_dimensions also the ten largest by name",
        "value": "see the metric's page; empty where there is none",
        "low": "lower end of the 95 % confidence interval, a jackknife over sentences",
        "high": "upper end",
        "n_sentences": "sentences of the sample",
        "n_observations": "tokens, vocabulary tokens, or minibatches behind the value",
    },
    lambda study: geometry_table(study.corpus_sums.geometry),
    optional=True,
)


OUTLIER_TABLE: "TableSpec[Study]" = TableSpec(
    "outliers",
    "Outlier dimensions of each state: cosine, rank and kept neighbours are also given without "
    "them.",
    {
        **STACK_COLUMN,
        "layer": "counted from 0; empty for the input",
        "state": "input: what enters layer 0; mid: after attention; out: after the layer",
        "dimension": "counted from 0",
        "mean": "mean of the dimension over all tokens of text",
        "median": "median of the means of all dimensions",
        "deviations": "distance of mean and median in robust standard deviations, above 6",
        "n_observations": "tokens behind the mean",
    },
    lambda study: outliers_table(study.corpus_sums.state_means),
    optional=True,
)


def outliers_table(state_means: Mapping[str, StateMeans]) -> pd.DataFrame:
    """Return the outlier dimensions of every state, those farthest from the median first."""
    rows = [
        (stack, layer, str(state), *row, means.tokens)
        for stack, means in state_means.items()
        for layer, state in [(None, ResidualPoint.PRE),
                             *product(range(len(means.total)), PATH_STATES)]
        for row in _outlier_rows(means.mean(layer or 0, state))
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=[*OUTLIER_TABLE.columns])
    return table.astype({"layer": "Int64"}) if rows else OUTLIER_TABLE.empty


def _outlier_rows(mean: Floats) -> list[tuple[int, float, float, float]]:
    """Return outlier dimension, mean, median and robust deviations, farthest first."""
    deviations, median = robust_deviations(mean), float(np.median(mean))
    found = sorted(outliers_by_mean(mean).tolist(), key=lambda each: -abs(deviations[each]))
    return [(each, float(mean[each]), median, float(deviations[each])) for each in found]


def geometry_table(geometry: Mapping[str, GeometrySums]) -> pd.DataFrame:
    """Return every number of every state; ``label`` names the other state or the dimension."""
    frames = [
        pd.DataFrame(rows, columns=[*GEOMETRY.columns][1:]).assign(stack=stack)
        for stack, sums in geometry.items()
        for rows in (_state_rows(sums), _cka_rows(sums), _dimension_rows(sums))
        if rows
    ]
    if not frames:
        return GEOMETRY.empty
    table = pd.concat(frames, ignore_index=True)
    return table.astype({"layer": "Int64", "n_sentences": "int64"})[[*GEOMETRY.columns]]


def _state_rows(sums: GeometrySums) -> list[tuple[object, ...]]:
    parts = (sums.states.value, *sums.ends, sums.states.n_sentences, sums.states.n_observations)
    return [
        (layer, str(state), *column, *(part[row, index] for part in parts))
        for row, (layer, state) in enumerate(state_names(len(sums.weights)))
        for index, column in enumerate(sums.columns)
    ]


def _cka_rows(sums: GeometrySums) -> list[tuple[object, ...]]:
    names, others = state_names(len(sums.weights)), short_names(len(sums.weights))
    interval_and_counts = (np.nan, np.nan, sums.sentences, float(sums.minibatches))
    return [
        (layer, str(state), CKA, other, value, *interval_and_counts)
        for (layer, state), row in zip(names, sums.cka, strict=True)
        for other, value in zip(others, row, strict=True)
        if sums.products.size
    ]


def _dimension_rows(sums: GeometrySums) -> list[tuple[object, ...]]:
    """Return the dimensions that add most to the mean cosine of each state."""
    measured = any(column.metric == OUTLIERS for column in sums.columns)
    interval_and_counts = (np.nan, np.nan, sums.sentences, float(sums.tokens))
    return [
        (
            layer,
            str(state),
            OUTLIERS,
            f"dimension {dimension}",
            sums.contributions[row, dimension],
            *interval_and_counts,
        )
        for row, (layer, state) in enumerate(state_names(len(sums.weights)))
        for dimension in sums.largest(row, MAX_DIMENSIONS)
        if measured
    ]
