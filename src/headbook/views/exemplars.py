"""Sentences with one head's attention, for its page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.charts import colours
from headbook.numbers.results import StackResults
from headbook.stored.shown import STEPS, Exemplar, Ranking, ShownSentence
from headbook.views.neurons import traced
from headbook.views.text import Token, running_text
from headbook.wording import (
    MISSING,
    number,
    sentence_file,
)
from headbook.writing import images

LINKS = 8  # strongest links listed under an exemplar
COLOURS = 32  # of a preview; a picture carries its palette

GROUPS = {
    Ranking.STRONGEST: (
        "Strongest sentences",
        "Ranked by the largest single weight, special tokens (and in causal stacks the first "
        "position) left out as keys. Strictly by rank, nothing is picked by hand; equal sentences "
        "stand once.",
    ),
    Ranking.MEDIAN: (
        "Median sentences",
        "From the middle of the same ranking, so that not only extremes are seen.",
    ),
}


@dataclass(frozen=True)
class StrongLink:
    """One attention weight: from a token to a token."""

    query: str
    key: str
    weight: str


@dataclass(frozen=True)
class ExemplarView:
    """A sentence with this head's attention.

    Attributes:
        rank: place in its ranking.
        sentence: number of the sentence.
        href: page of the sentence, or empty.
        traced: whether that page shows how weights come about.
        score: the largest single weight.
        query, key: the tokens it runs from and to.
        position, looked: positions of the query and of the key.
        looking: the text of the queries, where it is another one than that of the keys.
        tokens: the text of the keys, shaded by the attention of ``query``.
        links: the strongest weights.
        preview: the whole map as an image address.
        size: tokens that look, tokens that are looked at.
        place: key of the map in the page's data file.
    """

    rank: int
    sentence: int
    href: str
    traced: bool
    score: str
    query: str
    key: str
    position: int
    looked: int
    looking: tuple[Token, ...]
    tokens: tuple[Token, ...]
    links: tuple[StrongLink, ...]
    preview: str
    size: tuple[int, int]
    place: str


@dataclass(frozen=True)
class ExemplarGroup:
    """Exemplars of one ranking, with its heading and explanation."""

    title: str
    note: str
    exemplars: tuple[ExemplarView, ...]


def exemplar_groups(
    results: StackResults, exemplars: Sequence[Exemplar]
) -> Iterator[ExemplarGroup]:
    """A head's exemplars by ranking, with what the rankings mean."""
    for ranking, (title, note) in GROUPS.items():
        chosen = [exemplar for exemplar in exemplars if exemplar.ranking is ranking]
        if chosen:
            views = tuple(_exemplar(results, exemplar) for exemplar in chosen)
            yield ExemplarGroup(title, note, views)


def _exemplar(results: StackResults, exemplar: Exemplar) -> ExemplarView:
    stack, sentence = results.stack, results.study.portrait.sentences[exemplar.index]
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    row, query, key = exemplar.attention[exemplar.query], exemplar.query, exemplar.key
    if stack.crosses:
        looking = running_text(queries, looks=query, around=[query])
        looked = running_text(keys, weights=row, around=[key])
    else:
        looking, looked = (), running_text(keys, weights=row, looks=query, around=[query, key])
    return ExemplarView(
        rank=exemplar.rank,
        sentence=sentence.number,
        href=f"sentences/{sentence_file(sentence.number)}.html" if sentence.listed else "",
        traced=sentence.listed and traced(results.study, stack, sentence),
        score=number(exemplar.score),
        query=queries.pieces[exemplar.query],
        key=keys.pieces[exemplar.key],
        position=exemplar.query,
        looked=exemplar.key,
        looking=looking,
        tokens=looked,
        links=tuple(_links(exemplar, sentence, results)),
        preview=images.preview(exemplar.attention // (256 // COLOURS), colours(COLOURS)),
        size=(len(queries.pieces), len(keys.pieces)),
        place=f"{exemplar.ranking}-{exemplar.rank}",
    )


def _links(
    exemplar: Exemplar, sentence: ShownSentence, results: StackResults
) -> Iterator[StrongLink]:
    queries = sentence.texts[results.stack.queries]
    keys = sentence.texts[results.stack.keys]
    flat = exemplar.attention.ravel().astype(int)
    for place in np.argsort(-flat, kind="stable")[:LINKS]:
        query, key = divmod(int(place), exemplar.attention.shape[1])
        weight = flat[place] / STEPS
        yield StrongLink(
            f"{query} {queries.pieces[query]}",
            f"{key} {keys.pieces[key]}",
            number(weight) if weight else MISSING,
        )
