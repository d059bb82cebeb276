"""The pages of sentences in two models: token paths, nearest tokens, heads that differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headbook.analysis.arithmetic import Floats
from headbook.charts import Drawing
from headbook.charts.drawn.lines import Line, layer_lines
from headbook.comparison.listed import ListedSentence, maps_of
from headbook.comparison.pairs import PairedStack, same_tokens
from headbook.comparison.sides import Sides
from headbook.pages.comparison.nats import nats
from headbook.pages.headpair.pairmaps import Picture, pictures, what_is_drawn
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import Table
from headbook.pages.parts.text import Token, running_text
from headbook.pages.sentencepair.tokenpaths import both_paths, nearest_table, titles
from headbook.pages.widgets.paths import MOST_TOKENS
from headbook.report.wording import (
    STACKS,
    head_name,
    head_page,
    number,
    sentence_file,
    sentence_page,
)
from headbook.study.sentencedata import rows_of

MOST = 4  # heads whose maps are there
SMALL = 0.1  # nats below which a chart counts in thousandths


@dataclass(frozen=True)
class DriftedHead:
    """A pair of heads in a sentence: its page, its divergence, both maps and the difference."""

    name: str
    href: str
    divergence: str
    pictures: tuple[Picture, ...]


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
    nearest: Table | None
    cut: int


@dataclass(frozen=True, kw_only=True)
class SentencePairPage(Page):
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

    template: ClassVar[str] = "sentencepair.html"
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
    sides: Sides, stacks: Sequence[PairedStack], listed: Sequence[ListedSentence]
) -> Iterator[tuple[SentencePairPage, dict[str, Any]]]:
    """The pages of all sentences that both studies have, each with what its scripts read."""
    tokens = [rows_of(study.tokens) for study in (sides.a, sides.b)]
    near = [rows_of(study.nearest) for study in (sides.a, sides.b)]
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
                texts=tuple(_texts(sides, each)),
                stacks=tuple(found),
                coarse=each.coarse,
                followed=each.followed,
                name=name,
                data=f"data/sentences/{name}.js",
            ),
            values,
        )


def _lead(
    stacks: Sequence[PairedStack], each: ListedSentence, listed: Sequence[ListedSentence]
) -> Iterator[str]:
    if np.isnan(each.mean):
        yield "Its attention cannot be compared: maps of one of the models are missing."
        return
    if all(not (drift > 0).any() for drift in each.drift.values()):
        yield "Attention is exactly equal in both models."
        return
    known = [other.mean for other in listed if not np.isnan(other.mean)]
    rank = 1 + sum(mean > each.mean for mean in known)
    yield f"Attention diverges by {nats(each.mean)} nats, the mean over heads."
    yield f"Rank {rank} of {len(known)} sentences."
    best = [
        (float(np.nanmax(drift)), paired, int(np.nanargmax(drift)))
        for paired in stacks
        if (drift := each.drift.get(paired.stack.name)) is not None and not np.isnan(drift).all()
    ]
    most, paired, place = max(best, key=lambda found: found[0])
    yield f"Most in head {_name(paired, place)}: {nats(most)} nats."


def _name(paired: PairedStack, place: int) -> str:
    """A pair of heads; by one name where both models call it the same."""
    pair = paired.pairs[place]
    if paired.differences is not None or pair.b is None:
        return head_name(pair.a)
    return f"{head_name(pair.a)} and {head_name(pair.b)}"


def _texts(sides: Sides, each: ListedSentence) -> Iterator[tuple[str, str, tuple[Token, ...]]]:
    for side, text in each.a.texts.items():
        other = each.b.texts.get(side)
        if other is None or same_tokens(text, other):
            yield "both", str(side) if len(each.a.texts) > 1 else "", running_text(text)
            continue
        for which, name, own in zip("ab", sides.names, (text, other), strict=True):
            yield which, name, running_text(own)


def _stack(
    sides: Sides,
    paired: PairedStack,
    each: ListedSentence,
    paths: tuple[str, ...],
    nearest: Table | None,
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
        Line(name, times * curve, nothing, nothing, [number(float(times * v)) for v in curve])
        for name, curve in curves.items()
    ]
    whose = "" if paired.differences is not None else f" of {paired.names[0]}, matched heads"
    caption = f"Divergence by layer{whose}, {unit}, sentence {sentence}."
    ticks = [(part * times * top, number(part * times * top)) for part in (0.0, 0.5, 1.0)]
    name = f"drift-{paired.stack.name}-{sentence_file(sentence)}"
    return layer_lines(name, caption, lines, layers=layers, ends=(0.0, times * top), ticks=ticks)


def _heads(
    sides: Sides, paired: PairedStack, each: ListedSentence, drift: Floats
) -> Iterator[DriftedHead]:
    both, _ = maps_of(sides, (each.a, each.b))
    known = np.flatnonzero(drift > 0)
    for place in known[np.argsort(-drift[known], kind="stable")][:MOST].tolist():
        pair = paired.pairs[place]
        yield DriftedHead(
            _name(paired, place),
            head_page(pair.a),
            nats(float(drift[place])),
            pictures(paired.maps(both, pair), paired.names),
        )
