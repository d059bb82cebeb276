"""Attention between regions as its definition reads: query by query, key by key."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from naive_ratios import Part

REACH = 32
SPECIAL = "special"


class Map(NamedTuple):
    """One head's map of one text.

    Attributes:
        weights: by query and key.
        regions: region of each token; `SPECIAL` for special tokens.
        half: half of the sentences that the text belongs to.
    """

    weights: Sequence[Sequence[float]]
    regions: Sequence[str]
    half: int


Rows = dict[int, dict[int, float]]
Distance = tuple[int, int]


def rows_of(text: Map, view: str) -> Rows:
    """Return the rows of ordinary tokens by key, in one view."""
    ordinary = [i for i, region in enumerate(text.regions) if region != SPECIAL]
    rows = {}
    for i in ordinary:
        row = dict(enumerate(text.weights[i]))
        if view != "raw":
            row = {j: weight for j, weight in row.items() if j in ordinary}
        if view == "renorm" and sum(row.values()) > 0:
            row = {j: weight / sum(row.values()) for j, weight in row.items()}
        rows[i] = row
    return rows


def region_attention(text: Map, view: str, names: Sequence[str]) -> dict[str, Part]:
    return dict(_ratios(text, rows_of(text, view), names, {}))


def _ratios(
    text: Map, rows: Rows, names: Sequence[str], expected: Rows
) -> Iterator[tuple[str, Part]]:
    for r in names:
        for s in names:
            mass = between = n = 0.0
            for i, row in rows.items():
                keys = [j for j in row if text.regions[j] == s]
                if text.regions[i] == r and keys:
                    n += 1
                    mass += sum(row.values())
                    between += sum(row[j] - expected.get(i, {}).get(j, 0) for j in keys)
            yield f"{r}→{s}", Part(between, mass, n)


def distance(i: int, j: int) -> Distance:
    """Return the sign and length of an offset: one class for each up to 32, then octaves."""
    sign = (j > i) - (j < i)
    length = abs(i - j)
    if length <= REACH:
        return sign, length
    upper = 2 * REACH
    while length > upper:
        upper *= 2
    return sign, upper


def trusted(text: Map) -> Rows:
    """Return renormalised rows with at most 90 % on the sink."""
    raw = rows_of(text, "raw")
    special = [j for j, region in enumerate(text.regions) if region == SPECIAL]
    rows = rows_of(text, "renorm")
    return {i: row for i, row in rows.items() if sum(raw[i][j] for j in special) <= 0.9}


def weights_by_distance(rows: Sequence[tuple[int, dict[int, float]]]) -> dict[Distance, float]:
    """Return the most likely weight of each distance, by steps of minorisation."""
    numbers = {d: n for n, d in enumerate(sorted({distance(i, j) for i, row in rows for j in row}))}
    mass, seen = np.zeros(len(numbers)), np.zeros((len(rows), len(numbers)))
    for n, (i, row) in enumerate(rows):
        for j, weight in row.items():
            mass[numbers[distance(i, j)]] += weight
            seen[n, numbers[distance(i, j)]] += 1
    amount = np.array([sum(row.values()) for _, row in rows])
    weights = np.where(mass > 0, 1.0, 0.0)
    for _ in range(100_000):
        expected = (seen * (amount / (seen @ weights))[:, None]).sum(0)
        new = np.divide(mass, expected, out=np.zeros_like(mass), where=expected > 0)
        new /= new.max()
        if np.abs(new - weights).max() < 1e-14:
            break
        weights = new
    return {d: float(weights[n]) for d, n in numbers.items()}


def expected_row(i: int, row: dict[int, float], weights: dict[Distance, float]) -> dict[int, float]:
    """Return a row by distance alone; pairs at unknown distances as they are."""
    known = [j for j in row if distance(i, j) in weights]
    strength = {j: weights[distance(i, j)] for j in known}
    if not sum(strength.values()):
        strength = dict.fromkeys(known, 1.0)
    mass = sum(row[j] for j in known)
    return {j: mass * strength[j] / sum(strength.values()) if j in known else row[j] for j in row}


def region_excess(texts: Sequence[Map], names: Sequence[str]) -> list[dict[str, Part]]:
    """Return the ratios of each text, with the weights of the other half."""
    rows_of_half: list[list[tuple[int, dict[int, float]]]] = [[], []]
    for text in texts:
        rows_of_half[text.half] += trusted(text).items()
    weights = [weights_by_distance(rows) if rows else {} for rows in rows_of_half]
    parts = []
    for text in texts:
        other, rows = weights[1 - text.half], trusted(text)
        expected = {i: expected_row(i, row, other) for i, row in rows.items()}
        ratios = dict(_ratios(text, rows, names, expected))
        n_queries = dict(_ratios(text, rows_of(text, "renorm"), names, {}))
        none = Part(0, 0, 0)
        parts.append(
            {
                label: part._replace(events=n_queries[label].events) if other and part.d else none
                for label, part in ratios.items()
            }
        )
    return parts
