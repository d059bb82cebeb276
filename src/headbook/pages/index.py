"""The overview: what the model is, claims, a live sentence, the wall of all heads, and families."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from headbook.charts import Drawing
from headbook.charts.drawing import interval_dot
from headbook.pages.overview_parts.answers import Answer, answer_groups
from headbook.pages.overview_parts.claims import ClaimItem, claim_items, lit_heads
from headbook.pages.overview_parts.wall import Wall, tile_style, wall_of
from headbook.pages.parts.exemplars import received_pair, received_picture
from headbook.pages.parts.head_card import card, received_text, strongest_of
from headbook.pages.parts.page import TemplatePage, coverage, input_names
from headbook.pages.parts.run_facts import run_alarms, run_facts, run_warnings
from headbook.report import wording
from headbook.report.answers.overview import head_losses as effects
from headbook.report.answers.overview import live_sentence as sentences
from headbook.report.answers.overview.claim_parts import OverviewClaim
from headbook.report.answers.overview.claims import overview_claims
from headbook.report.answers.overview.family_claim import (
    FamilyHeads,
    FunctionHeads,
    family_heads,
    function_heads,
)
from headbook.report.answers.overview.layer_runs import layers_sentence
from headbook.report.answers.overview.model_kind import Purpose, purpose_of, what_it_gives
from headbook.report.answers.received_attention import most_received
from headbook.report.facts.functions import FunctionFamily, families_of, functions_of
from headbook.report.facts.random_weights import like_random_weights
from headbook.report.results import StackResults, study_of
from headbook.report.sink import sink_tokens
from headbook.results import formats
from headbook.results.number import Number
from headbook.results.sentence import Link, Sentence
from headbook.schema import HeadName, Side
from headbook.study.manifest import Manifest

MAX_FAMILY_TILES = 24  # heads of a family with a tile in its section
OPACITY_STEPS = 10  # steps of opacity of the cells of the live sentence
FULL_WEIGHT = 0.5  # weight from which on a cell has its full colour


@dataclass(frozen=True)
class LiveRow:
    """One family in the live sentence: its name, number of heads, and the steps of its cells."""

    family: str
    name: str
    heads: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class LiveFigure:
    """The live sentence of one stack.

    Attributes:
        stack, title: the stack.
        live: the sentence.
        words: tokens that can be chosen.
        columns: tokens that attend to the chosen one.
        special: which words, and which columns, are special tokens.
        rows: the families.
        rtl: whether the text runs from right to left.
        strongest: the strongest head, its query and its weight, in words; empty without one.
        once: name of the family of repeated tokens if its largest weight on a token that stands
            once is that from the token itself; else empty.
    """

    stack: str
    title: str
    live: sentences.LiveSentence
    words: tuple[str, ...]
    columns: tuple[str, ...]
    special: tuple[tuple[bool, ...], tuple[bool, ...]]
    rows: tuple[LiveRow, ...]
    rtl: bool
    strongest: tuple[str, str, str] | None
    once: str


@dataclass(frozen=True)
class FamilySection:
    """One family in the list below the wall.

    Attributes:
        heads: the family.
        counts: number of heads, by stack if there are several.
        functions: functions of the family with their numbers of heads; empty for a single one.
        tiles: name with function, address and classes of the map of the first heads.
        more: number of heads without a tile.
        style: classes of the map of the example.
        href, example: page and name of the head that shows best what the family does.
        picture: map of the exemplar if it shows more than the mean map; else empty.
        pair: query and key of its strongest exemplar; empty without one.
        weight: weight of that pair.
        text: the exemplar, as classes and letters.
    """

    heads: FamilyHeads
    counts: str
    functions: str
    tiles: tuple[tuple[str, str, str], ...]
    more: int
    style: str
    href: str
    example: str
    picture: str
    pair: str
    weight: Link | None
    text: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FunctionRow:
    """A function of a stack, with the head of its largest number.

    Attributes:
        function: the function and its heads.
        dot: picture of the number of its example.
    """

    function: FunctionHeads
    dot: Drawing


@dataclass(frozen=True, kw_only=True)
class OverviewPage(TemplatePage):
    """The first page.

    Attributes:
        name: name of the model.
        purpose, gives: kind of the model, and its output.
        does: what the layers do one after the other, by stack; empty without families.
        size: parameters, layers, heads and texts.
        claims: what the numbers support.
        unsupported: a sentence in place of claims; empty with claims.
        live: live sentence by stack.
        walls: all heads by stack.
        losses: effects of ablating heads; None if not measured.
        bars: meaning of the bars of heads; empty without bars.
        estimated: whether some effects are estimates.
        layers: largest loss without a layer; None if not measured.
        families: families with their heads.
        functions: functions with a number, by title of the stack.
        sink: the sink tokens of each stack, in words.
        like_random: metrics in which no layer differs from random weights, by stack.
        answers: answers of the other pages, by group.
        facts: facts of the run as terms and values.
        notes: the author's own words, in Markdown.
        failed: the self-checks that failed.
        alarms: warnings that readers need before they trust the numbers.
        warnings: texts and options that were cut, left out or not used.
        absent: missing numbers, whose reasons are on the page of methods.
        sentences: whether there are pages of sentences.
        learned: whether a stack's softmax has a learned sink.
        annotators: tools that annotated words, tags and trees.
        counted: number of sentences, in words.
    """

    template: ClassVar[str] = "index.html"
    scripts = ("overview",)
    styles = ("plots", "maps", "overview")
    contents = False
    name: str
    purpose: Purpose
    gives: str
    does: tuple[str, ...]
    size: str
    claims: tuple[ClaimItem, ...]
    unsupported: str
    live: tuple[LiveFigure, ...]
    walls: tuple[Wall, ...]
    losses: effects.HeadLosses | None
    bars: str
    estimated: bool
    layers: Number | None
    families: tuple[FamilySection, ...]
    functions: tuple[tuple[str, tuple[FunctionRow, ...]], ...]
    sink: str
    like_random: tuple[Sentence, ...]
    answers: Mapping[str, Sequence[Answer]]
    facts: tuple[tuple[str, str], ...]
    notes: str
    failed: tuple[str, ...]
    alarms: tuple[str, ...]
    warnings: tuple[str, ...]
    absent: tuple[str, ...]
    sentences: bool
    annotators: str
    counted: str
    learned: bool


def overview_page(
    results: Mapping[str, StackResults], pages: Iterable[TemplatePage] = ()
) -> OverviewPage:
    """Return the first page of a study's site.

    Args:
        results: results by stack.
        pages: the other pages, whose answers it lists.
    """
    study = study_of(results)
    manifest = study.manifest
    claims, live = overview_claims(results), sentences.live_sentences(results)
    losses, layers = effects.head_losses(study), effects.layer_losses(results)
    lit = lit_heads(claims)
    return OverviewPage(
        path="index.html",
        title=manifest.title,
        description=f"What the attention heads of {manifest.model.name} attend to on "
        f"{coverage(manifest)}: claims, all heads, families and numbers.",
        name=manifest.model.name,
        purpose=purpose_of(study),
        gives=what_it_gives(study),
        does=tuple(filter(None, map(layers_sentence, results.values()))),
        size=_size(manifest),
        claims=tuple(_claim_items(results, claims, live)),
        unsupported="" if claims else _unsupported(manifest),
        live=tuple(live_figure(results[sentence.stack], sentence) for sentence in live),
        walls=tuple(
            wall_of(of_stack, losses, layers.get(of_stack.stack.name, {}), lit)
            for of_stack in results.values()
        ),
        losses=losses,
        bars=effects.WITHOUT_HEAD[losses.target] if losses else "",
        estimated=losses is not None and not all(loss.exact for loss in losses.heads.values()),
        layers=effects.largest_layer_loss(layers),
        families=tuple(_family(results, family) for family in family_heads(results)),
        functions=tuple(_functions(results)),
        sink=" or ".join(dict.fromkeys(map(sink_tokens, results.values()))),
        like_random=tuple(
            fact.text for fact in map(like_random_weights, results.values()) if fact.holds
        ),
        answers=answer_groups(pages),
        facts=tuple(run_facts(manifest)),
        notes=manifest.notes,
        alarms=tuple(run_alarms(manifest)),
        failed=manifest.failed,
        warnings=tuple(run_warnings(manifest)),
        absent=tuple(
            dict.fromkeys((*(gap.what for gap in manifest.gaps), *effects.unmeasured_losses(study)))
        ),
        sentences=bool(study.sentence_data.listed),
        annotators="; ".join(dict.fromkeys(manifest.annotators.values())),
        counted=coverage(manifest),
        learned=any(stack.learned_sink for stack in manifest.stacks),
    )


def _functions(
    results: Mapping[str, StackResults],
) -> Iterator[tuple[str, tuple[FunctionRow, ...]]]:
    """Yield the title of each stack with functions, and those functions that have a number."""
    for name, of_stack in results.items():
        rows = tuple(row for group in function_heads(of_stack) if (row := _function_row(group)))
        if rows:
            yield wording.STACKS[name], rows


def _size(manifest: Manifest) -> str:
    """Return parameters, layers and heads, and the texts, in one line."""
    amount = manifest.model.parameters
    units = ((1e9, " billion"), (1e6, " million"))
    scale, unit = next((scaled for scaled in units if amount >= scaled[0]), (1, ""))
    parameters = f"{amount / scale:.3g}{unit}" if unit else f"{amount:,}"
    shapes = dict.fromkeys(
        f"{len(stack.attention_layers)} layers × {stack.n_heads} heads" for stack in manifest.stacks
    )
    where = f" in each of {wording.number_word(len(manifest.stacks))} kinds of attention"
    shape = ", ".join(shapes) + (where if len(shapes) == 1 < len(manifest.stacks) else "")
    tokens = sum(manifest.count(side, "tokens") for side in Side)
    names = input_names(manifest)
    return (
        f"{parameters} parameters · {shape} · read on {coverage(manifest)}"
        f"{names and f' of {names}'}, {wording.count_text(tokens, 'token')}"
    )


def _unsupported(manifest: Manifest) -> str:
    sentences = wording.count_text(manifest.counts["sentences"], manifest.text_noun)
    these = "this" if manifest.counts["sentences"] == 1 else "these"
    return (
        f"No claim is supported by {these} {sentences}; the maps describe "
        f"{'it' if manifest.counts['sentences'] == 1 else 'them'}."
    )


def _claim_items(
    results: Mapping[str, StackResults],
    claims: Sequence[OverviewClaim],
    live: Sequence[sentences.LiveSentence],
) -> Iterator[ClaimItem]:
    by_stack = {sentence.stack: sentence for sentence in live}
    for item in claim_items(claims):
        claim, of_stack, word = item.claim, by_stack.get(item.claim.stack), item.word
        if of_stack is not None:
            places = [(head.layer, head.head) for head in sorted(claim.heads)]
            maps = sentences.mean_map(results[claim.stack], of_stack, places)
            word = sentences.claim_word(of_stack, maps, special=claim.kind == "sink")
        yield replace(item, word=word)


def opacity_step(weight: float) -> int:
    """Return the step of a cell's opacity, by the square root of the weight."""
    return round(OPACITY_STEPS * float(np.sqrt(min(1.0, max(0.0, weight) / FULL_WEIGHT))))


def live_figure(results: StackResults, live: sentences.LiveSentence) -> LiveFigure:
    """Return the live sentence of a stack, drawn for its first word."""
    n_queries, n_keys = live.sizes
    names, strongest = families_of(results), live.strongest
    return LiveFigure(
        stack=live.stack,
        title=wording.STACKS[live.stack],
        live=live,
        words=live.keys.pieces[:n_keys],
        columns=live.queries.pieces[:n_queries],
        special=(live.keys.special[:n_keys], live.queries.special[:n_queries]),
        rows=tuple(
            LiveRow(
                str(family.family),
                names[family.family],
                family.heads,
                tuple(opacity_step(float(family.mean[q, live.word])) for q in range(n_queries)),
            )
            for family in live.families
        ),
        rtl=sentences.is_right_to_left(live.keys.text),
        strongest=strongest
        and (
            formats.head_name(strongest[0]),
            wording.visible(live.queries.pieces[strongest[1]]),
            formats.number(strongest[2]),
        ),
        once=_falls_to_itself(live, names),
    )


def _falls_to_itself(live: sentences.LiveSentence, names: Mapping[FunctionFamily, str]) -> str:
    """Return the name of the family of repeated tokens if it lights the chosen word itself."""
    pieces, word = live.keys.pieces, live.word
    is_once = not live.crosses and pieces.count(pieces[word]) == 1
    for family in live.families:
        if is_once and family.family is FunctionFamily.REPEATS:
            received = family.mean[:, word]
            return names[family.family] if int(np.argmax(received)) == word else ""
    return ""


def live_data(results: Mapping[str, StackResults]) -> dict[str, Any]:
    """Return the live sentences as the script of the overview reads them.

    Returns:
        By stack: ``queries`` and ``keys`` (tokens), ``special`` (0 or 1, of both), ``heads``
        (names), and ``families``: by name the bytes ``mean`` and ``weight`` (steps of 1/255) and
        ``head`` (two bytes each, the lower first), row after row.
    """
    return {
        live.stack: {
            "queries": live.queries.pieces[: live.sizes[0]],
            "keys": live.keys.pieces[: live.sizes[1]],
            "special": [
                [int(special) for special in text.special[:n]]
                for text, n in zip((live.queries, live.keys), live.sizes, strict=True)
            ],
            "heads": [formats.head_name(head) for head in live.heads],
            "families": {
                str(family.family): {
                    "mean": np.rint(255 * family.mean).astype(np.uint8).tobytes(),
                    "weight": np.rint(255 * family.weight).astype(np.uint8).tobytes(),
                    "head": family.strongest.astype("<u2").tobytes(),
                }
                for family in live.families
            },
        }
        for live in sentences.live_sentences(results)
    }


def _family(results: Mapping[str, StackResults], family: FamilyHeads) -> FamilySection:
    def tile(head: HeadName) -> tuple[str, str, str]:
        of_stack = results[head.stack]
        name = f"{formats.head_name(head)}, {functions_of(of_stack)[head].noun}"
        return name, formats.head_page(head), tile_style(of_stack, head)

    clearest = family.example.head
    stacks = {
        stack: sum(head.stack == stack for head in family.heads)
        for stack in results
        if any(head.stack == stack for head in family.heads)
    }
    parts = [f"{stack} {amount:,}" for stack, amount in stacks.items()]
    picture, pair, weight, text = _family_exemplar(results[clearest.stack], clearest)
    return FamilySection(
        heads=family,
        counts=" · ".join(parts) if len(results) > 1 else f"{len(family.heads):,}",
        functions=" · ".join(_counts(family)) if len(family.functions) > 1 else "",
        tiles=tuple(map(tile, family.heads[:MAX_FAMILY_TILES])),
        more=max(0, len(family.heads) - MAX_FAMILY_TILES),
        style=tile_style(results[clearest.stack], clearest),
        href=formats.head_page(clearest),
        example=formats.head_name(clearest),
        picture=picture,
        pair=pair,
        weight=weight,
        text=text,
    )


def _family_exemplar(
    results: StackResults, head: HeadName
) -> tuple[str, str, Link | None, tuple[tuple[str, str], ...]]:
    """Return picture, pair, weight and text of the exemplar that shows best what a head does."""
    received, exemplar = most_received(results).get(head), strongest_of(results).get(head)
    if received is not None:
        return (
            received_picture(results, received),
            received_pair(results, received),
            Link(formats.number(received.mean), formats.head_page(head)),
            tuple(received_text(results, received)),
        )
    text = card(results, head).text
    if exemplar is None:
        return "", "", None, text
    texts = results.study.sentence_data.sentences[exemplar.index].texts
    query = texts[results.stack.queries].pieces[exemplar.query]
    key = texts[results.stack.keys].pieces[exemplar.key]
    weight = Link(formats.number(exemplar.score), formats.head_page(head))
    return "", wording.visible(f"{query} → {key}"), weight, text


def _counts(family: FamilyHeads) -> Iterator[str]:
    """Yield each function of a family with its number of heads, the commonest first."""
    counts = Counter[str]()
    for group in family.functions:
        counts[group.example.noun] += len(group.functions)
    for noun, amount in counts.most_common():
        yield f"{noun} {amount:,}"


def _function_row(function: FunctionHeads) -> FunctionRow | None:
    """Return a function with the number of its example; None without a number."""
    example, number = function.example, function.example.number
    if number is None:
        return None
    even = example.even.value if example.even else math.nan
    dot = interval_dot(number.value, number.low, number.high, even, supported=True)
    name = f"dot-{formats.head_name(example.head)}-{example.noun}"
    return FunctionRow(function, Drawing(name, example.noun, dot))
