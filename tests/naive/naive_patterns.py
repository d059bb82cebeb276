"""Fits of attention maps as their definitions read, by an optimiser of SciPy and plain loops."""

import math
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
    """Return what `residuals` returns, and the logarithms of the weights by item."""
    items = {item: index for index, item in enumerate(sorted({j for row in rows for j in row}))}
    seen, mass = np.zeros((len(rows), len(items))), np.zeros((len(rows), len(items)))
    for number, row in enumerate(rows):
        for item, weight in row.items():
            seen[number, items[item]] = 1
            mass[number, items[item]] = weight / sum(row.values())
    scale = 1 / np.log(seen.sum(1))
    logs = _most_likely(seen, mass, scale)
    cross = (np.log((seen * np.exp(logs)).sum(1)) - (mass * logs).sum(1)) * scale
    entropy: Array = -(mass * np.log(np.where(mass > 0, mass, 1))).sum(1) * scale
    return [float(each) for each in cross - entropy], dict(zip(items, logs.tolist(), strict=True))


def _most_likely(seen: Array, mass: Array, scale: Array) -> Array:
    """Return the log-weights of items that make rows most likely; the first item's is 0.

    Newton's method in a trust region.

    Args:
        seen: how often a row sees an item. *Shape:* ``(row, item)``, as `mass`.
        scale: weights of the rows.
    """

    def share(x: Array) -> Array:
        each = seen * np.exp(np.append(0, x))
        found: Array = each / each.sum(1, keepdims=True)
        return found

    def total(x: Array) -> float:
        logs = np.append(0, x)
        return float(scale @ (np.log((seen * np.exp(logs)).sum(1)) - mass @ logs))

    def slope(x: Array) -> Array:
        found: Array = (scale @ (share(x) - mass))[1:]
        return found

    def curvature(x: Array) -> Array:
        p = share(x)
        found: Array = np.diag(scale @ p) - (p.T * scale) @ p
        return found[1:, 1:]

    x = np.zeros(seen.shape[1] - 1)
    if len(x):
        x = minimize(
            total, x, jac=slope, hess=curvature, method="trust-exact", options={"gtol": 1e-12}
        ).x
    return np.append(0, x)


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
        numbers = {"spread": (spread, size), "column": (column, size), "offset": (sum(own), alike)}
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
    return parts | _own_sentence(v, rows) | _largest_key(v, rows)


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


def _largest_key(v: Viewed, rows: list[Row]) -> dict[str, Part]:
    """Class of the key that receives most beyond uniform attention."""
    kinds = ("punctuation", "first", "last", "function", "content", "other")
    if not rows:
        return {f"key_{kind}": Part(0, 0, 0) for kind in kinds}
    keys = sorted({j for row in v.rows for j in row.weights})
    beyond = {
        j: sum(row.weights[j] - 1 / len(row.weights) for row in rows if j in row.weights)
        for j in keys
    }
    best = max(keys, key=lambda j: beyond[j])
    token = v.keys.tokens[best]
    holds = (token.punctuation, best == keys[0], best == keys[-1], token.tag in FUNCTION,
             token.tag in WORDS, True)  # fmt: skip
    kind = kinds[holds.index(True)]
    return {f"key_{name}": Part(name == kind, 1, 1) for name in kinds}


def attention_parts(sentences: list[Viewed]) -> list[dict[str, Part]]:
    """One weight per offset over all sentences, then one per key: steps of minorisation."""
    texts = [_counted_rows(v) for v in sentences]
    seen = [{j for r in v.rows for j in r.weights if max(r.query, j) < 64} for v in sentences]
    crosses = sentences[0].crosses
    logs = {} if crosses else _offset_weights([row for rows in texts for row in rows])
    found = []
    for rows, keys in zip(texts, seen, strict=True):
        expected = {i: _spread(i, row, logs) for i, row in rows}
        product = _times_keys(rows, keys, expected)
        departure = distance = explained = 0.0
        for i, row in rows:
            even = math.log(len(row))
            own, near, both = (
                sum(w * math.log(max(m[j], 1e-12)) for j, w in row.items() if w > 0)
                for m in (row, expected[i], product[i])
            )
            departure += (even + own) / even
            distance += (even + near) / even
            explained += (both - near) / even
        known = departure > 1e-9 * len(rows)
        n, below = len(rows) * known, departure * known
        aligned = 0 if crosses else 1
        found.append({
            "distance": Part(distance * aligned * known, below * aligned, n * aligned),
            "key": Part(explained * known, below, n),
            "pair": Part((departure - explained - distance * aligned) * known, below, n),
        })  # fmt: skip
    return found


def _counted_rows(v: Viewed) -> list[tuple[int, dict[int, float]]]:
    """Return rows with their attention summing to 1, of the first 64 tokens."""
    rows = []
    for row in v.rows:
        keys = {j: w for j, w in row.weights.items() if j < 64}
        if row.trusted and row.query < 64 and len(keys) > 1 and sum(keys.values()) > 0:
            rows.append((row.query, {j: w / sum(keys.values()) for j, w in keys.items()}))
    return rows


def _offset(i: int, j: int) -> int:
    return max(-32, min(32, j - i))


def _offset_weights(rows: list[tuple[int, dict[int, float]]]) -> dict[int, float]:
    """Return one weight per offset that makes the rows most likely, each by 1 / ln(keys)."""
    if not rows:
        return {}
    mass: dict[int, float] = {}
    for i, row in rows:
        for j, w in row.items():
            mass[_offset(i, j)] = mass.get(_offset(i, j), 0.0) + w
    offsets = [offset for offset, w in mass.items() if w > 0]
    place = {offset: number for number, offset in enumerate(offsets)}
    seen, given = np.zeros((len(rows), len(place))), np.zeros((len(rows), len(place)))
    for number, (i, row) in enumerate(rows):
        for j, w in row.items():
            if _offset(i, j) in place:
                seen[number, place[_offset(i, j)]] += 1
                given[number, place[_offset(i, j)]] += w
    scale = np.array([1 / math.log(len(row)) for _, row in rows])
    logs = _most_likely(seen, given, scale)
    return dict(zip(offsets, np.exp(logs - logs.max()).tolist(), strict=True))


def _spread(i: int, row: dict[int, float], weights: dict[int, float]) -> dict[int, float]:
    """Return the row that weights per offset give; even without weights."""
    strength = {j: weights.get(_offset(i, j), 0.0) if weights else 1.0 for j in row}
    return {j: s / sum(strength.values()) for j, s in strength.items()}


def _times_keys(
    rows: list[tuple[int, dict[int, float]]],
    keys: set[int],
    expected: dict[int, dict[int, float]],
) -> dict[int, dict[int, float]]:
    """Return expected rows times one weight per key, from queries of the other parity."""
    found = dict(expected)
    for parity in (0, 1):
        train = [(i, row, 1 / math.log(len(row))) for i, row in rows if i % 2 != parity]
        if not train:
            continue
        pseudo = sum(c for _, _, c in train) / len(train) / len(keys)
        weight = dict.fromkeys(keys, 1.0)
        for _ in range(60):
            mean = sum(weight.values()) / len(weight)
            seen, got = dict.fromkeys(keys, 0.0), dict.fromkeys(keys, 0.0)
            for i, row, c in train:
                total = sum(e * weight[j] for j, e in expected[i].items())
                for j, e in expected[i].items():
                    seen[j] += c * e / total
                    got[j] += c * row[j]
            weight = {j: (got[j] + pseudo) / (seen[j] + pseudo / mean) for j in keys}
        for i, row in rows:
            if i % 2 == parity:
                total = sum(expected[i][j] * weight[j] for j in row)
                found[i] = {j: expected[i][j] * weight[j] / total for j in row}
    return found
