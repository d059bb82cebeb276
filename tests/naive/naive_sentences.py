"""What pages should show of one sentence's attention, token by token, the slow way."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from headbook.study.sentence_data import StoredText

NAN = math.nan
Rows = list[list[float]]


class Map(NamedTuple):
    """One head over one sentence: weights in steps of 1/255, and the lengths of values."""

    steps: Any
    queries: StoredText
    keys: StoredText
    causal: bool
    norms: Sequence[float]


def seen(value: float) -> bool:
    """Whether there is a weight at all."""
    return not math.isnan(value)


def total(row: Sequence[float]) -> float:
    """Return the content of a row."""
    return sum(filter(seen, row))


def names(text: StoredText, units: str) -> list[str]:
    """Return the tokens, or the words in the text's own letters; a token without a word is one."""
    if units == "pieces":
        return list(text.pieces)
    found = []
    for members in groups(text):
        spans = [text.spans[i] for i in members]
        letters = text.text[min(a for a, _ in spans) : max(b for _, b in spans)]
        found.append(text.pieces[members[0]] if text.words[members[0]] < 0 else letters)
    return found


def groups(text: StoredText) -> list[list[int]]:
    """Return the tokens of each word, in the order of the text."""
    found: dict[object, list[int]] = {}
    for i, word in enumerate(text.words):
        found.setdefault(word if word >= 0 else f"alone {i}", []).append(i)
    return list(found.values())


def pieces(head_map: Map, view: str) -> Rows:
    """Return the weights between tokens in a view; not a number where there is nothing to see."""
    rows: Rows = []
    for q, steps in enumerate(head_map.steps):
        row = []
        for k, step in enumerate(steps):
            sink = head_map.keys.special[k] or (head_map.causal and k == 0)
            hidden = head_map.causal and k > q
            left_out = sink and view in ("nosink", "renorm")
            length = head_map.norms[k] if view == "norm" else 1.0
            row.append(NAN if hidden or left_out else int(step) / 255 * length)
        left = total(row)
        if view in ("renorm", "norm"):
            row = [value / left if left > 0 else NAN for value in row]
        rows.append(row)
    return rows


def words(head_map: Map, view: str) -> Rows:
    """To a word the sum over its tokens, from a word the mean over those that count."""
    between, found = pieces(head_map, view), []
    for looking in groups(head_map.queries):
        counted = [
            q
            for q in looking
            if not head_map.queries.special[q] and not (head_map.causal and q == 0)
        ]
        rows = [between[q] for q in counted or looking]
        rows = [row for row in rows if any(map(seen, row))]
        line = []
        for looked in groups(head_map.keys):
            parts = [row[k] for row in rows for k in looked if seen(row[k])]
            line.append(sum(parts) / len(rows) if parts else NAN)
        found.append(line)
    return found


def weights(head_map: Map, view: str, units: str) -> Rows:
    """Return the weights that a page shows."""
    return words(head_map, view) if units == "words" else pieces(head_map, view)


def ranked(row: Sequence[float]) -> list[int]:
    """Return the keys that can be seen, from the strongest on, the first of equals first.

    Values that differ by rounding alone count as equal.
    """
    there = [k for k, value in enumerate(row) if seen(value)]
    return sorted(there, key=lambda k: (-round(row[k], 12), k))


def fewest(row: Sequence[float], share: float) -> list[int]:
    """Return the fewest keys that hold a share of a row."""
    whole, sum_, found = total(row), 0.0, []
    for key in ranked(row):
        if row[key] > 0 and sum_ < share * whole - 1e-9 * whole:
            found.append(key)
            sum_ += row[key]
    return found


def written(value: float) -> str:
    """Return a weight as pages print it: in two digits, a half upwards."""
    return f"{math.floor(100 * value + 0.5) / 100:.2f}" if seen(value) else "–"
