"""Tables of heads and layers, and the class `TableSpec`: name, description, columns and builder.

Each entry stands directly above the builder of its table. Tables of tokens and states are in
`headbook.study.token_tables`, those of ablation in `headbook.study.ablation_tables`, the table of
tests in `headbook.report.tables.tests_table`, that of alignments in `headbook.report.alignment`,
and that of functions in `headbook.report.tables`, whose `STUDY_TABLES` lists all tables of a study.
Tables of two models and of checkpoints are in `headbook.comparison`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import Floats, divide
from headbook.metrics import interval_rules, limits_in_texts
from headbook.schema import MAIN_METRICS, BaselineRun, HeadKey, HeadName, TokenKey
from headbook.study.contrasts import PairDifferences
from headbook.study.corpus_sums import HeadDistances, HeadSums, HeadTable, TokenSums

if TYPE_CHECKING:
    from headbook.study.study import Study

Source = TypeVar("Source")


@dataclass(frozen=True)
class TableSpec(Generic[Source]):
    """A table of numbers: its name, its description, its columns and its builder.

    Attributes:
        name: name of the table's files, without their endings.
        description: content of the table, as the Data page prints it.
        columns: description of each column by its name, in the order of the table.
        build: computes the table of a study, a comparison or checkpoints.
        optional: whether a site leaves the table out if it has no rows.
        csv_limit: bytes of the CSV above which a site has the Parquet file alone; None for the
            limit of most tables.
        plain_csv_limit: bytes above which the CSV is compressed; None for the limit of most tables.
    """

    name: str
    description: str
    columns: Mapping[str, str]
    build: Callable[[Source], pd.DataFrame]
    optional: bool = False
    csv_limit: int | None = None
    plain_csv_limit: int | None = None

    @property
    def empty(self) -> pd.DataFrame:
        """A table without rows."""
        return pd.DataFrame(columns=[*self.columns])


# Tables that code above this folder computes from a study, by name: `headbook.report.tables` enters
# the tables of claims and of functions, which `Study.tests` and `Study.functions` return.
TABLES_OF_REPORT: dict[str, "TableSpec[Study]"] = {}
MAX_PLAIN_CSV_BYTES = (
    5_000_000  # bytes up to which the CSV of a table that readers open most stays plain
)
# Columns that several tables have.
LAYER_COLUMNS = {"stack": "self; or encoder, decoder, cross", "layer": "counted from 0"}
HEAD_COLUMNS = LAYER_COLUMNS | {"head": "counted from 0"}
METRIC_COLUMNS = {
    "metric": "as in the addresses of the metrics' pages",
    "view": "keys: raw (all), nosink (sink masked) or renorm (sink masked and renormalised); "
    "empty for token metrics",
    "label": "what the value is about where a metric has several; else empty",
}
ESTIMATE_COLUMNS = {
    "value": "ratio of sums over sentences; empty where there is no observation",
    "low": "lower end of the 95 % confidence interval, clustered by sentence",
    "high": "upper end",
    "n_sentences": "sentences that contribute",
    "n_observations": "observations behind the value, for example query tokens",
}

RowKey = tuple[tuple[str, str | int], ...]  # columns and values that identify a row of a table
UNIFORM = "uniform attention"
HELLINGER = "squared Hellinger distance"  # of heads, in the table of pairs
MAX_GROUP_ROWS = 2_000_000  # of the table of groups


HEADS: "TableSpec[Study]" = TableSpec(
    "heads",
    "Every number of every head.",
    HEAD_COLUMNS | METRIC_COLUMNS | ESTIMATE_COLUMNS,
    lambda study: _with_circuits(
        _within_texts(study, heads_table(study.head_tables, study.attention_layers)),
        study.circuits.head_rows,
    ),
    plain_csv_limit=MAX_PLAIN_CSV_BYTES,
)


def heads_table(
    heads: Mapping[str, HeadTable], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return every number of every head.

    Args:
        layers: by stack, the layers that have attention.
    """
    frames = []
    for stack, sums in heads.items():
        present = list(layers[stack])
        n_heads = sums.heads.sums.shape[3]
        frame = estimate_rows(sums.heads[present], sums.columns)
        frame["head"] = np.tile(np.repeat(np.arange(n_heads), len(sums.columns)), len(present))
        frame["layer"] = np.repeat(present, n_heads * len(sums.columns))
        frame["stack"] = stack
        frames.append(frame[[*HEADS.columns]])
    return pd.concat(frames, ignore_index=True)


def _within_texts(study: "Study", table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with intervals clipped to what the longest text of a study allows."""
    tokens = study.corpus_sums.max_tokens
    limits = {metric: limits_in_texts(metric, tokens) for metric in table["metric"].unique()}
    lowest, highest = (
        table["metric"].map({metric: ends[side] for metric, ends in limits.items()}).astype(float)
        for side in (0, 1)
    )
    ends = {name: table[name].clip(lowest, highest) for name in ("low", "high")}
    return table.assign(**ends)


def _with_circuits(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([table, rows.astype(table.dtypes)], ignore_index=True) if len(rows) else table


def row_of_head(head: HeadName, column: HeadKey) -> RowKey:
    """Return the columns and values that identify a number of a head in the table of heads.

    Args:
        column: metric, view and label of the number.
    """
    keys = zip(("metric", "view", "label"), map(str, column), strict=True)
    return (*head._asdict().items(), *keys)


LAYERS: "TableSpec[Study]" = TableSpec(
    "layers",
    "The same for the heads of a layer together, and token metrics averaged over the tokens "
    "of a layer (label: state/space/class of tokens).",
    LAYER_COLUMNS | METRIC_COLUMNS | ESTIMATE_COLUMNS,
    lambda study: _within_texts(
        study, layers_table(study.head_tables, study.token_sums, study.attention_layers)
    ),
    plain_csv_limit=MAX_PLAIN_CSV_BYTES,
)


def layers_table(
    heads: Mapping[str, HeadTable],
    tokens: Sequence[Mapping[str, TokenSums]],
    layers: Mapping[str, Sequence[int]],
) -> pd.DataFrame:
    """Return every number of every layer: of all heads together, then of all tokens.

    Labels of token metrics name state, space (if a metric has one) and class of tokens:
    ``mid/positional/NOUN``.
    """
    frames = [
        _layer_rows(stack, sums.layers, sums.columns, layers[stack])
        for stack, sums in heads.items()
    ]
    for token in tokens:
        for stack, token_sums in token.items():
            columns = [as_head_key(column) for column in token_sums.columns]
            present = range(token_sums.layers.sums.shape[2])
            frames.append(_layer_rows(stack, token_sums.layers, columns, present))
    return pd.concat(frames, ignore_index=True)


def _layer_rows(
    stack: str,
    ratios: RatioSums,
    columns: Sequence[HeadKey],
    present: Sequence[int],
) -> pd.DataFrame:
    frame = estimate_rows(ratios[list(present)], columns)
    frame["layer"] = np.repeat(list(present), len(columns))
    frame["stack"] = stack
    return frame[[*LAYERS.columns]]


CONTROLS: "TableSpec[Study]" = TableSpec(
    "controls",
    "The same metrics on uniform attention: equal weights on all visible keys.",
    {"control": "which comparison"} | LAYER_COLUMNS | METRIC_COLUMNS | ESTIMATE_COLUMNS,
    lambda study: _within_texts(study, controls_table(study.head_tables, study.attention_layers)),
)


def controls_table(
    heads: Mapping[str, HeadTable], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return every number of every layer under uniform attention."""
    frames = [
        _layer_rows(stack, sums.uniform, sums.columns, layers[stack])
        for stack, sums in heads.items()
    ]
    table = pd.concat(frames, ignore_index=True)
    table.insert(0, "control", UNIFORM)
    return table


COMPARED: "TableSpec[Study]" = TableSpec(
    "compared",
    "The same metrics of every head on what the model is compared with: the same "
    "architecture with random weights, the same words in random order, and passages without "
    "separators between sentences, as far as --control asked for them.",
    {"baseline": "what the model is compared with, and its seed"}
    | HEAD_COLUMNS
    | METRIC_COLUMNS
    | ESTIMATE_COLUMNS,
    lambda study: _within_texts(study, compared_table(study.baselines, study.attention_layers)),
    optional=True,
)


def compared_table(
    baseline_runs: Mapping[BaselineRun, Mapping[str, HeadTable]],
    layers: Mapping[str, Sequence[int]],
) -> pd.DataFrame:
    """Return every number of every head of every baseline."""
    frames = []
    for baseline_run, heads in baseline_runs.items():
        table = heads_table(heads, layers)
        table.insert(0, "baseline", str(baseline_run))
        frames.append(table)
    return pd.concat(frames, ignore_index=True) if frames else COMPARED.empty


GROUPS: "TableSpec[Study]" = TableSpec(
    "groups",
    "The same numbers of every head by group of sentences; those without any data are left "
    f"out. Where there would be more than {MAX_GROUP_ROWS:,}, those that groups are compared by.",
    {"facet": "metadata column of the input", "group": "what the sentences have in it"}
    | HEAD_COLUMNS
    | METRIC_COLUMNS
    | ESTIMATE_COLUMNS,
    lambda study: _within_texts(
        study, groups_table(study.corpus_sums.heads, study.attention_layers)
    ),
    optional=True,
)


def groups_table(
    heads: Mapping[str, HeadSums], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return every number of every head by group of sentences, without those that lack data.

    If the table would have more than `MAX_GROUP_ROWS` rows, it has only the metrics
    `MAIN_METRICS`.
    """
    sizes = ((len(sums.groups), sums.table.heads.value.size) for sums in heads.values())
    frames, too_many_rows = [], sum(n_groups * size for n_groups, size in sizes) > MAX_GROUP_ROWS
    for stack, sums in heads.items():
        measured = dict.fromkeys(column.metric for column in sums.table.columns)
        metrics = (
            [name for name in measured if name in MAIN_METRICS] or [*measured][:1]
            if too_many_rows
            else measured
        )
        indices = [
            index for index, column in enumerate(sums.table.columns) if column.metric in metrics
        ]
        columns = tuple(sums.table.columns[position] for position in indices)
        for group in sums.groups:
            selected = (
                ratios[..., indices] for ratios in (group.heads, group.layers, group.uniform)
            )
            group_table = HeadTable(columns, *selected)
            table = heads_table({stack: group_table}, layers)
            table = table[table["n_sentences"] > 0].assign(facet=group.column, group=group.value)
            frames.append(table[[*GROUPS.columns]])
    return pd.concat(frames, ignore_index=True) if frames else GROUPS.empty


MINIMAL_PAIRS: "TableSpec[Study]" = TableSpec(
    "minimal_pairs",
    "What differs within pairs of sentences (column pair_id of the input), for every head.",
    HEAD_COLUMNS
    | METRIC_COLUMNS
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
    lambda study: minimal_pairs_table(study.pair_differences, study.attention_layers),
    optional=True,
)


def minimal_pairs_table(
    differences: Mapping[str, PairDifferences], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return the differences of every head between the members of pairs of sentences."""
    frames = []
    for stack, difference in differences.items():
        present = list(layers[stack])
        table = estimate_rows(difference.difference[present], difference.columns)
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
        frames.append(table[[*MINIMAL_PAIRS.columns]])
    return pd.concat(frames, ignore_index=True) if frames else MINIMAL_PAIRS.empty


PAIRS: "TableSpec[Study]" = TableSpec(
    "pairs",
    "Metrics of every two heads of an attention type, each pair once; with more than 144 heads "
    "of similar pairs only, and beside them the squared Hellinger distance of all pairs.",
    HEAD_COLUMNS
    | {
        "other_layer": "the other head's layer",
        "other_head": "its number there",
        "metric": "as in the addresses of the metrics' pages, or squared Hellinger distance",
        "view": "raw or renorm",
        "value": "mean over rows; empty where there is none",
        "n_sentences": "sentences that were compared",
        "rows": "query tokens whose rows count in both heads",
    },
    lambda study: pairs_table(study.corpus_sums.distances, study.attention_layers),
    optional=True,
)


def pairs_table(
    distances: Mapping[str, HeadDistances], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return every number of every two heads, each pair once.

    If only some pairs were compared, the table has these, and the metric `HELLINGER` of all pairs.
    """
    frames = []
    for stack, sums in distances.items():
        n_heads = sums.total.shape[1] // len(layers[stack])
        for name, view, values, counts in _pair_values(sums):
            all_pairs = np.triu_indices(len(values), 1)
            compared = counts[all_pairs] > (0 if sums.alike else -1)
            first, other = (heads_of_pairs[compared] for heads_of_pairs in all_pairs)
            numbers = {"value": values[first, other], "rows": counts[first, other].astype(np.int64)}
            frame = pd.DataFrame(numbers)
            for prefix, heads_of_pairs in (("", first), ("other_", other)):
                frame[f"{prefix}layer"] = np.take(layers[stack], heads_of_pairs // n_heads)
                frame[f"{prefix}head"] = heads_of_pairs % n_heads
            frame = frame.assign(stack=stack, metric=name, view=view, n_sentences=sums.sentences)
            frames.append(frame[[*PAIRS.columns]])
    return pd.concat(frames, ignore_index=True) if frames else PAIRS.empty


def _pair_values(sums: HeadDistances) -> Iterator[tuple[str, str, Floats, Floats]]:
    """Yield metric, view, values and numbers of rows of each number that pairs of heads have."""
    for index, column in enumerate(sums.columns):
        values = divide(sums.total[index], sums.rows[index])
        yield column.metric, str(column.view), values, sums.rows[index]
    for index, column in enumerate(sums.columns if sums.alike else ()):
        assert sums.alike is not None
        yield HELLINGER, str(column.view), sums.alike.apart[index], sums.alike.rows[index]


def as_head_key(column: TokenKey) -> HeadKey:
    """Return the key of a token metric as that of a head metric: without a view."""
    return HeadKey(column.metric, "", column.words)  # type: ignore[arg-type]


def estimate_rows(ratios: RatioSums, columns: Sequence[HeadKey]) -> pd.DataFrame:
    """Return a row with value and interval for each cell of ratios.

    Args:
        columns: keys of the last dimension of ``ratios``.
    """
    limits, rules = interval_rules(columns)
    value = ratios.known(rules)
    low, high = ratios.interval(limits, rules)
    names = pd.DataFrame(columns, columns=["metric", "view", "label"]).map(str)
    repeated = pd.concat([names] * int(np.prod(value.shape[:-1])), ignore_index=True)
    return repeated.assign(
        value=value.ravel(),
        low=low.ravel(),
        high=high.ravel(),
        n_sentences=ratios.n_sentences.ravel(),
        n_observations=ratios.n_observations.ravel(),
    )
