"""Claims on the checkpoints of one training: a head, a layer, and heads that kept their attention.

A claim is made only under the condition of its rule, at most one of each kind:

- *head*: the head with the largest rise of an attention share that describes a function, to the
  threshold of the function. The head is chosen on one half of the sentences; on the other half, its
  last interval lies above its first value and above uniform attention.
- *layer*: the largest change of a share, mean over the heads of a layer, whose interval excludes 0
  although it is widened for the choice among all layers and shares (Bonferroni).
- *extreme*: the value of a share of a head at a step between the ends that exceeds those of both
  ends most, or falls below both; both paired intervals exclude 0 although they are widened for the
  choice among all heads, shares and steps.
- *steady*: heads none of whose followed shares changed by more than `MARGIN`, by the whole
  intervals; else, that no head has become an induction head.
"""

from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import Estimate
from headbook.analysis.arrays import Floats
from headbook.analysis.multiple_testing import ALPHA
from headbook.analysis.paired import PairedDifferences
from headbook.comparison.checkpoint_steps import CheckpointColumn
from headbook.comparison.checkpoints import BestHead, Checkpoints, layer_changes
from headbook.comparison.claims import SizedClaim
from headbook.comparison.drift import MAX_EQUAL_DRIFT
from headbook.metrics import all_metrics, ids
from headbook.report.answers.overview.claim_parts import OF_STACK, OverviewClaim, places_of
from headbook.report.linked_rows import LinkedNumber, Parts
from headbook.report.thresholds import SCORE
from headbook.report.wording import capital, count_text, is_share, number_word, signed_points
from headbook.results.formats import head_file, head_name, in_hundred, percent
from headbook.results.sentence import Link, Sentence
from headbook.schema import AttentionStack, HeadName, Place

MIN_CHANGE = 0.1  # of a share, for a claim
MARGIN = 0.1  # within which a share counts as kept
MIN_STEADY_SHARE = 0.1  # of the heads of a stack that kept their attention, for a claim
LEVEL = 0.05
HEADS_PAGE = "heads.html"


def checkpoint_claims(checkpoints: Checkpoints) -> list[OverviewClaim]:
    """Return the claims that the checkpoints support, one of each kind."""
    found: list[OverviewClaim] = []
    for rule in CHECKPOINT_RULES:
        sized = [claim for stack in checkpoints.stacks for claim in rule(checkpoints, stack)]
        best = max(sized, key=lambda each: each.size, default=None)
        if best is not None and all(best.claim.heads != claim.heads for claim in found):
            found.append(best.claim)
    return found


def share_columns(checkpoints: Checkpoints, stack: str) -> list[CheckpointColumn]:
    """Return the followed shares of attention whose changes are known."""
    return [
        column
        for column in checkpoints.columns(stack)
        if (stack, column) in checkpoints.half_rises and is_share(all_metrics()[column.metric])
    ]


def rises(checkpoints: Checkpoints, stack: str, column: CheckpointColumn, best: BestHead) -> bool:
    """Check whether the number of a head clearly rose to the threshold of its function.

    The number has a half-rise step. On the held-out half, the lower end of its last interval lies
    above its first value and above uniform attention. On all sentences, the interval reaches the
    threshold; of relations, the function of the head at the last step decides.

    Args:
        best: the head at the last step.
    """
    half_rise = checkpoints.half_rises.get((stack, column))
    if best.place is None or half_rise is None or np.isnan(half_rise.step[best.place]):
        return False
    if column.metric == ids.RELATION_ACCURACY:
        functions = checkpoints.frames[-1].stacks[stack].functions
        passes = functions[HeadName(stack, *best.place)].id == "relation"
    else:
        passes = column.passes(best.value, best.uniform)
    first = checkpoints.numbers(stack, column)[0].report.value[best.place]
    return passes and bool(best.held_out.low > np.fmax(first, best.uniform))


def head_claim(checkpoints: Checkpoints, stack: AttentionStack) -> Iterator[SizedClaim]:
    """Yield the claim on the head with the largest clear rise of a function."""
    found: list[tuple[float, CheckpointColumn, BestHead]] = []
    for column in share_columns(checkpoints, stack.name):
        best = checkpoints.best_heads(stack.name, column)[-1]
        if column.does and best.place is not None and rises(checkpoints, stack.name, column, best):
            change = float(checkpoints.half_rises[stack.name, column].change.value[best.place])
            found.append((change, column, best))
    if not found:
        return
    change, column, best = max(found, key=lambda each: each[0])
    if best.place is None or change < MIN_CHANGE:
        return
    place, half_rise = best.place, checkpoints.half_rises[stack.name, column]
    head = HeadName(stack.name, *place)
    last = change_number(head, column, percent(float(half_rise.change.b[place])))
    step = checkpoints.name(int(half_rise.step[place]))
    sentence: Parts = (head_row_link(head), f" now {column.does}: ", last, f", since {step}.")
    evidence: Parts = (
        last._replace(text=percent(float(half_rise.change.a[place]))),
        f" at {checkpoints.name(0)}; change ", *points_of(last, change_at(half_rise.change, place)),
        f", past half of it from {step} on; uniform attention: {percent(best.uniform)}. The head "
        "was chosen on one half of the sentences; on the other half its interval lies above the "
        "first value and above uniform attention. ",
        Link("All heads", f"steps/{column.key}.html"),
    )  # fmt: skip
    yield SizedClaim(
        change,
        OverviewClaim(
            "head", stack.name, Sentence(sentence), frozenset({head}), Sentence(evidence)
        ),
    )


def points_of(number: LinkedNumber, change: Estimate) -> Parts:
    """Return a change in points with its row, followed by its interval."""
    interval = "" if np.isnan(change.low) else (
        f" [{signed_points(change.low)}, {signed_points(change.high)}]"
    )  # fmt: skip
    return (number._replace(text=f"{signed_points(change.value)} points"), interval)


def change_at(changes: PairedDifferences, index: tuple[int, ...]) -> Estimate:
    """Return the change of a head, or of a layer, with its interval."""
    value, low, high = (float(part[index]) for part in (changes.value, changes.low, changes.high))
    return Estimate(value, low, high, int(changes.clusters[index]), float("nan"))


def change_number(head: HeadName, column: CheckpointColumn, text: str) -> LinkedNumber:
    """Return a number of a head that leads to its row of the table of half-rises."""
    return _half_rise_row(head.stack, head.layer, head.head, column, text)


def _half_rise_row(
    stack: str, layer: int, head: int | str, column: CheckpointColumn, text: str
) -> LinkedNumber:
    """Return a number of a head, or of a layer for an empty head, that leads to its row."""
    row = (
        ("stack", stack), ("layer", layer), ("head", head), ("metric", column.metric),
        ("view", str(column.view)), ("label", column.label),
    )  # fmt: skip
    return LinkedNumber(text, "half_rise", row)


def head_row_link(head: HeadName) -> Link:
    """Return a link to the row of a head on the page of all heads."""
    return Link(head_name(head), f"{HEADS_PAGE}#{head_file(head)}")


class HeadChange(NamedTuple):
    """A clear change of a share of one head.

    Attributes:
        place: layer and number of the head.
        column: the share.
        change: last minus first value, with its interval.
    """

    place: Place
    column: CheckpointColumn
    change: Estimate


def changed_heads(checkpoints: Checkpoints, stack: AttentionStack) -> list[HeadChange]:
    """Return the largest supported change of each head that has one, the largest first.

    Supported: q below `ALPHA` over all heads and labels of a metric, and an interval without 0.
    """
    largest: dict[Place, HeadChange] = {}
    for column in share_columns(checkpoints, stack.name):
        rise = checkpoints.half_rises[stack.name, column]
        for place in places_of(stack):
            change = change_at(rise.change, place)
            size = abs(largest[place].change.value) if place in largest else 0.0
            supported = rise.q[place] < ALPHA and (change.low > 0 or change.high < 0)
            if supported and abs(change.value) > size:
                largest[place] = HeadChange(place, column, change)
    return sorted(largest.values(), key=lambda each: -abs(each.change.value))


def _chances(checkpoints: Checkpoints) -> int:
    """Return the number of followed shares of all layers."""
    return sum(
        len(stack.attention_layers) * len(share_columns(checkpoints, stack.name))
        for stack in checkpoints.stacks
    )


def layer_claim(checkpoints: Checkpoints, stack: AttentionStack) -> Iterator[SizedClaim]:
    """Yield the claim on the largest change of a share in a layer, mean over its heads."""
    columns, chances = share_columns(checkpoints, stack.name), _chances(checkpoints)
    found: list[tuple[Estimate, int, CheckpointColumn]] = []
    for column in columns:
        changes = layer_changes(checkpoints.half_rises[stack.name, column])
        for layer in stack.attention_layers:
            change = change_at(changes, (layer,))
            if abs(change.value) >= MIN_CHANGE and clear_of_zero(change, chances):
                found.append((change, layer, column))
    if found:
        change, layer, column = max(found, key=lambda each: abs(each[0].value))
        yield SizedClaim(abs(change.value), _layer_claim(checkpoints, stack, change, layer, column))


def _layer_claim(
    checkpoints: Checkpoints,
    stack: AttentionStack,
    change: Estimate,
    layer: int,
    column: CheckpointColumn,
) -> OverviewClaim:
    """Return the claim on the change of a share in a layer."""
    changes = layer_changes(checkpoints.half_rises[stack.name, column])
    text = f"{100 * abs(change.value):.1f} points"
    number = _half_rise_row(stack.name, layer, "", column, text)
    way = "rose" if change.value > 0 else "fell"
    sentence: Parts = (
        f"In layer {layer}{OF_STACK[stack.name]}, {in_sentence(column)} {way} "
        "by ", number, ", mean over its heads.",
    )  # fmt: skip
    evidence: Parts = (
        f"{capital(column.name)}: ", number._replace(text=percent(float(changes.a[layer]))),
        f" at {checkpoints.name(0)}, ", number._replace(text=percent(float(changes.b[layer]))),
        f" at {checkpoints.name(-1)}; change ", *points_of(number, change),
        ". The interval excludes 0 also when it is widened for the choice among all layers and "
        "followed shares. ",
        Link("All layers", f"steps/{column.key}.html"),
    )  # fmt: skip
    heads = frozenset(HeadName(stack.name, layer, head) for head in range(stack.n_heads))
    return OverviewClaim("layer", stack.name, Sentence(sentence), heads, Sentence(evidence))


def in_sentence(column: CheckpointColumn) -> str:
    """Return the name of a share inside a sentence: ``the induction score``."""
    article = "" if column.name.startswith("Attention") else "the "
    return f"{article}{column.name[:1].lower()}{column.name[1:]}"


def clear_of_zero(change: Estimate, chances: int) -> bool:
    """Check whether an interval excludes 0 if it is widened for a choice among several numbers.

    Args:
        chances: number of numbers among which the change was chosen.
    """
    normal = NormalDist()
    widening = normal.inv_cdf(1 - LEVEL / 2 / max(chances, 1)) / normal.inv_cdf(1 - LEVEL / 2)
    low = change.value - widening * (change.value - change.low)
    high = change.value + widening * (change.high - change.value)
    return bool(low > 0 or high < 0)


class Extreme(NamedTuple):
    """A value of a share of a head at a step between the ends that lies beyond both ends.

    Attributes:
        size: distance from the nearer end.
        column: the share.
        step: index of the step.
        place: layer and number of the head.
    """

    size: float
    column: CheckpointColumn
    step: int
    place: Place


def extreme_claim(checkpoints: Checkpoints, stack: AttentionStack) -> Iterator[SizedClaim]:
    """Yield the claim on the largest extreme of a share between the first and the last step."""
    extremes = (
        extreme
        for column in share_columns(checkpoints, stack.name)
        if (extreme := _extreme(checkpoints, stack, column)) is not None
    )
    largest = max(extremes, key=lambda extreme: extreme.size, default=None)
    if largest is not None:
        yield SizedClaim(largest.size, _extreme_claim(checkpoints, stack, largest))


def _extreme(
    checkpoints: Checkpoints, stack: AttentionStack, column: CheckpointColumn
) -> Extreme | None:
    """Return the largest extreme of a share; None without one that is clear."""
    values = checkpoints.values(stack.name, column)[:, [*stack.attention_layers]]
    between, ends = values[1:-1], values[[0, -1]]
    if not between.size:
        return None
    sizes = np.nan_to_num(np.maximum(between - ends.max(0), ends.min(0) - between), nan=-1.0)
    step, row, head = (int(n) for n in np.unravel_index(int(sizes.argmax()), sizes.shape))
    size, place = float(sizes[step, row, head]), (stack.attention_layers[row], head)
    chances = sizes.size * len(share_columns(checkpoints, stack.name))
    for end in (0, len(values) - 1):
        change = checkpoints.difference(stack.name, column, (end, step + 1))
        if change is None or not clear_of_zero(change_at(change, place), chances):
            return None
    return Extreme(size, column, step + 1, place) if size >= MIN_CHANGE else None


def _extreme_claim(
    checkpoints: Checkpoints, stack: AttentionStack, extreme: Extreme
) -> OverviewClaim:
    """Return the claim on an extreme, with the values of both ends."""
    head, column = HeadName(stack.name, *extreme.place), extreme.column

    def at(step: int) -> LinkedNumber:
        value = float(checkpoints.values(stack.name, column)[(step, *extreme.place)])
        row = (
            ("step", checkpoints.step(step)), ("stack", stack.name), ("layer", head.layer),
            ("head", head.head), ("metric", column.metric), ("view", str(column.view)),
            ("label", column.label),
        )  # fmt: skip
        return LinkedNumber(percent(value), "curves", row)

    sentence: Parts = (
        head_row_link(head), f": {in_sentence(column)} was ", at(extreme.step),
        f" at {checkpoints.name(extreme.step)}, beyond both ends of the training.",
    )  # fmt: skip
    evidence: Parts = (
        at(0), f" at {checkpoints.name(0)}, ", at(-1), f" at {checkpoints.name(-1)}. The paired "
        "differences from both exclude 0 also if intervals are widened for the choice among all "
        "heads, shares and steps. ",
        Link("All heads", f"steps/{column.key}.html"),
    )  # fmt: skip
    return OverviewClaim(
        "extreme", stack.name, Sentence(sentence), frozenset({head}), Sentence(evidence)
    )


def steady_claim(checkpoints: Checkpoints, stack: AttentionStack) -> Iterator[SizedClaim]:
    """Yield the claim on heads that kept their attention, or that there is no induction head."""
    columns, places = share_columns(checkpoints, stack.name), places_of(stack)
    if not columns:
        return
    values, kept = changes_within(checkpoints, stack.name, columns)
    steady = [place for place in places if kept[place]]
    if len(steady) < MIN_STEADY_SHARE * len(places):
        yield from _no_induction(checkpoints, stack)
        return
    sizes = {place: values[place] for place in steady}
    most = max(steady, key=lambda place: float(np.nanmax(sizes[place])))
    column = columns[int(np.nanargmax(values[most]))]
    head, size = HeadName(stack.name, *most), float(np.nanmax(values[most]))
    number = change_number(head, column, f"{100 * size:.1f} points")
    many = "All" if len(steady) == len(places) else capital(number_word(len(steady)))
    one = len(steady) == 1
    sentence: Parts = (
        f"{many} {'head' if one else 'heads'}{OF_STACK[stack.name]} kept "
        f"{'its' if one else 'their'} attention: no followed share changed by more than ",
        number, ".",
    )  # fmt: skip
    evidence: Parts = (
        "Most: ", head_row_link(head), f", {in_sentence(column)}, ",
        *points_of(number, change_at(checkpoints.half_rises[stack.name, column].change, most)),
        f". Lit: heads whose intervals lie within ±{in_hundred(MARGIN)} points for each of "
        f"{count_text(len(columns), 'followed share')}.",
    )  # fmt: skip
    heads = frozenset(HeadName(stack.name, *place) for place in steady)
    claim = OverviewClaim("steady", stack.name, Sentence(sentence), heads, Sentence(evidence))
    yield SizedClaim(float(len(steady)), claim)


def changes_within(
    checkpoints: Checkpoints, stack: str, columns: list[CheckpointColumn]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the size of each change, and the heads all of whose changes are within `MARGIN`.

    A change without an interval counts only if it is 0; a number that a head lacks is left out.

    Returns:
        *Shape:* ``(layer, head, column)`` and ``(layer, head)``.
    """
    sizes, within = [], []
    for column in columns:
        change = checkpoints.half_rises[stack, column].change
        with np.errstate(invalid="ignore"):
            equal = np.isnan(change.low) & (np.abs(change.value) <= MAX_EQUAL_DRIFT)
            inside = (change.low >= -MARGIN) & (change.high <= MARGIN)
        sizes.append(np.abs(change.value))
        within.append(equal | inside | np.isnan(change.value))
    values = np.stack(sizes, -1)
    return values, np.all(within, 0) & ~np.isnan(values).all(-1)


def _no_induction(checkpoints: Checkpoints, stack: AttentionStack) -> Iterator[SizedClaim]:
    """Yield the claim that no head has become an induction head."""
    for column in checkpoints.columns(stack.name):
        if column.metric != ids.INDUCTION_SCORE:
            continue
        scores = checkpoints.numbers(stack.name, column)[-1].heads
        places = [place for place in places_of(stack) if not np.isnan(scores.value[place])]
        if not places or not all(scores.high[place] < SCORE.value for place in places):
            return
        best = max(places, key=lambda place: scores.value[place])
        head, score = HeadName(stack.name, *best), scores.at(*best)
        row = (
            ("step", checkpoints.step(-1)), ("stack", stack.name), ("layer", best[0]),
            ("head", best[1]), ("metric", column.metric), ("view", str(column.view)),
            ("label", column.label),
        )  # fmt: skip
        number = LinkedNumber(percent(score.value), "curves", row)
        sentence: Parts = (
            f"No head{OF_STACK[stack.name]} became an induction head: the highest score is ",
            number, ".",
        )  # fmt: skip
        interval = f" [{in_hundred(score.low)}, {in_hundred(score.high)}]"
        evidence: Parts = (
            head_row_link(head), " ", number, f"{interval} at {checkpoints.name(-1)}. "
            f"The intervals of all heads end below {percent(SCORE.value)}, which the interval of "
            "an induction head begins at or above. ",
            Link("All heads", f"steps/{column.key}.html"),
        )  # fmt: skip
        claim = OverviewClaim(
            "induction", stack.name, Sentence(sentence), frozenset({head}), Sentence(evidence)
        )
        yield SizedClaim(score.value, claim)


CHECKPOINT_RULES: tuple[Callable[[Checkpoints, AttentionStack], Iterator[SizedClaim]], ...] = (
    head_claim, layer_claim, extreme_claim, steady_claim,
)  # fmt: skip


def unsupported_text(checkpoints: Checkpoints) -> str:
    """Return the sentence in place of claims on checkpoints that do not differ clearly."""
    sentences = count_text(checkpoints.frames[0].manifest.counts["sentences"], "sentence")
    return (
        f"No change of a head or layer is supported from {checkpoints.name(0)} to "
        f"{checkpoints.name(-1)} on these {sentences}."
    )
