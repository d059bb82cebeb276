"""The page of attention patterns: heads that attend to the same token, and why."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headbook.charts.patterns import (
    PARTS,
    offset_plot,
    part_key,
    parts_bar,
    parts_of,
)
from headbook.charts.plots import Plot
from headbook.charts.sinks import change_plot, sink_plot
from headbook.metrics import ids
from headbook.pages.overview_parts.wall import tile_style
from headbook.pages.parts.atlas import map_style
from headbook.pages.parts.blocks import (
    MAX_NARROW_COLUMNS,
    Block,
    Bullets,
    Caption,
    Group,
    HeadMap,
    Lead,
    Maps,
    Page,
    Question,
    Symbols,
    Table,
    Text,
    Title,
    Words,
    blocks,
    by_stack,
    figure_name,
    heat_of,
    links_below,
    row,
)
from headbook.pages.parts.exemplars import received_pair, received_picture
from headbook.pages.parts.head_card import strongest_of
from headbook.report.ablation import margin_text, verdict_target_text
from headbook.report.answers.overview.stripes import (
    MAX_STRIPED,
    main_stripes,
    striped_outputs,
    stripes_answer,
    stripes_matter,
)
from headbook.report.answers.received_attention import most_received
from headbook.report.facts import patterns as facts
from headbook.report.facts import sinks
from headbook.report.facts.circuits.facts import vector_words
from headbook.report.facts.functions import functions_of
from headbook.report.facts.sinks import SINK, SINK_OUTPUT
from headbook.report.facts.stripes import striped_together
from headbook.report.results import StackResults, heads_by_value, study_of
from headbook.report.sink import sink_tokens
from headbook.report.wording import STACKS, capital, count_text, number_word, visible
from headbook.results.formats import head_page, number, percent
from headbook.results.number import Number
from headbook.results.sentence import Link, Marked, Sentence, listed, say
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.study.ablation.results import FULL

MAX_UNIFORM_SPREAD = 0.001  # range over layers up to which a uniform share is printed once
MAX_MAPS = 144  # maps of all stacks; of more heads, every n-th has a map
DESTINATIONS = {  # labels of attention_to, with their names in the table of layers
    "first": "first token", "separator": "separators", "punctuation": "punctuation",
    "previous": "previous token", "next": "next token", "self": "itself",
    "same_token": "same token elsewhere",
}  # fmt: skip
Results = Mapping[str, StackResults]


def has_patterns(results: Results) -> bool:
    """Return whether a study has measured attention to the sink."""
    return any(r.has_value(*SINK) for r in results.values())


def patterns_page(results: Results) -> Page:
    """Return the page of attention patterns; the first stack answers."""
    stacks = [r for r in results.values() if r.has_value(*SINK)]
    first = stacks[0]
    tokens = sink_tokens(first)
    questions = tuple(_questions(first))
    sentences = count_text(int(first.heads(*SINK).sentences.max()), first.study.manifest.text_noun)
    return Page(
        path="patterns.html",
        topic="Attention patterns",
        title="Why do so many heads attend to the same token?",
        description=f"Heads of {study_of(results).manifest.model.name} that attend mostly to "
        f"{tokens}: how many there are, what they add, and whether they are dead.",
        answer=first.cached(sinks.sink_answer).text,
        scope=(
            ("Measured on", f"{sentences}, queries without special tokens"),
            ("Compared with", "uniform attention, and with the part of each head’s output that "
             f"comes from {tokens}"),
        ),
        blocks=blocks(
            Lead(_sink_figure(first), why=_why_sinks(first)),
            links_below("patterns.html", questions),
            questions,
            [_other_stack(r) for r in stacks[1:]],
        ),
        closer=by_stack(stacks, lambda r: _closer(r, MAX_MAPS // len(stacks)), results),
        measured=_measured(first),
        absent=tuple(dict.fromkeys(text for r in stacks for text in facts.not_measured(r))),
    )  # fmt: skip


def _sink_figure(results: StackResults) -> Plot:
    """Return the chart of attention to the sink and its part of the output."""
    tokens = sink_tokens(results)
    threshold = sinks.mean_threshold(results)
    solid = "" if np.isnan(threshold) else f" Solid: sink heads, from {percent(threshold)} on."
    caption = (
        f"Each pair of marks is a head: its attention to {tokens} (circle) and their share of its "
        f"output (bar), by summed value-weighted norms.{solid}"
    )
    return sink_plot(results, figure_name(results, "patterns", "sinks"), caption)


def _why_sinks(results: StackResults) -> str:
    found = sinks.sink_heads(results)
    is_small = (
        found and results.has_value(*SINK_OUTPUT) and sinks.contributes_less(results, found, 0.5)
    )
    seen = "The figure shows the small contribution; it" if is_small else "This page"
    return (
        "Common explanation: the weights of a row sum to 1, so a head with nothing to add needs "
        "tokens whose values are near zero (Clark et al. 2019, Kobayashi et al. 2020, Xiao et al. "
        f"2023). {seen} does not test the reason."
    )


def _questions(results: StackResults) -> Iterator[Question]:
    """Yield the further questions that the study answers."""
    if dead := sinks.dead(results).text:
        yield _dead_question(results, dead)
    if stripes := stripes_answer(results):
        yield _stripes_question(results, stripes)
    if diagonal := facts.diagonal(results).text:
        figure = offset_plot(
            results, figure_name(results, "patterns", "offsets"),
            "Share of attention by the distance from query to key, all keys. Each line is a head; "
            "marks and names: the largest shares, from 20 % on.",
        )  # fmt: skip
        why = (
            "An inference, not tested here: a sink needs a value near zero for every query. A "
            "fixed token can learn one; a token’s own value depends on its content, and the "
            "residual stream keeps the token anyway."
        )
        yield Question(
            "diagonal", "Why not the diagonal?", diagonal, (Lead(figure, why=why),),
            "diagonal band itself own token positional head",
        )  # fmt: skip
    if results.has_value(*part_key("key")):
        yield _parts_question(results)


def _value(number_: Number) -> float:
    """Return the value of a number, to sort by."""
    return number_.value


def _parts_question(results: StackResults) -> Question:
    """Return the question on what decides attention, with a bar for each layer."""
    by_layer = [parts_of(results, layer) for layer in results.stack.attention_layers]
    ranges = []
    for part, name in PARTS.items():
        numbers = sorted((parts[part] for parts in by_layer if part in parts), key=_value)
        if numbers:
            ends = {"low": numbers[0], "high": numbers[-1]}
            ranges.append(say("{name} {low:whole} to {high:whole}", name=name, **ends))
    answer = say(
        "By layer, of their departure from even attention: {ranges}.", ranges=listed(ranges)
    )
    caption = (
        "How far the heads of a layer are from even attention, the sink masked, by what explains "
        "it: the distance from query to key, the key whatever the query, the pair"
        f"{_sample_note(results, part_key('key'))}."
    )
    return Question(
        "parts", "What decides attention?", answer,
        (_parts_table(results), Caption((caption,))),
        "distance key pair content position what decides attention parts",
    )  # fmt: skip


def _parts_table(results: StackResults) -> Table:
    """Return the parts of each layer's heads together, as bars and numbers."""
    rows = []
    for layer in results.stack.attention_layers:
        if parts := parts_of(results, layer):
            numbers = (parts.get(part) for part in PARTS)
            rows.append(row(f"layer {layer}", parts_bar(parts), *numbers))
    return Table(
        ("heads of", "parts", *PARTS.values()), tuple(rows),
        label="Parts of the departure from even attention, by layer",
    )  # fmt: skip


def _sample_note(results: StackResults, key: HeadKey) -> str:
    """Return on how many sentences a number rests; empty if on all."""
    return results.sample_note(int(results.layers(*key).sentences.max()), ", on")


def _dead_question(results: StackResults, answer: Sentence) -> Question:
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None
    all_exact = ablation.level == FULL
    hollow = "" if all_exact else "; hollow: estimated"
    figure = change_plot(
        results, figure_name(results, "patterns", "dead"),
        "Circle: change without the head. Diamond: with only the sink masked. "
        f"{count_text(len(ablation.content_hash), 'sentence')}; “all”: all sink heads together. "
        f"Solid: measured, with 95 % interval{hollow}. Dashed: a sentence counts as changed from "
        f"{margin_text(ablation)} on.",
    )  # fmt: skip
    why = (
        "Replaced one at a time, heads that stand in for each other may all look small. So all "
        "sink heads are replaced together, too."
    )
    note = sinks.masked_note(results) + sinks.random_sets_note(results)
    return Question(
        "dead", "Are such heads dead?", answer, (Text(note, "noted"), Lead(figure, why=why)),
        "useless dead idle inactive unimportant no-op prunable pruning importance sink",
    )  # fmt: skip


def _stripes_question(results: StackResults, answer: Sentence) -> Question:
    """Return the question on key-driven heads, with the maps of the layer that has most of them."""
    heads = [HeadName(results.stack.name, *place) for place in main_stripes(results)]
    layer = f" in layer {heads[0].layer}" if heads else ""
    why = (
        "A column of the sink is no sign of such a head: the sink is masked before the key’s part "
        "is measured."
    )
    if heads and heads[0].layer == results.stack.attention_layers[-1]:
        why = (
            "A column of [CLS] or of another sink is no sign of such a head: the sink is masked "
            "before the key’s part is measured. An inference, not tested here: in the last layer "
            "every token can add the same words to the output, so that the query matters little."
        )
    maps = tuple(_striped(results, head) for head in heads[:MAX_STRIPED])
    outputs, note = results.cached(striped_outputs).text, stripes_matter(results)
    together = striped_together(results).text
    pictures = (Maps(maps, 96),) if maps else ()
    writes = vector_words(results, heads[0].layer).text if heads else None
    content = blocks(
        Text(outputs, "noted") if outputs else None,
        Text(note, "noted") if note else None,
        Text(together, "noted") if together else None,
        Text(writes, "noted") if writes else None,
        Lead(blocks=pictures, caption=_maps_caption(results, maps), why=why),
    )
    return Question(
        "stripes", f"Why the vertical stripes{layer}?", answer, content,
        "vertical stripes columns last layer key-driven same words useless heads dead whatever the "
        "query",
    )  # fmt: skip


def _maps_caption(results: StackResults, maps: Sequence[HeadMap]) -> str:
    """Return what the maps of key-driven heads show."""
    if not maps:
        return ""
    if not any(each.picture for each in maps):
        return (
            "Mean attention by position: rows are queries, columns keys. A mean over sentences, "
            "whose own stripes are sharper."
        )
    without = not all(each.picture for each in maps)
    return (
        "For each head the stored sentence in which one word receives the largest mean weight from "
        f"the others (number): rows are queries, columns keys, {sink_tokens(results)} masked."
        f"{' Coloured: mean attention by position, of heads without such a sentence.' * without}"
    )


def _striped(results: StackResults, head: HeadName) -> HeadMap:
    """Return a key-driven head with a map and the pair of an exemplar."""
    found, received = strongest_of(results).get(head), most_received(results).get(head)
    style, noun = tile_style(results, head), functions_of(results)[head].noun
    if received is not None:
        pair, weight = received_pair(results, received), number(received.mean)
        picture = received_picture(results, received)
    elif found is not None:
        texts = results.study.sentence_data.sentences[found.index].texts
        query = texts[results.stack.queries].pieces[found.query]
        key = texts[results.stack.keys].pieces[found.key]
        pair, weight = f"strongest: {visible(f'{query} → {key}')}", number(found.score)
        picture = ""
    else:
        return HeadMap(head, style, title=noun)
    words = say("{pair}, {weight}", pair=Marked(pair, "bdi"), weight=Link(weight, head_page(head)))
    return HeadMap(head, style, words, picture, noun)


def _other_stack(results: StackResults) -> Question:
    """Return the answers for a stack after the first."""
    asked = {
        "Are such heads dead?": sinks.dead(results).text,
        "Why the vertical stripes?": stripes_answer(results),
        "Why not the diagonal?": facts.diagonal(results).text,
    }
    answered = tuple(say(question) + answer for question, answer in asked.items() if answer)
    name, answer = results.stack.name, results.cached(sinks.sink_answer).text
    figure = Lead(_sink_figure(results))
    return Question(name, capital(STACKS[name]), answer, (figure, Bullets(answered)))


def _closer(results: StackResults, most: int) -> Iterator[Block]:
    """Yield the maps of all heads, at most ``most``, and the tables of layers and heads."""
    stack = results.stack.name
    ranked = heads_by_value(results.heads(*SINK).value)
    every = -(-len(ranked) // most)
    which = "All heads" if every == 1 else f"One head in {number_word(every)}"
    maps = tuple(
        HeadMap(
            HeadName(stack, *place),
            map_style(results.stack, *place),
            say("{share}", share=results.number(SINK, *place)),
        )
        for place in ranked[::every]
    )
    suffix = "" if stack == "self" else f"-{stack}"
    yield Group(
        (Maps(maps),),
        f"{which} as maps, most attention to {sink_tokens(results)} first",
        "mean map of the first positions, rows are queries, columns keys; the number is that share "
        "of the attention",
        f"maps{suffix}",
        "maps of all heads",
        folded=True,
    )
    if table := _destinations(results):
        link = "where each layer’s attention goes"
        yield Group((table,), id=f"tables{suffix}", link=link)


def _destinations(results: StackResults) -> Table | None:
    """Return the table of the shares of each layer's attention, the largest destination first."""
    layers, names = results.stack.attention_layers, _token_names(results)
    keys = [
        key
        for label in DESTINATIONS
        if results.has_value(*(key := HeadKey(ids.ATTENTION_TO, SinkView.RAW, label)))
    ]
    if not keys:
        return None
    top = {key: float(np.nanmax(results.layers(*key).value)) for key in keys}
    format_name = "" if len(layers) < MAX_NARROW_COLUMNS - 1 else "whole"
    rows = []
    for key in sorted(keys, key=lambda key: -top[key]):
        numbers = (results.number(key, layer) for layer in layers)
        cells = (heat_of(n, max(0.5, *top.values()), format_name) for n in numbers)
        even = results.uniform_number(key, layers[0]).printed(format_name)
        rows.append(row(names[key.label], *cells, even))
    spread = max(np.ptp(results.uniform(*key).value[[*layers]]) for key in keys)
    title = "uniform" if spread < MAX_UNIFORM_SPREAD else f"uniform, L{layers[0]}"
    return Table(
        ("to", *layers, title), tuple(rows), "Where each layer’s attention goes",
        "share of attention, strongest first", style="heat",
    )  # fmt: skip


def _token_names(results: StackResults) -> Mapping[str, str]:
    """Return the names of keys; the special tokens by which a model frames texts by their own."""
    first, _, last = results.study.manifest.model.special_tokens.partition("…")
    names = dict(DESTINATIONS)
    if len(first.split()) == 1 and not results.stack.causal:
        names["first"] = first.strip()
    if len(last.split()) == 1:
        names["separator"] = last.strip()
    return names


def _replaced(results: StackResults) -> Iterator[tuple[Words, Words]]:
    """Yield what stands in place of a head, if heads were replaced."""
    ablation = results.study.corpus_sums.ablation
    if ablation is not None:
        yield (
            "without the head",
            "its output is replaced by its mean over tokens of the same class; only the sink "
            f"masked: its attention to {sink_tokens(results)} is left out; estimated: from slopes "
            f"(attribution patching); changed sentences: by {verdict_target_text(ablation)}",
        )


def _measured(results: StackResults) -> tuple[Block, ...]:
    tokens, methods = sink_tokens(results), "methods.html"
    weight = say("A{ij}", ij=Marked("ij", "sub"))
    value = say("v{j}W{o}", j=Marked("j", "sub"), o=Marked("O", "sub"))
    symbols = Symbols((
        (weight, "weight that query i gives to key j; the weights of a query sum to 1"),
        (value, "value of key j through the head’s output projection"),
        (f"attention to {tokens}", say("sum of {A} over these keys, divided by the sum over all "
         "keys; queries without special tokens", A=weight)),
        ("their share of the output", say("the same sums with the norm ‖{A}{v}‖ in place of {A} "
         "(Kobayashi et al. 2020). Norms are summed, not vectors: what keys add can partly cancel",
         A=weight, v=value)),
        ("sink head", say("(share − uniform) / (1 − uniform) is at least 0.5, so that uniform "
         "attention counts as 0 ({functions})",
         functions=Link("functions of heads", f"{methods}#functions"))),
        ("changed sentence", say("the output changes by more than the margin; verdicts count "
         "sentences ({methods})", methods=Link("methods", methods))),
        *_replaced(results),
    ))  # fmt: skip
    return symbols, Title("Worked example"), Text(sinks.sink_example(results), "eg")
