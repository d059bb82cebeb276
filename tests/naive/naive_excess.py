"""Dependency alignment beyond distance as its definition reads: word by word, head by head."""

from collections.abc import Mapping, Sequence

import numpy as np

from naive_ratios import Part
from single_head import Viewed

REACH = 8
Rows = dict[int, dict[int, float]]


def place(i: int, j: int) -> int:
    return max(-REACH, min(REACH, j - i)) + REACH


def weights_by_distance(sentences: Sequence[Rows]) -> list[float] | None:
    """Return the most likely weight of each offset, by steps of minorisation; None without mass."""
    rows = [(i, row) for words in sentences for i, row in words.items() if sum(row.values()) > 0]
    if not rows:
        return None
    mass, seen = np.zeros(2 * REACH + 1), np.zeros((len(rows), 2 * REACH + 1))
    for n, (i, row) in enumerate(rows):
        for j, weight in row.items():
            mass[place(i, j)] += weight
            seen[n, place(i, j)] += 1
    amount = np.array([sum(row.values()) for _, row in rows])
    weights = np.where(mass > 0, 1.0, 0.0)
    for _ in range(200_000):
        expected = (seen * (amount / (seen @ weights))[:, None]).sum(0)
        new = np.divide(mass, expected, out=np.zeros_like(mass), where=expected > 0)
        new /= new.max()
        if np.abs(new - weights).max() < 1e-13:
            break
        weights = new
    found: list[float] = weights.tolist()
    return found


def row_by_distance(i: int, row: Mapping[int, float], weights: Sequence[float]) -> dict[int, float]:
    """Return the mass of a row, spread by distance alone."""
    strength = {j: weights[place(i, j)] for j in row}
    if not sum(strength.values()):
        strength = dict.fromkeys(row, 1.0)
    share = sum(row.values()) / sum(strength.values())
    return {j: share * value for j, value in strength.items()}


def dependency_excess(sentences: list[Viewed]) -> list[dict[str, Part]]:
    words: list[Rows] = [v.between_words() if v.queries.parsed else {} for v in sentences]
    weights = [
        weights_by_distance([w for v, w in zip(sentences, words, strict=True) if v.look.half == n])
        for n in (0, 1)
    ]
    found = []
    for v, rows in zip(sentences, words, strict=True):
        heads = {t.word: t.head for t in v.queries.tokens if t.word is not None}
        fitted, beyond, mass = weights[1 - v.look.half], 0.0, 0.0
        for i, row in rows.items() if fitted is not None else ():
            assert fitted is not None
            expected = row_by_distance(i, row, fitted)
            mass += sum(row.values())
            beyond += sum(
                row[j] - expected[j]
                for j in row
                if i != j and (heads.get(i) == j or heads.get(j) == i)
            )
        looking = sum(bool(row) for row in rows.values())
        found.append({"": Part(beyond, mass, looking if mass > 0 else 0)})
    return found
