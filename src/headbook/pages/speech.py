"""The page on the kinds of words that receive attention: parts of speech by layer and by head."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from headbook.charts import Plot
from headbook.charts.language import ratio_lines
from headbook.charts.plots import Line
from headbook.charts.theme import fills_between, ratio_class
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.all_heads import MAX_LINKED, heads_table
from headbook.pages.parts.blocks import (
    MOST_NARROW,
    Block,
    Caption,
    Columns,
    Details,
    Group,
    Heat,
    Lead,
    Page,
    Small,
    Steps,
    Symbols,
    Table,
    Text,
    blocks,
    by_stack,
    row,
)
from headbook.pages.parts.page import gap_text
from headbook.report.facts import words
from headbook.report.leaders import Chosen
from headbook.report.results import StackResults, study_of
from headbook.report.token_neighbours import class_of_tag
from headbook.report.wording import FEW_WORDS, count_text
from headbook.results.formats import MISSING, metric_page
from headbook.results.number import TIMES, Number
from headbook.results.sentence import Link, Marked, Sentence, say
from headbook.schema import HeadKey, HeadName, Side, heads_of
from headbook.study.manifest import MissingPart

MOST_LINES = 14  # parts of speech in the figure
MOST_TABLE_CELLS = 400  # cells of a table by layer
RECEIVED, GIVEN = "attention received", "attention given"
METRICS = {
    RECEIVED: (ids.POS_RECEIVED_RATIO, ids.POS_RECEIVED),
    GIVEN: (ids.POS_GIVEN,),
}
Results = Mapping[str, StackResults]
Numbers = Mapping[str, Sequence[Number | None]]  # by tag and layer with attention


def speech_page(results: Results) -> Page:
    """Return the page of parts of speech."""
    first = next(iter(results.values()))
    tagged = [r for r in results.values() if words.received_tags(r) or _given(r)]
    return Page(
        path="speech.html",
        title="Which kinds of words receive attention?",
        topic="Parts of speech",
        description=f"Attention of the heads of {study_of(results).manifest.model.name} to and "
        "from parts of speech, against uniform attention.",
        answer=first.cached(words.most_received).text,
        scope=_scope(first),
        blocks=by_stack(tagged, _lead, results),
        closer=by_stack(tagged, lambda r: _closer(r, MAX_LINKED // len(tagged)), results),
        measured=_measured(tagged) if tagged else (),
        absent=tuple(dict.fromkeys(text for r in results.values() for text in _absent(r))),
    )


def _scope(results: StackResults) -> tuple[tuple[str, str], ...]:
    tags, side = words.received_tags(results), results.stack.keys
    if not tags:
        return ()
    amount = sum(words.n_words(results, side, tag) for tag in tags)
    manifest = results.study.manifest
    sentences = count_text(manifest.counts["sentences"], manifest.text_noun)
    return (
        (f"{sentences},", f"{amount:,} words with a tag; special tokens masked as keys."),
        ("Compared with", "uniform attention: equal weights on all visible keys (1×)."),
    )


def _absent(results: StackResults) -> Iterator[str]:
    """Yield the parts that a stack lacks: tags, or metrics that were not chosen."""
    stack = results.stack
    sides = ((RECEIVED, stack.keys, words.received_tags(results)),
             (GIVEN, stack.queries, results.cached(words.given_by_words).evidence))  # fmt: skip
    for name, side, found in sides:
        lacking = [metric for metric in METRICS[name] if metric not in results.by_id]
        gaps = [
            f"{gap_text(gap)}."
            for gap in results.study.manifest.gaps
            if gap.key == MissingPart.TAGS
            and gap.stack
            and results.study.manifest.stack(gap.stack).keys is side
        ]
        if found:
            continue
        if gaps:
            yield from gaps
        elif lacking:
            titles = ", ".join(all_metrics()[metric].title for metric in lacking)
            yield f"{titles}: measured with --metrics {','.join(lacking)}."
        else:
            yield f"Words, {name}: no word that counts has a part of speech."


def _received(results: StackResults, tags: Sequence[str]) -> Numbers:
    return {tag: words.received(results, tag) for tag in tags}


def _given(results: StackResults) -> Numbers:
    """Return attention given, over that under uniform attention, of frequent kinds of words."""
    layers, side = results.stack.attention_layers, results.stack.queries
    found: dict[str, list[Number | None]] = {}
    for tested in results.cached(words.given_by_words).evidence:
        if words.n_words(results, side, tested.label) >= FEW_WORDS:
            row = found.setdefault(tested.label, [None] * len(layers))
            row[layers.index(tested.layer)] = tested.over_baseline(TIMES)
    return found


def _lead(results: StackResults) -> Iterator[Block]:
    tags = words.frequent(results)[:MOST_LINES]
    if tags:
        yield Lead(_plot(results, tags))


def _closer(results: StackResults, most_cells: int) -> Iterator[Block]:
    """Yield the tables by layer, the heads, and the kinds with few words."""
    stack, side = results.stack, results.stack.keys
    tags = words.frequent(results)
    most = max(1, MOST_TABLE_CELLS // len(stack.attention_layers))
    received, given = _received(results, tags), _given(results)
    tables = blocks(
        _table(results, side, _first(received, most), "Attention received: the word is the key"),
        _table(
            results, stack.queries, _first(given, most), "Attention given: the word is the query"
        ),
    )
    if tables:
        wide = len(stack.attention_layers) > MOST_NARROW
        scale = Caption((_scale([*received.values(), *given.values()]), BELOW * bool(given)))
        side_by_side = (Columns(tables, 1 if wide else 2), scale)
        yield Group(side_by_side, id=f"tables-{stack.name}", link="received and given")
    if tags:
        yield from _heads(results, tags, most_cells)
    few = [tag for tag in words.received_tags(results) if tag not in tags]
    if few:
        kinds = f"{count_text(len(few), 'kind')} with fewer than {FEW_WORDS} words"
        table = _plain_table(results, side, _received(results, few))
        yield Group((Details(f"{kinds}, attention received", (table,), "layers"),))


BELOW = "Of attention given, below 1×: these words give more than others to special tokens."


def _first(numbers: Numbers, most: int) -> Numbers:
    return {tag: numbers[tag] for tag in [*numbers][:most]}


def _table(results: StackResults, side: Side, numbers: Numbers, title: str) -> Table | None:
    """Return a table of kinds by layer, the farthest from uniform attention first."""
    if not numbers:
        return None
    order = sorted(numbers, key=lambda tag: -_octaves(numbers[tag]))
    rows = tuple(
        row(_kind(tag), words.n_words(results, side, tag), *map(_heat, numbers[tag]))
        for tag in order
    )
    columns = row("words", "n", *results.stack.attention_layers)
    return Table(columns, rows, title, "farthest from 1× first", style="heat tags")


def _plain_table(results: StackResults, side: Side, numbers: Numbers) -> Table:
    rows = tuple(
        row(_kind(tag), words.n_words(results, side, tag), *(n.printed("bare") for n in of if n))
        for tag, of in numbers.items()
    )
    columns = row("words", "n", *results.stack.attention_layers)
    return Table(columns, rows, label="Kinds with few words, attention received")


def _kind(tag: str) -> Marked:
    """Return the words of a tag with the colour and the mark of their class."""
    return Marked(words.tag_name(tag), f"cl c-{class_of_tag(tag)}")


def _heat(number: Number | None) -> Heat:
    if number is None or not number.known:
        return Heat(MISSING, "q0")
    return Heat(number.printed("bare"), ratio_class(number.value), number.as_text("interval"))


def _octaves(numbers: Sequence[Number | None]) -> float:
    """Return how far the farthest number is from 1, in octaves."""
    known = [n.value for n in numbers if n is not None and n.value > 0]
    return max((abs(math.log2(value)) for value in known), default=0.0)


def _scale(rows: Sequence[Sequence[Number | None]]) -> Steps:
    """Return the fills of both tables."""
    values = [n.value for row in rows for n in row if n is not None and n.known] or [1.0]
    low, high = min(values), max(values)
    fills = fills_between(ratio_class(low), ratio_class(high))
    return Steps(TIMES.text(low), fills, f"{TIMES.text(high)}, of uniform attention")


CHOICE = (
    "The largest number of any head, and the heads that a test paired by sentence does not tell "
    "from it."
)
ALL_HEADS = "Rows are layers, columns heads. Framed: the largest number."


def _heads(results: StackResults, tags: Sequence[str], most_cells: int) -> Iterator[Block]:
    """Yield the head of each kind of words, and all heads for the kinds with the largest values."""
    values = {tag: results.heads(*words.received_key(tag)).value for tag in tags}
    order = sorted(tags, key=lambda tag: -float(np.nanmax(values[tag])))
    best = {tag: words.most_attending_head(results, tag) for tag in order}
    unordered = [
        (
            _kind(tag),
            say("{head}{note}", head=chosen.head, note=chosen.note),
            _head_number(results, tag, chosen.head),
        )
        for tag, chosen in best.items()
        if chosen
    ]
    rows = tuple(sorted(unordered, key=lambda row: -row[2].value))
    drawn_tags = order[: max(1, most_cells // len(heads_of(results.stack)))]
    grids = tuple(_grid(results, tag, best[tag]) for tag in drawn_tags)
    left_out = len(tags) - len(drawn_tags)
    link = Link("all numbers", metric_page(ids.POS_RECEIVED_RATIO))
    more = say("{n} more kinds: {link}.", n=left_out, link=link) if left_out else None
    yield Group(
        blocks(
            Table(
                ("words", "head", "multiple of uniform attention"),
                rows,
                label="Heads that attend most to a kind of words",
            ),
            Caption((CHOICE,)),
            Details(
                "All heads, for kinds of words with the largest multiples first",
                blocks(Caption((ALL_HEADS,)), Small(grids), Caption((more,)) if more else None),
            ),
        ),
        "Heads that attend most to a kind of words",
        id=f"heads-{results.stack.name}",
        link="head by head",
    )


def _head_number(results: StackResults, tag: str, head: HeadName) -> Number:
    """Return attention of a head to words of a tag, as a multiple of uniform attention."""
    return results.number(words.received_key(tag), head.layer, head.head, unit=TIMES)


def _grid(results: StackResults, tag: str, best: Chosen | None) -> Table:
    """Return attention to words of a tag from all heads, with a frame around the chosen head."""
    kind, number_of = say("{kind}", kind=_kind(tag)), partial(_head_number, results, tag)
    chosen = best.head if best else None
    most = say("most: {head} {n}", head=chosen, n=number_of(chosen)) if chosen else ""

    def fill(head: HeadName, number: Number) -> str:
        return ratio_class(number.value) + " top1" * (head == chosen)

    return heads_table(
        results.stack,
        partial(_head_number, results, tag),
        fill,
        kind,
        most,
        format_name=".1f",
        style="mini",
        layer_name="L{}",
    )


def _plot(results: StackResults, tags: Sequence[str]) -> Plot:
    """Draw attention received by layer, a line for each part of speech."""
    others = ", ○ other words" if any(class_of_tag(tag) == "other" for tag in tags) else ""
    frequent = ", the most frequent" if len(tags) == MOST_LINES else ""
    caption = (
        "Attention that words of a kind receive as keys, all heads of a layer, as a multiple of "
        "uniform attention (dashed); log scale. ● content words, ■ function words, ▲ punctuation"
        f"{others}. Kinds with at least {FEW_WORDS} words{frequent}."
    )
    lines = [
        Line(words.tag_name(tag).replace("conjunctions", "conj."), class_of_tag(tag),
             words.received(results, tag))
        for tag in tags
    ]  # fmt: skip
    layers = results.stack.attention_layers
    return ratio_lines(f"speech-{results.stack.name}", caption, lines, layers)


def _measured(tagged: Sequence[StackResults]) -> tuple[Block, ...]:
    symbols = Symbols((
        ("received", "attention to words of a kind, divided by attention to all words; special "
         "tokens masked as keys and rows renormalised; subword tokens of a word summed as keys, "
         "averaged as queries"),
        ("given", "attention from words of a kind, divided by attention from all words; special "
         "tokens masked as keys, rows not renormalised"),
        ("multiple", "that share, divided by the same share under equal weights on all visible "
         "keys; 1: no preference"),
        ("n", f"words of the corpus with the tag; kinds with fewer than {FEW_WORDS} words are "
         "folded"),
    ))  # fmt: skip
    metrics = say(
        "Metrics: {multiple}, {share}, {given}. Heads and layers with a large multiple are the "
        "largest of many; only the answer is tested, on sentences that did not choose it.",
        multiple=Link("received, multiple", metric_page(ids.POS_RECEIVED_RATIO)),
        share=Link("received, share", metric_page(ids.POS_RECEIVED)),
        given=Link("given", metric_page(ids.POS_GIVEN)),
    )
    worked = [Text(_worked(r), "eg") for r in tagged if words.frequent(r)]
    return blocks(symbols, worked, Text(metrics))


def _worked(results: StackResults) -> Sentence:
    """Return the largest multiple of all layers as a computation."""
    numbers = _received(results, words.frequent(results))
    every = [(tag, n) for tag, of in numbers.items() for n in of if n is not None and n.known]
    tag, most = max(every, key=lambda each: each[1].value)
    layer = most.place("layer")
    share = HeadKey(ids.POS_RECEIVED, words.received_key(tag).view, tag)
    return say(
        "{words} in layer {layer}: {share} of the attention, under uniform attention {uniform}: "
        "{most:interval}.",
        words=words.tag_name(tag), layer=layer, share=results.number(share, layer),
        uniform=results.uniform_number(share, layer), most=most,
    )  # fmt: skip
