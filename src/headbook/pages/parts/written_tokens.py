"""Cells of tables with the tokens that heads write, and with exemplars."""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from headbook.pages.parts.table import (
    DASH,
    MarkedText,
    NumberCell,
    Part,
    WordsCell,
    words_cell,
)
from headbook.pages.parts.text import running_text
from headbook.report.answers import circuit_rules as report
from headbook.report.answers.circuit_rules import ExemplarRow
from headbook.report.linked_rows import head_row
from headbook.report.results import StackResults, share_of_head
from headbook.report.wording import count_text
from headbook.schema import HeadName

TOKENS = 24  # of the text around an exemplar


def rank_cell(results: StackResults, place: tuple[int, int]) -> NumberCell | WordsCell:
    """Return the cell with the median rank of the token that a head attends to."""
    rank = share_of_head(results, *report.ATTENDED, place)
    if math.isnan(rank.value):
        return DASH
    text = f"{rank.value:,.0f}"
    ends = "" if math.isnan(rank.low) else f"[{rank.low:,.0f}, {rank.high:,.0f}]"
    behind = count_text(rank.sentences, "exemplar")
    return NumberCell(text, ends, behind, too_few=False,
                      number=head_row(results, report.ATTENDED, place, text))  # fmt: skip


def token_parts(tokens: Sequence[str]) -> Iterator[Part]:
    """Yield tokens as marked words with spaces between them."""
    for n, token in enumerate(tokens):
        yield " " if n else ""
        yield MarkedText(report.visible_token(token), "code")


def tokens_cell(
    results: StackResults, head: HeadName, kind: str, amount: int, style: str
) -> WordsCell:
    """Return the cell with the tokens that a head promotes or suppresses most at its exemplars."""
    exemplars = report.exemplars_by_head(results).get(head, ())
    tokens = report.first_tokens(exemplars, kind, amount)
    return words_cell(*token_parts(tokens), style=style, foreign=True) if tokens else DASH


def exemplar_cell(results: StackResults, head: HeadName, kind: str) -> WordsCell:
    """Return the cell with a head's strongest exemplar, and the tokens that it writes there."""
    exemplars = report.exemplars_by_head(results).get(head, ())
    if not exemplars:
        return DASH
    tokens = [token for token, _ in exemplars[0].tokens.get(kind, ())[:3]]
    verb = "suppresses" if kind == "suppressed" else "promotes"
    text, listed = exemplar_parts(results, exemplars[0]), token_parts(tokens)
    verb_part = MarkedText(f" {verb} ", "small")
    return words_cell(*text, verb_part, *listed, style="ex", foreign=True)


def exemplar_parts(results: StackResults, exemplar: ExemplarRow) -> Iterator[Part]:
    """Yield the text around an exemplar: the key marked, the query outlined.

    Of cross-attention the text is that of the queries, and the key stands before it.
    """
    text = report.exemplar_texts(results)[int(exemplar.row["sentence"])]
    places = [exemplar.row["query"], math.nan if results.stack.crosses else exemplar.row["key"]]
    query, key = (None if pd.isna(place) else int(place) for place in places)
    if results.stack.crosses:  # the key is a token of the other text
        yield MarkedText(str(exemplar.row["key_token"]), "mark")
        yield " ← "
    around = [place for place in (query, key) if place is not None]
    tokens = running_text(text, query=query, key=key, around=around, most=TOKENS)
    for token in tokens:
        if token.gap:
            yield " … "
        yield token.before
        letters = token.text.replace("\n", "↵")
        if token.position == key:
            yield MarkedText(letters, "mark")
        elif token.position == query:
            yield MarkedText(letters, "b")
        else:
            yield letters
    if tokens and tokens[-1].position + 1 < len(text.pieces):
        yield " …"
