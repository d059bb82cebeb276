"""Sentences with one head's attention, for its page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headbook.attention.surface_rules import rule_names, rule_words
from headbook.charts import Drawing, images
from headbook.charts.heads import ranking_histogram
from headbook.charts.theme import rgba_ramp
from headbook.pages.parts.sentence_maps import has_queries_keys, weight_picture
from headbook.pages.parts.text import Token, running_text
from headbook.report.answers.received_attention import (
    SAME_KEYS,
    Received,
    queries_by_weight,
    received_exemplars,
)
from headbook.report.facts.functions import HeadFunction, functions_of
from headbook.report.function_numbers import LABEL_OF_OFFSET
from headbook.report.results import StackResults
from headbook.report.wording import capital, count_text, sentence_page, visible
from headbook.results.formats import MISSING, head_file, head_name, number
from headbook.schema import HeadName, regions_of, relation_of, universal_relation
from headbook.study.exemplars import rank_by_weight
from headbook.study.sentence_data import UINT8_STEPS, Exemplar, Ranking, StoredSentence, StoredText

LINKS = 6  # strongest links listed under an exemplar
COLOURS = 16  # colours of a preview, few since each picture has its own palette
AT_ONCE = 5  # strongest exemplars at the top of the page
FIRST = 26  # tokens of a long text at the top of the page
NARROW = 28  # tokens of a long text further down

FITS = "First: the strongest whose query and key fit the sentence above; then by largest weight."

GROUPS = {
    Ranking.STRONGEST: ("Strongest, the further ones", ""),
    Ranking.Q90: ("Last of the top tenth", "About a tenth of the sentences are stronger."),
    Ranking.Q75: ("Last of the top quarter", "About a quarter of the sentences are stronger."),
    Ranking.MEDIAN: ("In the middle (median)", "Half of the sentences are stronger."),
}
NAMES = {
    Ranking.STRONGEST: "strongest",
    Ranking.Q90: "top tenth",
    Ranking.Q75: "top quarter",
    Ranking.MEDIAN: "median",
}


@dataclass(frozen=True)
class ExemplarFigure:
    """A sentence with the attention of one head.

    Attributes:
        rank: place in its ranking.
        sentence: number of the sentence.
        href: page of the sentence.
        traced: whether that page has queries and keys.
        weight: the largest single weight off the sink.
        query, key: tokens of that weight.
        position, looked: positions of the query and of the key.
        looking: text of the queries if it is not the text of the keys; else empty.
        tokens: the text of the keys, shaded by the attention of ``query``.
        links: queries, keys and numbers of the strongest weights, and ``preview``, the whole map as
            an image address; both empty except for the first exemplars, since scripts draw the maps
            of the others.
        size: numbers of queries and keys.
        place: key of the map in the page's data file.
        received: how much of the other words' attention the key receives, in words; then ``tokens``
            are shaded by the attention that each receives, and no query is marked. Else empty.
    """

    rank: int
    sentence: int
    href: str
    traced: bool
    weight: str
    query: str
    key: str
    position: int
    looked: int
    looking: tuple[Token, ...]
    tokens: tuple[Token, ...]
    links: tuple[tuple[str, str, str], ...]
    preview: str
    size: tuple[int, int]
    place: str
    received: str = ""


@dataclass(frozen=True)
class ExemplarGroup:
    """Exemplars of one ranking, with its heading and explanation."""

    title: str
    note: str
    exemplars: tuple[ExemplarFigure, ...]


@dataclass(frozen=True)
class Exemplars:
    """All exemplars of a head.

    Attributes:
        first: strongest exemplars; one that fits the function of the head before the others.
        fits: how the first exemplar was chosen, in words; empty if it is the strongest.
        received: sentences in which other words favour one key; empty unless the head is one whose
            words all attend to the same words.
        range: further exemplars by the largest weight, from strong to median.
        histogram: largest weights over sentences; None if they were not stored.
    """

    first: tuple[ExemplarFigure, ...]
    fits: str
    received: tuple[ExemplarFigure, ...]
    range: tuple[ExemplarGroup, ...]
    histogram: Drawing | None


def exemplars_of(results: StackResults, head: HeadName, exemplars: Sequence[Exemplar]) -> Exemplars:
    """Return the exemplars of a head by ranking, with the meaning of the rankings.

    A sentence among the strongest is left out of the rankings at lower quantiles, except for the
    median: readers should not see extremes alone.
    """
    strongest = {e.index for e in exemplars if e.ranking is Ranking.STRONGEST}
    kept = []
    for e in exemplars:
        if e.ranking in {Ranking.Q90, Ranking.Q75}:
            if e.index in strongest:
                continue
            strongest.add(e.index)
        kept.append(e)
    ranked = sorted((e for e in kept if e.ranking is Ranking.STRONGEST), key=lambda e: e.rank)
    function = functions_of(results)[head]
    fitting = next((e for e in ranked if fits_function(results, function, e)), None)
    ranked.sort(key=lambda e: e is not fitting)
    first = ranked[:AT_ONCE]
    listed = {(e.ranking, e.rank) for e in first}
    rest = [e for e in kept if (e.ranking, e.rank) not in listed]
    groups = {ranking: [e for e in rest if e.ranking is ranking] for ranking in GROUPS}
    return Exemplars(
        tuple(_with_map(results, e, _exemplar(results, e, FIRST)) for e in first),
        "" if fitting is None else FITS,
        tuple(_received(results, each) for each in _favoured(results, head, exemplars)),
        tuple(
            ExemplarGroup(*GROUPS[ranking], tuple(_exemplar(results, e) for e in group))
            for ranking, group in groups.items()
            if group
        ),
        _histogram(results, head, exemplars),
    )


OFFSET_OF_LABEL = {label: offset for offset, label in LABEL_OF_OFFSET.items()}


def fits_function(results: StackResults, function: HeadFunction, exemplar: Exemplar) -> bool:
    """Check whether query and key of an exemplar have the offset or classes of a function.

    The largest weight need not be an instance of these functions: a head that attends to the next
    noun in two of three cases can have its largest weight in the third. Other functions name no
    pairs, so that no exemplar is preferred.
    """
    if function.number is None or results.stack.crosses:
        return False
    text = results.study.sentence_data.sentences[exemplar.index].texts[results.stack.keys]
    label, query, key = dict(function.number.row.key).get("label"), exemplar.query, exemplar.key
    if function.id == "offset":
        return key - query == OFFSET_OF_LABEL[str(label)]
    if function.id == "region":
        return (text.region_of(query), text.region_of(key)) == regions_of(str(label))
    if function.id == "relation":
        return is_related(text, query, key, str(label))
    return function.id == "next_word" and is_named(
        text, query, key, str(label), causal=results.stack.causal
    )


def is_related(text: StoredText, query: int, key: int, label: str) -> bool:
    """Check whether query and key are dependent and head of a relation, in its direction."""
    relation, direction = relation_of(label)
    dependent, head = text.words[query], text.words[key]
    if direction != "to_head":
        dependent, head = head, dependent
    if min(dependent, head) < 0 or dependent >= len(text.heads):
        return False
    is_relation = relation == universal_relation(text.relations[dependent])
    return is_relation and text.heads[dependent] == head


def is_named(text: StoredText, query: int, key: int, rule: str, *, causal: bool) -> bool:
    """Check whether a surface rule names the word of the key for the word of the query."""
    tag_of_word = dict(zip(text.words, text.tags, strict=True))
    words = range(max(text.words) + 1)
    tags = sorted({*tag_of_word.values()} - {""})
    if min(text.words[query], text.words[key]) < 0 or rule not in rule_names(tags):
        return False
    places = np.array([tags.index(tag) if (tag := tag_of_word.get(n)) else -1 for n in words])
    named = rule_words(
        places, np.ones(len(places), bool), np.array([len(places)]), tags, causal=causal
    )
    row = rule_names(tags).index(rule)
    return bool(named[row, text.words[query]] == text.words[key])


def _histogram(
    results: StackResults, head: HeadName, exemplars: Sequence[Exemplar]
) -> Drawing | None:
    scores = rank_by_weight(results.study.corpus_sums.heads[head.stack].sample, head).score
    if not len(scores):
        return None
    best = [e.score for e in exemplars if e.ranking is Ranking.STRONGEST]
    at = {Ranking.Q90: 0.9, Ranking.Q75: 0.75, Ranking.MEDIAN: 0.5}
    values = {ranking: float(np.quantile(scores, part)) for ranking, part in at.items()}
    values[Ranking.STRONGEST] = max([float(scores[0]), *best])
    marks = [(f"{NAMES[ranking]} {number(value)}", value) for ranking, value in values.items()]
    noun = results.study.manifest.text_noun
    caption = (
        f"{capital(noun)}s (bars) by the largest weight of head {head_name(head)} off the sink "
        f"(horizontal, 0 to 1): {count_text(len(scores), noun)}, equal ones counted once."
    )
    return ranking_histogram(f"ranking-{head_file(head)}", caption, scores, marks)


def _exemplar(results: StackResults, exemplar: Exemplar, most: int = NARROW) -> ExemplarFigure:
    stack, sentence = results.stack, results.study.sentence_data.sentences[exemplar.index]
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    row, query, key = exemplar.attention[exemplar.query], exemplar.query, exemplar.key
    if stack.crosses:
        looking = running_text(queries, query=query, around=[query], most=most)
        looked = running_text(keys, weights=row, key=key, around=[key], most=most)
    else:
        around = [query, key]
        looking = ()
        looked = running_text(keys, weights=row, query=query, key=key, around=around, most=most)
    return ExemplarFigure(
        rank=exemplar.rank,
        sentence=sentence.number,
        href=sentence_page(sentence.number),
        traced=sentence.listed and has_queries_keys(results.study, stack, sentence),
        weight=number(exemplar.score),
        query=queries.pieces[exemplar.query],
        key=keys.pieces[exemplar.key],
        position=exemplar.query,
        looked=exemplar.key,
        looking=looking,
        tokens=looked,
        links=(),
        preview="",
        size=(len(queries.pieces), len(keys.pieces)),
        place=f"{exemplar.ranking}-{exemplar.rank}",
    )


def _favoured(
    results: StackResults, head: HeadName, exemplars: Sequence[Exemplar]
) -> tuple[Received, ...]:
    """Return exemplars of what all words attend to, if that is the function of the head."""
    if functions_of(results)[head].id != SAME_KEYS:
        return ()
    return received_exemplars(results, exemplars)


def _received(results: StackResults, received: Received) -> ExemplarFigure:
    """Return a sentence shaded by the attention that its words receive from other words."""
    exemplar, key = received.exemplar, received.key
    text = results.study.sentence_data.sentences[exemplar.index].texts[results.stack.keys]
    shades = np.rint(received.weights * UINT8_STEPS).astype(np.uint8)
    figure = _with_map(results, exemplar, _exemplar(results, exemplar, FIRST))
    return replace(
        figure,
        position=next(queries_by_weight(received)),
        looked=key,
        key=text.pieces[key],
        weight=number(received.mean),
        tokens=running_text(text, weights=shades, key=key, around=[key], most=FIRST),
        received=f"strongest key of {received.strongest} of {received.queries} other words, "
        "the sink masked",
    )


def received_picture(results: StackResults, received: Received) -> str:
    """Return the map of the sentence with the sink masked, as an image address."""
    stack, exemplar = results.stack, received.exemplar
    keys = results.study.sentence_data.sentences[exemplar.index].texts[stack.keys]
    is_sink = keys.sink(causal=stack.causal)
    return weight_picture(np.where(is_sink, 0, exemplar.attention).astype(np.uint8))


def received_pair(results: StackResults, received: Received) -> str:
    """Return queries and key of an exemplar in words: ``other words → rain``."""
    texts = results.study.sentence_data.sentences[received.exemplar.index].texts
    return visible(f"other words → {texts[results.stack.keys].pieces[received.key]}")


def _with_map(results: StackResults, exemplar: Exemplar, view: ExemplarFigure) -> ExemplarFigure:
    """Return an exemplar with its strongest links and its map, for readers without scripts."""
    sentence = results.study.sentence_data.sentences[exemplar.index]
    picture = images.map_preview(exemplar.attention // (256 // COLOURS), rgba_ramp(COLOURS))
    return replace(view, links=tuple(_links(exemplar, sentence, results)), preview=picture)


def _links(
    exemplar: Exemplar, sentence: StoredSentence, results: StackResults
) -> Iterator[tuple[str, str, str]]:
    queries = sentence.texts[results.stack.queries]
    keys = sentence.texts[results.stack.keys]
    flat = exemplar.attention.ravel().astype(int)
    for place in np.argsort(-flat, kind="stable")[:LINKS]:
        query, key = divmod(int(place), exemplar.attention.shape[1])
        weight = flat[place] / UINT8_STEPS
        names = f"{query} {queries.pieces[query]}", f"{key} {keys.pieces[key]}"
        yield *names, number(weight) if weight else MISSING
