"""Where heads look: distance, the sink, positions, content, repetitions."""

from collections.abc import Iterator

from headbook.findings.layers import even, named, reported, runs
from headbook.findings.said import (
    Best,
    Finding,
    Parts,
    begun,
    chosen,
    finding,
    head_link,
    listed,
    metric,
    metric_link,
    reaching,
    said,
    uniform,
)
from headbook.findings.twins import seeds, untrained, with_ends
from headbook.numbers.results import Number, StackResults
from headbook.terms import View
from headbook.wording import counted, is_share, number

POSITIONAL = 0.9  # Voita et al. 2019, section 5.1
REPEATED = 0.4  # what courses on TransformerLens take
ON_RANDOM = {
    "induction_score": ("the token after its earlier place", "induction heads"),
    "duplicate_score": ("its own earlier place", "duplicate-token heads"),
    "previous_score": ("the previous token", "previous-token heads"),
}


def trend(results: StackResults) -> Iterator[Finding]:
    """Which layers look farthest, which nearest, and whether an untrained twin does the same."""
    name, view = "attention_distance", results.stack.default_view
    found = runs(results, name, view) if results.has(name, view) else None
    if found is None:
        return
    near, far = (reported(results, run, name, view) for run in found)
    if not far.low > near.high:
        return
    span = number(even(results, found.high, name, view).value)
    verb = "looks" if len(found.high) == 1 else "look"
    yield finding(
        results,
        name,
        (
            begun(results, f"{named(found.high).capitalize()} {verb} "),
            metric_link(name, "farthest"),
            f", {said(far, name)}, against {said(near, name)} in {named(found.low)}; uniform "
            f"attention would span {span} tokens.",
            *_untrained_trend(results, found.low, found.high),
        ),
        min(near.sentences, far.sentences),
    )


def _untrained_trend(
    results: StackResults, low: tuple[int, ...], high: tuple[int, ...]
) -> Iterator[str]:
    """What the untrained twin shows of the same layers."""
    known, view = metric("attention_distance"), results.stack.default_view
    near, far = (untrained(results, run, known, view) for run in (low, high))
    if near is None or far is None:
        return
    way = "rise" if high > low else "fall"
    there = f"{with_ends(far, known)} against {with_ends(near, known)}"
    if far.low > near.high:
        yield f" The untrained twin shows such a {way}, too: {there}; {seeds(results)}."
    else:
        yield f" The untrained twin shows no such {way}: {there}; {seeds(results)}."


def sink(results: StackResults) -> Iterator[Finding]:
    """How much attention is parked, where most, and how much of the output comes from there."""
    name, view = "sink_share", View.RAW
    found = runs(results, name, view) if results.has(name, view) else None
    if found is None:
        return
    least, most = (reported(results, run, name, view) for run in found)
    chance = even(results, found.high, name, view)
    if not most.low > chance.value:
        return
    what = "special tokens and the first position" if results.stack.causal else "special tokens"
    beside = f", {named(found.low)} {said(least, name)}" if least.high < most.low else ""
    verb, whose = ("gives", "its") if len(found.high) == 1 else ("give", "their")
    yield finding(
        results,
        name,
        (
            begun(results, f"{named(found.high).capitalize()} {verb} {said(most, name)} of "),
            f"{whose} attention to ",
            metric_link(name, "the sink"),
            f" ({what}){beside}; uniform attention would give it "
            f"{number(chance.value, share=True)}.",
            *_carried(results, found.high, most),
        ),
        most.sentences,
    )


def _carried(results: StackResults, run: tuple[int, ...], given: Number) -> Parts:
    """What the sink carries, where that is another share than the attention that it gets."""
    name = "sink_norm_share"
    if not results.has(name, View.RAW):
        return ()
    carried = reported(results, run, name, View.RAW)
    if carried.high < given.low:
        link = metric_link(name, "carries only")
    elif carried.low > given.high:
        link = metric_link(name, "carries as much as")
    else:
        return ()
    return (" It ", link, f" {said(carried, name)} of what these heads move, by length.")


def positional_heads(results: StackResults) -> Iterator[Finding]:
    """Heads whose strongest key stands at one offset, whatever stands there."""
    name, view = "positional_argmax", results.stack.default_view
    heads: list[tuple[Best, str]] = []
    chance = 0.0
    for offset in metric(name).labels:
        for best in reaching(results, name, view, offset, POSITIONAL):
            sign = f"{int(offset):+d}".replace("-", "−") if int(offset) else "0"
            heads.append((best, f"at {sign}, "))
            chance = max(chance, uniform(results, name, view, offset, best.head.layer).value)
    if heads:
        yield finding(
            results,
            name,
            (
                begun(results, counted(len(heads), "head is ", "heads are ")),
                metric_link(name, "positional"),
                ", the strongest key of 90 % of the tokens or more at one offset: ",
                *listed(heads, name),
                f"; a key picked at random is there in {number(chance, share=True)} of cases at "
                "most.",
            ),
            min(best.value.sentences for best, _ in heads),
        )


def neighbours(results: StackResults) -> Iterator[Finding]:
    """Heads that look at the token before or after."""
    name, view = "attention_to", results.stack.default_view
    for label in ("previous", "next"):
        best = chosen(results, name, view, label)
        if best is None:
            continue
        chance = uniform(results, name, view, label, best.head.layer)
        if best.value.low > chance.value:
            yield finding(
                results,
                name,
                (
                    head_link(best.head),
                    " gives more of its attention to the ",
                    metric_link(name, f"{label} token"),
                    f" than any other head: {said(best.value, name)}; uniform attention would give "
                    f"{number(chance.value, share=True)}.",
                ),
                best.value.sentences,
            )


def variability(results: StackResults) -> Iterator[Finding]:
    """The heads that position and content decide most."""
    name, view = "variability", results.stack.default_view
    most = chosen(results, name, view)
    least = chosen(results, name, view, lowest=True)
    if most is None or least is None or not most.value.low > least.value.high:
        return
    chance = uniform(results, name, view, "", most.head.layer)
    yield finding(
        results,
        name,
        (
            head_link(least.head),
            " goes by position most (",
            metric_link(name, "variability"),
            f" {said(least.value, name)}), ",
            head_link(most.head),
            f" by content ({said(most.value, name)}); 0 is position only, 100 % content only, "
            f"uniform attention {number(chance.value, share=is_share(metric(name)))}.",
        ),
        min(least.value.sentences, most.value.sentences),
    )


def repeated_tokens(results: StackResults) -> Iterator[Finding]:
    """Heads that look at earlier places of a token, where tokens mean nothing."""
    for name, (where, kind) in ON_RANDOM.items():
        heads = [(best, "") for best in reaching(results, name, View.RAW, "", REPEATED)]
        if heads:
            chance = max(
                uniform(results, name, View.RAW, "", best.head.layer).value for best, _ in heads
            )
            yield finding(
                results,
                name,
                (
                    begun(results, "On sequences of random tokens, each repeated once, "),
                    f"{counted(len(heads), 'head gives', 'heads give')} at "
                    "least 40 % of the attention to ",
                    metric_link(name, where),
                    f" ({kind}; 40 % is a convention): ",
                    *listed(heads, name),
                    f"; uniform attention {number(chance, share=True)}.",
                ),
                min(best.value.sentences for best, _ in heads),
            )
