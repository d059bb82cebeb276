"""Tables of vocabulary entries: what each token of a sentence is near to, layer by layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pandas as pd

from headbook.pages.parts.table import Mark, Row, Table, Words
from headbook.report.wording import SPACES, STATES, number, ordinal, percent, visible
from headbook.study.sentencedata import LOGITS
from headbook.terms import Space, State

ENTRIES = 5  # that a row names; the files have ten


@dataclass(frozen=True)
class Entries:
    """The vocabulary tokens nearest to one token, layer by layer; a reader chooses another.

    Attributes:
        token: the one that the page begins with.
        choices: states and spaces; keys of the data. The first is shown.
        table: a row for each layer: the entries nearest to the token after it, with numbers.
    """

    token: str
    choices: tuple[str, ...]
    table: Table


def entries(near: pd.DataFrame, position: int) -> Entries | None:
    """What is nearest to one token of a sentence; None without entries.

    Args:
        near: rows of `headbook.study.sentencedata.NEAREST`, of one stack and sentence.
        position: of the token; another one where it has no entries.
    """
    if near.empty:
        return None
    choices = _choices(near)
    places = set(near["position"])
    chosen = position if position in places else min(places)
    first = next(iter(choices.values()))
    mine = first[(first["position"] == chosen) & (first["rank"] <= ENTRIES)]
    shares = bool(mine["space"].iloc[0] == LOGITS)
    rows = []
    for layer in sorted({int(layer) for layer in mine["layer"]}):
        named = _entries(mine[mine["layer"] == layer].sort_values("rank"), shares)
        cells = (Words((Mark(entry, "bdi"), " ", Mark(value, "small"))) for entry, value in named)
        rows.append(Row(str(layer), tuple(cells)))
    table = Table(("Layer", *map(ordinal, range(1, ENTRIES + 1))), tuple(rows), style="nearest")
    return Entries(str(mine["token"].iloc[0]), tuple(choices), table)


def trajectory_data(near: pd.DataFrame) -> dict[str, Any]:
    """By stack and choice, the layers, and for each token and layer its entries, nearest first.

    An entry is its text and its number; a token has as many in a layer as a page shows.

    Args:
        near: rows of `headbook.study.sentencedata.NEAREST`, of one sentence.
    """
    return {
        str(stack): {choice: _cells(rows) for choice, rows in _choices(of_stack).items()}
        for stack, of_stack in near.groupby("stack", sort=False)
    }


def _choices(near: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows by state and space, with their names."""
    choices = {}
    for space in dict.fromkeys(near["space"]):
        for state in sorted(set(near["state"]), key=lambda name: name != State.OUT):
            rows = near[(near["space"] == space) & (near["state"] == state)]
            if len(rows):
                name = "logit lens" if space == LOGITS else SPACES[Space(space)]
                choices[f"{name}, {STATES[State(state)]}"] = rows
    return choices


def _cells(rows: pd.DataFrame) -> dict[str, Any]:
    rows = rows[rows["rank"] <= ENTRIES].sort_values(["position", "layer", "rank"])
    shares = rows["space"].iloc[0] == LOGITS
    layers = [int(layer) for layer in dict.fromkeys(rows["layer"])]
    texts = _entries(rows, shares)
    sizes = rows.groupby(["position", "layer"]).size()
    cells = [list(islice(texts, size)) for size in sizes]
    per_token = range(0, len(cells), len(layers))
    return {"layers": layers, "cells": [cells[i : i + len(layers)] for i in per_token]}


def _entries(rows: pd.DataFrame, shares: bool) -> Iterator[tuple[str, str]]:
    written = percent if shares else number
    for entry, value in zip(rows["neighbour"], rows["cosine"], strict=True):
        yield visible(entry), written(value)
