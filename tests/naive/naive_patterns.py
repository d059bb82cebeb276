"""Fits of attention maps as their definitions read, by an optimiser of SciPy and plain loops."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from naive_ratios import Part
from single_head import Row, Viewed

Array = NDArray[np.float64]
Means = dict[int, float]


def _least(rows: list[dict[int, float]]) -> list[float]:
    """Return KL(A_i || w/Z_i)/ln k_i of each row for the weights w with the least sum."""
    return _fitted(rows)[0]


def _fitted(rows: list[dict[int, float]]) -> tuple[list[float], Means]:
    """Return what `residuals` returns, and the logarithms of the weights by item.

    Newton's method in a trust region; the first item's is 0.
    """
    items = {item: index for index, item in enumerate(sorted({j for row in rows for j in row}))}
    seen, mass = np.zeros((len(rows), len(items))), np.zeros((len(rows), len(items)))
    for number, row in enumerate(rows):
        for item, weight in row.items():
            seen[number, items[item]] = 1
            mass[number, items[item]] = weight / sum(row.values())
    scale = 1 / np.log(seen.sum(1))

    def share(x: Array) -> Array:
        each = seen * np.exp(np.append(0, x))
        found: Array = each / each.sum(1, keepdims=True)
        return found

    def cross(x: Array) -> Array:
        logs = np.append(0, x)
        totals = np.log((seen * np.exp(logs)).sum(1))
        found: Array = (totals - (mass * logs).sum(1)) * scale
        return found

    def total(x: Array) -> float:
        return float(cross(x).sum())

    def slope(x: Array) -> Array:
        found: Array = (scale @ (share(x) - mass))[1:]
        return found

    def curvature(x: Array) -> Array:
        p = share(x)
        found: Array = np.diag(scale @ p) - (p.T * scale) @ p
        return found[1:, 1:]

    x = np.zeros(len(items) - 1)
    if len(x):
        x = minimize(
            total, x, jac=slope, hess=curvature, method="trust-exact", options={"gtol": 1e-10}
        ).x
    entropy: Array = -(mass * np.log(np.where(mass > 0, mass, 1))).sum(1) * scale
    return [float(each) for each in cross(x) - entropy], dict(zip(items, [0, *x], strict=True))


def _mixture(maps: list[dict[int, float]], places: list[int]) -> tuple[float, float]:
    """Mass explained by keys and an even background, and by offsets: 50 steps of EM."""
    pairs = {(i, j): w / sum(row.values()) for i, row in zip(places, maps, strict=True)
             for j, w in row.items()}  # fmt: skip
    even = {i: 1 / len(row) for i, row in zip(places, maps, strict=True)}

    def by(kind: Callable[[int, int], int], values: dict[tuple[int, int], float]) -> Means:
        found: dict[int, list[float]] = {}
        for (i, j), value in values.items():
            found.setdefault(kind(i, j), []).append(value)
        return {k: sum(each) / len(each) for k, each in found.items()}

    def key(_: int, j: int) -> int:
        return j

    def offset(i: int, j: int) -> int:
        return j - i

    mean = by(key, pairs)
    excess = {(i, j): w - max(mean[j], even[i]) for (i, j), w in pairs.items()}
    keys = {j: m / 2 for j, m in mean.items()}
    offsets = by(offset, {pair: e if e >= 1e-9 else 0.0 for pair, e in excess.items()})
    background = 0.5
    for _ in range(50):
        fit = {(i, j): keys[j] + background * even[i] + offsets[j - i] for i, j in pairs}
        ratio = {pair: w / fit[pair] if fit[pair] > 0 else 0.0 for pair, w in pairs.items()}
        keys = {j: keys[j] * r for j, r in by(key, ratio).items()}
        offsets = {o: offsets[o] * r for o, r in by(offset, ratio).items()}
        background *= sum(r * even[i] for (i, _), r in ratio.items()) / len(maps)
    across = along = 0.0
    for (i, j), w in pairs.items():
        stripes = keys[j] + background * even[i]
        if stripes + offsets[j - i] > 0:
            explained = min(w / (stripes + offsets[j - i]), 1)
            across, along = across + explained * stripes, along + explained * offsets[j - i]
    return across, along


def pattern(sentences: list[Viewed]) -> list[dict[str, Part]]:
    each: list[list[tuple[int, dict[int, float]]]] = []
    for v in sentences:
        attention = v.look
        rows = [
            (i, {j: attention.weights[i][j] for j in seen}) for i, seen in enumerate(attention.seen)
        ]
        if attention.learned:
            rows = [(i, {j: w / sum(row.values()) for j, w in row.items()}) for i, row in rows]
        short = max(len(v.queries.tokens), len(v.keys.tokens)) <= 64
        each.append([(i, row) for i, row in rows if len(row) > 1 and short])
    by_offset = [{j - i: w for j, w in row.items()} for rows in each for i, row in rows]
    left = [] if not by_offset or sentences[0].crosses else _least(by_offset)
    found = []
    for rows in each:
        size, maps = len(rows), [row for _, row in rows]
        alike = size * (not sentences[0].crosses)
        spread = sum(-sum(w * math.log(w) for w in m.values() if w > 0) / math.log(len(m))
                     for m in maps)  # fmt: skip
        column = sum(_least(maps)) if maps else 0.0
        own, left = left[:size], left[size:]
        across, along = _mixture(maps, [i for i, _ in rows]) if alike else (0.0, 0.0)
        numbers = {"spread": (spread, size), "column": (column, size), "offset": (sum(own), alike),
                   "vertical": (across, alike), "diagonal": (along, alike),
                   "rest": (alike - across - along, alike)}  # fmt: skip
        found.append(
            {label: Part(above, below, below) for label, (above, below) in numbers.items()}
        )
    return found


def _of_sentence(v: Viewed) -> list[int]:
    """Return the sentence of each token: separators close it, ordinary tokens open one."""
    found: list[int] = []
    for j in range(len(v.keys.tokens)):
        ordinary = [i for i in range(j + 1) if not v.keys.tokens[i].special]
        ends = [any(t.separator for t in v.keys.tokens[a:b])
                for a, b in pairwise(ordinary)]  # fmt: skip
        found.append(sum(ends))
    return found


def block_ratio(sentences: list[Viewed]) -> list[dict[str, Part]]:
    found = []
    for v in sentences:
        number, inside, even, rows = _of_sentence(v), 0.0, 0.0, 0
        for i, keys in enumerate(v.look.seen):
            if len(keys) > 1 and max(number) > 0:
                own = [j for j in keys if number[j] == number[i]]
                inside += sum(v.look.weights[i][j] for j in own)
                even, rows = even + len(own) / len(keys), rows + 1
        found.append({"": Part(inside, even, rows)})
    return found


FUNCTION = {"ADP", "AUX", "CCONJ", "DET", "PART", "PRON", "SCONJ"}
WORDS = {"ADJ", "ADV", "INTJ", "NOUN", "NUM", "PROPN", "VERB"}


def type_shares(sentences: list[Viewed]) -> list[dict[str, Part]]:
    return [_shares(v) for v in sentences]


def _shares(v: Viewed) -> dict[str, Part]:
    seeing = [row for row in v.rows if len(row.weights) > 1]
    rows = [row for row in seeing if row.trusted]
    n, aligned = len(rows), 0 if v.crosses else len(rows)
    mass: dict[str, float] = {}
    even: dict[str, float] = {}
    for row in rows:
        for j, weight in row.weights.items():
            for kind in _kinds(v, row.query, j):
                mass[kind] = mass.get(kind, 0.0) + weight
                even[kind] = even.get(kind, 0.0) + 1 / len(row.weights)
    one = ("previous", "next", "self", "near", "repeated", "before", "after")
    far = [str(k) for k in range(-8, 9) if abs(k) > 1]
    again = 0 if v.crosses else sum(any(_repeats(v, r.query, j) for j in r.weights) for r in rows)
    over = dict.fromkeys((*one, *far, "within_3"), aligned)
    over |= {"punctuation": n, "same_token": again}
    parts = {}
    for kind, count in over.items():
        parts[kind] = Part(mass.get(kind, 0.0), count, count)
        parts[f"even_{kind}"] = Part(even.get(kind, 0.0), count, count)
    parts["left_out"] = Part(len(seeing) - n, len(seeing), len(seeing))
    return parts | _own_sentence(v, rows) | _column(v, rows)


def _repeats(v: Viewed, i: int, j: int) -> bool:
    return i != j and v.queries.tokens[i].id == v.keys.tokens[j].id


def _kinds(v: Viewed, i: int, j: int) -> list[str]:
    """Return the part, the offset, and the other labels of a pair of query and key."""
    punctuation, offset = v.keys.tokens[j].punctuation, j - i
    if v.crosses:
        return ["punctuation"] * punctuation
    part = {-1: "previous", 0: "self", 1: "next"}.get(offset)
    if part is None and abs(offset) <= 3:
        part = "near"
    if part is None and punctuation:
        part = "punctuation"
    if part is None and _repeats(v, i, j):
        part = "repeated"
    if part is None:
        part = "before" if offset < 0 else "after"
    within = ["within_3"] * (abs(offset) <= 3)
    return [part, str(offset), *within, *(["same_token"] if _repeats(v, i, j) else [])]


def _own_sentence(v: Viewed, rows: list[Row]) -> dict[str, Part]:
    number, own, even, count = [0] if v.crosses else _of_sentence(v), 0.0, 0.0, 0
    for row in rows:
        mine = [j for j in row.weights if max(number) > 0 and number[j] == number[row.query]]
        own += sum(row.weights[j] for j in mine)
        even += len(mine) / len(row.weights)
        count += max(number) > 0
    return {
        "own_sentence": Part(own, count, count), "even_own_sentence": Part(even, count, count)
    }  # fmt: skip


def _column(v: Viewed, rows: list[Row]) -> dict[str, Part]:
    keys = sorted({j for row in v.rows for j in row.weights})
    short = max(len([r for r in v.rows if r.weights]), len(keys)) <= 64
    maps = [row.weights for row in rows if len(row.weights) > 1 and short]
    kinds = ("punctuation", "first", "last", "function", "content", "other")
    if not maps:
        return {name: Part(0, 0, 0) for name in ("column", *(f"key_{kind}" for kind in kinds))}
    left, weights = _fitted(maps)
    best = max(weights, key=lambda j: weights[j])
    token = v.keys.tokens[best]
    holds = (token.punctuation, best == keys[0], best == keys[-1], token.tag in FUNCTION,
             token.tag in WORDS, True)  # fmt: skip
    kind = kinds[holds.index(True)]
    return {
        "column": Part(sum(left), len(maps), len(maps)),
        **{f"key_{name}": Part(name == kind, 1, 1) for name in kinds},
    }
