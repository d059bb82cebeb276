"""What the model loses without a head, for its page."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headbook.pages.parts.cells import Cell
from headbook.pages.parts.table import Row, Table, words
from headbook.report.numbers.changes import (
    COSINES,
    NAMES,
    judged_by,
    margin_text,
    primary,
    scale,
    unit,
    verdict_text,
)
from headbook.report.numbers.results import StackResults
from headbook.report.wording import (
    interval,
    number,
    percent,
    sentence_page,
)
from headbook.study.importancetables import (
    DIRECT,
    EFFECT,
    EXACT,
    INTERACTION,
    REPAIR,
)
from headbook.study.sentencedata import HeadName
from headbook.study.summaries import verdicts
from headbook.study.summaries.removals import MissedAt, Removals
from headbook.study.summaries.verdicts import ATTRIBUTION
from headbook.terms import Replacement, Target

INSTEAD = {
    Replacement.MEAN: "mean output",
    Replacement.ZERO: "zero",
    Replacement.UNIFORM: "mean of all visible values",
    Replacement.WITHOUT_SINK: "output with the sink masked",
}
LISTED = 5  # tokens, and the one in the middle

Rows = Mapping[tuple[str, str, str], Mapping[str, Any]]


@dataclass(frozen=True)
class MissedToken:
    """A token at which the head is missed.

    Attributes:
        rank: among all, in words.
        preceding, token, following: the text.
        before, after: what the model says with the head and without; ``before`` may be empty.
        sentence, href: its sentence; no address where that has no page.
    """

    rank: str
    preceding: str
    token: str
    following: str
    before: str
    after: str
    sentence: int
    href: str


@dataclass(frozen=True)
class Ablated:
    """What the model loses without a head.

    Attributes:
        short: the change where its mean output stands in its place; may be empty.
        what: of the model's answer changes.
        margin: of verdicts, with its unit.
        judged: target of verdicts, in words.
        instead: by what stands in its place.
        remarks: direct and total change, and heads that back it up, in sentences.
        tokens: where it is missed most; empty where the head was not replaced.
        scores: what ``before`` and ``after`` of the tokens are, in words.
    """

    short: str
    what: str
    margin: str
    judged: str
    instead: Table
    remarks: tuple[str, ...]
    tokens: tuple[MissedToken, ...]
    scores: str


def ablated(results: StackResults, head: HeadName) -> Ablated | None:
    """None where no head was replaced."""
    study = results.study
    removals = study.corpus_sums.removals
    if removals is None:
        return None
    rows = results.once(_by_head).get(head, {})
    target = Target(primary(removals))
    columns = ("In its place", f"Change, {unit(removals)}", "Verdict")
    tokens = results.once(_tokens).get(head, ())
    backed = results.once(_backed_up).get(head)
    return Ablated(
        short=_short(removals, rows),
        what=NAMES[target],
        margin=margin_text(removals),
        judged=judged_by(removals),
        instead=Table(columns, tuple(_instead(removals, rows))),
        remarks=(*_repaired(rows), *((backed,) if backed else ())),
        tokens=tokens,
        scores="probability of the true token"
        if target in removals.full
        else "1 minus the cosine of the token's last state",
    )


def _by_head(results: StackResults) -> Mapping[HeadName, Rows]:
    """The numbers of each head of the stack, by metric, replacement and target."""
    table = results.study.importance
    table = table[(table["stack"] == results.stack.name) & (table["label"] == "")]
    found: dict[HeadName, dict[tuple[str, str, str], Mapping[str, Any]]] = {}
    for row in table.to_dict("records"):
        head = HeadName(row["stack"], int(row["layer"]), int(row["head"]))
        key = row["metric"], row["replacement"], row["target"]
        found.setdefault(head, {})[key] = {str(name): value for name, value in row.items()}
    return found


def _change(removals: Removals, rows: Rows, replacement: Replacement) -> Mapping[str, Any] | None:
    """The exact change, else the estimate; None where there is neither."""
    target = primary(removals)
    exact = rows.get((EFFECT, replacement, target))
    return exact or rows.get((ATTRIBUTION, replacement, target))


def _cell(removals: Removals, row: Mapping[str, Any]) -> Cell:
    by = scale(removals)
    about = "" if row["kind"] == EXACT else "≈\u2009"
    ends = interval(row["low"] * by, row["high"] * by) if row["kind"] == EXACT else ""
    return Cell(f"{about}{number(row['value'] * by)}", ends, note="", thin=False)


def _short(removals: Removals, rows: Rows) -> str:
    """The change where the mean stands in its place, and what follows; empty where not known."""
    row = _change(removals, rows, Replacement.MEAN)
    if row is None:
        return ""
    cell = _cell(removals, row)
    ends = f" {cell.interval}" if cell.interval else ""
    verdict = _verdict(removals, rows, Replacement.MEAN)
    conclusion = f"; verdict: {verdict}" if row["kind"] == EXACT else " (estimated)"
    if primary(removals) in COSINES:
        what = "sentence vectors" if primary(removals) == Target.EMBEDDING else "last states"
        value = f"{cell.text}\u00a0{unit(removals)}{ends}"
        return f"{what} change by {value} (1\u202f−\u202fcosine){conclusion}"
    return f"the loss changes by {cell.text}\u00a0%{ends}{conclusion}"


def _verdict(removals: Removals, rows: Rows, replacement: Replacement) -> str:
    """The verdict by the target that ranks heads; empty where the head was not replaced."""
    row = rows.get((EFFECT, replacement, verdicts.ranked_target(removals)))
    return verdict_text(row) if row else ""


def _instead(removals: Removals, rows: Rows) -> Iterator[Row]:
    for replacement, what in INSTEAD.items():
        row = _change(removals, rows, replacement)
        if row is not None:
            verdict = _verdict(removals, rows, replacement)
            outcome = verdict if row["kind"] == EXACT else "estimated"
            yield Row(what, (_cell(removals, row), words(outcome)))


def _repaired(rows: Rows) -> Iterator[str]:
    """What the head itself says to the logit of the true token, and what becomes of it."""
    keys = (Replacement.MEAN, Target.LOGIT)
    direct, total, repair = (rows.get((metric, *keys)) for metric in (DIRECT, EFFECT, REPAIR))
    if direct and total:
        made_up = ""
        if repair and not math.isnan(repair["value"]):
            ends = interval(repair["low"], repair["high"], share=True)
            made_up = f"; later layers make up for {percent(repair['value'])} {ends}".rstrip()
        yield (
            f"Logit of the true token: {_with_ends(direct)} by the residual path alone, "
            f"{_with_ends(total)} in all{made_up}."
        )


def _with_ends(row: Mapping[str, Any]) -> str:
    return f"{number(row['value'])} {interval(row['low'], row['high'])}".rstrip()


def _backed_up(results: StackResults) -> Mapping[HeadName, str]:
    return backed_up(results.study.head_groups, results.study.corpus_sums.removals)


def backed_up(groups: pd.DataFrame, removals: Removals | None) -> Mapping[HeadName, str]:
    """Of each head the one with which together it is missed most beyond what each alone costs."""
    assert removals is not None
    pairs = groups[(groups["metric"] == INTERACTION) & (groups["target"] == primary(removals))]
    pairs = pairs[pairs["low"] > 0].sort_values("value", ascending=False, kind="stable")
    found: dict[HeadName, str] = {}
    for row in pairs.to_dict("records"):
        names, by = row["group"].split(), scale(removals)
        more = f"{number(row['value'] * by)}\u00a0{unit(removals)}"
        ends = interval(row["low"] * by, row["high"] * by)
        for own, other in zip(names, reversed(names), strict=True):
            found.setdefault(
                _named(own, row["stack"]),
                f"Backed up by {other.replace('-H', '·H')}: "
                f"without both, {more} {ends} beyond the sum of each alone.",
            )
    return found


def _named(name: str, stack: str) -> HeadName:
    """A head as groups name it; those of another stack say which."""
    *other, layer, head = name.split("-")
    return HeadName(other[0] if other else stack, int(layer[1:]), int(head[1:]))


def _after(removals: Removals, missed: MissedAt, probability: float) -> str:
    if primary(removals) in removals.full:
        return number(probability)
    return f"{number(missed.change * scale(removals))}\u00a0{unit(removals)}"


def _tokens(results: StackResults) -> dict[HeadName, tuple[MissedToken, ...]]:
    """Of each head, those of the first ranks and the one in the middle."""
    removals, pages = results.study.corpus_sums.removals, results.study.sentence_data.sentences
    assert removals is not None
    table = results.study.effect_tokens
    found: dict[HeadName, list[MissedToken]] = {}
    for missed, (before, after) in zip(
        removals.missed, table[["before", "after"]].itertuples(index=False), strict=True
    ):
        head = HeadName(*removals.heads[missed.head])
        middle = missed.rank - 1 == (missed.tokens - 1) // 2
        if head.stack == results.stack.name and (missed.rank <= LISTED or middle):
            rank = f"rank {missed.rank:,} of {missed.tokens:,}{', the median' if middle else ''}"
            found.setdefault(head, []).append(
                MissedToken(
                    rank, missed.preceding, missed.token, missed.following,
                    "" if math.isnan(before) else number(before), _after(removals, missed, after),
                    missed.sentence + 1,
                    sentence_page(missed.sentence + 1) if missed.sentence in pages else "",
                )
            )  # fmt: skip
    return {head: tuple(tokens) for head, tokens in found.items()}
