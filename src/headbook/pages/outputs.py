"""The page of head outputs: how similar they are for two tokens, and for which tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from headbook.analysis.arrays import divide
from headbook.charts.patterns import distance_plot, gap_plot, similarity_plot
from headbook.charts.plots import Plot
from headbook.metrics import ids
from headbook.pages.metrics.figures import curve_plot
from headbook.pages.parts.blocks import (
    MAX_NARROW_COLUMNS,
    Block,
    Cell,
    Columns,
    Group,
    Lead,
    Page,
    Question,
    Symbols,
    Table,
    Text,
    blocks,
    by_stack,
    figure_name,
    heat_of,
    row,
)
from headbook.pages.parts.passages import true_ends
from headbook.report.facts import outputs as facts
from headbook.report.facts.outputs import best_layer
from headbook.report.head_numbers import HeadMetricNumbers
from headbook.report.leaders import head_leaders
from headbook.report.results import StackResults, heads_by_value, study_of
from headbook.report.wording import count_text, label_name, sentence_page
from headbook.results.formats import head_name, number
from headbook.results.number import PLAIN
from headbook.results.sentence import Link, Sentence, say
from headbook.schema import HEAD_RULES, HeadKey, HeadName, SinkView, heads_of
from headbook.study.sums.token_sums import TRUE_ORDER

RULE_NAMES = {
    "similarity": "dips of similarity", "attention": "attention to . ! ?",
    "punctuation": "every . ! ?", "even": "even distances",
}  # fmt: skip
MEASURES = {
    "f1": "F1", "f1_1": "F1, 1 token off", "f1_2": "F1, 2 tokens off",
    "pk": "Pk (low is good)", "windowdiff": "WindowDiff (low is good)",
}  # fmt: skip
BY_LAYER = {  # numbers of the table by layer, with their names there
    facts.SENTENCE: "within a sentence, more alike by",
    facts.REPETITION: "same token, more alike by",
    HeadKey(ids.SAME_SENTENCE_PREFERENCE, SinkView.RAW, "top 1 %"): "own sentence, odds of top 1 %",
    HeadKey(ids.REPETITION_LIFT, SinkView.RAW, "top 1 %"): "same token, odds of top 1 %",
    HeadKey(ids.HIGH_PAIR_DISTANCE, SinkView.RAW, "top 1 %"): "distance of top 1 %, times all",
}
MAX_HEADS = 6  # heads in the table of sentence ends
MAX_ANCHORS = 150  # heads in the table of anchors
Results = Mapping[str, StackResults]


def has_outputs(results: Results) -> bool:
    """Return whether a study has measured the similarity of head outputs."""
    return any(r.has_value(*facts.OUTPUTS) for r in results.values())


def _in_passages(results: StackResults) -> bool:
    """Return whether sentences of passages can be compared."""
    return results.has_value(*facts.SENTENCE)


def outputs_page(results: Results) -> Page:
    """Return the page of head outputs; the first stack answers."""
    stacks = [r for r in results.values() if r.has_value(*facts.OUTPUTS)]
    first = stacks[0]
    in_passages = _in_passages(first)
    return Page(
        path="outputs.html",
        topic="Head outputs",
        title="Do head outputs keep to a sentence?" if in_passages
        else "How alike are the outputs of a head?",
        description=f"Similarity of what heads of {study_of(results).manifest.model.name} write "
        "for two tokens of a text: by distance, within a sentence, for repeated tokens.",
        answer=(first.cached(facts.sentence_range).text if in_passages
                else first.cached(facts.alike).text),
        scope=(
            ("Measured on", f"{_texts(first)}, tokens without special ones; of a run "
             "of one token the first alone"),
            ("Compared with", "pairs at the same distance in the same text" if in_passages
             else "the similarity of rows of attention"),
        ),
        blocks=blocks(
            _lead(first),
            _matrix_link(first),
            _questions(first),
        ),
        closer=by_stack(stacks, _closer, results),
        measured=_measured(),
        absent=tuple(dict.fromkeys(text for r in stacks for text in facts.not_measured(r))),
    )  # fmt: skip


def _texts(results: StackResults) -> str:
    n = int(results.layers(*_answer_key(results)).sentences.max())
    return count_text(n, results.study.manifest.text_noun)


def _answer_key(results: StackResults) -> HeadKey:
    """Return the number that answers the page's question."""
    return facts.SENTENCE if _in_passages(results) else facts.OUTPUTS


def _lead(results: StackResults) -> Lead:
    """Return the figure of the answer."""
    if not _in_passages(results):
        return _alike_figure(results)
    caption = (
        "Mean difference of the cosine of a head’s outputs for two different tokens, within a "
        "sentence less across two sentences, at equal distance in a passage; all heads of a layer. "
        "Bands: 95 % intervals, passages drawn."
    )
    return Lead(_curve(results, facts.SENTENCE, "sentence", caption))


def _matrix_link(results: StackResults) -> Text | None:
    """Return a link to the similarities of every two tokens of a text, in the head of the most."""
    data, stack = results.study.sentence_data, results.stack
    layers = stack.attention_layers
    index = next((i for i in data.sentences if (stack.name, i, layers[0]) in data.outputs), None)
    leaders = head_leaders(results, _answer_key(results))
    if index is None or leaders is None:
        return None
    layer, head = leaders.first
    number = data.sentences[index].number
    address = f"{sentence_page(number)}#at={stack.name}&heads={layer}.{head}&matrix=similarity"
    name = f"{head_name(HeadName(stack.name, layer, head))} in {results.study.manifest.text_noun}"
    return Text(say("Every two tokens of a text: {link}.", link=Link(f"{name} {number}", address)))


def _curve(results: StackResults, key: HeadKey, part: str, caption: str) -> Plot:
    """Return a number by layer with its controls."""
    numbers = HeadMetricNumbers(results, results.by_id[key.metric], key.view, key.label)
    return replace(curve_plot(numbers), name=figure_name(results, "outputs", part), caption=caption)


def _alike_figure(results: StackResults) -> Lead:
    figure = similarity_plot(
        results, figure_name(results, "outputs", "alike"),
        "Mean cosine of all pairs of tokens of a text, without special tokens, all keys: of head "
        f"outputs and of attention rows{_sample_note(results)}. Small dots: single heads.",
    )  # fmt: skip
    why = (
        "Equal rows of attention give equal outputs, whatever the tokens mean: that follows from "
        "the definition."
    )
    return Lead(figure, why=why)


def _sample_note(results: StackResults) -> str:
    """Return on how many texts the similarity rests; empty if on all."""
    return results.sample_note(int(results.layers(*facts.OUTPUTS).sentences.max()), ", on")


def _questions(results: StackResults) -> Iterator[Question]:
    """Yield the further questions that the study answers."""
    in_passages = _in_passages(results)
    plot = distance_plot(
        results, figure_name(results, "outputs", "distance"),
        "Mean cosine of outputs for two tokens by their distance"
        + (", within one sentence and across two" if in_passages else "")
        + "; all heads, with 95 % intervals. The last point is for 32 tokens and more.",
    )  # fmt: skip
    if plot is not None:
        answer = results.cached(facts.by_distance).text or "Each panel is a layer."
        yield Question(
            "distance", "How does similarity fall with distance?", answer, (Lead(plot),),
            "context similarity distance range long short",
        )  # fmt: skip
    if in_passages and (alike := results.cached(facts.alike).text):
        note = facts.sink_masked_note(results)
        content = blocks(Text(note, "noted") if note else None, _alike_figure(results))
        title = "Are all outputs alike in the last layer?"
        yield Question("alike", title, alike, content, "similarity of head outputs context rows")
    if again := results.cached(facts.repetition).text:
        caption = (
            "Mean difference of the cosine for two occurrences of one token, less that for two "
            "different tokens, at equal distance in a text; all heads of a layer. Bands: 95 % "
            "intervals."
        )
        figure = Lead(_curve(results, facts.REPETITION, "repetition", caption))
        title = "Do repeated tokens get the same output?"
        yield Question("repetition", title, again, (figure,), "repetition repeated token anchors")
    if around := results.cached(facts.anchors).text:
        yield Question(
            "anchors", "Around which tokens do outputs gather?", around,
            blocks(_anchor_layers(results)), "anchor token specialise head",
        )  # fmt: skip
    if in_passages and (shares := results.cached(facts.separators).text):
        yield Question(
            "separators", "How much goes to separators?", shares, blocks(_separators(results)),
            "separator attention SEP CLS sink by norm",
        )  # fmt: skip
    if ends := _ends(results):
        yield Question(
            "ends", "Do outputs show where sentences end?", _ends_answer(results),
            blocks(_gap_figure(results), ends),
            "segmentation boundaries sentence ends passages Pk WindowDiff",
        )  # fmt: skip


def _anchor_layers(results: StackResults) -> Table:
    """Return the number of different anchors of each layer."""
    rows = tuple(
        row(f"L{counts.layer}", str(counts.n_above), str(counts.different), str(counts.permuted))
        for counts in facts.anchor_counts(results)
    )
    titles = ("layer", "heads with an anchor", "different anchors", "with tokens permuted")
    return Table(titles, rows, "Anchors by layer", "lower end of the lift above 1")


def _anchors(results: StackResults) -> Table | None:
    """Return the anchor of each head with its lift."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None or not results.cached(facts.anchors).text:
        return None
    column = anchors.columns.index(facts.ANCHORS)
    token, lift, low = (
        part[column, TRUE_ORDER] for part in (anchors.token, anchors.lift, anchors.low)
    )
    heads = [head for head in heads_of(results.stack) if low[head.layer, head.head] > 1]
    rows = tuple(
        row(head, anchors.names[str(int(token[place]))], f"{number(float(lift[place]))}×",
            f"{number(float(low[place]))}×")
        for head in heads[:MAX_ANCHORS]
        for place in [(head.layer, head.head)]
    )  # fmt: skip
    note = "share of its pairs among the top 1 %, times that of all pairs; lower end: two errors"
    return Table(("head", "token", "lift", "lower end"), rows, "Anchors of heads", note)


def _by_layer(results: StackResults) -> Table | None:
    """Return the numbers of pairs by layer."""
    layers, rows = results.stack.attention_layers, []
    for key, name in BY_LAYER.items():
        if results.has_value(*key):
            numbers = [results.number(key, layer) for layer in layers]
            top = max((abs(n.value) for n in numbers if n.known), default=1.0) or 1.0
            rows.append(row(name, *(heat_of(n, 1.25 * top, "bare") for n in numbers)))
    note = "different tokens where sentences and distance are asked"
    return (
        Table(("numbers", *layers), tuple(rows), "Pairs of tokens by layer", note, "heat")
        if rows
        else None
    )


def _separators(results: StackResults) -> Table | None:
    """Return the attention to separators by layer, by weight and by norm."""
    metric, layers = results.by_id.get(ids.SEPARATOR_ATTENTION), results.stack.attention_layers
    if metric is None:
        return None
    rows = []
    for label in metric.labels:
        key = HeadKey(metric.id, SinkView.RAW, label)
        if results.has_value(*key):
            numbers = (results.number(key, layer) for layer in layers)
            rows.append(row(label_name(label), *(heat_of(n, 0.5) for n in numbers)))
    note = "share of attention, and of the norms that keys add, by layer"
    return Table(("to", *layers), tuple(rows), "Separators", note, "heat") if rows else None


def _gap_figure(results: StackResults) -> Lead | None:
    """Return the similarity across the gaps of the first passage that has a page."""
    data, stack = results.study.sentence_data, results.stack
    layer, _ = best_layer(results, "similarity")
    for index, sentence in data.sentences.items():
        marks = data.ends.get((stack.name, index))
        outputs = data.outputs.get((stack.name, index, layer))
        text = sentence.texts[stack.queries]
        if marks is None or outputs is None or len(text.parts) < 2:
            continue
        caption = (
            f"The first passage with maps, in layer {layer}: mean centred similarity of up to ten "
            "tokens before a gap with as many after it, all heads. Vertical lines: ends of "
            "sentences; marks: dips that the rule proposes."
        )
        of_heads = outputs.similarity(centred=True)
        cosines = divide(np.nansum(of_heads, 0, float), np.isfinite(of_heads).sum(0))
        dips = np.flatnonzero(marks[layer, 0]).tolist()
        ends = true_ends(results, text)
        return Lead(gap_plot(figure_name(results, "outputs", "gaps"), caption, cosines, ends, dips))
    return None


def _end_key(measure: str, rule: str) -> HeadKey:
    return HeadKey(ids.SEGMENTATION, SinkView.RAW, f"{measure}:{rule}")


def _end_leaders(results: StackResults) -> list[tuple[str, HeadName]]:
    """Return the heads that find sentence ends best by each rule, the best first."""
    return [
        (rule, HeadName(results.stack.name, *place))
        for rule in HEAD_RULES
        if results.has_value(*(key := _end_key("f1_1", rule)))
        for place in heads_by_value(results.heads(*key).value)[: MAX_HEADS // 2]
    ]


def _ends_answer(results: StackResults) -> Sentence:
    """Return the head that finds ends best by dips of similarity, beside both baselines."""
    key = _end_key("f1_1", "similarity")
    numbers = HeadMetricNumbers(results, results.by_id[key.metric], key.view, key.label)
    layer, head = numbers.best()
    first = results.stack.attention_layers[0]
    even, marks = (
        results.number(_end_key("f1_1", rule), first) for rule in ("even", "punctuation")
    )
    return say(
        "Dips of similarity in {head} find ends within one token with an F1 of {f1:interval}; as "
        "many ends as there are at even distances {even}, every . ! ? {marks}.",
        head=numbers.name((layer, head)), f1=results.number(key, layer, head),
        even=even, marks=marks,
    )  # fmt: skip


def _ends(results: StackResults) -> Table | None:
    """Return how well heads, and rules without a model, find the ends of sentences."""
    measures = [m for m in MEASURES if results.has_value(*_end_key(m, "similarity"))]
    if not measures or not results.has_value(*_end_key("f1_1", "similarity")):
        return None

    def cells(rule: str, layer: int, head: int | None = None) -> Iterator[Cell]:
        return (results.number(_end_key(m, rule), layer, head).printed("") for m in measures)

    rows = [
        row(name, RULE_NAMES[rule], *cells(rule, name.layer, name.head))
        for rule, name in _end_leaders(results)
    ]
    first = results.stack.attention_layers[0]
    rows += [
        row("no model", RULE_NAMES[rule], *cells(rule, first)) for rule in ("punctuation", "even")
    ]
    titles = ("head", "found by", *(MEASURES[m] for m in measures))
    note = (
        f"the {MAX_HEADS // 2} heads of highest F1 within one token by each rule; attention to . ! "
        "? can only leave out some of them"
    )
    return Table(titles, tuple(rows), "Ends of sentences found", note)


def _different(results: StackResults) -> Table | None:
    """Return the heads whose outputs are less alike than their rows of attention."""
    rows = tuple(
        (
            HeadName(results.stack.name, *place),
            heat_of(results.number(facts.MASKED_ROWS, *place, unit=PLAIN), 1),
            heat_of(results.number(facts.MASKED_OUTPUTS, *place), 1),
        )
        for place in facts.different_outputs(results)
    )
    titles = ("head", "attention rows", "outputs")
    note = "mean cosine of two tokens, sink masked, largest difference first"
    return Table(titles, rows, "Outputs less alike than rows", note, "heat") if rows else None


def _closer(results: StackResults) -> Iterator[Block]:
    """Yield the tables of layers and heads."""
    suffix = "" if results.stack.name == "self" else f"-{results.stack.name}"
    separators = None if _in_passages(results) else _separators(results)  # else below its question
    found = (_by_layer(results), separators, _different(results))
    tables = [table for table in found if table]
    narrow = all(len(table.columns) <= MAX_NARROW_COLUMNS for table in tables)
    if tables:
        columns = Columns(tuple(tables), 2 if narrow and len(tables) > 1 else 1)
        yield Group((columns,), id=f"tables{suffix}", link="numbers by layer")
    if table := _anchors(results):
        yield Group(
            (table,), "Anchors of heads", id=f"anchors-heads{suffix}", link="anchors of heads",
            folded=True,
        )  # fmt: skip


def _measured() -> tuple[Block, ...]:
    methods = "methods.html"
    symbols = Symbols((
        ("output oᵢ", "Σⱼ Aᵢⱼvⱼ, the values that a head mixes for token i, before the output "
         "projection"),
        ("similarity Sᵢⱼ", "cosine of oᵢ and oⱼ (Halevi et al. 2025, arXiv:2512.21956)"),
        ("difference at equal distance", "mean over passages and distances with the weights "
         "n₁n₂ / (n₁ + n₂), n₁ and n₂ the numbers of pairs of both kinds; distances from 64 tokens "
         "on count as one"),
        ("odds of top 1 %", "Mantel and Haenszel’s odds ratio over passages and distances, for the "
         "highest 1 % of a head’s own pairs"),
        ("lift of an anchor", "share of its pairs with other tokens among the top 1 %, times that "
         "of all pairs"),
        ("more", say("{methods}", methods=Link("methods", methods))),
    ))  # fmt: skip
    return (symbols,)
