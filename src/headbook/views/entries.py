"""Tables of vocabulary entries: what each token of a sentence is near to, layer by layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from headbook.stored.shown import LOGITS
from headbook.terms import Space, State
from headbook.wording import SPACES, STATES, first_of, number, percent

ENTRIES = 3  # that a cell names; the files have ten
COLUMNS = 12  # layers that a table has room for


@dataclass(frozen=True)
class EntriesRow:
    """A token with entries, and their numbers, after each layer."""

    token: str
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class EntriesTable:
    """The first entries of each token after each layer.

    Attributes:
        title: what the entries are.
        caption: how they were found, and what the numbers are.
        layers: layer numbers, the columns.
        rows: the tokens.
    """

    title: str
    caption: str
    layers: tuple[int, ...]
    rows: tuple[EntriesRow, ...]


@dataclass(frozen=True)
class Story:
    """One token layer by layer, as a reader chooses it.

    Attributes:
        tokens: all of the sentence.
        choices: states and spaces; keys of the data.
    """

    tokens: tuple[str, ...]
    choices: tuple[str, ...]


def entries_tables(near: pd.DataFrame) -> Iterator[EntriesTable]:
    """The nearest entries, and those of the logit lens, where there are any.

    Args:
        near: rows of `headbook.stored.shown.NEAREST`, of one stack and sentence.
    """
    lens = near["space"] == LOGITS
    nearest = near[~lens]
    if len(nearest):
        states = set(nearest["state"])
        state = str(State.OUT) if State.OUT in states else first_of(nearest["state"], State)
        space = first_of(nearest["space"], Space)
        chosen = nearest[(nearest["state"] == state) & (nearest["space"] == space)]
        caption = (
            "Three nearest vocabulary tokens "
            f"{STATES[State(state)]}, by cosine to their {SPACES[Space(space)]}"
        )
        yield _table("Nearest vocabulary tokens", caption, chosen, shares=False)
    if lens.any():
        caption = (
            "Three most probable vocabulary tokens after each layer, by the model's own norm and "
            "language-model head (logit lens)"
        )
        yield _table("Predictions after each layer", caption, near[lens], shares=True)


def story(near: pd.DataFrame) -> Story | None:
    """What a reader can choose from, to follow one token; None without entries."""
    if near.empty:
        return None
    tokens = near.drop_duplicates("position").sort_values("position")
    names = zip(tokens["position"], tokens["token"], strict=True)
    return Story(tuple(f"{position} {token}" for position, token in names), tuple(_choices(near)))


def story_data(near: pd.DataFrame) -> dict[str, Any]:
    """By stack and choice, the layers, and for each token and layer its entries, nearest first.

    Args:
        near: rows of `headbook.stored.shown.NEAREST`, of one sentence.
    """
    return {
        str(stack): {choice: _cells(rows) for choice, rows in _choices(of_stack).items()}
        for stack, of_stack in near.groupby("stack", sort=False)
    }


def _choices(near: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows by state and space, with their names."""
    found = {}
    for space in dict.fromkeys(near["space"]):
        for state in sorted(set(near["state"]), key=lambda name: name != State.OUT):
            rows = near[(near["space"] == space) & (near["state"] == state)]
            if len(rows):
                name = "logit lens" if space == LOGITS else SPACES[Space(space)]
                found[f"{name}, {STATES[State(state)]}"] = rows
    return found


def _cells(rows: pd.DataFrame) -> dict[str, Any]:
    rows = rows.sort_values(["position", "layer", "rank"])
    shares = rows["space"].iloc[0] == LOGITS
    layers = [int(layer) for layer in dict.fromkeys(rows["layer"])]
    texts = iter(_entries(rows, shares))
    sizes = rows.groupby(["position", "layer"]).size()
    cells = [list(islice(texts, size)) for size in sizes]
    per_token = range(0, len(cells), len(layers))
    return {"layers": layers, "cells": [cells[i : i + len(layers)] for i in per_token]}


def _table(title: str, caption: str, near: pd.DataFrame, *, shares: bool) -> EntriesTable:
    layers = _some_layers(near)
    chosen = near[near["layer"].isin(layers) & (near["rank"] <= ENTRIES)]
    chosen = chosen.sort_values(["position", "layer", "rank"])
    rows = []
    for (position, token), of_token in chosen.groupby(["position", "token"], sort=False):
        cells = tuple(_entries(of_layer, shares) for _, of_layer in of_token.groupby("layer"))
        rows.append(EntriesRow(f"{position} {token}", cells))
    return EntriesTable(title, caption, layers, tuple(rows))


def _some_layers(near: pd.DataFrame) -> tuple[int, ...]:
    """All layers, or as many as there is room for, evenly from the first to the last."""
    layers = sorted({int(layer) for layer in near["layer"]})
    if len(layers) <= COLUMNS:
        return tuple(layers)
    places = np.linspace(0, len(layers) - 1, COLUMNS).round().astype(int)
    return tuple(layers[place] for place in places)


def _entries(rows: pd.DataFrame, shares: bool) -> tuple[str, ...]:
    written = percent if shares else number
    entries = zip(rows["neighbour"], rows["cosine"], strict=True)
    return tuple(f"{entry} {written(value)}" for entry, value in entries)
