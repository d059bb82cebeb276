"""The page of attention patterns: reasons for attending to the same token, and effects on words."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from headbook.charts.patterns import odds_plot, offset_plot, similarity_plot
from headbook.charts.plots import Plot
from headbook.charts.sinks import MAX_LINKED_HEADS, change_plot, sink_plot
from headbook.charts.theme import amount_class
from headbook.metrics import ids
from headbook.pages.overview_parts.wall import tile_style
from headbook.pages.parts.atlas import map_style
from headbook.pages.parts.exemplars import received_pair, received_picture
from headbook.pages.parts.head_card import strongest_of
from headbook.pages.parts.page import AnalysisPage, Question, Sentence, StackSection
from headbook.pages.parts.table import HeatCell, PageTable, Row
from headbook.report.ablation import margin_text, verdict_target_text
from headbook.report.answers import patterns as answers
from headbook.report.answers import sinks as sink_facts
from headbook.report.answers.overview.stripes import (
    MAX_STRIPED,
    main_stripes,
    stripes_answer,
    stripes_matter,
)
from headbook.report.answers.received_attention import most_received
from headbook.report.families import sink_tokens
from headbook.report.findings.finding import head_link
from headbook.report.linked_rows import LinkedNumber, head_row, layer_row, uniform_row
from headbook.report.results import StackResults, heads_by_value, study_of
from headbook.report.wording import (
    MISSING,
    count_text,
    head_name,
    head_page,
    number,
    number_word,
    percent,
    visible,
    whole_percent,
)
from headbook.schema import HEAD_RULES, HeadKey, HeadName, SinkView

MAX_NARROW_COLUMNS = 14  # columns of a table on half of the page
MAX_UNIFORM_SPREAD = 0.001  # range over layers up to which a uniform share is printed once
MAX_MAPS = 144  # maps of all stacks; of more heads, every n-th has a map
DESTINATIONS = {  # labels of attention_to, with their names in the table of layers
    "first": "first token", "separator": "separators", "punctuation": "punctuation",
    "previous": "previous token", "next": "next token", "self": "itself",
    "same_token": "same token elsewhere",
}  # fmt: skip
RULE_NAMES = {"similarity": "dips of similarity", "attention": "attention to . ! ?"}


@dataclass(frozen=True, kw_only=True)
class PatternQuestion(Question):
    """A question of the page with the figure that answers it.

    Attributes:
        figure: the chart, whose caption says what is drawn; None if maps of heads answer.
        why: explanation from the literature, or an inference, that the page does not test.
        note: a sentence with further numbers; empty without one.
        heads: heads that the question is about, with their maps; empty without any.
    """

    figure: Plot | None
    why: str
    note: Sentence = ()
    heads: tuple["StripedHead", ...] = ()


class StripedHead(NamedTuple):
    """A key-driven head with the map of a sentence, or else its mean map.

    Attributes:
        name, href: the head and its page.
        picture: map of the sentence in which other words favour one key most; empty without one.
        style: classes of the mean map in the colour of its family.
        pair: queries and key of that sentence, or of the strongest exemplar; empty without one.
        weight: weight of that pair.
    """

    name: str
    href: str
    picture: str
    style: str
    pair: str
    weight: str


class MappedHead(NamedTuple):
    """A head with its mean map.

    Attributes:
        name, href: the head and its page.
        style: classes of the map; see `headbook.pages.parts.atlas.map_style`.
        share: share of its attention on the sink.
    """

    name: str
    href: str
    style: str
    share: Sentence


@dataclass(frozen=True)
class PatternSection(StackSection):
    """Answers for a stack after the first.

    Attributes:
        answer: what its heads give to the sink.
        figure: attention to the sink and its part of the output.
        facts: answers to the further questions.
    """

    answer: Sentence
    figure: Plot
    facts: tuple[Sentence, ...]


@dataclass(frozen=True)
class PatternDetails(StackSection):
    """Maps and tables of a stack.

    Attributes:
        tokens: the sink tokens by name.
        maps: heads with their maps, most attention to the sink first.
        which: heads that have a map, as the beginning of a heading.
        destinations: where the attention of each layer goes.
        outputs: heads whose outputs are less alike than their rows; None without any.
        ends: how well rules find the ends of sentences; None without passages.
        baselines: F1 of rules that need no model.
    """

    tokens: str
    maps: tuple[MappedHead, ...]
    which: str
    destinations: PageTable | None
    outputs: PageTable | None
    ends: PageTable | None
    baselines: Sentence


@dataclass(frozen=True, kw_only=True)
class PatternsPage(AnalysisPage):
    """The page of attention patterns; the first stack answers.

    Attributes:
        figure: attention to the sink and its part of the output, all heads.
        why: the common explanation.
        others: answers for the other stacks.
        details: maps and tables of every stack.
        tokens: sink tokens of the first stack.
        example: a worked example.
    """

    template: ClassVar[str] = "patterns.html"
    styles = (*AnalysisPage.styles, "patterns")
    figure: Plot
    why: str
    questions: tuple[PatternQuestion, ...]
    others: tuple[PatternSection, ...]
    details: tuple[PatternDetails, ...]
    tokens: str
    example: Sentence

    @property
    def narrow_tables(self) -> bool:
        """Whether two tables with a column for each layer fit side by side."""
        tables = [part.destinations for part in self.details if part.destinations]
        return all(len(table.columns) <= MAX_NARROW_COLUMNS for table in tables)


def has_patterns(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has measured attention to the sink."""
    return any(r.has_value(*sink_facts.SINK) for r in results.values())


def patterns_page(results: Mapping[str, StackResults]) -> PatternsPage:
    """Return the page of attention patterns."""
    stacks = [r for r in results.values() if r.has_value(*sink_facts.SINK)]
    first = stacks[0]
    sentences = int(first.heads(*sink_facts.SINK).sentences.max())
    manifest = study_of(results).manifest
    return PatternsPage(
        path="patterns.html",
        topic="Attention patterns",
        title="Why do so many heads attend to the same token?",
        description=f"Heads of {manifest.model.name} that attend mostly to {sink_tokens(first)}: "
        "how many there are, what they add, and whether they are dead.",
        answer=sink_facts.sink_answer(first),
        scope=(
            ("Measured on", f"{count_text(sentences, 'sentence')}, queries without special tokens"),
            ("Compared with", "uniform attention, and with the part of each head’s output that "
             f"comes from {sink_tokens(first)}"),
        ),
        figure=_sink_figure(first),
        why=_why_sinks(first),
        questions=tuple(_questions(first)),
        others=tuple(_section(r) for r in stacks[1:]),
        details=tuple(_details(r, MAX_MAPS // len(stacks)) for r in stacks),
        absent=tuple(dict.fromkeys(text for r in stacks for text in answers.not_measured(r))),
        tokens=sink_tokens(first),
        example=sink_facts.sink_example(first),
    )  # fmt: skip


def _name(results: StackResults, part: str) -> str:
    """Return the name of a figure; figures of one stack have no stack in their names."""
    stack = results.stack.name
    return f"patterns-{part}" if stack == "self" else f"patterns-{stack}-{part}"


def _sink_figure(results: StackResults) -> Plot:
    """Return the chart of attention to the sink and its part of the output."""
    tokens, measured = sink_tokens(results), "their share of its output"
    caption = (
        f"Each pair of marks is a head: the share of its attention on {tokens} (circle), and "
        f"{measured} (bar), by summed value-weighted norms; all sentences. Solid: sink heads, "
        f"{sink_facts.sink_heads_text(results)}."
    )
    if np.isfinite(results.heads(*sink_facts.SINK).value).sum() > MAX_LINKED_HEADS:
        caption = (
            f"Heads of each layer from most to least attention on {tokens} (line), and below it "
            f"{measured}, by summed value-weighted norms (lower edge). Marks: all heads of the "
            "layer together. From the upper line on: sink heads, "
            f"{sink_facts.sink_heads_text(results)}."
        )
    return sink_plot(results, _name(results, "sinks"), caption)


def _why_sinks(results: StackResults) -> str:
    explanation = (
        "Common explanation: the weights of a row sum to 1, so a head with nothing to add needs "
        "tokens whose values are near zero (Clark et al. 2019, Kobayashi et al. 2020, Xiao et al. "
        "2023)."
    )
    sinks = sink_facts.sink_heads(results)
    is_small = (
        sinks
        and results.has_value(*sink_facts.SINK_OUTPUT)
        and sink_facts.contributes_less(results, sinks, 0.5)
    )
    seen = "The figure shows the small contribution; it" if is_small else "This page"
    return f"{explanation} {seen} does not test the reason."


def _questions(results: StackResults) -> Iterator[PatternQuestion]:
    """Yield the further questions that the study answers."""
    if dead := sink_facts.dead_answer(results):
        yield _dead_question(results, dead)
    if stripes := stripes_answer(results):
        yield _stripes_question(results, stripes)
    if diagonal := answers.diagonal_answer(results):
        yield PatternQuestion(
            id="diagonal", title="Why not the diagonal?", answer=diagonal,
            keywords="diagonal band itself own token positional head",
            figure=offset_plot(
                results, _name(results, "offsets"),
                "Share of attention by the distance from query to key, all keys. Each line is a "
                "head; marks and names: the largest shares, from 20 % on.",
            ),
            why="An inference, not tested here: a sink needs a value near zero for every query. A "
            "fixed token can learn one; a token’s own value depends on its content, and the "
            "residual stream keeps the token anyway.",
        )  # fmt: skip
    yield from _output_questions(results)


def _output_questions(results: StackResults) -> Iterator[PatternQuestion]:
    """Yield the questions on head outputs that the study answers."""
    if alike := answers.alike_answer(results):
        yield PatternQuestion(
            id="alike", title="Do all words then receive the same?", answer=alike,
            keywords="similarity of head outputs context attention rows",
            figure=similarity_plot(
                results, _name(results, "alike"),
                "Mean cosine of all pairs of tokens of a sentence, without special tokens, all "
                "keys: of head outputs and of attention rows"
                f"{_sample_note(results, answers.OUTPUTS)}. Small dots: single heads.",
            ),
            why="Where all rows attend alike, all outputs are alike, whatever the tokens mean: "
            "that follows from the definition. Where only the outputs are alike, the values are.",
            note=answers.sink_masked_note(results),
        )  # fmt: skip
    if own := answers.own_sentence_answer(results):
        yield PatternQuestion(
            id="own-sentence", title="Do heads keep to their sentence?", answer=own,
            keywords="passages sentence boundary segmentation odds",
            figure=odds_plot(
                results, _name(results, "odds"),
                "Odds that a pair among the top 1 % of its head, by similarity of outputs, is of "
                "one sentence, over the odds of other pairs at the same distance"
                f"{_sample_note(results, answers.ODDS)}. No intervals: "
                "few passages decide these odds. Dashed: no preference.",
            ),
            why="Pairs of the same distance are compared because neighbours are of one sentence "
            "anyway.",
        )  # fmt: skip


def _sample_note(results: StackResults, key: HeadKey) -> str:
    """Return on how many sentences a number rests; empty if on all."""
    return results.sample_note(int(results.layers(*key).sentences.max()), ", on")


def _dead_question(results: StackResults, answer: Sentence) -> PatternQuestion:
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None
    sentences = count_text(len(ablation.content_hash), "sentence")
    masked = "with only the sink masked: attention to " + sink_tokens(results)
    return PatternQuestion(
        id="dead", title="Are such heads dead?", answer=answer,
        keywords="useless dead idle inactive unimportant no-op prunable pruning importance sink",
        figure=change_plot(
            results, _name(results, "dead"),
            "Circle: change when the head is replaced by its mean over tokens of the same class. "
            f"Diamond: {masked} left out. {sentences}; largest change first, all sink heads "
            "together at the left where they were replaced together. Solid: measured, with 95 % "
            "interval; hollow: estimated from slopes (attribution patching). Dashed: "
            f"{margin_text(ablation)}, from which on a sentence counts as changed, by "
            f"{verdict_target_text(ablation)}.",
        ),
        why="Replaced one at a time, heads that stand in for each other may all look small. So all "
        "sink heads are replaced together, too.",
        note=(*sink_facts.masked_note(results), " ", *sink_facts.random_sets_note(results)),
    )  # fmt: skip


def _stripes_question(results: StackResults, answer: Sentence) -> PatternQuestion:
    """Return the question on key-driven heads, with the maps of the layer that has most of them."""
    heads = [HeadName(results.stack.name, *place) for place in main_stripes(results)]
    layer = f" in layer {heads[0].layer}" if heads else ""
    return PatternQuestion(
        id="stripes", title=f"Why the vertical stripes{layer}?", answer=answer,
        keywords="vertical stripes columns last layer key-driven same words useless heads dead "
        "whatever the query",
        figure=None,
        why="A column of [CLS] or of another sink is no sign of such a head: the sink is masked "
        "before one weight per key is fitted. An inference, not tested here: in the last layer "
        "every token can add the same words to the output, so that the query matters little."
        if heads and heads[0].layer == results.stack.attention_layers[-1]
        else "A column of the sink is no sign of such a head: the sink is masked before one weight "
        "per key is fitted.",
        note=stripes_matter(results),
        heads=tuple(_striped(results, head) for head in heads[:MAX_STRIPED]),
    )  # fmt: skip


def _striped(results: StackResults, head: HeadName) -> StripedHead:
    """Return a key-driven head with a map and the pair of an exemplar."""
    found, received = strongest_of(results).get(head), most_received(results).get(head)
    picture = pair = weight = ""
    if received is not None:
        picture, pair = received_picture(results, received), received_pair(results, received)
        weight = number(received.mean)
    elif found is not None:
        texts = results.study.sentence_data.sentences[found.index].texts
        query = texts[results.stack.queries].pieces[found.query]
        key = texts[results.stack.keys].pieces[found.key]
        pair, weight = f"strongest: {visible(f'{query} → {key}')}", number(found.score)
    style = tile_style(results, head)
    return StripedHead(head_name(head), head_page(head), picture, style, pair, weight)


def _section(results: StackResults) -> PatternSection:
    """Return the answers for a stack after the first."""
    asked = {
        "Are such heads dead? ": sink_facts.dead_answer(results),
        "Why the vertical stripes? ": stripes_answer(results),
        "Why not the diagonal? ": answers.diagonal_answer(results),
        "Do all tokens then receive the same? ": answers.alike_answer(results),
        "Do heads keep to their sentence? ": answers.own_sentence_answer(results),
    }
    facts = tuple((question, *answer) for question, answer in asked.items() if answer)
    return PatternSection(
        results.stack.name, sink_facts.sink_answer(results), _sink_figure(results), facts
    )


def _details(results: StackResults, most: int) -> PatternDetails:
    """Return maps and tables of a stack, with at most ``most`` maps."""
    ends, baselines = _ends(results)
    ranked = heads_by_value(results.heads(*sink_facts.SINK).value)
    every = -(-len(ranked) // most)
    return PatternDetails(
        results.stack.name,
        tokens=sink_tokens(results),
        maps=tuple(_maps(results, ranked[::every])),
        which="All heads" if every == 1 else f"One head in {number_word(every)}",
        destinations=_destinations(results),
        outputs=_outputs(results),
        ends=ends,
        baselines=baselines,
    )


def _maps(results: StackResults, places: Sequence[tuple[int, int]]) -> Iterator[MappedHead]:
    shares = results.heads(*sink_facts.SINK).value
    for place in places:
        head = HeadName(results.stack.name, *place)
        share = head_row(results, sink_facts.SINK, place, percent(float(shares[place])))
        yield MappedHead(
            head_name(head), head_page(head), map_style(results.stack, *place), (share,)
        )


def _destinations(results: StackResults) -> PageTable | None:
    """Return the table of the shares of each layer's attention, the largest destination first."""
    layers, names = results.stack.attention_layers, _token_names(results)
    written = percent if len(layers) < MAX_NARROW_COLUMNS - 1 else whole_percent
    keys = [
        key
        for label in DESTINATIONS
        if results.has_value(*(key := HeadKey(ids.ATTENTION_TO, SinkView.RAW, label)))
    ]
    if not keys:
        return None
    numbers = {key: results.layers(*key) for key in keys}
    top = {key: float(np.nanmax(numbers[key].value)) for key in keys}
    uniform = {key: results.uniform(*key).value[[*layers]].tolist() for key in keys}
    scale = max(0.5, *top.values())
    rows = []
    for key in sorted(keys, key=lambda key: -top[key]):
        cells = [
            _heat(layer_row(results, key, layer, written(value)), value, scale)
            for layer, value in zip(layers, numbers[key].value[[*layers]].tolist(), strict=True)
        ]
        even = uniform_row(results, key, layers[0], written(uniform[key][0]))
        rows.append(Row(names[key.label], (*cells, HeatCell(even.text, "few", even))))
    is_same = all(np.ptp(values) < MAX_UNIFORM_SPREAD for values in uniform.values())
    title = "uniform" if is_same else f"uniform, L{layers[0]}"
    return PageTable(("to", *layers, title), tuple(rows), style="heat")


def _heat(linked: LinkedNumber, value: float, top: float) -> HeatCell:
    if math.isnan(value):
        return HeatCell(MISSING, "q0")
    return HeatCell(linked.text, amount_class(value, 0, top), linked)


def _token_names(results: StackResults) -> Mapping[str, str]:
    """Return the names of keys; the special tokens by which a model frames texts by their own."""
    first, _, last = results.study.manifest.model.special_tokens.partition("…")
    names = dict(DESTINATIONS)
    if len(first.split()) == 1 and not results.stack.causal:
        names["first"] = first.strip()
    if len(last.split()) == 1:
        names["separator"] = last.strip()
    return names


def _outputs(results: StackResults) -> PageTable | None:
    """Return the heads whose outputs are less alike than their rows of attention."""
    rows = []
    for place in answers.different_outputs(results):
        values = {
            key: float(results.heads(*key).value[place]) for key in (answers.ROWS, answers.OUTPUTS)
        }
        cells = tuple(
            _heat(head_row(results, key, place, number(value)), value, 1)
            for key, value in values.items()
        )
        rows.append(Row(head_link(HeadName(results.stack.name, *place)), cells))
    titles = ("head", "attention rows", "outputs")
    return PageTable(titles, tuple(rows), style="heat") if rows else None


def _ends(results: StackResults) -> tuple[PageTable | None, Sentence]:
    """Return F1 of sentence ends that heads propose, by layer, and F1 of rules without a model."""
    keys = {rule: HeadKey(ids.SEGMENTATION, SinkView.RAW, f"f1:{rule}")
            for rule in (*HEAD_RULES, "punctuation", "even")}  # fmt: skip
    if not all(results.has_value(*key) for key in keys.values()):
        return None, ()
    layers = results.stack.attention_layers
    rows = []
    for rule in HEAD_RULES:
        values = results.layers(*keys[rule]).value
        cells = (
            _heat(layer_row(results, keys[rule], layer, number(float(values[layer]), share=True)),
                  float(values[layer]), 1)
            for layer in layers
        )  # fmt: skip
        rows.append(Row(RULE_NAMES[rule], tuple(cells)))
    without = [
        layer_row(results, keys[rule], layers[0],
                  percent(float(results.layers(*keys[rule]).value[layers[0]])))
        for rule in ("punctuation", "even")
    ]  # fmt: skip
    baselines = ("every . ! ?: ", without[0], "; even distances: ", without[1])
    return PageTable(("found by", *layers), tuple(rows), style="heat"), baselines
