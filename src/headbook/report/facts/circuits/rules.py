"""Rules on what heads read and write: heads that copy, promote or suppress, or feed others.

Thresholds are those of the definitions: a head *copies* if its copying score lies above the band of
permuted token types and it copies a tenth of the types; it *promotes* the token that it attends to
if the median rank of that token on its exemplars is at most `TOP`; an induction head *uses* what a
previous-token head writes if its induction score falls by `MIN_LOSS` without that head in its keys.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headbook.metrics import ids
from headbook.report.results import StackResults, share_of_head
from headbook.report.thresholds import SCORE
from headbook.report.wording import visible
from headbook.results.formats import number
from headbook.results.number import PLAIN, Number, RowAddress, Unit
from headbook.schema import HeadKey, HeadName, Place, SinkView
from headbook.study.circuits import CircuitResults, OutputSpace
from headbook.study.sentence_data import StoredText

COPYING = HeadKey(ids.COPYING_SCORE, SinkView.RAW, "")
LOW_END, HIGH_END = (COPYING._replace(label=f"permuted {end}") for end in ("low", "high"))
COPY_RATE = HeadKey(ids.COPY_RATE, SinkView.RAW, "")
NEGATIVE_RATE = HeadKey(ids.COPY_RATE_NEGATIVE, SinkView.RAW, "")
ATTENDED = HeadKey(ids.ATTENDED_RANK, SinkView.RAW, "")
IN_TOP, IN_BOTTOM = (ATTENDED._replace(label=f"in {end} 10") for end in ("top", "bottom"))
TOWARDS = HeadKey(ids.TOWARDS_RANK, SinkView.RAW, "")
CONTROL = HeadKey(ids.TOWARDS_CONTROL, SinkView.RAW, "")
INDUCTION = HeadKey(ids.INDUCTION_SCORE, SinkView.RAW, "")
PREVIOUS = HeadKey(ids.PREVIOUS_SCORE, SinkView.RAW, "")
TOP = 10  # rank, from either end, up to which a token counts as promoted or suppressed
MIN_COPY_RATE = 0.1
MIN_SCORE = SCORE.value  # of induction heads and previous-token heads, on repeated random tokens
MIN_LOSS = 0.05  # of an induction score
MAX_TOWARDS, MIN_CONTROL = 1 / 20, 1 / 4  # ranks as shares of the words

# Groups of heads of a page, with the number of heads that are listed.
GROUPS = {
    "Promote the token that they attend to": 8,
    "Suppress the token that they attend to": 4,
    "Other induction heads": 3,
}


# Columns that identify a row of the tables ``composition`` and ``exemplar_tokens``.
PAIR_COLUMNS = ("stack", "kind", "layer", "head", "lower_layer", "lower_head", "measure")
EXEMPLAR_COLUMNS = ("stack", "layer", "head", "exemplar", "kind", "rank")


def change_text(value: float) -> str:
    """Return a change of a score with its sign."""
    text = number(abs(value))
    if text.startswith("<"):
        least = text.removeprefix("<").strip()
        return f"< +{least}" if value > 0 else f"> −{least}"
    return ("+" if value > 0 else "−" if value < 0 else "") + text


CHANGE = Unit("", change_text)
RANK = Unit("", lambda rank: f"{rank:,.0f}")


class Written(StrEnum):
    """Effect of a head on the token that it attends to."""

    PROMOTES = "promotes"
    SUPPRESSES = "suppresses"


class Feed(NamedTuple):
    """A lower head in one input of an upper head: composition of weights, and an intervention.

    Attributes:
        upper, lower: both heads.
        kind: input of the upper head, ``q``, ``k`` or ``v``.
        value: composition by weights.
        random: mean composition of random matrices.
        rank: rank of the composition among all pairs of its kind.
        change: change of the measure without the lower head in this input; NaN if not measured.
        sequences: sequences of random tokens behind the change; 0 if not measured.
        measure: what the intervention changes.
        before: measure of the whole model.
    """

    upper: HeadName
    lower: HeadName
    kind: str
    value: Number
    random: Number
    rank: int
    change: Number
    sequences: int
    measure: str
    before: Number

    @property
    def is_loss(self) -> bool:
        """Whether the intervention surely lowers an induction score by at least `MIN_LOSS`."""
        is_induction = self.kind == "k" and self.measure == ids.INDUCTION_SCORE
        return is_induction and self.change.value <= -MIN_LOSS and self.change.high < 0


def circuits_of(results: StackResults) -> CircuitResults:
    """Return what the heads of the study read and write."""
    return results.study.circuits


def has_circuits(results: Mapping[str, StackResults]) -> bool:
    """Check whether a study has compositions or copying scores of a language model."""
    return any(
        circuits_of(of_stack).space is OutputSpace.UNEMBEDDING
        and (of_stack.has_value(*COPYING) or bool(len(circuits_of(of_stack).composition)))
        for of_stack in results.values()
    )


def why_no_circuits(results: Mapping[str, StackResults]) -> str:
    """Return why a study has no page on circuits; empty if it has one."""
    if has_circuits(results):
        return ""
    study = next(iter(results.values())).study
    if study.circuits.missing:
        return ""  # the list of gaps has the reason
    return {
        OutputSpace.NONE: "Circuits, and what heads write: --circuits on measures them",
        OutputSpace.UNEMBEDDING: "Circuits: no composition and no copying score was measured",
        OutputSpace.SENTENCE_VECTORS: "Circuits: the model has no output vocabulary; words that "
        "heads move the sentence vector to are on the pages of heads",
        OutputSpace.INPUT_EMBEDDINGS: "Circuits: the model has no output vocabulary; input "
        "embeddings nearest to the outputs of heads are on the pages of heads",
    }[study.circuits.space]


def values_of(results: StackResults, key: HeadKey) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a number of all heads, NaN if the study lacks it. *Shape:* ``(layer, head)``."""
    if results.has_value(*key):
        return results.heads(*key).value
    return np.full((results.stack.n_layers, results.stack.n_heads), np.nan)


def heads_from(results: StackResults, key: HeadKey) -> list[HeadName]:
    """Return the heads whose score on repeated random tokens is high, the highest first."""
    values = values_of(results, key)
    places = np.argwhere(values >= MIN_SCORE).tolist()
    places.sort(key=lambda place: -values[tuple(place)])
    return [HeadName(results.stack.name, *place) for place in places]


def copying_heads(results: StackResults) -> dict[Place, int]:
    """Return the heads that copy by their weights (1) or do the opposite (-1)."""
    return results.cached(_copying_heads)


def _copying_heads(results: StackResults) -> dict[Place, int]:
    score, low, high = (values_of(results, key) for key in (COPYING, LOW_END, HIGH_END))
    copies = (score > high) & (values_of(results, COPY_RATE) >= MIN_COPY_RATE)
    opposite = (score < low) & (values_of(results, NEGATIVE_RATE) >= MIN_COPY_RATE)
    signs = copies.astype(int) - opposite
    return {(int(x), int(y)): int(signs[x, y]) for x, y in np.argwhere(signs)}


def written_tokens(results: StackResults) -> Mapping[Place, Written]:
    """Return the heads that promote or suppress the token that they attend to."""
    return results.cached(_written_tokens)


def _written_tokens(results: StackResults) -> Mapping[Place, Written]:
    ranks = values_of(results, ATTENDED)
    kinds = {}
    for x, y in np.argwhere((ranks <= TOP) | (ranks > circuits_of(results).vocabulary - TOP)):
        kind = Written.PROMOTES if ranks[x, y] <= TOP else Written.SUPPRESSES
        kinds[int(x), int(y)] = kind
    return kinds


def writers_by_group(results: Mapping[str, StackResults]) -> dict[str, list[HeadName]]:
    """Return the heads that a page lists by what they write, by the title of their group.

    Promoting and suppressing heads come in the order of the rank, others in that of the induction
    score.
    """
    promoting, suppressing, others = (list[tuple[float, HeadName]]() for _ in range(3))
    for name, of_stack in results.items():
        ranks, written = values_of(of_stack, ATTENDED), written_tokens(of_stack)
        for place, kind in written.items():
            entry = float(ranks[place]), HeadName(name, *place)
            if kind is Written.PROMOTES:
                promoting.append(entry)
            else:
                suppressing.append((-entry[0], entry[1]))
        scores = values_of(of_stack, INDUCTION)
        for head in heads_from(of_stack, INDUCTION):
            place = head.layer, head.head
            if place not in written and not np.isnan(ranks[place]):
                others.append((-float(scores[place]), head))
    listed = zip(GROUPS.items(), (promoting, suppressing, others), strict=True)
    return {title: [head for _, head in sorted(heads)[:most]] for (title, most), heads in listed}


def writes_into_vector(results: StackResults, place: Place) -> bool:
    """Check whether a head moves the sentence vector towards the word that it attends to."""
    rank, control = (share_of_head(results, *key, place) for key in (TOWARDS, CONTROL))
    words = circuits_of(results).vocabulary
    return rank.high <= MAX_TOWARDS * words and control.value >= MIN_CONTROL * words


def feeds(results: StackResults) -> Sequence[Feed]:
    """Return all pairs of heads whose composition was measured, by kind and rank."""
    return results.cached(_feeds)


def _feeds(results: StackResults) -> Sequence[Feed]:
    table = circuits_of(results).composition
    rows = table[table["stack"] == results.stack.name].to_dict("records")
    return [_feed(row) for row in rows]


def _feed(row: Mapping[Any, Any]) -> Feed:
    stack, sequences = str(row["stack"]), row["n_sentences"]
    address = RowAddress("composition", tuple((name, row[name]) for name in PAIR_COLUMNS))
    change, low, high = (float(row[name]) for name in ("intervention", "low", "high"))
    value, random, before = (
        Number(float(row[name]), PLAIN, address) for name in ("value", "random", "before")
    )
    return Feed(
        HeadName(stack, int(row["layer"]), int(row["head"])),
        HeadName(stack, int(row["lower_layer"]), int(row["lower_head"])),
        str(row["kind"]), value, random, int(row["rank"]),
        Number(change, CHANGE, address, low, high),
        0 if pd.isna(sequences) else int(sequences), str(row["measure"]), before,
    )  # fmt: skip


def induction_feeds(results: StackResults) -> list[Feed]:
    """Return the pairs of an induction head and a lower head in its keys that were measured."""
    upper = {*heads_from(results, INDUCTION)}
    return [
        feed
        for feed in feeds(results)
        if feed.kind == "k"
        and feed.measure == ids.INDUCTION_SCORE
        and feed.upper in upper
        and not math.isnan(feed.change.value)
    ]


def used_feeds(results: StackResults) -> list[Feed]:
    """Return the previous-token heads that induction heads use, the largest loss first."""
    return results.cached(_used_feeds)


def _used_feeds(results: StackResults) -> list[Feed]:
    lower = {*heads_from(results, PREVIOUS)}
    used = [feed for feed in induction_feeds(results) if feed.is_loss and feed.lower in lower]
    return sorted(used, key=lambda feed: feed.change.value)


def main_feeder(used: Sequence[Feed]) -> HeadName:
    """Return the previous-token head without which induction heads lose most in sum."""
    losses: dict[HeadName, float] = {}
    for feed in used:
        losses[feed.lower] = losses.get(feed.lower, 0.0) + feed.change.value
    return min(losses, key=lambda head: losses[head])


def feeders_of(results: StackResults, head: HeadName) -> list[Feed]:
    """Return the previous-token heads that a head uses, the largest loss first."""
    return [feed for feed in used_feeds(results) if feed.upper == head]


class ExemplarRow(NamedTuple):
    """An exemplar of a head with the tokens that its output promotes there.

    Attributes:
        row: values of the first row of the exemplar in the table.
        tokens: listed tokens with their contributions, by kind.
    """

    row: Mapping[Any, Any]
    tokens: Mapping[str, Sequence[tuple[str, float]]]

    def number(self, column: str, unit: Unit = PLAIN) -> Number:
        """Return the number in a column of the exemplar, with its first row."""
        key = tuple((name, self.row[name]) for name in EXEMPLAR_COLUMNS)
        return Number(float(self.row[column]), unit, RowAddress("exemplar_tokens", key))


def exemplars_by_head(results: StackResults) -> Mapping[HeadName, Sequence[ExemplarRow]]:
    """Return the exemplars of all heads of a stack with their tokens, the strongest first."""
    return results.cached(_exemplars_by_head)


def _exemplars_by_head(results: StackResults) -> Mapping[HeadName, Sequence[ExemplarRow]]:
    table = circuits_of(results).exemplars
    of_stack = table[table["stack"] == results.stack.name]
    grouped: dict[tuple[int, int, int], list[Mapping[Any, Any]]] = {}
    for row in of_stack.to_dict("records"):
        grouped.setdefault((row["layer"], row["head"], row["exemplar"]), []).append(row)
    by_head: dict[HeadName, list[ExemplarRow]] = {}
    for (layer, head, _), rows in sorted(grouped.items()):
        tokens: dict[str, list[tuple[str, float]]] = {}
        for listed in sorted(rows, key=lambda row: row["rank"]):
            tokens.setdefault(str(listed["kind"]), []).append(
                (str(listed["token"]), listed["value"])
            )
        name = HeadName(results.stack.name, int(layer), int(head))
        by_head.setdefault(name, []).append(ExemplarRow(rows[0], tokens))
    return by_head


def promoted_by_head(results: StackResults) -> Mapping[HeadName, pd.DataFrame]:
    """Return the tokens that each head of a stack promotes, reads or moves to."""
    return results.cached(_promoted_by_head)


def _promoted_by_head(results: StackResults) -> Mapping[HeadName, pd.DataFrame]:
    table = circuits_of(results).promoted
    of_stack = table[table["stack"] == results.stack.name]
    by_head = {}
    for place, rows in of_stack.groupby(["layer", "head"], sort=False):
        layer, head = np.array(place).tolist()
        by_head[HeadName(results.stack.name, layer, head)] = rows
    return by_head


def exemplar_texts(results: StackResults) -> Mapping[int, StoredText]:
    """Return the texts of exemplars by the number of the sentence."""
    return results.cached(_exemplar_texts)


def _exemplar_texts(results: StackResults) -> Mapping[int, StoredText]:
    texts = {}
    rows = circuits_of(results).sentences
    for sentence, text, starts, ends in rows.itertuples(index=False):
        spans = tuple(zip(map(int, starts), map(int, ends), strict=True))
        pieces = tuple(text[start:end] for start, end in spans)
        n = len(spans)
        texts[int(sentence)] = StoredText(
            text=text, pieces=pieces, spans=spans, special=(False,) * n, words=(-1,) * n,
            tags=("",) * n, lost=0, generated=False,
        )  # fmt: skip
    return texts


def visible_token(token: str) -> str:
    """Return a token as pages print it: its leading space and control characters visible.

    Examples:
        >>> visible_token(" door")
        '␣door'
    """
    if not token.strip("\N{REPLACEMENT CHARACTER}"):
        return "▯" if token else "∅"
    marked = token.replace("\r", "").replace("\n", "↵").replace("\t", "⇥")
    if marked.startswith(" ") or not marked.strip():
        marked = "␣" + marked[1:]
    return visible(marked)


def first_tokens(exemplars: Sequence[ExemplarRow], kind: str, most: int) -> list[str]:
    """Return the first token of a kind at each exemplar, different ones, the strongest first."""
    firsts = [exemplar.tokens[kind][0][0] for exemplar in exemplars if kind in exemplar.tokens]
    return [*dict.fromkeys(firsts)][:most]
