"""The page on circuits: what heads write and which heads read it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from headbook.charts import Drawing
from headbook.charts.circuits import (
    FedHead,
    FeedLine,
    PairPoint,
    WalkArc,
    feeding_plot,
    pairs_plot,
    walk_drawing,
)
from headbook.charts.plots import Plot
from headbook.metrics import ids
from headbook.pages.parts.all_heads import MAX_LINKED
from headbook.pages.parts.page import AnalysisPage, SentenceParts, TemplateQuestion
from headbook.pages.parts.table import (
    HeatCell,
    MarkedText,
    NumberCell,
    PageTable,
    Part,
    Row,
    Title,
    colour_step,
    words_cell,
)
from headbook.pages.parts.written_tokens import exemplar_cell, rank_cell, tokens_cell
from headbook.report.answers import circuit_rules as report
from headbook.report.answers import circuits as answers
from headbook.report.answers.circuit_rules import Feed, Written
from headbook.report.linked_rows import head_row
from headbook.report.results import StackResults, study_of
from headbook.report.wording import STACKS, capital, count_text
from headbook.results.formats import head_name, number
from headbook.results.sentence import head_link
from headbook.schema import HeadName

TITLE = "What do heads write, and which heads read it?"
MAX_NUMBERED = 14  # columns of a map whose cells bear numbers
MAX_PAIRS = 24  # rows of the table of pairs
WALK_BEFORE, WALK_AFTER, WALK_SPAN = 2, 1, 16  # tokens around a circuit, and between its ends
# Approximations of every model.
ALWAYS = (
    "Composition and copying take weights alone: scales of norms, and feed-forward blocks between "
    "two heads, are left out.",
    "Contributions to logits are direct: what later heads and feed-forward blocks make of an "
    "output is not in them.",
)
Results = Mapping[str, StackResults]


@dataclass(frozen=True)
class CopyingMap:
    """Copying scores of all heads of a stack.

    Attributes:
        title: kind of attention; empty if the model has one stack.
        table: a row for each head and a column for each layer, or the other way round.
    """

    title: str
    table: PageTable


@dataclass(frozen=True, kw_only=True)
class CircuitsPage(AnalysisPage):
    """The page on what heads read and write.

    Attributes:
        evidence: intervention behind the answer; empty without one.
        feeding: heads that feed others; None without a supported pair.
        feeding_note: heads without a line.
        pairs: pairs of heads with composition and intervention; None without any.
        walk: the circuit on one text; None without a supported pair.
        steps: what the heads do on that text.
        maps: copying scores by stack.
        writers: heads that promote or suppress the token that they attend to, and others.
        scatter: composition against interventions; None without several pairs.
        remarks: what is approximate.
        facts: numbers of types, tokens and heads for captions.
    """

    template: ClassVar[str] = "circuits.html"
    styles = (*AnalysisPage.styles, "written", "circuits")
    evidence: SentenceParts
    feeding: Plot | None
    feeding_note: SentenceParts
    pairs: PageTable | None
    walk: Drawing | None
    steps: tuple[SentenceParts, ...]
    maps: tuple[CopyingMap, ...]
    writers: PageTable | None
    scatter: Plot | None
    remarks: tuple[str, ...]
    facts: Mapping[str, int]


def circuits_page(results: Results) -> CircuitsPage:
    """Return the page on circuits of a study of a language model."""
    study, first = study_of(results), answers.circuit_stack(results)
    circuits = study.circuits
    used = report.used_feeds(first)
    walk, steps = _walk(first, used)
    maps = tuple(_maps(results))
    return CircuitsPage(
        path="circuits.html",
        title=TITLE,
        description=f"Circuits of {study.manifest.model.name}: heads that copy, tokens that heads "
        "promote and suppress, and which heads use what others write.",
        topic="Circuits",
        answer=answers.circuits_answer(results),
        evidence=answers.circuits_evidence(results),
        scope=tuple(_scope(results)),
        questions=tuple(_questions(results, first, has_walk=walk is not None)),
        feeding=_feeding_plot(first, used),
        feeding_note=answers.feeding_note(first),
        pairs=_pairs_table(first),
        walk=walk,
        steps=steps,
        maps=maps,
        writers=_writers(results),
        scatter=_scatter(first),
        remarks=(*(f"{capital(each.rstrip('.'))}." for each in circuits.remarks), *ALWAYS),
        facts={
            "types": circuits.types,
            "vocabulary": circuits.vocabulary,
            "layers": len({head.layer for feed in used for head in (feed.lower, feed.upper)}),
        },
        absent=tuple(_absent(results)),
    )


def _scope(results: Results) -> Iterator[tuple[str, str]]:
    study = study_of(results)
    circuits = study.circuits
    numbers = circuits.numbers
    heads = (numbers["metric"].eq(ids.COPYING_SCORE) & numbers["label"].eq("")).sum()
    weights = (
        f"weights of {heads:,} heads, {count_text(circuits.types, 'token type')}, " if heads else ""
    )
    texts = count_text(len(circuits.sentences), study.manifest.text_noun)
    yield "Measured on", f"{weights}exemplars of {texts}"
    if study.manifest.model.bits:
        yield "Weights", f"dequantised from {study.manifest.model.bits} bits"
    yield "Compared with", "permuted token types, random matrices, each head’s own mean output"


def _questions(
    results: Results, first: StackResults, *, has_walk: bool
) -> Iterator[TemplateQuestion]:
    if has_walk:
        yield TemplateQuestion(
            "text", "What does the circuit do on one text?", (), "induction example prompt"
        )
    if any(each.has_value(*report.COPYING) for each in results.values()):
        yield TemplateQuestion(
            "copying", "Which heads copy, by their weights?", answers.copying_answer(results),
            "copying score ov circuit eigenvalues copy suppression name mover",
        )  # fmt: skip
    if any(each.has_value(*report.ATTENDED) for each in results.values()):
        yield TemplateQuestion(
            "writes", "What do heads write?", answers.writers_answer(results),
            "promote suppress logits direct logit attribution unembedding mover",
        )  # fmt: skip
    if agreement := answers.agreement_answer(first):
        yield TemplateQuestion(
            "weights", "Do weights tell what an intervention finds?", agreement,
            "k-composition q-composition v-composition path patching",
        )  # fmt: skip


def _absent(results: Results) -> Iterator[str]:
    first = answers.circuit_stack(results)
    if not first.has_value(*report.INDUCTION):
        yield "Induction circuits: --metrics with induction_score and previous_score."
    for name in results:
        if name == "encoder":
            yield "Encoder heads: the encoder has no output vocabulary."


def _feeding_plot(results: StackResults, used: Sequence[Feed]) -> Plot | None:
    """Return the heads that feed others; None without a supported pair."""
    if not used:
        return None
    main = report.main_feeder(used)
    heads = []
    for names, key, is_upper in (
        ({feed.lower for feed in used}, report.PREVIOUS, False),
        ({feed.upper for feed in used}, report.INDUCTION, True),
    ):
        values = report.values_of(results, key)
        for head in sorted(names):
            score = float(values[head.layer, head.head])
            row = head_row(results, key, (head.layer, head.head), number(score))
            heads.append(FedHead(_short(head), head.layer, is_upper, score, row.text, row.href))
    lines = [
        FeedLine(_short(feed.lower), _short(feed.upper), -feed.change.value, feed.lower == main)
        for feed in used
    ]
    caption = (
        f"Boxes: heads with a score of at least {report.MIN_SCORE} on repeated random tokens, "
        "filled up to it. Line: induction score that the lower head loses when the mean output of "
        "the upper one is taken out of its keys, from "
        f"{report.MIN_LOSS} on; as wide as the loss. Green: {_short(main)}, which costs most in "
        "sum."
    )
    rows = pd.DataFrame(
        {
            "lower": [line.lower for line in lines],
            "upper": [line.upper for line in lines],
            "change": [feed.change.value for feed in used],
            "low": [feed.change.low for feed in used],
            "high": [feed.change.high for feed in used],
        }
    )
    return feeding_plot("circuits-feeds", caption, heads, lines, rows)


def _short(head: HeadName) -> str:
    return f"L{head.layer}·H{head.head}"


def _pairs_table(results: StackResults) -> PageTable | None:
    """Return pairs of heads with composition and intervention, the largest loss first."""
    measured = [f for f in report.feeds(results) if not math.isnan(f.change.value)]
    pairs = sorted(measured, key=lambda feed: (feed.measure, feed.change.value))[:MAX_PAIRS]
    if not pairs:
        return None
    rows = tuple(
        Row(
            head_link(feed.lower),
            (
                words_cell(f"{INPUTS[feed.kind]} of ", head_link(feed.upper)),
                NumberCell(
                    answers.change_text(feed.change.value),
                    _ends(feed), count_text(feed.change.sentences, "sequence"), too_few=False,
                    number=feed.number(answers.change_text(feed.change.value)),
                ),
                words_cell(feed.number(number(feed.before))),
                words_cell(feed.number(number(feed.value)), f" (rank {feed.rank:,})"),
            ),
        )
        for feed in pairs
    )  # fmt: skip
    titles = ("Head taken out", "of the", "Change of the score [95 %]", "Score", "Composition")
    return PageTable(titles, rows, style="numbers pairs")


INPUTS = {"q": "queries", "k": "keys", "v": "values"}


def _ends(feed: Feed) -> str:
    low, high = feed.change.low, feed.change.high
    if math.isnan(low):
        return ""
    return f"[{answers.change_text(low)}, {answers.change_text(high)}]"


def _walk(
    results: StackResults, used: Sequence[Feed]
) -> tuple[Drawing | None, tuple[SentenceParts, ...]]:
    """Return the picture of the circuit on one text, or on random tokens, and its steps."""
    if not used:
        return None, ()
    found = answers.circuit_exemplar(results)
    feed, exemplar = found or (used[0], None)
    if exemplar is None:
        words = ["…", "token A", "token B", "other tokens", "token A", "token B"]
        query, key = 4, 2
    else:
        words, query, key = _walk_words(results, exemplar)
    arcs = [
        WalkArc(key, key - 1, f"1 {_short(feed.lower)}", "f-position", above=True),
        WalkArc(query, key, f"2 {_short(feed.upper)}", "f-repeats", above=False),
        WalkArc(query, query + 1, "3 next token", "f-same_keys", above=True),
    ]
    on = "one text" if exemplar else "repeated random tokens"
    caption = f"The circuit on {on}: arrows run from query to key, the last to the next token."
    return (
        walk_drawing("circuits-walk", caption, words, (key - 1, key, query, query + 1), arcs),
        answers.walk_steps(results, feed, exemplar)
        if exemplar
        else answers.random_walk(results, feed),
    )


def _walk_words(results: StackResults, exemplar: report.ExemplarRow) -> tuple[list[str], int, int]:
    """Return the tokens around a circuit, with the indices of query and key among them."""
    pieces = report.exemplar_texts(results)[int(exemplar.row["sentence"])].pieces
    query, key = int(exemplar.row["query"]), int(exemplar.row["key"])
    first = max(0, key - 1 - WALK_BEFORE)
    last = min(len(pieces), query + 2 + WALK_AFTER)
    positions = [*range(first, last)]
    if len(positions) > WALK_SPAN:
        positions = [*range(first, key + 3), -1, *range(query - 2, last)]
    words = ["…" if n < 0 else pieces[n].strip() or pieces[n] for n in positions]
    return words, positions.index(query), positions.index(key)


def _maps(results: Results) -> Iterator[CopyingMap]:
    """Yield a map of copying scores for each stack that has them."""
    measured = [each for each in results.values() if each.has_value(*report.COPYING)]
    for each in measured:
        stack = each.stack
        turned = len(stack.attention_layers) > 2 * stack.n_heads
        layers, heads = stack.attention_layers, range(stack.n_heads)
        columns, lines = (layers, heads) if turned else (heads, layers)
        linked = stack.n_heads * len(layers) <= MAX_LINKED
        numbered = len(columns) <= MAX_NUMBERED
        signs = report.copying_heads(each)
        kinds = {
            (head.layer, head.head): style
            for key, style in ((report.PREVIOUS, "pv"), (report.INDUCTION, "in"))
            for head in report.heads_from(each, key)
        }
        rows = []
        for line in lines:
            places = [(c, line) if turned else (line, c) for c in columns]
            cells = tuple(
                _copying_cell(each, place, signs.get(place, 0), kinds.get(place, ""), linked)
                for place in places
            )
            rows.append(Row(f"head {line}" if turned else f"layer {line}", cells))
        titles: tuple[Title, ...] = (
            words_cell(MarkedText("head by layer", "hidden")),
            *(str(c) if turned else f"H{c}" for c in columns),
        )
        style = "heat copymap" + ("" if numbered else " small")
        caption = "Layers to the right, heads downward" if turned else ""
        title = capital(STACKS[stack.name]) if len(measured) > 1 else ""
        yield CopyingMap(title, PageTable(titles, tuple(rows), caption, style))


def _copying_cell(
    results: StackResults, place: tuple[int, int], sign: int, kind: str, linked: bool
) -> HeatCell:
    """Return the cell of a head: its copying score on a fill, framed if it copies."""
    value = float(report.values_of(results, report.COPYING)[place])
    step = colour_step(value, (-1.0, 1.0))
    if step is None:
        return HeatCell("–", "none")
    frame = {1: " cop", -1: " ant", 0: ""}[sign]
    text = answers.change_text(value)
    note = answers.copying_note(results, place)
    row = head_row(results, report.COPYING, place, text)
    head = head_name(HeadName(results.stack.name, *place))
    return HeatCell(
        text, f"d{step}{frame}{f' {kind}' if kind else ''}", row if linked else None,
        f"{head}: {text}; {note}",
    )  # fmt: skip


def _writers(results: Results) -> PageTable | None:
    """Return the heads that promote or suppress the token that they attend to, and others."""
    rows: list[Row] = []
    for title, heads in report.writers_by_group(results).items():
        lines = [_writer(results[head.stack], head) for head in heads]
        rows += [Row(words_cell(title), (), "group"), *lines] if lines else []
    if not rows:
        return None
    titles = (
        "Head", "Rank of the token attended to", "First token promoted at each exemplar",
        "First token suppressed",
        "Strongest exemplar, and what it writes there",
    )  # fmt: skip
    return PageTable(titles, tuple(rows), style="numbers wrote ranked")


def _writer(results: StackResults, head: HeadName) -> Row:
    """Return the row of a head: rank of the token attended to, its tokens, and an exemplar."""
    place = head.layer, head.head
    kind = report.written_tokens(results).get(place)
    side = "suppressed" if kind is Written.SUPPRESSES else "promoted"
    note: tuple[Part, ...] = ()
    for key, name in ((report.INDUCTION, "induction"), (report.PREVIOUS, "previous-token")):
        value = float(report.values_of(results, key)[place])
        if value >= report.MIN_SCORE and not note:
            note = f" {name} ", head_row(results, key, place, number(value))
    return Row(
        words_cell(head_link(head), *note),
        (
            rank_cell(results, place),
            tokens_cell(results, head, "promoted", 6, "ups"),
            tokens_cell(results, head, "suppressed", 4, "downs"),
            exemplar_cell(results, head, side),
        ),
    )


def _scatter(results: StackResults) -> Plot | None:
    """Return composition against interventions of induction heads; None without several pairs."""
    pairs = report.induction_feeds(results)
    if len(pairs) < 3:
        return None
    lower = {*report.heads_from(results, report.PREVIOUS)}
    named = {
        id(min(pairs, key=lambda feed: feed.change.value)),
        id(max(pairs, key=lambda feed: feed.value)),
    }
    points = [
        PairPoint(
            f"{_short(feed.lower)} → {_short(feed.upper)}",
            "f-position" if feed.lower in lower else "c-other",
            feed.value, feed.change.value, feed.number("").href, id(feed) in named,
        )
        for feed in pairs
    ]  # fmt: skip
    caption = (
        "Each point: a lower head in the keys of an induction head, where the intervention was "
        "made. Blue: previous-token heads. Dashed: mean of random matrices of these shapes."
    )
    return pairs_plot("circuits-weights", caption, points, pairs[0].random)
