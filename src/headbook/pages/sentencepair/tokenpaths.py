"""The paths of a sentence's tokens in two models, and what their last states are nearest to."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headbook.comparison.pairs import PairedStack
from headbook.comparison.sides import same_vocabulary
from headbook.pages.parts.table import DASH, Content, Mark, Part, Row, Table, Words
from headbook.pages.widgets.paths import MOST_TOKENS, paths_data
from headbook.report.wording import SPACES, number, percent, visible
from headbook.study.sentencedata import LOGITS, StoredSentence, StoredText
from headbook.terms import Space, State

Rows = tuple[pd.DataFrame, pd.DataFrame]  # of one sentence in both studies
NEAREST = 3  # vocabulary tokens of each model that the table names


def both_paths(
    paired: PairedStack, sentences: tuple[StoredSentence, StoredSentence], tokens: Rows
) -> dict[str, Any] | None:
    """What the script reads of both models; None where they have no path in common.

    Args:
        tokens: rows of `headbook.study.sentencedata.TOKENS`, of the sentence.

    Returns:
        ``a`` and ``b``: as of `paths_data`, of the measures that both have, each view with the
        ``ends`` of an axis for both; ``places``: the token of the second model for each of the
        first, None without one.
    """
    made = [
        paths_data(results, sentence, rows[rows["stack"] == results.stack.name])
        for results, sentence, rows in zip((paired.a, paired.b), sentences, tokens, strict=True)
    ]
    one, other = made
    if one is None or other is None:
        return None
    one["metrics"], other["metrics"] = _common(one["metrics"], other["metrics"])
    if not one["metrics"]:
        return None
    return {"a": one, "b": other, "places": [*_places(*_texts(paired, sentences))]}


def titles(paths: dict[str, Any] | None) -> tuple[str, ...]:
    """The measures that are drawn."""
    return tuple(metric["title"] for metric in paths["a"]["metrics"]) if paths else ()


def _texts(
    paired: PairedStack, sentences: tuple[StoredSentence, StoredSentence]
) -> tuple[StoredText, StoredText]:
    stacks = paired.stack.a, paired.stack.b
    return sentences[0].texts[stacks[0].queries], sentences[1].texts[stacks[1].queries]


def _common(
    mine: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The measures and views that both have, with one axis."""
    by_id = {metric["id"]: metric for metric in theirs}
    found: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for metric in mine:
        other = by_id.get(metric["id"])
        views = {view["name"]: view for view in other["views"]} if other else {}
        pairs = [(v, views[v["name"]]) for v in metric["views"] if v["name"] in views]
        if other is None or not pairs:
            continue
        for pair in pairs:
            ends = _ends(pair, metric["start"])
            for view in pair:
                view["ends"] = ends
        found[0].append(metric | {"views": [pair[0] for pair in pairs]})
        found[1].append(other | {"views": [pair[1] for pair in pairs]})
    return found


def _ends(views: Sequence[dict[str, Any]], start: float | None) -> list[float]:
    """The smallest and the largest number that is drawn of either model."""
    values = [] if start is None else [start]
    for view in views:
        lines = [*view["values"], *view["classes"].values(), *view["beside"].values()]
        values += [value for line in lines for value in line if value is not None]
    return [min(values), max(values)]


def _places(mine: StoredText, theirs: StoredText) -> Iterator[int | None]:
    """For each token of one model the token of the other that begins at the same letter.

    Those without letters of their own, such as special tokens, only where both texts are the same.
    """
    if mine.pieces == theirs.pieces:
        yield from range(len(mine.pieces))
        return
    starts = {
        span[0]: place
        for place, span in reversed([*enumerate(theirs.spans)])
        if span[1] > span[0] and not theirs.special[place]
    }
    for span, special in zip(mine.spans, mine.special, strict=True):
        yield None if special or span[1] <= span[0] else starts.get(span[0])


def nearest_table(
    paired: PairedStack, sentences: tuple[StoredSentence, StoredSentence], near: Rows
) -> Table | None:
    """The vocabulary tokens nearest to each token's last state; None where one model has none.

    Args:
        near: rows of `headbook.study.sentencedata.NEAREST`, of the sentence.
    """
    stacks = paired.stack.a, paired.stack.b
    own = [
        rows[(rows["stack"] == s.name) & (rows["state"] == State.OUT)]
        for rows, s in zip(near, stacks, strict=True)
    ]
    if any(each.empty for each in own):
        return None
    mine, theirs = (dict.fromkeys(each["space"]) for each in own)
    common = next((space for space in mine if space in theirs), None)
    spaces = [common or next(iter(each)) for each in (mine, theirs)]
    found = [_last(rows, space) for rows, space in zip(own, spaces, strict=True)]
    alike = common is not None and same_vocabulary(
        paired.a.study.manifest.model, paired.b.study.manifest.model
    )
    rows, texts = [], _texts(paired, sentences)
    for place, other in [*enumerate(_places(*texts))][:MOST_TOKENS]:
        both = found[0].get(place), None if other is None else found[1].get(other)
        cells: tuple[Content, ...] = (*map(_words, both), *([_shared(*both)] if alike else []))
        rows.append(Row(Words((Mark(texts[0].pieces[place], "bdi"),)), cells))
    names = zip(paired.names, spaces, strict=True)
    columns = ("Token", *(f"{name}, by {_space(space)}" for name, space in names))
    return Table((*columns, *(["in common"] if alike else [])), tuple(rows), style="nearest")


def _space(space: str) -> str:
    return "logit lens" if space == LOGITS else SPACES[Space(space)]


def _last(near: pd.DataFrame, space: str) -> dict[int, list[tuple[str, str]]]:
    """What is nearest to each token after the last layer."""
    last = near[(near["layer"] == near["layer"].max()) & (near["space"] == space)]
    written = percent if space == LOGITS else number
    found: dict[int, list[tuple[str, str]]] = {}
    names = ("position", "neighbour", "cosine")
    columns = (last.sort_values("rank")[name].tolist() for name in names)
    for position, entry, value in zip(*columns, strict=True):
        found.setdefault(int(position), []).append((visible(entry), written(float(value))))
    return found


def _words(entries: Sequence[tuple[str, str]] | None) -> Content:
    if not entries:
        return DASH
    parts: list[Part] = []
    for entry, value in entries[:NEAREST]:
        parts += [*([", "] if parts else []), Mark(entry, "bdi"), " ", Mark(value, "small")]
    return Words(tuple(parts))


def _shared(
    mine: Sequence[tuple[str, str]] | None, theirs: Sequence[tuple[str, str]] | None
) -> str | None:
    """How many of the ten nearest are the same."""
    if not mine or not theirs:
        return None
    size = min(len(mine), len(theirs))
    same = np.intersect1d([each[0] for each in mine[:size]], [each[0] for each in theirs[:size]])
    return f"{len(same)} of {size}"
