"""The section on what a head writes: tokens that it promotes, or words that vectors move to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import pandas as pd

from headbook.pages.parts.blocks import Table, row
from headbook.pages.parts.written_tokens import exemplar_text, tokens_list
from headbook.report.facts.circuits import rules
from headbook.report.facts.circuits.facts import number_of, output_facts
from headbook.report.facts.circuits.rules import CHANGE, RANK, ExemplarRow, Written
from headbook.report.results import StackResults
from headbook.report.wording import count_text, shortened
from headbook.results.formats import MISSING
from headbook.results.number import Number, RowAddress
from headbook.results.sentence import Marked, Sentence, listed, say
from headbook.schema import HeadName
from headbook.study.circuits import OutputSpace

LISTED = 5  # exemplars of the table
CHARACTERS = 48  # of the text around an exemplar
KEYS = 10  # tokens that a head reads
OPTION = "What it writes: --circuits on."
TOKEN_FIELDS = ("kind", "key_token", "rank")  # beside the head, in the table ``promoted_tokens``
TITLES = {
    "promoted": "promotes", "suppressed": "suppresses", "to": "moves towards",
    "from": "moves away from",
}  # fmt: skip
SIGNS = {"promoted": 1, "to": 1, "suppressed": -1, "from": -1}  # of values, by kind


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
    value: Number | None
    what: str
    facts: tuple[Sentence, ...]
    exemplars: Table | None
    listed: Table | None
    note: str
    read: Table | None
    closed_title: str = ""
    unclear: str = ""


def writes_section(results: StackResults, head: HeadName) -> WritesSection | None:
    """Return what a head writes; None if it was not measured."""
    circuits = rules.circuits_of(results)
    if head not in rules.promoted_by_head(results) and not rules.exemplars_by_head(results).get(
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
    circuits = rules.circuits_of(results)
    if rules.promoted_by_head(results) or rules.exemplars_by_head(results):
        return ""
    reason = circuits.missing.get(results.stack.name, circuits.missing.get(""))
    return "" if reason else OPTION  # the list of missing numbers has a reason


def _tokens_section(results: StackResults, head: HeadName) -> WritesSection:
    """Return the tokens that a head of a language model promotes and suppresses."""
    vocabulary = rules.circuits_of(results).vocabulary
    rank = number_of(results, rules.ATTENDED, head, RANK)
    kind = rules.written_tokens(results).get(head[1:])
    remark = f"{kind} the token that it attends to" if kind else ""
    side = "suppressed" if kind is Written.SUPPRESSES else "promoted"
    return WritesSection(
        remark=remark, value=rank, what=_rank_text(rank, vocabulary),
        facts=tuple(output_facts(results, head, kind)),
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


def _ends(rank: Number) -> str:
    """Return the interval of a rank and a space; empty without one."""
    ends = rank.as_text("ends")
    return f"{ends} " if ends else ""


def _rank_text(rank: Number | None, vocabulary: int) -> str:
    """Return what the rank of the token attended to is; empty if it is unknown."""
    if rank is None:
        return ""
    return (
        f"{_ends(rank)}of {vocabulary:,}: median rank of the token that it attends to among the "
        "tokens that it promotes"
    )


def _vector_section(results: StackResults, head: HeadName) -> WritesSection:
    """Return the words to and from which a head moves the sentence vector."""
    words = rules.circuits_of(results).vocabulary
    rank, control = (number_of(results, key, head, RANK) for key in (rules.TOWARDS, rules.CONTROL))
    writes = rules.writes_into_vector(results, head[1:])
    what, other = "", tuple[Sentence, ...]()
    if rank:
        what = (
            f"{_ends(rank)}of {words:,}: median rank of the word it attends to most among the "
            f"words that the sentence vector moves towards; chance: {words // 2:,}"
        )
        other = (say("Other content words of these sentences: {n}.", n=control or MISSING),)
    note = (
        f"Sentence vector with the head minus without it, against the model’s own vectors of "
        f"{words:,} single words. A total effect through later layers; the head’s output is "
        "replaced by its mean."
    )
    return WritesSection(
        remark="" if writes else "nothing that single words can express",
        value=rank, what=what, facts=other, exemplars=_vector_table(results, head),
        listed=_listed_table(results, head, ("to", "from"), "cosine"), note=note,
        read=None,
        closed_title="" if writes else "Words that the sentence vector moves to, no better than "
        "the test above",
    )  # fmt: skip


def _embedding_section(results: StackResults, head: HeadName) -> WritesSection:
    """Return the input embeddings nearest to a head's output, closed."""
    rows = rules.promoted_by_head(results).get(head)
    kinds = () if rows is None else tuple(rows["kind"].unique()[:2])
    pair = kinds if len(kinds) == 2 else ("promoted", "suppressed")
    return WritesSection(
        remark="the model has no output vocabulary", value=None, what="", facts=(),
        exemplars=_exemplar_table(results, head, pair[0]),
        listed=_listed_table(results, head, pair, "value"),
        note="Nearest input embeddings of the head’s output: near chance for most heads.",
        read=None, closed_title="Nearest input embeddings of its output",
    )  # fmt: skip


def _exemplar_table(results: StackResults, head: HeadName, kind: str) -> Table | None:
    """Return exemplars of a head with the tokens promoted or suppressed at their queries."""
    exemplars = rules.exemplars_by_head(results).get(head, ())[:LISTED]
    rows = tuple(
        row(
            exemplar_text(results, exemplar) + say("{weight}", weight=exemplar.number("weight")),
            tokens_list([token for token, _ in exemplar.tokens.get(kind, ())], kind),
            MISSING if pd.isna(exemplar.row["key_rank"]) else exemplar.number("key_rank", RANK),
            _true_token(exemplar),
        )
        for exemplar in exemplars
    )
    titles = (
        "Strongest exemplars, weight", "suppresses" if kind == "suppressed" else "promotes",
        "rank of the key", "true token, its probability, the head’s part",
    )  # fmt: skip
    label = "Strongest exemplars, and what the head writes there"
    return Table(titles, rows, style="numbers wrote at-head", label=label) if rows else None


def _true_token(exemplar: ExemplarRow) -> Sentence | str:
    if not exemplar.row["true_token"] or pd.isna(exemplar.row["true_probability"]):
        return MISSING
    return say(
        "{token} {probability}, {part}", token=tokens_list([str(exemplar.row["true_token"])]),
        probability=exemplar.number("true_probability"),
        part=exemplar.number("true_contribution", CHANGE),
    )  # fmt: skip


def _vector_table(results: StackResults, head: HeadName) -> Table | None:
    """Return the sentences that a head moves most, with the words that their vectors move to."""
    texts = rules.exemplar_texts(results)
    rows = tuple(
        row(
            Sentence((shortened(texts[int(exemplar.row["sentence"])].text, CHARACTERS + 12),)),
            Sentence((str(exemplar.row["key_token"] or MISSING),)),
            *(
                Sentence(
                    (
                        Marked(
                            ", ".join(word for word, _ in exemplar.tokens.get(kind, ())[:most]),
                            f"token {kind}",
                        ),
                    )
                )
                for kind, most in (("to", LISTED), ("from", 3))
            ),
        )
        for exemplar in rules.exemplars_by_head(results).get(head, ())[:LISTED]
    )
    titles = ("Sentences that it moves most", "it attends most to", "it moves the vector towards",
              "away from")  # fmt: skip
    label = "Sentences that the head moves most"
    return Table(titles, rows, style="numbers wrote at-head moves", label=label) if rows else None


def _token_number(head: HeadName, token: Mapping[Any, Any]) -> Number:
    """Return the number of a listed token, with its row."""
    key = (
        *zip(HeadName._fields, head, strict=True),
        *((name, token[name]) for name in TOKEN_FIELDS),
    )
    return Number(
        float(token["value"]), CHANGE, RowAddress("promoted_tokens", key), float(token["low"]),
        float(token["high"]), int(token["n_sentences"]),
    )  # fmt: skip


def _listed_table(
    results: StackResults, head: HeadName, kinds: tuple[str, ...], unit: str
) -> Table | None:
    """Return the tokens of largest and smallest value side by side.

    Tokens are chosen on one half of the sentences and measured on the other: those whose measured
    value has the opposite sign are left out.
    """
    table = rules.promoted_by_head(results).get(head)
    if table is None:
        return None
    sides = []
    for kind in kinds:
        of_kind = table[table["kind"] == kind].sort_values("rank")
        opposite = of_kind["value"] * SIGNS.get(kind, math.nan) <= 0
        sides.append(of_kind[~opposite].to_dict("records"))
    rows = tuple(
        row(*(
            cell
            for kind, token in zip(kinds, pair, strict=True)
            for cell in (
                (tokens_list([str(token["token"])], kind), _token_number(head, token))
                if token else (MISSING, MISSING)
            )
        ))
        for pair in zip_longest(*sides)
    )  # fmt: skip
    columns = tuple(title for kind in kinds for title in (TITLES.get(kind, kind), unit))
    label = "Tokens of largest and smallest value"
    return Table(columns, rows, style="numbers listed", label=label) if rows else None


def _is_clear(results: StackResults, head: HeadName) -> bool:
    """Check whether the interval of any listed token excludes 0 on the side of its kind."""
    table = rules.promoted_by_head(results).get(head)
    if table is None:
        return False
    up, down = (table[table["kind"] == kind] for kind in ("promoted", "suppressed"))
    return bool((up["low"] > 0).any() or (down["high"] < 0).any())


def _read_table(results: StackResults, head: HeadName) -> Table | None:
    """Return the tokens that a head reads with the tokens that it promotes there."""
    table = rules.promoted_by_head(results).get(head)
    if table is None or not (table["kind"] == "read").any():
        return None
    rows = []
    for key, of_key in [*table[table["kind"] == "read"].groupby("key_token", sort=False)][:KEYS]:
        promoted = [
            say("{token} {value}", token=tokens_list([str(token["token"])], "promoted"),
                value=_token_number(head, token))
            for token in of_key.sort_values("rank").to_dict("records")
        ]  # fmt: skip
        behind = count_text(int(of_key["n_sentences"].iloc[0]), "sentence")
        rows.append(row(tokens_list([str(key)]), listed(promoted, " ", " "), behind))
    titles = "reads", "promotes there, logits", "in"
    label = "Tokens that the head reads, and what it promotes there"
    return Table(titles, tuple(rows), style="numbers wrote", label=label)
