"""What a film follows of each head: a few numbers of prime importance."""

from typing import NamedTuple

import numpy as np

from headbook.metrics import ids
from headbook.report.numbers.relationnames import relation_words
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.roles import sink_words
from headbook.terms import View

INDUCTION = 0.4  # score from which on a head is called an induction head, a convention


class Headline(NamedTuple):
    """A number of every head.

    Attributes:
        metric, label: as files have them.
        name: what pages call it; ``{sink}`` stands for the tokens that are the sink.
        does: what a head does of which it is high; empty where it is no function.
    """

    metric: str
    label: str
    name: str
    does: str

    @property
    def key(self) -> str:
        """A name for files and addresses."""
        return "-".join(filter(None, (self.metric, self.label.replace(":", "-"))))


RELATIONS = ("det", "amod", "case", "nsubj", "obj")
HEADLINES = (
    Headline(
        ids.INDUCTION_SCORE, "", "Induction score", "continues repeated sequences (induction)"
    ),
    Headline(
        ids.ATTENTION_TO, "previous", "Attention to the previous token",
        "attends to the previous token",
    ),
    Headline(
        ids.DUPLICATE_SCORE, "", "Duplicate-token score",
        "attends to a token's earlier occurrence (duplicates)",
    ),
    Headline(ids.SINK_SHARE, "", "Attention to {sink}", "attends to {sink}"),
    Headline(ids.ATTENTION_TO, "next", "Attention to the next token", "attends to the next token"),
    Headline(
        ids.ATTENTION_TO, "self", "Attention to the token itself", "attends to the token itself"
    ),
    Headline(
        ids.ATTENTION_TO, "same_token", "Attention to other occurrences of the token",
        "attends to other occurrences of the token",
    ),
    Headline(
        ids.ATTENTION_TO, "punctuation", "Attention to punctuation", "attends to punctuation"
    ),
    Headline(
        ids.RARE_WORD_FOCUS, "", "Attention to the rarest word", "attends to the rarest word"
    ),
    *(
        Headline(
            ids.RELATION_ACCURACY, f"{name}:to_head",
            f"Relation accuracy, {relation_words(f'{name}:to_head')}",
            f"attends {relation_words(f'{name}:to_head')}",
        )
        for name in RELATIONS
    ),
    Headline(ids.RELATIVE_ENTROPY, "", "Normalised entropy", ""),
    Headline(ids.ATTENTION_DISTANCE, "", "Attention distance", ""),
)  # fmt: skip


class FilmColumn(NamedTuple):
    """A headline in the view that pages show.

    Attributes:
        name, does: with the sink's tokens named.
    """

    metric: str
    view: View
    label: str
    name: str
    does: str
    key: str


def columns(results: StackResults) -> tuple[FilmColumn, ...]:
    """The headlines that a stack has numbers for, enough observations behind some of them."""
    found = []
    for each in HEADLINES:
        known = results.by_id.get(each.metric)
        if known is None:
            continue
        view = results.view(known, each.label)
        if not results.has(each.metric, view, each.label):
            continue
        if not np.isnan(results.heads(each.metric, view, each.label).trusted).all():
            name, does = (text.format(sink=sink_words(results)) for text in (each.name, each.does))
            found.append(FilmColumn(each.metric, view, each.label, name, does, each.key))
    return tuple(found)
