"""The first sentences of a comparison: how far two models are apart, where most, and losses."""

from collections.abc import Iterator, Sequence

import numpy as np

from headbook.analysis.arithmetic import Floats
from headbook.comparison.comparison import Comparison
from headbook.comparison.driftsummary import EQUAL, DriftSummary
from headbook.comparison.matched import MatchedHeads
from headbook.pages.comparison.nats import nats, nats_interval
from headbook.pages.parts.both import BothStacks
from headbook.report.findings.finding import Link, Parts, head_link
from headbook.report.numbers.results import descending
from headbook.report.wording import capital, counted, interval, number, percent, small
from headbook.study.sentencedata import HeadName

NAMED = 3  # heads that a sentence names
NAMED_LAYERS = 4


def drift_lead(both: BothStacks, summary: DriftSummary, *, several: bool) -> Iterator[Parts]:
    """How different corresponding heads are, which layers changed most, and which heads.

    Args:
        several: whether there are other kinds of attention, so that sentences name theirs.
    """
    where = f"In {both.title}, " if several else ""
    total = int(summary.there.sum())
    if summary.equal:
        text = f"the attention of {both.names[0]} and {both.names[1]} is exactly equal in all"
        yield (capital(f"{where}{text} {counted(total, 'head')}."),)
        return
    yield (capital(f"{where}{_share(summary, total)}{_part(summary)}."),)
    layers = summary.changed()
    if layers:
        yield (_layers(layers, summary.layers()[1]),)
    yield (*_heads(both, summary),)


def _share(summary: DriftSummary, total: int) -> str:
    """How many heads moved more than rounding does."""
    above = summary.above
    heads = counted(total, "head")
    if above is None:
        moved = int((summary.low > 0).sum())
        return f"attention differs in {moved:,} of {heads} (rounding was not measured)"
    moved = int(above.sum())
    amount = "none" if moved == 0 else "all" if moved == total else f"{moved:,}"
    return f"attention differs by more than bfloat16 rounding in {amount} of {heads}"


def _part(summary: DriftSummary) -> str:
    """The median head, on the way from rounding to another head."""
    median, part = float(np.nanmedian(summary.value)), summary.part
    if part is None or np.isnan(part).all():
        return f"; the median divergence is {nats(median)} nats"
    gone = float(np.nanmedian(part))
    if median <= EQUAL:
        return "; at least half of the heads attend exactly alike"
    if gone <= 0:
        return "; the median head is no further apart than rounding"
    floor = "0" if summary.floor is None else "rounding"
    return (
        f"; the median head has gone {percent(gone)} of the way from {floor} to an unrelated head "
        "of its layer"
    )


def _layers(layers: Sequence[int], medians: Floats) -> str:
    """Layers that changed most, beside the others."""
    most = nats(float(medians[layers[0]]))
    if len(layers) > NAMED_LAYERS:
        return (
            f"Changes are largest in {small(len(layers))} layers, most of all in layer "
            f"{layers[0]}: median divergence {most} nats."
        )
    named = [str(layer) for layer in sorted(layers)]
    begin = "Layer" if len(named) == 1 else "Layers"
    joined = " and ".join(part for part in (", ".join(named[:-1]), named[-1]) if part)
    where = f" in layer {layers[0]}" if len(named) > 1 else ""
    others = np.delete(medians, list(layers))
    rest = float(np.nanmax(others))
    beside = "all others are equal" if rest <= EQUAL else f"at most {nats(rest)} nats in others"
    return f"{begin} {joined} changed most: median divergence {most} nats{where}, {beside}."


def _heads(both: BothStacks, summary: DriftSummary) -> Iterator[str | Link]:
    """The heads that changed most, with their numbers."""
    yield "Most changed heads: "
    for n, place in enumerate(descending(summary.value)[:NAMED]):
        yield ", " if n else ""
        yield head_link(HeadName(both.pair.a.name, *place))
        ends = nats_interval(float(summary.low[place]), float(summary.high[place]))
        yield f" ({nats(float(summary.value[place]))} nats{f' {ends}' if n == 0 and ends else ''})"
    yield "."


def matched_lead(both: BothStacks, found: MatchedHeads, apart: str) -> Iterator[Parts]:
    """Why heads do not correspond, and how many have a counterpart.

    Args:
        apart: why heads do not correspond by number.
    """
    yield (f"Heads of {both.names[0]} and {both.names[1]} do not correspond by number: {apart}.",)
    page = Link("matched by where they attend", "matched.html")
    if np.isnan(found.similarity).all():
        yield ("Too few words were read by both for heads to be matched.",)
        return
    total = counted(len(found.a), "head")
    matching = found.matching
    if not found.tested:
        mutual = int(matching.mutual.sum())
        yield (
            "Heads were ",
            page,
            f": {mutual:,} of {total} {'is' if mutual == 1 else 'are'} each other's most similar "
            "head. No model with random "
            "weights was compared, so that no match is shown to be more than chance.",
        )
        return
    there = int(matching.counterpart.sum())
    yield ("Heads were ", page, f": {there:,} of {total} have a counterpart{_again(found)}.")


def _again(found: MatchedHeads) -> str:
    if np.isnan(found.stability):
        return ""
    return f"; {percent(found.stability)} of matches are the same on either half of the sentences"


def losses_text(comparison: Comparison) -> str:
    """Loss of both by character; empty where one of them predicts no text."""
    found = comparison.losses
    if found is None or np.isnan(found.bits.value).any():
        return ""
    names = comparison.sides.names
    a, b, gap, low, high = (
        float(np.ravel(part)[0])
        for part in (
            found.bits.a, found.bits.b, found.bits.value, found.bits.low, found.bits.high,
        )
    )  # fmt: skip
    begin = (
        f"Loss of the next token: {number(a)} bits per character in {names[0]}, {number(b)} in "
        f"{names[1]}"
    )
    behind = f"({counted(found.sentences, 'sentence')})"
    if gap == 0:
        return f"{begin}, exactly equal {behind}."
    ends = interval(low, high)
    signed = ("+" if gap > 0 else "") + number(gap)
    return f"{begin}, a difference of {signed}{f' {ends}' if ends else ''} {behind}."
