"""The overview of checkpoints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.charts import Drawing, images
from headbook.charts.checkpoints import SHARE_TICKS, step_areas
from headbook.charts.layers import Curve, curves
from headbook.charts.theme import ink_steps, rgba_ramp
from headbook.comparison.checkpoint_claims import (
    HeadChange,
    change_number,
    changed_heads,
    checkpoint_claims,
    head_row_link,
    points_of,
    unsupported_text,
)
from headbook.comparison.checkpoint_steps import CheckpointColumn, StackFrame
from headbook.comparison.checkpoints import BestHead
from headbook.metrics import ids
from headbook.pages.checkpoints.parts import (
    NO_TURN,
    DrawnCheckpoints,
    HalfRiseText,
    estimate_text,
    head_row,
    measure_page,
    value_text,
)
from headbook.pages.overview_parts.claims import ClaimItem, Lit, claim_items, lit_classes, lit_heads
from headbook.pages.overview_parts.differences import (
    ChangedHead,
    SideAtlas,
    bar_class,
    difference_atlas,
    map_triple,
)
from headbook.pages.parts.atlas import Atlas, atlas_of
from headbook.pages.parts.page import StackSection, TemplatePage
from headbook.pages.parts.run_facts import text_facts
from headbook.pages.parts.table import MarkedText, PageTable, Row, words_cell
from headbook.report.facts.functions import UNKNOWN
from headbook.report.wording import STACKS, capital, count_text, number_word, signed_points
from headbook.results.formats import head_name, number, percent
from headbook.results.sentence import Link
from headbook.schema import AttentionStack, HeadName

PICTURES = "data/checkpoints"


@dataclass(frozen=True)
class LearntFunction:
    """Something that heads do, the head that does it most at the last step, and when it began.

    Attributes:
        does: what; it leads to the page of that number.
        head: the head.
        line: its number over steps.
        turn: when it changed.
        last, first, uniform: the number at the last and the first step, and of uniform attention.
        learnt: whether it clearly rose to the threshold of its function.
        when: in words, when it changed.
    """

    does: Link
    head: Link
    line: Drawing
    turn: HalfRiseText
    last: str
    first: str
    uniform: str
    learnt: bool
    when: str


@dataclass(frozen=True)
class CheckpointStack(StackSection):
    """One kind of attention.

    Attributes:
        wall: last minus first step of every head.
        largest: largest clear change of a share of a head, in words; empty without one.
        changed: heads that changed most, with the maps of the first and the last step.
        learnt: what heads do, those that changed first before others.
        atlas: of the last step.
        frames: of all steps.
        families: share of heads of each family over steps; None if no head has a family.
        jobs: the head that does something most, by step.
    """

    wall: SideAtlas
    largest: str
    changed: tuple[ChangedHead, ...]
    learnt: tuple[LearntFunction, ...]
    atlas: Atlas
    frames: tuple[tuple[str, str], ...]
    families: Drawing | None
    jobs: PageTable


@dataclass(frozen=True, kw_only=True)
class CheckpointsPage(TemplatePage):
    """The overview.

    Attributes:
        claims: what the numbers support.
        unsupported: a sentence in place of claims; empty with claims.
        about, size: the checkpoints, the model and its texts, in words.
        ends: names of the first and the last step.
        failed: self-checks that failed, with their checkpoints.
        curves: of the whole model.
        no_loss: why there is no loss; empty where there is one.
        stacks: by kind of attention.
        facts: what was looked at.
        named: whether steps are those of the checkpoints' names.
    """

    template: ClassVar[str] = "checkpoints/checkpoints.html"
    scripts = ("checkpoints",)
    styles = ("overview", "checkpoints")
    contents = False
    claims: tuple[ClaimItem, ...]
    unsupported: str
    about: str
    size: str
    ends: tuple[str, str]
    failed: tuple[str, ...]
    curves: tuple[Drawing, ...]
    no_loss: str
    stacks: tuple[CheckpointStack, ...]
    facts: tuple[tuple[str, str], ...]
    named: bool


def checkpoints_page(drawn: DrawnCheckpoints, title: str) -> CheckpointsPage:
    """Return the first page of the site of checkpoints."""
    checkpoints = drawn.checkpoints
    curves = tuple(_curves(drawn))
    claims = checkpoint_claims(checkpoints)
    lit = lit_heads(claims)
    return CheckpointsPage(
        path="index.html",
        title=title,
        description=f"Attention heads of {count_text(len(checkpoints.frames), 'checkpoint')} of "
        "one training on the same sentences: which head learnt what, and when.",
        claims=tuple(claim_items(claims)),
        unsupported="" if claims else unsupported_text(checkpoints),
        about=f"{capital(count_text(len(checkpoints.frames), 'checkpoint'))} of one training, "
        f"{drawn.at(0)} to {drawn.at(-1)}.",
        size=_size(drawn),
        ends=(drawn.at(0), drawn.at(-1)),
        failed=tuple(
            f"{each.name}: {check}" for each in checkpoints.frames for check in each.manifest.failed
        ),
        curves=curves,
        no_loss=""
        if _has_loss(drawn)
        else "loss: the studies have none (importance was off, or "
        "the checkpoints have no language-model head)",
        stacks=tuple(_stack(drawn, stack, lit) for stack in checkpoints.stacks),
        facts=tuple(_facts(drawn)),
        named=checkpoints.named,
    )


def sheets(drawn: DrawnCheckpoints) -> Iterator[tuple[str, bytes]]:
    """Yield the pictures of all heads at each step, by their address."""
    for place, each in enumerate(drawn.checkpoints.frames):
        for stack in each.stacks.values():
            cells = stack.maps[[*stack.stack.attention_layers]].astype(np.float64)
            yield _sheet(stack.stack, place), images.sprite(ink_steps(cells), rgba_ramp())


def checkpoints_data(drawn: DrawnCheckpoints) -> dict[str, Any]:
    """Return the data of the slider by stack: name, picture and functions of each step."""
    return {
        stack.name: [
            {
                "name": drawn.at(place),
                "src": _sheet(stack, place),
                "heads": _tiles(each.stacks[stack.name]),
            }
            for place, each in enumerate(drawn.checkpoints.frames)
        ]
        for stack in drawn.checkpoints.stacks
    }


def _tiles(each: StackFrame) -> list[list[str]]:
    """Return the class and the label of each head's tile, in the order of the atlas."""
    return [
        [function.style, f"{head_name(head)}, {function.noun}"]
        for head, function in each.functions.items()
    ]


def _sheet(stack: AttentionStack, place: int) -> str:
    return f"{PICTURES}/{stack.name}-{place:03d}.png"


def _size(drawn: DrawnCheckpoints) -> str:
    """Return layers, heads and texts in one line."""
    manifest = drawn.checkpoints.frames[0].manifest
    shapes = dict.fromkeys(
        f"{len(stack.attention_layers)} layers × {stack.n_heads} heads" for stack in manifest.stacks
    )
    where = f" in each of {number_word(len(manifest.stacks))} kinds of attention"
    shape = ", ".join(shapes) + (where if len(shapes) == 1 < len(manifest.stacks) else "")
    return f"{shape} · {count_text(manifest.counts['sentences'], 'sentence')} at every step"


MAX_CHANGED_HEADS = 6  # heads that stand with both maps


def _wall(
    drawn: DrawnCheckpoints, stack: AttentionStack, changes: Sequence[HeadChange], lit: Lit
) -> SideAtlas:
    """Return every head as the last minus the first step, with bars of the largest changes."""
    by_place = {each.place: each for each in changes}
    largest = max((abs(each.change.value) for each in changes), default=0.0)
    ends = [drawn.checkpoints.frames[place].stacks[stack.name] for place in (0, -1)]

    def note(head: HeadName) -> tuple[str, str]:
        change = by_place.get((head.layer, head.head))
        classes = [lit_classes(lit, head)]
        if change is None:
            return classes[0], "no clear change"
        classes.append(bar_class(abs(change.change.value), largest))
        points = signed_points(change.change.value)
        return " ".join(filter(None, classes)), f"{change.column.name}: {points} points"

    first, last = (each.maps.astype(np.float64) for each in ends)
    return difference_atlas(
        stack,
        (first, last),
        names=(drawn.at(0), drawn.at(-1)),
        about="mean attention",
        address=images.inline,
        page=head_row,
        note=note,
    )


def _changed(
    drawn: DrawnCheckpoints, stack: AttentionStack, changes: Sequence[HeadChange]
) -> Iterator[ChangedHead]:
    """Yield the heads with the largest clear changes, with the maps of both ends."""
    ends = [drawn.checkpoints.frames[place].stacks[stack.name] for place in (0, -1)]
    for place, column, change in changes[:MAX_CHANGED_HEADS]:
        head = HeadName(stack.name, *place)
        rise = drawn.checkpoints.half_rises[stack.name, column].change
        first, last = (value_text(column, float(part[place])) for part in (rise.a, rise.b))
        turn = drawn.turn(stack.name, column, place)
        when = f"; past half of the change from {turn.text} on" if turn.place is not None else ""
        one, other = (each.maps[place].astype(np.float64) for each in ends)
        yield ChangedHead(
            head_row_link(head),
            points_of(change_number(head, column, ""), change),
            (Link(column.name, measure_page(column)), f": {first} → {last}{when}"),
            map_triple(one, other, (drawn.at(0), drawn.at(-1)), "difference"),
        )


def _stack(drawn: DrawnCheckpoints, stack: AttentionStack, lit: Lit) -> CheckpointStack:
    last = drawn.checkpoints.frames[-1].stacks[stack.name]
    changes = changed_heads(drawn.checkpoints, stack)
    return CheckpointStack(
        stack=stack.name,
        wall=_wall(drawn, stack, changes, lit),
        largest=f"{100 * abs(changes[0].change.value):.1f} points" if changes else "",
        changed=tuple(_changed(drawn, stack, changes)),
        learnt=tuple(_learnt(drawn, stack.name)),
        atlas=atlas_of(
            stack,
            last.functions,
            drawn.checkpoints.families(stack.name),
            sheet=_sheet(stack, len(drawn.checkpoints.frames) - 1),
            side=last.maps.shape[-1],
            about=f"mean attention by position, the first {last.maps.shape[-1]} positions",
            page=head_row,
        ),
        frames=tuple(
            (drawn.at(place), _sheet(stack, place))
            for place in range(len(drawn.checkpoints.frames))
        ),
        families=_families(drawn, stack.name),
        jobs=_jobs(drawn, stack.name),
    )


def _learnt(drawn: DrawnCheckpoints, stack: str) -> list[LearntFunction]:
    """Return what heads do: functions learnt first before later ones, then the rest."""
    found = []
    for column in drawn.checkpoints.columns(stack):
        best = drawn.checkpoints.best_heads(stack, column)[-1]
        if column.does and best.place is not None:
            found.append(_learnt_one(drawn, stack, column, best))
    return sorted(found, key=lambda each: (not each.learnt, each.learnt and each.turn.place))


def _learnt_one(
    drawn: DrawnCheckpoints, stack: str, column: CheckpointColumn, best: BestHead
) -> LearntFunction:
    assert best.place is not None
    first = drawn.first(stack, column, best.place)
    even = "" if np.isnan(best.uniform) else value_text(column, best.uniform)
    turn = drawn.turn(stack, column, best.place)
    learnt = drawn.rises(stack, column, best)
    when = turn.text
    if not learnt and (turn.place is not None or turn == NO_TURN):
        falls = turn.place is not None and best.value.value < first
        when = f"falls, {turn.text}" if falls else "no clear rise to a function"
    return LearntFunction(
        Link(column.does, measure_page(column)),
        head_row_link(HeadName(stack, *best.place)),
        drawn.spark(stack, column, best.place),
        turn,
        estimate_text(column, best.value),
        value_text(column, first),
        even,
        learnt,
        when,
    )


def _families(drawn: DrawnCheckpoints, stack: str) -> Drawing | None:
    """Return the share of heads of each family of functions over steps."""
    families = drawn.checkpoints.families(stack)
    if not families:
        return None
    shares = drawn.checkpoints.family_shares(stack)
    return step_areas(
        f"families-{stack}",
        "Share of heads of each family of functions.",
        shares,
        parts=[(name, family) for family, name in families.items()],
        texts=["" if np.isnan(share) else percent(float(share)) for share in shares[-1]],
        axis=drawn.axis,
    )


def _jobs(drawn: DrawnCheckpoints, stack: str) -> PageTable:
    """Return the head with the highest value at each step; bold if it is another than before."""
    steps = range(len(drawn.checkpoints.frames))
    rows = []
    for column in drawn.checkpoints.columns(stack):
        leaders = drawn.checkpoints.best_heads(stack, column)
        if not column.does or all(each.place is None for each in leaders):
            continue
        cells = []
        for n in steps:
            one, before = leaders[n], leaders[n - 1] if n else None
            if one.place is None:
                cells.append(words_cell("–"))
                continue
            name = head_name(HeadName(stack, *one.place))
            new = before is None or before.place != one.place
            value = MarkedText(value_text(column, one.value.value), "small")
            cells.append(words_cell(MarkedText(name, "b") if new else name, " ", value))
        rows.append(Row(Link(column.does, measure_page(column)), tuple(cells)))
    titles = (drawn.step(n) for n in steps)
    return PageTable(("Function", *titles), tuple(rows), style="numbers jobs")


def _curves(drawn: DrawnCheckpoints) -> Iterator[Drawing]:
    """Yield curves of the loss, then of all heads together."""
    if _has_loss(drawn):
        yield _loss(drawn)
    lines = [line for stack in drawn.checkpoints.stacks for line in _lines(drawn, stack)]
    metrics = {metric for metric, _ in lines}
    if lines:
        yield curves(
            "all-heads",
            " ".join(_ABOUT[metric] for metric in _ABOUT if metric in metrics),
            [line for _, line in lines],
            axis=drawn.axis,
            ends=(0.0, 1.0),
            ticks=SHARE_TICKS,
        )


def _has_loss(drawn: DrawnCheckpoints) -> bool:
    return not any(np.isnan(each.loss.value) for each in drawn.checkpoints.frames)


def _loss(drawn: DrawnCheckpoints) -> Drawing:
    losses = [each.loss for each in drawn.checkpoints.frames]
    value, low, high = (
        np.array([getattr(each, name) for each in losses]) for name in ("value", "low", "high")
    )
    top = float(np.ceil(np.nanmax([value, high])))
    ticks = [(float(tick), f"{tick:g}") for tick in np.linspace(0, top, 5 if top % 2 else 3)]
    target = drawn.checkpoints.frames[0].target
    line = Curve(_TARGETS[target], value, low, high, [number(each) for each in value])
    caption = (
        f"{_TARGETS[target].capitalize()} of the whole model on the sentences, nats per token."
    )
    return curves("loss", caption, [line], axis=drawn.axis, ends=(0.0, top), ticks=ticks)


_ABOUT = {
    ids.INDUCTION_SCORE: "Induction: share of heads with this function.",
    ids.SINK_SHARE: "Sink: mean over heads of their attention to the sink.",
}
INDUCTION = "induction"  # id of a function
_TARGETS = {"loss": "loss", "masked_loss": "masked loss"}


def _lines(drawn: DrawnCheckpoints, stack: AttentionStack) -> Iterator[tuple[str, Curve]]:
    """Yield the lines of one stack, each with the metric that it is about."""
    before = "" if stack.name == "self" else f"{stack.name}: "
    for column in drawn.checkpoints.columns(stack.name):
        if column.metric == ids.SINK_SHARE:
            values = drawn.checkpoints.values(stack.name, column)[:, [*stack.attention_layers]]
            yield column.metric, _line(f"{before}sink", np.nanmean(values, (1, 2)))
        elif column.metric == ids.INDUCTION_SCORE:
            functions = [
                [function.id for function in frame.stacks[stack.name].functions.values()]
                for frame in drawn.checkpoints.frames
            ]
            if not any({*of_heads} <= UNKNOWN for of_heads in functions):
                shares = [of_heads.count(INDUCTION) / len(of_heads) for of_heads in functions]
                yield column.metric, _line(f"{before}induction", np.array(shares))


def _line(name: str, values: Floats) -> Curve:
    none = np.full(len(values), np.nan)
    return Curve(name, values, none, none, [percent(float(value)) for value in values])


def _facts(drawn: DrawnCheckpoints) -> Iterator[tuple[str, str]]:
    first = drawn.checkpoints.frames[0].manifest
    model = first.model
    yield "Checkpoints", ", ".join(each.name for each in drawn.checkpoints.frames)
    yield "Model", f"{model.architecture}, {model.parameters:,} parameters ({model.dtype})"
    for stack in first.stacks:
        name = "Heads" if len(first.stacks) == 1 else STACKS[stack.name].capitalize()
        yield name, f"{len(stack.attention_layers)} layers × {stack.n_heads} heads"
    for file in first.inputs:
        yield "Input", f"{file.name} · {count_text(file.sentences, 'sentence')}"
    yield from text_facts(first)
    yield (
        "Steps",
        (
            "the last number in each checkpoint's name"
            if drawn.checkpoints.named
            else "counted in the order given: the checkpoints' names tell none"
        ),
    )
