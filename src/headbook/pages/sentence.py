"""The page of one sentence: texts and trees, all maps, the work panel, nearest tokens."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.charts import Arc, Drawing, arc_diagram
from headbook.pages.parts.exemplars import GROUPS
from headbook.pages.parts.page import ATTENTION_SCRIPTS, EVERY, TemplatePage
from headbook.pages.parts.passages import ProposedEnds, proposals
from headbook.pages.parts.rollout import Sources, sources
from headbook.pages.parts.sentence_maps import (
    few_shades,
    has_exact_maps,
    has_outputs,
    neuron_files,
    pitch,
    reason,
    weight_picture,
)
from headbook.pages.parts.table import MarkedText, PageTable, Row, WordsCell, words_cell
from headbook.pages.parts.text import Token, running_text
from headbook.pages.parts.token_paths import MOST_TOKENS, drawn_metrics
from headbook.report.facts.functions import families_of, functions_of
from headbook.report.results import StackResults, study_of
from headbook.report.token_neighbours import Hubs, hubs
from headbook.report.word_attention import n_words, word_names
from headbook.report.wording import (
    SPACES,
    STACKS,
    STATES,
    capital,
    count_text,
    ordinal,
    sentence_file,
    sentence_page,
    visible,
)
from headbook.results.formats import MISSING, head_name, head_page, number, percent
from headbook.schema import (
    AttentionStack,
    EmbeddingSpace,
    HeadName,
    ResidualPoint,
    RolloutKind,
    universal_relation,
)
from headbook.study.sentence_data import (
    LOGIT_LENS_SPACE,
    SPECIAL,
    UINT8_STEPS,
    Exemplar,
    Ranking,
    SentenceData,
    StoredSentence,
    StoredText,
    rows_by_sentence,
)

ENTRIES = 5  # vocabulary tokens of a row; the files have ten


@dataclass(frozen=True)
class Entries:
    """The vocabulary tokens nearest to one token, layer by layer; readers may choose another token.

    Attributes:
        token: token that the page shows first.
        choices: names of states and spaces, which are keys of the data; the first is shown.
        table: a row for each layer: nearest vocabulary tokens of the token, with numbers.
    """

    token: str
    choices: tuple[str, ...]
    table: PageTable


def entries(near: pd.DataFrame, position: int, near_to_many: Hubs) -> Entries | None:
    """Return the vocabulary tokens nearest to one token of a sentence; None without entries.

    Args:
        near: rows of `headbook.study.sentence_data.NEAREST_COLUMNS`, of one stack and sentence.
        position: position of the token; the first token with entries is taken if it has none.
        near_to_many: hubs of the stack.
    """
    if near.empty:
        return None
    choices = _choices(near)
    places = set(near["position"])
    chosen = position if position in places else min(places)
    first = next(iter(choices.values()))
    mine = first[(first["position"] == chosen) & (first["rank"] <= ENTRIES)]
    shares = bool(mine["space"].iloc[0] == LOGIT_LENS_SPACE)
    rows = []
    for layer in sorted({int(layer) for layer in mine["layer"]}):
        named = _entries(mine[mine["layer"] == layer].sort_values("rank"), shares, near_to_many)
        cells = (
            WordsCell((MarkedText(entry, "bdi"), " ", MarkedText(value, "small")))
            for entry, value in named
        )
        rows.append(Row(str(layer), tuple(cells)))
    table = PageTable(("Layer", *map(ordinal, range(1, ENTRIES + 1))), tuple(rows), style="nearest")
    return Entries(str(mine["token"].iloc[0]), tuple(choices), table)


def trajectory_data(near: pd.DataFrame, near_to_many: Mapping[str, Hubs]) -> dict[str, Any]:
    """Return the nearest vocabulary tokens of all tokens by stack and choice, nearest first.

    Each choice has its layers, and for each token and layer the texts and numbers of the entries,
    as many as a page prints.

    Args:
        near: rows of `headbook.study.sentence_data.NEAREST_COLUMNS`, of one sentence.
        near_to_many: hubs by stack.
    """
    return {
        str(stack): {
            choice: _cells(rows, near_to_many[str(stack)])
            for choice, rows in _choices(of_stack).items()
        }
        for stack, of_stack in near.groupby("stack", sort=False)
    }


def _choices(near: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each state and space, with the names of state and space."""
    choices = {}
    # Of a language model the logit lens comes first.
    for space in sorted(dict.fromkeys(near["space"]), key=lambda name: name != LOGIT_LENS_SPACE):
        for state in sorted(set(near["state"]), key=lambda name: name != ResidualPoint.POST):
            rows = near[(near["space"] == space) & (near["state"] == state)]
            if len(rows):
                name = "logit lens" if space == LOGIT_LENS_SPACE else SPACES[EmbeddingSpace(space)]
                choices[f"{name}, {STATES[ResidualPoint(state)]}"] = rows
    return choices


def _cells(rows: pd.DataFrame, near_to_many: Hubs) -> dict[str, Any]:
    rows = rows[rows["rank"] <= ENTRIES].sort_values(["position", "layer", "rank"])
    shares = rows["space"].iloc[0] == LOGIT_LENS_SPACE
    layers = [int(layer) for layer in dict.fromkeys(rows["layer"])]
    texts = _entries(rows, shares, near_to_many)
    sizes = rows.groupby(["position", "layer"]).size()
    cells = [list(islice(texts, size)) for size in sizes]
    per_token = range(0, len(cells), len(layers))
    return {"layers": layers, "cells": [cells[i : i + len(layers)] for i in per_token]}


def _entries(rows: pd.DataFrame, shares: bool, near_to_many: Hubs) -> Iterator[tuple[str, str]]:
    """Yield vocabulary tokens with their numbers; special tokens and hubs are marked."""
    written = percent if shares else number
    names = ("neighbour", "cosine", "mark", "state", "space", "layer")
    for entry, value, mark, *place in zip(*(rows[name].tolist() for name in names), strict=True):
        is_hub = entry in near_to_many.get(tuple(place), ()) and not mark
        note = " special" if mark == SPECIAL else " hub" if is_hub else ""
        yield visible(entry), f"{written(value)}{note}"


MOST_WORDS = 60  # words of a text whose tree is drawn
COLUMNS = ("Word", "part of speech", "relation", "head")


@dataclass(frozen=True)
class SentenceTree:
    """The dependency tree of a text.

    Attributes:
        drawing: arcs over the words.
        table: a row for each word: number and letters, part of speech, relation to its head,
            number and letters of its head.
        cut: number of words at the end that are left out.
    """

    drawing: Drawing
    table: PageTable
    cut: int


def sentence_tree(text: StoredText, name: str) -> SentenceTree | None:
    """Return the dependency tree of a text as it was annotated; None without a relation to draw.

    Args:
        name: name of the drawing, unique on its page.
    """
    names = word_names(text)
    cut = max(0, len(names) - MOST_WORDS)
    names = names[:MOST_WORDS]
    if not any(_has_head(text, word, len(names)) for word in range(len(names))):
        return None
    caption = "Dependency tree: arrows from head to dependent, with the relation."
    table = PageTable(COLUMNS, tuple(_rows(text, names)), "The tree word by word.")
    return SentenceTree(_drawn(text, name, caption, names), table, cut)


def _has_head(text: StoredText, word: int, n_words: int) -> bool:
    """Check whether a word has a syntactic head among the first words of its text."""
    return word < len(text.heads) and 0 <= text.heads[word] < n_words and text.heads[word] != word


def tree_absent(text: StoredText) -> str:
    """Return why a text has no tree, as a sentence; empty if it has one."""
    if sentence_tree(text, "tree") is not None:
        return ""
    if any(_has_head(text, word, n_words(text)) for word in range(n_words(text))):
        return f"Dependency tree: no relation holds between the first {MOST_WORDS} words."
    return "Dependency tree: the text has no dependencies (CoNLL-U input, or --annotator)."


def _drawn(text: StoredText, name: str, caption: str, words: tuple[str, ...]) -> Drawing:
    """Draw arcs over words in the direction of writing."""
    n = len(words)
    turned = _right_to_left(text.text)
    place = [n - 1 - word if turned else word for word in range(n)]
    arcs = [
        Arc(place[head], place[word], label=universal_relation(relation))
        for word, (head, relation) in enumerate(zip(text.heads[:n], text.relations, strict=False))
        if 0 <= head < n and head != word
    ]
    return arc_diagram(name, caption, words[::-1] if turned else words, arcs, ())


def _right_to_left(text: str) -> bool:
    """Whether the first letter that has a direction runs from right to left."""
    kinds = (unicodedata.bidirectional(letter) for letter in text)
    return next((kind for kind in kinds if kind in {"L", "R", "AL"}), "L") != "L"


def _rows(text: StoredText, names: tuple[str, ...]) -> Iterator[Row]:
    tags = dict(zip(text.words, text.tags, strict=True))
    for word, name in enumerate(names):
        head = text.heads[word]
        inside = 0 <= head < n_words(text) and head != word
        yield Row(
            words_cell(f"{word + 1} ", MarkedText(name or MISSING, "bdi")),
            (
                words_cell(tags.get(word, "") or MISSING),
                words_cell(text.relations[word] or MISSING),
                words_cell(
                    MarkedText(f"{head + 1} {word_names(text)[head]}" if inside else MISSING, "bdi")
                ),
            ),
        )


RANKED = 12  # rows of each list
MOST_CITED = 60_000  # weights of all maps on the page of a sentence that is not listed


@dataclass(frozen=True)
class CitedMap:
    """A head that has a sentence among its exemplars.

    Attributes:
        name, href: the head and its page.
        head: layer and number, as scripts write them.
        why: rankings and ranks of the sentence.
        picture: map of the head as an image address.
    """

    name: str
    href: str
    head: str
    why: str
    picture: str


@dataclass(frozen=True)
class RankedLine:
    """A line of a ranked list: a head, if any, its token, and the weight."""

    name: str
    href: str
    token: str
    value: str


@dataclass(frozen=True)
class FirstPanel:
    """The head and the query with which the work panel begins.

    Attributes:
        stack, head: names of stack and head in scripts.
        rule: reason for the head and the token, in words.
        name, href, summary: the head, its page, and the sentence on its function.
        query: position of the query.
        token: letters of the token.
        picture: the head's map as an image address.
        ranked: the keys of that query, the largest weights first.
        others: heads by the largest weight between that query and another word.
    """

    stack: str
    head: str
    rule: str
    name: str
    href: str
    summary: str
    query: int
    token: str
    picture: str
    ranked: tuple[RankedLine, ...]
    others: tuple[RankedLine, ...]


def cited_maps(
    results: StackResults, sentence: StoredSentence
) -> Mapping[HeadName, list[Exemplar]]:
    """Return the exemplars of heads in a sentence, in the order of heads.

    If their maps are too large for a page, those of the worst ranks are left out.
    """
    by_head: dict[HeadName, list[Exemplar]] = {}
    for each in results.cached(_by_sentence).get(sentence.index, ()):
        by_head.setdefault(each.head, []).append(each)
    best = sorted(by_head, key=lambda head: (_best(by_head[head]), head))
    size = next((exemplars[0].attention.size for exemplars in by_head.values()), 1)
    return {head: by_head[head] for head in sorted(best[: max(1, MOST_CITED // size)])}


def citing(results: StackResults, sentence: StoredSentence) -> int:
    """Return how many heads have a sentence among their exemplars, with or without a map."""
    return len({exemplar.head for exemplar in results.cached(_by_sentence).get(sentence.index, ())})


def _best(exemplars: list[Exemplar]) -> tuple[bool, int]:
    return min((exemplar.ranking is not Ranking.STRONGEST, exemplar.rank) for exemplar in exemplars)


def _by_sentence(results: StackResults) -> Mapping[int, list[Exemplar]]:
    by_sentence: dict[int, list[Exemplar]] = {}
    for exemplar in results.study.sentence_data.by_weight:
        if exemplar.head.stack == results.stack.name:
            by_sentence.setdefault(exemplar.index, []).append(exemplar)
    return by_sentence


def cited_map_rows(cited: Mapping[HeadName, list[Exemplar]]) -> Iterator[CitedMap]:
    """Yield the heads that cite a sentence, with ranks and maps."""
    for head, exemplars in cited.items():
        ranks = (f"{_ranking(exemplar.ranking)}, rank {exemplar.rank}" for exemplar in exemplars)
        yield CitedMap(
            name=head_name(head),
            href=head_page(head),
            head=f"{head.layer}.{head.head}",
            why="; ".join(ranks),
            picture=weight_picture(exemplars[0].attention),
        )


def start(
    results: StackResults, sentence: StoredSentence, maps: NDArray[np.uint8] | None
) -> FirstPanel | None:
    """Return the head and the query that a page begins with; None without maps.

    They have the largest weight between two tokens off the sink, among the heads that have the
    sentence among their exemplars, else among all heads; between two different ones if there are.

    Args:
        maps: as in `headbook.study.sentence_data.SentenceData`.
    """
    cited = cited_maps(results, sentence)
    known = {head: each[0].attention for head, each in cited.items()}
    if maps is not None:
        stack = results.stack
        places = ((x, y) for x in stack.attention_layers for y in range(stack.n_heads))
        known = {HeadName(stack.name, *cell): maps[cell] for cell in places}
    if not known:
        return None
    left_out = _not_two_words(results, sentence)
    largest = {head: np.where(left_out, 0, known[head]) for head in cited or known}
    if not any(cells.any() for cells in largest.values()):
        largest = {head: known[head] for head in largest}
    head = max(largest, key=lambda each: int(largest[each].max()))
    query, _ = divmod(int(largest[head].argmax()), left_out.shape[1])
    exemplified = "the heads that have this sentence among their exemplars"
    rule = (
        "At first: the largest weight between two words, among "
        f"{exemplified if cited else 'all heads'}."
    )
    return _start(results, sentence, known, head, query, rule=rule)


def _not_two_words(results: StackResults, sentence: StoredSentence) -> NDArray[np.bool_]:
    """Return the mask of weights from special tokens, to the sink, or from a token to itself."""
    stack = results.stack
    special = np.array(sentence.texts[stack.queries].special, bool)
    mask = special[:, None] | sentence.texts[stack.keys].sink(causal=stack.causal)[None, :]
    return mask if stack.crosses else mask | np.eye(len(mask), dtype=bool)


def _start(
    results: StackResults,
    sentence: StoredSentence,
    known: Mapping[HeadName, NDArray[np.uint8]],
    head: HeadName,
    query: int,
    *,
    rule: str,
) -> FirstPanel:
    stack = results.stack
    token = sentence.texts[stack.queries].pieces[query]
    row, pieces = known[head][query].astype(int), sentence.texts[stack.keys].pieces
    keys = [int(key) for key in np.argsort(-row, kind="stable")[:RANKED] if row[key]]
    summary = functions_of(results)[head].text.text
    return FirstPanel(
        stack=stack.name,
        head=f"{head.layer}.{head.head}",
        rule=rule,
        name=head_name(head),
        href=head_page(head),
        summary=summary,
        query=query,
        token=token,
        picture=weight_picture(known[head]),
        ranked=tuple(RankedLine("", "", pieces[key], weight(int(row[key]))) for key in keys),
        others=tuple(_others(results, sentence, known, query)),
    )


def _others(
    results: StackResults,
    sentence: StoredSentence,
    known: Mapping[HeadName, NDArray[np.uint8]],
    query: int,
) -> Iterator[RankedLine]:
    text = sentence.texts[results.stack.keys]
    left_out = text.sink(causal=results.stack.causal)
    if not results.stack.crosses:
        left_out[query] = True
    best = []
    for head, cells in known.items():
        row = np.where(left_out, 0, cells[query]).astype(int)
        best.append((-int(row.max()), head, int(row.argmax())))
    for steps, head, key in sorted(best)[:RANKED]:
        if steps:
            yield RankedLine(head_name(head), head_page(head), text.pieces[key], weight(-steps))


def weight(steps: int) -> str:
    """Return a stored weight in two digits, as many as 8 bits hold."""
    return f"{steps / UINT8_STEPS:.2f}"


def _ranking(ranking: Ranking) -> str:
    """Return the name of a ranking on pages; the strongest have no heading in `GROUPS`."""
    name = "strongest" if ranking is Ranking.STRONGEST else GROUPS[ranking][0]
    return name[:1].lower() + name[1:]


@dataclass(frozen=True)
class StackOfSentence:
    """The attention and the states of one stack in a sentence.

    Attributes:
        stack, title: the kind of attention, as files and as pages call it.
        layers: layer numbers from the top of the grid of maps.
        heads: how many heads a layer has.
        sheet: picture with all maps, ``width`` and ``height`` on the widest page; empty where the
            page has only the maps of the heads that cite the sentence.
        cited: maps of the heads that cite the sentence; empty if ``sheet`` is not.
        uncited: number of heads that cite the sentence without a map on the page.
        few: whether the picture has few shades, since scripts draw it again with all of them.
        exact: whether the data file has the numbers of the maps.
        start: head and query with which the work panel begins; None without numbers.
        carried: whether the data file has the norms of values.
        similar: whether the page shows similarities of head outputs.
        neurons: address of the files with queries and keys, up to the layer's number; may be empty.
        untraced: reason for having no queries and keys; empty if the page has them.
        paths: titles of the metrics whose paths a script draws.
        cut: number of tokens without paths.
        entries: the vocabulary tokens nearest to the first chosen token; None without any.
        sources: composition of the last states by rollout; None if not measured.
        families: classes and names of the families of the stack's heads.
        proposals: passage as rules divide it into sentences; empty for a single sentence.
    """

    stack: str
    title: str
    layers: tuple[int, ...]
    heads: int
    sheet: str
    width: int
    height: int
    cited: tuple[CitedMap, ...]
    uncited: int
    few: bool
    exact: bool
    start: FirstPanel | None
    carried: bool
    similar: bool
    neurons: str
    untraced: str
    paths: tuple[str, ...]
    cut: int
    entries: Entries | None
    sources: Sources | None
    families: tuple[tuple[str, str], ...]
    proposals: tuple[ProposedEnds, ...]


def stack_of(
    results: StackResults, sentence: StoredSentence, tokens: pd.DataFrame, near: pd.DataFrame
) -> StackOfSentence:
    """Return the attention and the states of one stack in a sentence.

    Args:
        tokens, near: rows of the sentence in the tables ``tokens`` and ``nearest``.
    """
    stack, data = results.stack, results.study.sentence_data
    queries, place = sentence.texts[stack.queries], (stack.name, sentence.index)
    maps = data.maps.get(place)
    some = maps is None  # whether only heads that cite the sentence have maps
    untraced = reason(results, sentence)
    first_panel = start(results, sentence, maps)
    cited = cited_maps(results, sentence)
    cited_norms = any(len(each.norms) for exemplars in cited.values() for each in exemplars)
    width, height = _size(stack, maps)
    return StackOfSentence(
        stack=stack.name,
        title=STACKS[stack.name],
        layers=stack.attention_layers,
        heads=stack.n_heads,
        sheet="" if some else sheet_file(sentence, stack),
        width=width,
        height=height,
        cited=tuple(cited_map_rows(cited)) if some else (),
        uncited=citing(results, sentence) - len(cited) if some else 0,
        few=few_shades(stack, maps),
        exact=bool(cited) if some else has_exact_maps(maps),
        start=first_panel if some or has_exact_maps(maps) else None,
        carried=cited_norms if some else place in data.norms,
        similar=has_outputs(data, stack, sentence),
        neurons="" if untraced else neuron_files(stack, sentence),
        untraced="" if some else untraced,
        paths=drawn_metrics(tokens[tokens["stack"] == stack.name]),
        cut=max(0, len(queries.pieces) - MOST_TOKENS),
        entries=_entries_of_stack(results, near, first_panel),
        sources=sources(_rollouts(data, stack, sentence), queries),
        families=tuple((f"f-{family}", name) for family, name in families_of(results).items()),
        proposals=proposals(results, queries, data.ends.get(place)),
    )


def _entries_of_stack(
    results: StackResults, near: pd.DataFrame, first_panel: FirstPanel | None
) -> Entries | None:
    """Return the entries of the first query; None for cross-attention.

    The layers of cross-attention are those of the decoder, whose own stack has their entries.
    """
    stack = results.stack
    if stack.crosses:
        return None
    place = first_panel.query if first_panel else 0
    return entries(near[near["stack"] == stack.name], place, results.cached(hubs))


def sheet_file(sentence: StoredSentence, stack: AttentionStack) -> str:
    """Return the address of the picture with all maps of a sentence."""
    return f"data/sentences/{sentence_file(sentence.number)}-{stack.name}.png"


def _size(stack: AttentionStack, maps: NDArray[np.uint8] | None) -> tuple[int, int]:
    """Return width and height of the grid of maps in pixels; 0 without maps."""
    if maps is None:
        return 0, 0
    rows, columns = (n + 1 for n in maps.shape[2:])
    width = pitch(stack) * stack.n_heads
    height = pitch(stack) * len(stack.attention_layers) * rows / columns
    return width, round(height)


def _rollouts(
    data: SentenceData, stack: AttentionStack, sentence: StoredSentence
) -> dict[str, NDArray[np.uint8]]:
    """Return the shares of inputs in a sentence's last states, by kind of rollout."""
    places = {str(kind): (stack.name, sentence.index, str(kind)) for kind in RolloutKind}
    return {kind: data.rollouts[place] for kind, place in places.items() if place in data.rollouts}


ALL_HEADS = (
    "Attention maps of all heads, the paths of its tokens through the layers, and their nearest "
    "vocabulary tokens."
)
SOME_HEADS = "Attention maps of the heads that have it among their exemplars."


@dataclass(frozen=True)
class TextOfSentence:
    """One text of a sentence: source or target.

    Attributes:
        side: source or target; empty for the only text of a sentence.
        tokens: tokens of the text.
        remarks: whether the text was cut or written by the model, in words.
        tree: dependency tree; None if the text is not annotated.
    """

    side: str
    tokens: tuple[Token, ...]
    remarks: tuple[str, ...]
    tree: SentenceTree | None


@dataclass(frozen=True, kw_only=True)
class SentencePage(TemplatePage):
    """The page of one sentence.

    Attributes:
        number: number of the sentence in the input, counted from 1.
        listed: whether all heads are shown, not only those that cite the sentence.
        previous, next: addresses of the pages before and after; None at the ends.
        metadata: other columns of the input.
        texts: texts of the sentence in tokens.
        stacks: attention and states by stack.
        name: name of the data; names of further files add an ending, as in ``0001-paths``.
        data: script with the numbers of the maps.
        paths, entries: scripts with the paths of tokens, and with their nearest vocabulary tokens.
        outputs: script with the head outputs.
        absent: missing parts of the page, with the reason or the option that adds them.
    """

    template: ClassVar[str] = "sentence.html"
    scripts = (*ATTENTION_SCRIPTS, "sentence_tiles", "sentence")
    contents = False
    number: int
    listed: bool
    previous: str | None
    next: str | None
    metadata: tuple[tuple[str, str], ...]
    texts: tuple[TextOfSentence, ...]
    stacks: tuple[StackOfSentence, ...]
    name: str
    data: str
    paths: str
    entries: str
    outputs: str
    absent: tuple[str, ...]


def sentence_pages(
    results: Mapping[str, StackResults], share: slice = EVERY
) -> Iterator[SentencePage]:
    """Yield a page for each listed sentence, and for each that exemplars cite.

    Args:
        share: slice of these sentences for which pages are made.
    """
    study = study_of(results)
    chosen = study.sentence_data.paged
    tokens, nearest = rows_by_sentence(study.tokens), rows_by_sentence(study.nearest)
    for position, sentence in [*enumerate(chosen)][share]:
        before = chosen[position - 1].number if position else None
        after = chosen[position + 1].number if position + 1 < len(chosen) else None
        rows, near = tokens(sentence.number), nearest(sentence.number)
        stacks = tuple(stack_of(result, sentence, rows, near) for result in results.values())
        name = sentence_file(sentence.number)
        yield SentencePage(
            path=sentence_page(sentence.number),
            title=f"{capital(study.manifest.text_noun)} {sentence.number}",
            description=ALL_HEADS if sentence.listed else SOME_HEADS,
            number=sentence.number,
            listed=sentence.listed,
            previous=sentence_page(before) if before else None,
            next=sentence_page(after) if after else None,
            metadata=tuple(_metadata(sentence)),
            texts=tuple(_texts(sentence)),
            stacks=stacks,
            name=name,
            data=f"data/sentences/{name}.js",
            paths=f"data/sentences/{name}-paths.js",
            entries=f"data/sentences/{name}-entries.js",
            outputs=f"data/sentences/{name}-outputs.js",
            absent=tuple(dict.fromkeys(_absent(sentence, stacks))),
        )


def _absent(sentence: StoredSentence, stacks: Iterable[StackOfSentence]) -> Iterator[str]:
    """Yield what the page of a sentence does not show, a sentence each."""
    if not sentence.listed:
        yield "Maps of all heads and paths of tokens: --sentence-pages chooses more sentences."
    for stack in stacks:
        if stack.exact and stack.untraced:
            yield f"Steps from queries and keys to weights: {stack.untraced}."
    for text in sentence.texts.values():
        yield from filter(None, [tree_absent(text)])


def _metadata(sentence: StoredSentence) -> Iterator[tuple[str, str]]:
    if sentence.id and sentence.id != str(sentence.number):
        yield "id", sentence.id
    yield from sentence.metadata.items()


def _texts(sentence: StoredSentence) -> Iterator[TextOfSentence]:
    for side, text in sentence.texts.items():
        remarks = []
        if text.lost:
            behind = (
                f", and {count_text(text.left_out, 'character')} after them"
                if text.left_out
                else ""
            )
            remarks.append(
                f"Longer than the model takes: {count_text(text.lost, 'token')} at the end{behind} "
                "were cut."
            )
        if text.generated:
            remarks.append("Written by the model itself (greedy decoding).")
        name = str(side) if len(sentence.texts) > 1 else ""
        tree = sentence_tree(text, f"tree-{side}")
        yield TextOfSentence(name, running_text(text), tuple(remarks), tree)
