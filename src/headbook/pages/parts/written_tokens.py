"""Sentences with the tokens that heads write, and with exemplars."""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from headbook.pages.parts.text import running_text
from headbook.report.facts.circuits import rules
from headbook.report.facts.circuits.rules import ExemplarRow
from headbook.report.results import StackResults
from headbook.results.formats import MISSING
from headbook.results.sentence import Marked, Sentence, listed, say
from headbook.schema import HeadName

TOKENS = 24  # of the text around an exemplar


def tokens_list(tokens: Sequence[str], kind: str = "") -> Sentence:
    """Return tokens as marked words with spaces between them, in the colour of their kind."""
    marked = [Marked(rules.visible_token(token), f"token {kind}".strip()) for token in tokens]
    return listed(marked, " ", " ") if marked else say(MISSING)


def tokens_sentence(results: StackResults, head: HeadName, kind: str, amount: int) -> Sentence:
    """Return the tokens that a head promotes or suppresses most at its exemplars."""
    exemplars = rules.exemplars_by_head(results).get(head, ())
    return tokens_list(rules.first_tokens(exemplars, kind, amount), kind)


def exemplar_sentence(results: StackResults, head: HeadName, kind: str) -> Sentence:
    """Return a head's strongest exemplar, and the tokens that it writes there."""
    exemplars = rules.exemplars_by_head(results).get(head, ())
    if not exemplars:
        return say(MISSING)
    return say(
        "{text}{verb}{tokens}", text=exemplar_text(results, exemplars[0]),
        verb=Marked(" suppresses " if kind == "suppressed" else " promotes ", "small"),
        tokens=tokens_list([token for token, _ in exemplars[0].tokens.get(kind, ())[:3]], kind),
    )  # fmt: skip


def exemplar_text(results: StackResults, exemplar: ExemplarRow) -> Sentence:
    """Return the text around an exemplar: the key marked, the query outlined.

    Of cross-attention the text is that of the queries, and the key stands before it.
    """
    return Sentence(tuple(part for part in _exemplar_parts(results, exemplar) if part))


def _exemplar_parts(results: StackResults, exemplar: ExemplarRow) -> Iterator[str | Marked]:
    text = rules.exemplar_texts(results)[int(exemplar.row["sentence"])]
    places = [exemplar.row["query"], math.nan if results.stack.crosses else exemplar.row["key"]]
    query, key = (None if pd.isna(place) else int(place) for place in places)
    if results.stack.crosses:  # the key is a token of the other text
        yield Marked(str(exemplar.row["key_token"]), "mark")
        yield " ← "
    around = [place for place in (query, key) if place is not None]
    tokens = running_text(text, query=query, key=key, around=around, most=TOKENS)
    for token in tokens:
        if token.gap:
            yield " … "
        yield token.before
        letters = token.text.replace("\n", "↵")
        if token.position in {query, key}:
            yield Marked(letters, "mark" if token.position == key else "b")
        else:
            yield letters
    if tokens and tokens[-1].position + 1 < len(text.pieces):
        yield " …"
