"""The section on what a head writes: tokens that it promotes, or words that vectors move to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headbook.pages.parts.page import SentenceParts
from headbook.pages.parts.table import (
    DASH,
    MarkedText,
    NumberCell,
    PageTable,
    Part,
    Row,
    WordsCell,
    words_cell,
)
from headbook.pages.parts.written_tokens import exemplar_parts, token_parts
from headbook.report.answers import circuit_rules as report
from headbook.report.answers.circuit_rules import ExemplarRow, Written
from headbook.report.answers.circuits import change_text, output_facts
from headbook.report.linked_rows import LinkedNumber, head_row
from headbook.report.results import StackResults, share_of_head
from headbook.report.wording import count_text, shortened
from headbook.results.formats import MISSING, number
from headbook.schema import HeadName
from headbook.study.circuits import OutputSpace

LISTED = 5  # exemplars of the table
CHARACTERS = 48  # of the text around an exemplar
KEYS = 10  # tokens that a head reads
OPTION = "What it writes: --circuits on."


@dataclass(frozen=True)
class WritesSection:
    """Tokens that a head promotes, or words that the sentence vector moves to.

    Attributes:
        remark: words beside the heading; empty for none.
        value: rank of the token attended to; None if unknown.
        what: meaning of that rank, in words.
        facts: copying, and heads that feed the head, a sentence each.
        exemplars: exemplars with the tokens that the head writes there; None without any.
        listed: tokens of largest and smallest contribution; None without any.
        unclear: why ``listed`` is closed; empty if the interval of some token excludes 0.
        note: how the numbers are made.
        read: tokens that the head reads, with the tokens that it writes there; None without any.
        closed: whether all tables are closed, and ``closed_title`` their heading.
    """

    remark: str
    value: LinkedNumber | None
    what: str
    facts: tuple[SentenceParts, ...]
    exemplars: PageTable | None
    listed: PageTable | None
    note: str
    read: PageTable | None
    closed_title: str = ""
    unclear: str = ""


def writes_section(results: StackResults, head: HeadName) -> WritesSection | None:
    """Return what a head writes; None if it was not measured."""
    circuits = report.circuits_of(results)
    if head not in report.promoted_by_head(results) and not report.exemplars_by_head(results).get(
        head
    ):
        return None
    if circuits.space is OutputSpace.UNEMBEDDING:
        return _tokens_section(results, head)
    if circuits.space is OutputSpace.SENTENCE_VECTORS:
        return _vector_section(results, head)
    return _embedding_section(results, head)


def missing_text(results: StackResults) -> str:
    """Return why a stack has no section on what its heads write; empty if it has one."""
    circuits = report.circuits_of(results)
    if report.promoted_by_head(results) or report.exemplars_by_head(results):
        return ""
    reason = circuits.missing.get(results.stack.name, circuits.missing.get(""))
    return "" if reason else OPTION  # the list of missing numbers has a reason


def _tokens_section(results: StackResults, head: HeadName) -> WritesSection:
    """Return the tokens that a head of a language model promotes and suppresses."""
    place, vocabulary = (head.layer, head.head), report.circuits_of(results).vocabulary
    rank = share_of_head(results, *report.ATTENDED, place)
    kind = report.written_tokens(results).get(place)
    remark = f"{kind} the token that it attends to" if kind else ""
    side = "suppressed" if kind is Written.SUPPRESSES else "promoted"
    value, what = None, ""
    if not math.isnan(rank.value):
        value = head_row(results, report.ATTENDED, place, f"{rank.value:,.0f}")
        ends = "" if math.isnan(rank.low) else f"[{rank.low:,.0f}, {rank.high:,.0f}] "
        what = (
            f"{ends}of {vocabulary:,}: median rank of the token that it attends to among the "
            "tokens that it promotes"
        )
    return WritesSection(
        remark=remark, value=value, what=what, facts=tuple(output_facts(results, head, kind)),
        exemplars=_exemplar_table(results, head, side),
        listed=_listed_table(results, head, ("promoted", "suppressed"), "logit"),
        note="Direct contribution to the centred logits, minus the head’s own mean output: at the "
        "queries of its strongest exemplars, and on the tenth of all queries where its output is "
        "longest (chosen on one half of the sentences, measured on the other). What later layers "
        "make of it is not in it.",
        read=_read_table(results, head),
        unclear="" if _is_clear(results, head) else "Over the tenth of queries where its output is "
        "longest: no token is clearly promoted or suppressed",
    )  # fmt: skip


def _vector_section(results: StackResults, head: HeadName) -> WritesSection:
    """Return the words to and from which a head moves the sentence vector."""
    place, words = (head.layer, head.head), report.circuits_of(results).vocabulary
    rank, control = (share_of_head(results, *key, place)
                     for key in (report.TOWARDS, report.CONTROL))  # fmt: skip
    writes = report.writes_into_vector(results, place)
    value, what, facts = None, "", []
    if not math.isnan(rank.value):
        value = head_row(results, report.TOWARDS, place, f"{rank.value:,.0f}")
        ends = "" if math.isnan(rank.low) else f"[{rank.low:,.0f}, {rank.high:,.0f}] "
        what = (
            f"{ends}of {words:,}: median rank of the word it attends to most among the words that "
            f"the sentence vector moves towards; chance: {words // 2:,}"
        )
        facts.append(
            ("Other content words of these sentences: ",
             head_row(results, report.CONTROL, place, f"{control.value:,.0f}"), ".")
        )  # fmt: skip
    note = (
        f"Sentence vector with the head minus without it, against the model’s own vectors of "
        f"{words:,} single words. A total effect through later layers; the head’s output is "
        "replaced by its mean."
    )
    exemplars, listed = _vector_table(results, head), _listed_table(
        results, head, ("to", "from"), "cosine"
    )  # fmt: skip
    return WritesSection(
        remark="" if writes else "nothing that single words can express",
        value=value, what=what, facts=tuple(facts), exemplars=exemplars, listed=listed, note=note,
        read=None,
        closed_title="" if writes else "Words that the sentence vector moves to, no better than "
        "the test above",
    )  # fmt: skip


def _embedding_section(results: StackResults, head: HeadName) -> WritesSection:
    """Return the input embeddings nearest to a head's output, closed."""
    rows = report.promoted_by_head(results).get(head)
    kinds = () if rows is None else tuple(rows["kind"].unique()[:2])
    pair = kinds if len(kinds) == 2 else ("promoted", "suppressed")
    return WritesSection(
        remark="the model has no output vocabulary", value=None, what="", facts=(),
        exemplars=_exemplar_table(results, head, pair[0]),
        listed=_listed_table(results, head, pair, "value"),
        note="Nearest input embeddings of the head’s output: near chance for most heads.",
        read=None, closed_title="Nearest input embeddings of its output",
    )  # fmt: skip


def _exemplar_table(results: StackResults, head: HeadName, kind: str) -> PageTable | None:
    """Return exemplars of a head with the tokens promoted or suppressed at their queries."""
    exemplars = report.exemplars_by_head(results).get(head, ())[:LISTED]
    if not exemplars:
        return None
    rows, style = [], "downs" if kind == "suppressed" else "ups"
    for exemplar in exemplars:
        rank = exemplar.row["key_rank"]
        weight = exemplar.number(number(float(exemplar.row["weight"])))
        parts = (*exemplar_parts(results, exemplar), " ", weight)
        tokens = token_parts([token for token, _ in exemplar.tokens.get(kind, ())])
        cells = (
            words_cell(*tokens, style=style, foreign=True),
            DASH if pd.isna(rank) else words_cell(exemplar.number(f"{rank:,.0f}"), style="number"),
            _true_token(exemplar),
        )
        rows.append(Row(words_cell(*parts, style="ex", foreign=True), cells))
    titles = (
        "Strongest exemplars, weight", "suppresses" if kind == "suppressed" else "promotes",
        "rank of the key", "true token, its probability, the head’s part",
    )  # fmt: skip
    return PageTable(titles, tuple(rows), style="numbers wrote at-head")


def _true_token(exemplar: ExemplarRow) -> WordsCell:
    row = exemplar.row
    if not row["true_token"] or pd.isna(row["true_probability"]):
        return DASH
    probability = exemplar.number(number(float(row["true_probability"])))
    contribution = exemplar.number(change_text(float(row["true_contribution"])))
    token = MarkedText(report.visible_token(str(row["true_token"])), "code")
    return words_cell(token, " ", probability, ", ", contribution, foreign=True)


def _vector_table(results: StackResults, head: HeadName) -> PageTable | None:
    """Return the sentences that a head moves most, with the words that their vectors move to."""
    exemplars = report.exemplars_by_head(results).get(head, ())[:LISTED]
    rows = []
    for exemplar in exemplars:
        text = report.exemplar_texts(results)[int(exemplar.row["sentence"])].text
        to, away = (
            [token for token, _ in exemplar.tokens.get(kind, ())] for kind in ("to", "from")
        )
        rows.append(
            Row(
                words_cell(shortened(text, CHARACTERS + 12), foreign=True),
                (
                    words_cell(str(exemplar.row["key_token"] or MISSING), foreign=True),
                    words_cell(", ".join(to), style="ups", foreign=True),
                    words_cell(", ".join(away[:3]), style="downs", foreign=True),
                ),
            )
        )
    titles = ("Sentences that it moves most", "it attends most to", "it moves the vector towards",
              "away from")  # fmt: skip
    return PageTable(titles, tuple(rows), style="numbers wrote at-head") if rows else None


def _token_row(head: HeadName, row: Mapping[Any, Any], text: str) -> LinkedNumber:
    """Return a number of a listed token that leads to its row."""
    return LinkedNumber(text, "promoted_tokens", (
        ("stack", head.stack), ("layer", head.layer), ("head", head.head), ("kind", row["kind"]),
        ("key_token", row["key_token"]), ("rank", row["rank"]),
    ))  # fmt: skip


def _listed_table(
    results: StackResults, head: HeadName, kinds: tuple[str, ...], unit: str
) -> PageTable | None:
    """Return the tokens of largest and smallest value side by side."""
    table = report.promoted_by_head(results).get(head)
    if table is None:
        return None
    sides = [table[table["kind"] == kind].sort_values("rank").to_dict("records") for kind in kinds]
    titles = {"promoted": "promotes", "suppressed": "suppresses", "to": "moves towards",
              "from": "moves away from"}  # fmt: skip
    rows = []
    for n in range(max(map(len, sides))):
        cells: list[WordsCell | NumberCell] = []
        for side, style in zip(sides, ("ups", "downs"), strict=True):
            if n >= len(side):
                cells += [DASH, DASH]
                continue
            row = side[n]
            token = MarkedText(report.visible_token(str(row["token"])), "code")
            text = change_text(float(row["value"]))
            ends = "" if math.isnan(row["low"]) else (
                f"[{change_text(row['low'])}, {change_text(row['high'])}]"
            )  # fmt: skip
            behind = count_text(int(row["n_sentences"]), "sentence")
            cells += [
                words_cell(token, style=style, foreign=True),
                NumberCell(text, ends, behind, too_few=False, number=_token_row(head, row, text)),
            ]
        rows.append(Row(None, tuple(cells)))
    names = [titles.get(kind, kind) for kind in kinds]
    columns = tuple(title for name in names for title in (name, unit))
    return PageTable(columns, tuple(rows), style="numbers listed") if rows else None


def _is_clear(results: StackResults, head: HeadName) -> bool:
    """Check whether the interval of any listed token excludes 0 on the side of its kind."""
    table = report.promoted_by_head(results).get(head)
    if table is None:
        return False
    up, down = (table[table["kind"] == kind] for kind in ("promoted", "suppressed"))
    return bool((up["low"] > 0).any() or (down["high"] < 0).any())


def _read_table(results: StackResults, head: HeadName) -> PageTable | None:
    """Return the tokens that a head reads with the tokens that it promotes there."""
    table = report.promoted_by_head(results).get(head)
    if table is None or not (table["kind"] == "read").any():
        return None
    rows = []
    read = table[table["kind"] == "read"]
    for key, each in [*read.groupby("key_token", sort=False)][:KEYS]:
        cells: list[Part] = []
        for row in each.sort_values("rank").to_dict("records"):
            cells += [
                " " if cells else "", MarkedText(report.visible_token(str(row["token"])), "code"),
                " ", _token_row(head, row, change_text(float(row["value"]))),
            ]  # fmt: skip
        behind = count_text(int(each["n_sentences"].iloc[0]), "sentence")
        name = words_cell(MarkedText(report.visible_token(str(key)), "code"), foreign=True)
        rows.append(Row(name, (words_cell(*cells, style="ups", foreign=True), words_cell(behind))))
    return PageTable(("reads", "promotes there, logits", "in"), tuple(rows), style="numbers wrote")
