"""Checks of the tables of a study that is loaded: types of columns, heads, metrics, positions."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from headbook.schema import AttentionStack
from headbook.study.circuits import (
    COMPOSITION,
    EXEMPLAR_TOKENS,
    LIST_COLUMNS,
    NUMBER_COLUMNS,
    PROMOTED_TOKENS,
    SENTENCE_COLUMNS,
    TEXT_COLUMNS,
)
from headbook.study.sentence_data import NEAREST_COLUMNS, TOKEN_COLUMNS, USE_COLUMNS
from headbook.study.sentence_data import NUMBER_COLUMNS as SENTENCE_NUMBERS

# Columns of each table of sentence data and of circuits.
TABLE_COLUMNS = (
    TOKEN_COLUMNS,
    NEAREST_COLUMNS,
    USE_COLUMNS,
    NUMBER_COLUMNS,
    SENTENCE_COLUMNS,
    *(tuple(table.columns) for table in (COMPOSITION, PROMOTED_TOKENS, EXEMPLAR_TOKENS)),
)
TEXTS = {*TEXT_COLUMNS, "state", "space", "neighbour", "mark", "word"}
PLACES = ("position", "other_position", "query", "key")  # columns with a token of a text
HEADS = (("layer", "head"), ("lower_layer", "lower_head"))
Fault = tuple[str, str, str]  # column, what is there, and what is expected


def table_faults(
    table: pd.DataFrame,
    stacks: Mapping[str, AttentionStack],
    is_metric: Callable[[str], bool],
    *,
    n_sentences: int,
    n_tokens: int,
) -> Iterator[Fault]:
    """Yield the values of a table that no study can have.

    Args:
        table: a table of the sentence data or of the circuits of a study.
        stacks: stacks of the model, by name.
        is_metric: whether an id is that of a metric.
        n_sentences: number of sentences of the input.
        n_tokens: most tokens of a text.
    """
    columns = tuple(map(str, table.columns))
    if columns not in TABLE_COLUMNS:
        yield "", f"columns {', '.join(columns)}", "the columns of a table of the study"
        return
    if table.empty:
        return
    yield from _type_faults(table)
    yield from _bound_faults(table, dict.fromkeys(SENTENCE_NUMBERS, (1, n_sentences)))
    yield from _bound_faults(table, dict.fromkeys(PLACES, (0, n_tokens)))
    if "stack" in table:
        unknown = [str(name) for name in table["stack"].unique() if name not in stacks]
        if unknown:
            yield "stack", ", ".join(unknown), " or ".join(stacks)
            return
        yield from _head_faults(table, stacks)
    if "metric" in table:
        unknown = [str(name) for name in table["metric"].unique() if not is_metric(name)]
        if unknown:
            yield "metric", ", ".join(unknown), "metrics that Headbook or a package has"
    if "starts" in table:
        yield from _span_faults(table)


def _type_faults(table: pd.DataFrame) -> Iterator[Fault]:
    """Yield columns of texts, numbers or lists that hold something else."""
    for name, column in table.items():
        if name in LIST_COLUMNS:
            continue
        if name in TEXTS:
            strange = next((each for each in column if not isinstance(each, str)), "")
            if strange != "":
                yield str(name), f"{strange!r:.40}", "texts"
        elif column.dtype.kind not in "iuf" and not column.isna().all():
            yield str(name), str(column.dtype), "numbers"


def _bound_faults(table: pd.DataFrame, bounds: Mapping[str, tuple[int, int]]) -> Iterator[Fault]:
    for name, (low, high) in bounds.items():
        values = table[name].dropna() if name in table else table.iloc[:0, 0]
        if len(values) and values.dtype.kind in "iuf":
            for end in (values.min(), values.max()):
                if not low <= end <= high or end % 1:
                    yield name, f"{end:g}", f"{low} to {high}"
                    break


def _head_faults(table: pd.DataFrame, stacks: Mapping[str, AttentionStack]) -> Iterator[Fault]:
    """Yield layers and heads that the model does not have."""
    for layer_name, head_name in HEADS:
        if layer_name not in table or table[layer_name].dtype.kind not in "iuf":
            continue
        names = ["stack", layer_name, *([head_name] if head_name in table else [])]
        for stack_name, layer, *head in table[names].drop_duplicates().itertuples(index=False):
            stack = stacks[stack_name]
            # A state has a layer alone, also one without attention; circuits are of heads.
            layers = stack.attention_layers if head else range(stack.n_layers)
            if not pd.isna(layer) and layer not in layers:
                yield layer_name, f"{layer:g} in {stack_name}", f"layers below {stack.n_layers}"
                break
            if head and head[0] not in range(stack.n_heads):
                yield head_name, f"{head[0]} in {stack_name}", f"heads below {stack.n_heads}"
                break


def _span_faults(table: pd.DataFrame) -> Iterator[Fault]:
    """Yield starts and ends of tokens that are no places in their text."""
    for text, starts, ends in zip(table["text"], table["starts"], table["ends"], strict=True):
        for name, places in (("starts", starts), ("ends", ends)):
            if isinstance(places, str) or not hasattr(places, "__len__"):
                yield name, f"{places!r:.40}", "lists of numbers"
                return
            if not all(_is_place(place, text) for place in places):
                yield name, f"{list(places)!r:.40}", f"places in a text of {len(text)} characters"
                return
        if len(starts) != len(ends) or any(s > e for s, e in zip(starts, ends, strict=True)):
            yield "ends", f"{list(ends)!r:.40}", "an end behind each start"
            return


def _is_place(place: Any, text: Any) -> bool:
    is_whole = not isinstance(place, str | bool) and hasattr(place, "__index__")
    return is_whole and isinstance(text, str) and 0 <= int(place) <= len(text)
