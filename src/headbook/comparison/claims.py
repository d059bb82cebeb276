"""Claims on two models: heads and layers that differ most, and those that attend alike.

A claim is made only under the condition of its rule, at most one of each kind:

- *heads*: the 95 % intervals of a few heads' divergence of attention lie above those of all other
  heads and above that of rounding; without such heads, how many heads lie above rounding.
- *layers*: the intervals of the mean divergence of the heads of a few layers lie above those of all
  other layers, and so do the medians over heads; else the layer whose tokens differ most in their
  cosine to the input embedding (supported, at least
  `MIN_COSINE_GAP`).
- *alike*: the upper ends of the intervals of whole layers, or of a tenth of the heads, are below
  `ALIKE_SHARE` of the divergence of unrelated heads.

Models whose heads do not correspond by number have other claims
(`headbook.comparison.matching_claims`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.comparison.comparison import Comparison
from headbook.comparison.differences import HeadDifferences, LayerDifferences
from headbook.comparison.drift import (
    FLOOR_LABEL,
    MAX_EQUAL_DRIFT,
    PATTERN_DRIFT,
    DriftSummary,
    by_layer,
    divergence_text,
    drift_summary,
    layer_drift,
    nats_interval,
    with_equal_heads,
)
from headbook.comparison.study_pair import StackPair
from headbook.metrics import ids
from headbook.report.answers.overview.claim_parts import (
    OF_HEADS,
    OF_STACK,
    OverviewClaim,
    short_link,
)
from headbook.report.linked_rows import LinkedNumber, Parts
from headbook.report.wording import capital, count_text, layers_text, number_word
from headbook.results.formats import THIN, interval_text, number, p_text, percent
from headbook.results.sentence import Link, Sentence
from headbook.schema import AttentionStack, HeadName, Place, SinkView
from headbook.study.tables import RowKey

NAMED = 3  # heads that a claim names
MIN_STANDING_OUT = 3  # heads that may stand out in a stack of any size
SHARE_STANDING_OUT = 0.1  # of the heads of a stack that may stand out
ALIKE_SHARE = 0.1  # of the divergence of unrelated heads, below which heads attend alike
MIN_ALIKE_SHARE = 0.1  # of the heads of a stack that attend alike, for a claim
MIN_COSINE_GAP = 0.05  # between the models, for a claim on tokens
INPUT_STATE = "out/all"  # label of the cosine to the input of all tokens, after each layer
DEFINITION = Link("Definition", "comparing.html")


class ComparedStack(NamedTuple):
    """One stack of two models whose heads correspond.

    Attributes:
        pair: the stacks of both models.
        names: names of the models.
        heads: differences of the heads.
        summary: divergence of the heads.
        tokens: differences of the tokens of each layer; None without any.
    """

    pair: StackPair
    names: tuple[str, str]
    heads: HeadDifferences
    summary: DriftSummary
    tokens: LayerDifferences | None

    @property
    def stack(self) -> AttentionStack:
        """Stack of the first model."""
        return self.pair.a

    @property
    def places(self) -> list[Place]:
        """Layer and number of each head with a divergence."""
        return [(int(layer), int(head)) for layer, head in np.argwhere(self.summary.there)]

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Ends of the intervals of the divergence. *Shape:* ``(layer, head)`` each."""
        return with_equal_heads(self.summary.value, self.summary.low, self.summary.high)


class SizedClaim(NamedTuple):
    """A claim with a size, by which the stack is chosen that makes it.

    Attributes:
        size: divergence, or number of heads.
        claim: the claim.
    """

    size: float
    claim: OverviewClaim


def compared_stacks(comparison: Comparison) -> Iterator[ComparedStack]:
    """Yield the stacks whose attention was compared; none if all of them are exactly equal."""
    found = []
    for pair in comparison.sides.stacks:
        heads = comparison.heads.get(pair.name)
        summary = drift_summary(heads) if heads is not None else None
        if heads is not None and summary is not None:
            tokens = comparison.layers.get(pair.name)
            found.append(ComparedStack(pair, comparison.sides.names, heads, summary, tokens))
    if not all(stack.summary.equal for stack in found):
        yield from found


def standing_out(value: Floats, low: Floats, high: Floats, most: int) -> list[int]:
    """Return the fewest largest values whose intervals lie above those of all others.

    Args:
        value, low, high: numbers with their intervals; values without an interval never stand
            out, nor do others above them. *Shape:* ``(number,)`` each.
        most: largest number of values that may stand out.

    Returns:
        Indices, the largest value first; empty if no such group exists.
    """
    order = np.argsort(-value, kind="stable")
    lows, highs = np.nan_to_num(low, nan=-np.inf), np.nan_to_num(high, nan=np.inf)
    for amount in range(1, min(most, len(value) - 1) + 1):
        first, others = order[:amount], order[amount:]
        if lows[first].min() > highs[others].max():
            return [int(index) for index in first]
    return []


def heads_claim(stack: ComparedStack) -> Iterator[SizedClaim]:
    """Yield the claim on heads that differ more than all others, or on how many differ at all."""
    places, summary = stack.places, stack.summary
    at = tuple(np.array(places).T)
    low, high = stack.bounds
    most = max(MIN_STANDING_OUT, int(SHARE_STANDING_OUT * len(places)))
    chosen = standing_out(summary.value[at], low[at], high[at], most)
    above = summary.above if summary.above is not None else summary.low > 0
    found = [places[index] for index in chosen]
    if found and all(above[place] for place in found):
        yield _most_different(stack, found)
    elif summary.above is not None and above.any():
        yield _above_rounding(stack, [place for place in places if above[place]])


def _most_different(stack: ComparedStack, found: Sequence[Place]) -> SizedClaim:
    """Return the claim on heads that stand out, the most different one first."""
    names = [HeadName(stack.stack.name, *place) for place in found]
    value = divergence_number(stack, found[-1])
    of = OF_STACK[stack.stack.name]
    if len(found) == 1:
        sentence: Parts = (
            "Attention diverges most in ", short_link(names[0]), f"{of}: by ", value, " nats.",
        )  # fmt: skip
    elif len(found) <= NAMED:
        sentence = (
            "Attention diverges more in ", *joined([short_link(name) for name in names]),
            f"{of} than in all other heads: by at least ", value, " nats.",
        )  # fmt: skip
    else:
        many = f"{capital(number_word(len(found)))} {OF_HEADS[stack.stack.name]}heads"
        sentence = (
            f"{many} attend more differently than all others: by at least ", value, " nats.",
        )  # fmt: skip
    next_one = max((place for place in stack.places if place not in found),
                   key=lambda place: stack.summary.value[place])  # fmt: skip
    listed = [part for place in found[:NAMED] for part in (*_with_interval(stack, place), ", ")]
    more = f"{number_word(len(found) - NAMED)} more, " if len(found) > NAMED else ""
    evidence = (*listed, f"{more}then ", *_with_interval(stack, next_one), ". ", *_measured(stack))
    size = float(stack.summary.value[found[-1]])
    claim = OverviewClaim(
        "heads", stack.stack.name, Sentence(sentence), frozenset(names), Sentence(evidence)
    )
    return SizedClaim(size, claim)


def _above_rounding(stack: ComparedStack, found: Sequence[Place]) -> SizedClaim:
    """Return the claim on the number of heads whose attention differs beyond rounding."""
    names = frozenset(HeadName(stack.stack.name, *place) for place in found)
    largest = max(found, key=lambda place: stack.summary.value[place])
    sentence = (
        f"Attention differs by more than rounding in {len(found):,} of "
        f"{len(stack.places):,} heads{OF_STACK[stack.stack.name]}, by at most ",
        divergence_number(stack, largest), " nats.",
    )  # fmt: skip
    evidence = ("Highest value: ", *_with_interval(stack, largest), ". ", *_measured(stack))
    claim = OverviewClaim("heads", stack.stack.name, Sentence(sentence), names, Sentence(evidence))
    return SizedClaim(float(stack.summary.value[largest]), claim)


def divergence_number(stack: ComparedStack, place: Place) -> LinkedNumber:
    """Return the divergence of a head, with its row of the table of differences."""
    text = divergence_text(float(stack.summary.value[place]))
    return LinkedNumber(text, "differences", divergence_row(stack.pair.name, *place))


def divergence_row(stack: str, layer: int, head: int | str) -> RowKey:
    """Return the values that identify the divergence of a head; of a layer for an empty head."""
    return (
        ("stack", stack), ("layer", layer), ("head", head), ("metric", PATTERN_DRIFT),
        ("view", str(SinkView.RAW)), ("label", ""),
    )  # fmt: skip


def _with_interval(stack: ComparedStack, place: Place) -> Parts:
    """Return a head with its divergence and interval."""
    interval = nats_interval(float(stack.summary.low[place]), float(stack.summary.high[place]))
    name = short_link(HeadName(stack.stack.name, *place))
    return (name, " ", divergence_number(stack, place), f" {interval}" if interval else "")


def _measured(stack: ComparedStack) -> Parts:
    """Return the measure of divergence with its floor, its ceiling and the number of sentences."""
    summary = stack.summary
    column = stack.heads.column(PATTERN_DRIFT, str(SinkView.RAW))
    sentences = int(stack.heads.sentences[..., column].max())
    beside = [
        f"{name} {divergence_text(float(np.nanmedian(part)))}"
        for name, part in (("rounding", summary.floor), ("another head", summary.ceiling))
        if part is not None
    ]
    medians = f" Median of {' and of '.join(beside)}." if beside else ""
    return (
        f"Jensen–Shannon divergence of attention in nats, at most 0.69, with 95{THIN}% intervals."
        f"{medians} {count_text(sentences, 'sentence')}. ",
        DEFINITION,
    )


def layers_claim(stack: ComparedStack) -> Iterator[SizedClaim]:
    """Yield the claim on layers that differ more than all others, by heads or else by tokens."""
    drift = layer_drift(stack.heads)
    column = drift.column(PATTERN_DRIFT, str(SinkView.RAW)) if drift else None
    if drift is None or column is None:
        return
    layers = np.array(stack.stack.attention_layers)
    value, low, high = (part[layers, column] for part in (drift.value, drift.low, drift.high))
    chosen = standing_out(value, low, high, max(1, len(layers) // 3))
    medians = by_layer(stack.summary.value)[1][layers]
    if chosen and medians[chosen].min() <= np.delete(medians, chosen).max():
        chosen = []  # a few heads alone make the mean large
    floor = drift.column(PATTERN_DRIFT, str(SinkView.RAW), FLOOR_LABEL)
    least = 0.0 if floor is None else np.nan_to_num(np.fmax(*(
        part[layers, floor] for part in (drift.value, drift.high)
    )))  # fmt: skip
    if chosen and (low > least)[chosen].all():
        yield _most_different_layers(stack, drift, [int(layers[index]) for index in chosen])
    else:
        yield from _token_claim(stack)


def _most_different_layers(
    stack: ComparedStack, drift: LayerDifferences, found: Sequence[int]
) -> SizedClaim:
    """Return the claim on layers that stand out, the most different one first."""
    column = drift.column(PATTERN_DRIFT, str(SinkView.RAW))

    def of_layer(layer: int) -> LinkedNumber:
        text = divergence_text(float(drift.value[layer, column]))
        return LinkedNumber(text, "differences", divergence_row(stack.pair.name, layer, ""))

    def with_interval(layer: int) -> Parts:
        low, high = (float(part[layer, column]) for part in (drift.low, drift.high))
        ends = nats_interval(low, high) if high > low else ""
        return (f"layer {layer} ", of_layer(layer), f" {ends}" if ends else "")

    others = [layer for layer in stack.stack.attention_layers if layer not in found]
    next_one = max(others, key=lambda layer: drift.value[layer, column])
    one, of = len(found) == 1, OF_STACK[stack.stack.name]
    where = f"most in {layers_text(found)}{of}" if one else (
        f"more in {layers_text(found)}{of} than elsewhere"
    )  # fmt: skip
    sentence = (
        f"Attention diverges {where}: on average by {'' if one else 'at least '}",
        of_layer(found[-1]),
        " nats.",
    )
    listed = [part for layer in found for part in (*with_interval(layer), ", ")]
    evidence = (
        "Means over heads: ", *listed, "then ", *with_interval(next_one), ". ", *_measured(stack)
    )  # fmt: skip
    heads = [HeadName(stack.stack.name, *place) for place in stack.places if place[0] in found]
    claim = OverviewClaim(
        "layers", stack.stack.name, Sentence(sentence), frozenset(heads), Sentence(evidence)
    )
    return SizedClaim(float(drift.value[found[-1], column]), claim)


def _token_claim(stack: ComparedStack) -> Iterator[SizedClaim]:
    """Yield the claim on the layer whose tokens differ most in their cosine to the input."""
    tokens = stack.tokens
    column = tokens.column(ids.COSINE_TO_INPUT, "", INPUT_STATE) if tokens else None
    if tokens is None or column is None:
        return
    gap = np.where(tokens.supported[:, column], np.abs(tokens.value[:, column]), -1.0)
    if gap.max(initial=-1.0) < MIN_COSINE_GAP:
        return
    layer = int(gap.argmax())
    a, b, value, low, high, q = (
        float(part[layer, column])
        for part in (tokens.a, tokens.b, tokens.value, tokens.low, tokens.high, tokens.q)
    )
    row = (
        ("stack", stack.pair.name), ("layer", layer), ("head", ""),
        ("metric", ids.COSINE_TO_INPUT), ("label", INPUT_STATE),
    )  # fmt: skip
    size = LinkedNumber(number(abs(value)), "differences", row)
    change = "higher" if value > 0 else "lower"
    sentence = (
        f"After layer {layer}{OF_STACK[stack.stack.name]}, tokens\u2019 cosine to their input is ",
        size,
        f" {change} in {stack.names[1]}.",
    )
    evidence = (
        size._replace(text=number(a)), " and ", size._replace(text=number(b)), "; difference ",
        size._replace(text=number(value)), f" {interval_text(low, high)}, q {p_text(q)} "
        "over layers and classes of tokens. No layer stands out by the divergence of "
        f"its heads. {count_text(int(tokens.sentences[layer, column]), 'sentence')}. ",
        DEFINITION,
    )  # fmt: skip
    heads = [HeadName(stack.stack.name, *place) for place in stack.places if place[0] == layer]
    claim = OverviewClaim(
        "layers", stack.stack.name, Sentence(sentence), frozenset(heads), Sentence(evidence)
    )
    yield SizedClaim(0.0, claim)


def heads_alike(stack: ComparedStack) -> tuple[list[Place], list[int]]:
    """Return the heads that attend alike in both models, and the layers that have only such heads.

    With such layers, heads of other layers are left out; few heads count as none.
    """
    summary, places = stack.summary, stack.places
    unrelated = 0.0 if summary.ceiling is None else float(np.nanmedian(summary.ceiling))
    margin = max(ALIKE_SHARE * unrelated, MAX_EQUAL_DRIFT)
    high = np.nan_to_num(stack.bounds[1], nan=np.inf)
    alike = [place for place in places if high[place] <= margin]
    layers = [
        layer
        for layer in stack.stack.attention_layers
        if all(place in alike for place in places if place[0] == layer)
    ]
    found = [place for place in alike if place[0] in layers] if layers else alike
    return (found, layers) if len(found) >= MIN_ALIKE_SHARE * len(places) else ([], [])


def alike_claim(stack: ComparedStack) -> Iterator[SizedClaim]:
    """Yield the claim on layers, or else on heads, that attend alike in both models."""
    summary, places = stack.summary, stack.places
    found, layers = heads_alike(stack)
    if not found:
        return
    most = max(found, key=lambda place: summary.value[place])
    of = OF_STACK[stack.stack.name]
    if len(found) == len(places):
        where = f"All heads{of} attend alike in both models"
    elif layers:
        where = f"In {layers_text(layers)}{of}, all heads attend alike in both models"
    else:
        where = (
            f"{capital(number_word(len(found)))} {OF_HEADS[stack.stack.name]}heads attend alike "
            "in both models"
        )
    equal = summary.value[most] <= MAX_EQUAL_DRIFT
    sentence: Parts = (where, ": at most ", divergence_number(stack, most), " nats apart.")
    if equal:
        sentence = (where.replace("attend alike", "attend exactly alike") + ".",)
    evidence: Parts = (
        "Most different of them: ",
        *_with_interval(stack, most),
        f". Lit: heads whose interval ends below {percent(ALIKE_SHARE)} of the divergence of "
        "unrelated heads. ",
        *_measured(stack),
    )
    if equal:
        evidence = equal_evidence(stack, most)
    heads = frozenset(HeadName(stack.stack.name, *place) for place in found)
    claim = OverviewClaim("alike", stack.stack.name, Sentence(sentence), heads, Sentence(evidence))
    yield SizedClaim(float(len(found)), claim)


def equal_evidence(stack: ComparedStack, place: Place) -> Parts:
    """Return the evidence of a claim on heads whose attention is exactly equal."""
    column = stack.heads.column(PATTERN_DRIFT, str(SinkView.RAW))
    sentences = int(stack.heads.sentences[..., column].max())
    return (
        "Divergence ",
        divergence_number(stack, place),
        f" nats in every query of {count_text(sentences, 'sentence')}. ",
        DEFINITION,
    )


def joined(links: Sequence[Link]) -> Parts:
    """Return links as a list in words, with commas and "and"."""
    parts: list[str | Link] = []
    for place, link in enumerate(links):
        if place:
            parts.append(" and " if place == len(links) - 1 else ", ")
        parts.append(link)
    return tuple(parts)
