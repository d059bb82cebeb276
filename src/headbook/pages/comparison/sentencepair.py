"""Sentences in two models: their list, token paths, heads that differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats
from headbook.charts import Drawing
from headbook.charts.layers import Curve, layer_lines
from headbook.comparison.drift import divergence_text
from headbook.comparison.head_pairs import PairedStack, SharedSentence, maps_of, same_tokens
from headbook.comparison.study_pair import StudyPair, same_vocabulary
from headbook.pages.comparison.pairmaps import map_pictures, what_is_drawn
from headbook.pages.overview_parts.differences import MapPicture
from headbook.pages.parts.page import TemplatePage
from headbook.pages.parts.table import DASH, Content, MarkedText, PageTable, Part, Row, WordsCell
from headbook.pages.parts.text import Token, running_text
from headbook.pages.parts.token_paths import MOST_TOKENS, paths_data
from headbook.report.wording import (
    SPACES,
    STACKS,
    count_text,
    sentence_file,
    sentence_page,
    visible,
)
from headbook.results.formats import MISSING, head_name, head_page, number, percent
from headbook.schema import EmbeddingSpace, ResidualPoint
from headbook.study.sentence_data import (
    LOGIT_LENS_SPACE,
    StoredSentence,
    StoredText,
    rows_by_sentence,
)

Rows = tuple[pd.DataFrame, pd.DataFrame]  # of one sentence in both studies
COMPARED = 10  # vocabulary tokens nearest to a state that two models may have in common
NEAREST = 3  # vocabulary tokens of each model that the table names


def both_paths(
    paired: PairedStack, sentences: tuple[StoredSentence, StoredSentence], tokens: Rows
) -> dict[str, Any] | None:
    """Return the paths of tokens of both models; None if no path is common to both.

    Args:
        tokens: rows of `headbook.study.sentence_data.TOKEN_COLUMNS`, of the sentence.

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
    return {"a": one, "b": other, "places": [*_places(*_query_texts(paired, sentences))]}


def titles(paths: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the titles of the measures that are drawn."""
    return tuple(metric["title"] for metric in paths["a"]["metrics"]) if paths else ()


def _query_texts(
    paired: PairedStack, sentences: tuple[StoredSentence, StoredSentence]
) -> tuple[StoredText, StoredText]:
    stacks = paired.stack.a, paired.stack.b
    return sentences[0].texts[stacks[0].queries], sentences[1].texts[stacks[1].queries]


def _common(
    mine: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the measures and views that both have, with one axis."""
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
    """Return the smallest and the largest number that is drawn of either model."""
    values = [] if start is None else [start]
    for view in views:
        lines = [*view["values"], *view["classes"].values(), *view["beside"].values()]
        values += [value for line in lines for value in line if value is not None]
    return [min(values), max(values)]


def _places(mine: StoredText, theirs: StoredText) -> Iterator[int | None]:
    """Yield for each token the token of the other model that begins at the same letter.

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
) -> PageTable | None:
    """Return the nearest tokens to the last states of both models; None if one has none.

    Args:
        near: rows of `headbook.study.sentence_data.NEAREST_COLUMNS`, of the sentence.
    """
    stacks = paired.stack.a, paired.stack.b
    own = [
        rows[(rows["stack"] == s.name) & (rows["state"] == ResidualPoint.POST)]
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
    rows, texts = [], _query_texts(paired, sentences)
    for place, other in [*enumerate(_places(*texts))][:MOST_TOKENS]:
        both = found[0].get(place), None if other is None else found[1].get(other)
        cells: tuple[Content, ...] = (*map(_words, both), *([_shared(*both)] if alike else []))
        rows.append(Row(WordsCell((MarkedText(texts[0].pieces[place], "bdi"),)), cells))
    names = zip(paired.names, spaces, strict=True)
    columns = ("Token", *(f"{name}, by {_space(space)}" for name, space in names))
    return PageTable((*columns, *(["in common"] if alike else [])), tuple(rows), style="nearest")


def _space(space: str) -> str:
    return "logit lens" if space == LOGIT_LENS_SPACE else SPACES[EmbeddingSpace(space)]


def _last(near: pd.DataFrame, space: str) -> dict[int, list[tuple[str, str]]]:
    """Return the vocabulary tokens nearest to each token after the last layer."""
    is_last = (near["layer"] == near["layer"].max()) & (near["rank"] <= COMPARED)
    last = near[is_last & (near["space"] == space)]
    written = percent if space == LOGIT_LENS_SPACE else number
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
        parts += [
            *([", "] if parts else []),
            MarkedText(entry, "bdi"),
            " ",
            MarkedText(value, "small"),
        ]
    return WordsCell(tuple(parts))


def _shared(
    mine: Sequence[tuple[str, str]] | None, theirs: Sequence[tuple[str, str]] | None
) -> str | None:
    """Return how many of the ten nearest are the same; None if a model has none."""
    if not mine or not theirs:
        return None
    size = min(len(mine), len(theirs))
    same = np.intersect1d([each[0] for each in mine[:size]], [each[0] for each in theirs[:size]])
    return f"{len(same)} of {size}"


MOST = 4  # heads whose maps are there
SMALL = 0.1  # nats below which a chart counts in thousandths


@dataclass(frozen=True)
class DriftedHead:
    """A pair of heads in a sentence: its page, its divergence, both maps and the difference."""

    name: str
    href: str
    divergence: str
    pictures: tuple[MapPicture, ...]


@dataclass(frozen=True)
class SentenceStack:
    """One kind of attention in a sentence.

    Attributes:
        stack: as files call it.
        title: the same as pages call it.
        between: what maps are drawn between, where that is not tokens.
        layers: divergence by layer, as a chart; None where maps cannot be compared.
        heads: that differ most.
        paths: titles of the measures whose paths a script draws.
        nearest: vocabulary tokens nearest to the last states; None without any.
        cut: tokens at the end that paths and table leave out.
    """

    stack: str
    title: str
    between: str
    layers: Drawing | None
    heads: tuple[DriftedHead, ...]
    paths: tuple[str, ...]
    nearest: PageTable | None
    cut: int


@dataclass(frozen=True, kw_only=True)
class SentencePairPage(TemplatePage):
    """One sentence in two models.

    Attributes:
        names: of the models.
        number: of the sentence in the input.
        previous, next: addresses of its neighbours, or None.
        lead: how far attention is apart, in sentences.
        texts: the text in the tokens of each model; once where they are the same. Each with the
            side that it is, and the model's name, empty where there is one.
        stacks: what differs, by kind of attention.
        coarse: whether maps are in steps of 1/255.
        followed: whether both studies list it, so that the paths of its tokens are there.
        name, data: the script with the paths.
    """

    template: ClassVar[str] = "comparison/sentencepair.html"
    scripts = ("sentencepair",)
    styles = ("comparison",)
    names: tuple[str, str]
    number: int
    previous: str | None
    next: str | None
    lead: tuple[str, ...]
    texts: tuple[tuple[str, str, tuple[Token, ...]], ...]
    stacks: tuple[SentenceStack, ...]
    coarse: bool
    followed: bool
    name: str
    data: str


def sentencepair_pages(
    sides: StudyPair, stacks: Sequence[PairedStack], listed: Sequence[SharedSentence]
) -> Iterator[tuple[SentencePairPage, dict[str, Any]]]:
    """Yield the pages of all sentences of both studies, each with data for its scripts."""
    tokens = [rows_by_sentence(study.tokens) for study in (sides.a, sides.b)]
    near = [rows_by_sentence(study.nearest) for study in (sides.a, sides.b)]
    for place, each in enumerate(listed):
        named, found = each.a.number, []
        values: dict[str, Any] = {}
        both = each.a, each.b
        rows = tokens[0](named), tokens[1](each.b.number)
        nearest = near[0](named), near[1](each.b.number)
        for paired in stacks:
            crosses = paired.stack.a.crosses  # whose layers' outputs are those of the decoder
            paths = None if crosses else both_paths(paired, both, rows)
            if paths:
                values |= {f"{paired.stack.name}-{part}": value for part, value in paths.items()}
            table = None if crosses else nearest_table(paired, both, nearest)
            found.append(_stack(sides, paired, each, titles(paths), table))
        before = listed[place - 1].a.number if place else None
        after = listed[place + 1].a.number if place + 1 < len(listed) else None
        name = f"{sentence_file(named)}-paths"
        yield (
            SentencePairPage(
                path=sentence_page(named),
                title=f"Sentence {named}",
                description=f"How {sides.names[0]} and {sides.names[1]} read sentence {named}: "
                "paths of its tokens, and the heads whose attention differs most.",
                names=sides.names,
                number=named,
                previous=sentence_page(before) if before else None,
                next=sentence_page(after) if after else None,
                lead=tuple(_lead(stacks, each, listed)),
                texts=tuple(_text_sections(sides, each)),
                stacks=tuple(found),
                coarse=each.coarse,
                followed=each.followed,
                name=name,
                data=f"data/sentences/{name}.js",
            ),
            values,
        )


def _lead(
    stacks: Sequence[PairedStack], each: SharedSentence, listed: Sequence[SharedSentence]
) -> Iterator[str]:
    if np.isnan(each.mean):
        yield "Its attention cannot be compared: maps of one of the models are missing."
        return
    if all(not (drift > 0).any() for drift in each.drift.values()):
        yield "Attention is exactly equal in both models."
        return
    known = [other.mean for other in listed if not np.isnan(other.mean)]
    rank = 1 + sum(mean > each.mean for mean in known)
    yield f"Attention diverges by {divergence_text(each.mean)} nats, the mean over heads."
    yield f"Rank {rank} of {len(known)} sentences."
    best = [
        (float(np.nanmax(drift)), paired, int(np.nanargmax(drift)))
        for paired in stacks
        if (drift := each.drift.get(paired.stack.name)) is not None and not np.isnan(drift).all()
    ]
    most, paired, place = max(best, key=lambda found: found[0])
    yield f"Most in head {_name(paired, place)}: {divergence_text(most)} nats."


def _name(paired: PairedStack, place: int) -> str:
    """Return the name of a pair of heads; a single name if both models have the same."""
    pair = paired.pairs[place]
    if paired.differences is not None or pair.b is None:
        return head_name(pair.a)
    return f"{head_name(pair.a)} and {head_name(pair.b)}"


def _text_sections(
    sides: StudyPair, each: SharedSentence
) -> Iterator[tuple[str, str, tuple[Token, ...]]]:
    for side, text in each.a.texts.items():
        other = each.b.texts.get(side)
        if other is None or same_tokens(text, other):
            yield "both", str(side) if len(each.a.texts) > 1 else "", running_text(text)
            continue
        for which, name, own in zip("ab", sides.names, (text, other), strict=True):
            yield which, name, running_text(own)


def _stack(
    sides: StudyPair,
    paired: PairedStack,
    each: SharedSentence,
    paths: tuple[str, ...],
    nearest: PageTable | None,
) -> SentenceStack:
    drift = each.drift.get(paired.stack.name)
    return SentenceStack(
        stack=paired.stack.name,
        title=STACKS.get(paired.stack.a.name, paired.stack.name),
        between=what_is_drawn(paired),
        layers=None if drift is None else _layers(paired, drift, each.a.number),
        heads=() if drift is None else tuple(_heads(sides, paired, each, drift)),
        paths=paths,
        nearest=nearest,
        cut=max(0, len(each.a.texts[paired.stack.a.queries].pieces) - MOST_TOKENS),
    )


def _layers(paired: PairedStack, drift: Floats, sentence: int) -> Drawing | None:
    """Mean and largest divergence of the heads of each layer of the first model."""
    layers = paired.stack.a.attention_layers
    own = [[n for n, pair in enumerate(paired.pairs) if pair.a.layer == layer] for layer in layers]
    values = [drift[places][~np.isnan(drift[places])] for places in own]
    if not any(len(each) for each in values):
        return None
    none = np.array([np.nan])
    curves = {
        "mean of heads": np.array([(each if len(each) else none).mean() for each in values]),
        "largest": np.array([(each if len(each) else none).max() for each in values]),
    }
    top = float(np.nanmax(curves["largest"])) or 1.0
    times, unit = (1000, "thousandths of a nat") if top < SMALL else (1, "nats")
    nothing = np.full(len(layers), np.nan)
    lines = [
        Curve(name, times * curve, nothing, nothing, [number(float(times * v)) for v in curve])
        for name, curve in curves.items()
    ]
    whose = "" if paired.differences is not None else f" of {paired.names[0]}, matched heads"
    caption = f"Divergence by layer{whose}, {unit}, sentence {sentence}."
    ticks = [(part * times * top, number(part * times * top)) for part in (0.0, 0.5, 1.0)]
    name = f"drift-{paired.stack.name}-{sentence_file(sentence)}"
    return layer_lines(name, caption, lines, layers=layers, ends=(0.0, times * top), ticks=ticks)


def _heads(
    sides: StudyPair, paired: PairedStack, each: SharedSentence, drift: Floats
) -> Iterator[DriftedHead]:
    both, _ = maps_of(sides, (each.a, each.b))
    known = np.flatnonzero(drift > 0)
    for place in known[np.argsort(-drift[known], kind="stable")][:MOST].tolist():
        pair = paired.pairs[place]
        yield DriftedHead(
            _name(paired, place),
            head_page(pair.a),
            divergence_text(float(drift[place])),
            map_pictures(paired.maps(both, pair), paired.names),
        )


@dataclass(frozen=True)
class SharedSentenceLine:
    """One sentence in the list; ``divergence``: mean over heads, in nats."""

    number: int
    href: str
    text: str
    divergence: str


@dataclass(frozen=True, kw_only=True)
class SentencePairsPage(TemplatePage):
    """The page with the list of sentences in two models.

    Attributes:
        lines: the sentences, those that differ most first.
        total: sentences in the input.
        lists: how many of them both studies list, where that is not all; else empty.
    """

    template: ClassVar[str] = "comparison/sentencepairs.html"
    scripts = ("filter_list",)
    styles = ("comparison",)
    lines: tuple[SharedSentenceLine, ...]
    total: int
    lists: str


def sentencepairs_page(sides: StudyPair, listed: Sequence[SharedSentence]) -> SentencePairsPage:
    """Return the page with the list of sentences."""
    total = sides.sentences
    order = sorted(listed, key=lambda each: (np.isnan(each.mean), -each.mean, each.a.number))
    return SentencePairsPage(
        path="sentences/index.html",
        title="Sentences",
        description=f"Sentences with a page: {len(listed):,} of {total:,}, those first in which "
        "the attention of the two models differs most.",
        lines=tuple(
            SharedSentenceLine(
                each.a.number,
                sentence_page(each.a.number),
                next(iter(each.a.texts.values())).text,
                MISSING if np.isnan(each.mean) else divergence_text(each.mean),
            )
            for each in order
        ),
        total=total,
        lists=_lists(sides, listed),
    )


def _lists(sides: StudyPair, listed: Sequence[SharedSentence]) -> str:
    """Return which sentences have a page, if the studies list few or different ones."""
    both = sum(each.followed for each in listed)
    counts = [len(study.sentence_data.listed) for study in (sides.a, sides.b)]
    alone = len(listed) - both
    if not alone and both == max(counts):
        return ""
    names = sides.names
    begin = (
        f"{names[0]} lists {count_text(counts[0], 'sentence')}, {names[1]} {counts[1]:,}, and both "
        f"{both:,} of the same, whose pages have the paths of all tokens."
    )
    more = f" Of {alone:,} more both keep attention maps: their pages have heads and layers alone."
    return begin + (more if alone else "")
