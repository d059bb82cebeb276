"""The overview of a film."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.charts import Drawing, images
from headbook.charts.film import SHARE_TICKS, step_areas
from headbook.charts.layers import Curve, curves
from headbook.charts.theme import TYPE_COLOURS, ink_steps, rgba_ramp
from headbook.comparison.film import BestHead
from headbook.comparison.film_steps import MIN_INDUCTION_SCORE, FilmColumn, StackFrame
from headbook.metrics import ids
from headbook.pages.film.parts import (
    DrawnFilm,
    HalfRiseText,
    estimate_text,
    head_row,
    head_row_link,
    measure_page,
    value_text,
)
from headbook.pages.parts.atlas import Atlas, atlas_of
from headbook.pages.parts.page import Page, StackSection
from headbook.pages.parts.table import MarkedText, PageTable, Row, words_cell
from headbook.report.families import TYPE_STYLES, in_page_words, letters_of, style_of
from headbook.report.findings.finding import Link, Parts
from headbook.report.wording import STACKS, count_text, head_name, number, percent
from headbook.schema import AttentionStack
from headbook.study.sentence_data import HeadName

OTHERS = 2  # functions beside induction that the lead names
MOST = 24  # words and links, about four sentences
LEAST = 0.1  # change of a share that it names


def film_lead(reel: DrawnFilm) -> Parts:
    """When which head changed most, as words and links."""
    parts: list[str | Link] = []
    for stack in reel.film.stacks:
        for sentence in (*_induction(reel, stack), *_others(reel, stack)):
            if len(parts) < MOST:
                parts += [" "] * bool(parts) + [*sentence]
    if not parts:
        parts = [
            f"{reel.at(0).capitalize()} to {reel.at(-1)}: no head clearly takes on one of "
            "the functions that are followed."
        ]
    return tuple(parts)


def _column(
    reel: DrawnFilm, stack: AttentionStack, metric: str, label: str = ""
) -> FilmColumn | None:
    found = (c for c in reel.film.columns(stack.name) if (c.metric, c.label) == (metric, label))
    return next(found, None)


def _induction(reel: DrawnFilm, stack: AttentionStack) -> Iterator[list[str | Link]]:
    column = _column(reel, stack, ids.INDUCTION_SCORE)
    best = reel.film.best_heads(stack.name, column)[-1] if column else None
    if column is None or best is None or best.place is None:
        return
    head = HeadName(stack.name, *best.place)
    if not best.value.value >= MIN_INDUCTION_SCORE:
        where = "" if stack.name == "self" else f" in {STACKS[stack.name]}"
        yield [
            f"No head{where} has become an induction head: the highest score at ", reel.at(-1),
            " is ",
            f"{estimate_text(column, best.value)} (", head_row_link(head),
            f"), below {percent(MIN_INDUCTION_SCORE)}.",
        ]  # fmt: skip
        return
    turn = reel.turn(stack.name, column, best.place)
    first = reel.first(stack.name, column, best.place)
    if reel.rises(stack.name, column, best) and turn.between:
        when = f"appears {_steps(turn.between)}"
    elif first >= MIN_INDUCTION_SCORE:
        when = "is there from the first step on"
    else:
        when = f"is there at {reel.at(-1)}, after no clear rise"
    yield [f"An induction head {when}: ", head_row_link(head), f", in layer {head.layer}."]
    yield [
        "On repeated random tokens it gives ", estimate_text(column, best.value),
        f" of its attention to the token after the earlier occurrence at {reel.at(-1)}, "
        f"{value_text(column, first)} at {reel.at(0)} "
        f"(uniform attention: {value_text(column, best.uniform)}).",
    ]  # fmt: skip


def _others(reel: DrawnFilm, stack: AttentionStack) -> Iterator[list[str | Link]]:
    """Other functions, those that rise most first."""
    found = []
    for column in reel.film.columns(stack.name):
        best = reel.film.best_heads(stack.name, column)[-1]
        if not column.does or column.metric == ids.INDUCTION_SCORE or best.place is None:
            continue
        rise = best.value.value - reel.first(stack.name, column, best.place)
        turn = reel.turn(stack.name, column, best.place)
        if rise >= LEAST and turn.between and reel.rises(stack.name, column, best):
            found.append((rise, column, best))
    for _, column, best in sorted(found, key=lambda each: -each[0])[:OTHERS]:
        assert best.place is not None
        turn = reel.turn(stack.name, column, best.place)
        first = reel.first(stack.name, column, best.place)
        yield [
            head_row_link(HeadName(stack.name, *best.place)),
            f" {column.does}: {estimate_text(column, best.value)}, {value_text(column, first)} at "
            f"{reel.at(0)}; half of the change is reached {_steps(turn.between)}.",
        ]


def _steps(between: str) -> str:
    return between.replace("between ", "between steps ", 1)


PICTURES = "data/film"


@dataclass(frozen=True)
class LearntFunction:
    """Something that heads do, the head that does it most at the last step, and when it began.

    Attributes:
        does: what; it leads to the page of that number.
        head: the head.
        line: its number over steps.
        turn: when it changed.
        last, first, uniform: the number at the last and the first step, and of uniform attention.
        learnt: whether it rose, to more than uniform attention has, beyond noise.
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
class FilmFrame:
    """The picture of all heads at one step."""

    name: str
    src: str


@dataclass(frozen=True)
class FilmStack(StackSection):
    """One kind of attention.

    Attributes:
        learnt: what heads do, those that changed first before others.
        atlas: of the last step.
        frames: of all steps.
        types: share of heads of each type over steps; None where types are not known.
        jobs: the head that does something most, by step.
    """

    learnt: tuple[LearntFunction, ...]
    atlas: Atlas
    frames: tuple[FilmFrame, ...]
    types: Drawing | None
    jobs: PageTable


@dataclass(frozen=True, kw_only=True)
class FilmPage(Page):
    """The overview.

    Attributes:
        lead: when which head changed most, words and links.
        failed: self-checks that failed, with their checkpoints.
        curves: of the whole model.
        no_loss: why there is no loss; empty where there is one.
        stacks: by kind of attention.
        facts: what was looked at.
        named: whether steps are those of the checkpoints' names.
    """

    template: ClassVar[str] = "film/film.html"
    scripts = ("film",)
    styles = ("film",)
    contents = False
    lead: Parts
    failed: tuple[str, ...]
    curves: tuple[Drawing, ...]
    no_loss: str
    stacks: tuple[FilmStack, ...]
    facts: tuple[tuple[str, str], ...]
    named: bool


def film_page(reel: DrawnFilm, title: str) -> FilmPage:
    """The first page of a film's site."""
    film = reel.film
    drawn = tuple(_curves(reel))
    return FilmPage(
        path="index.html",
        title=title,
        description=f"Attention heads of {count_text(len(film.frames), 'checkpoint')} of one "
        "training on the same sentences: which head learnt what, and when.",
        lead=film_lead(reel),
        failed=tuple(
            f"{each.name}: {check}" for each in film.frames for check in each.manifest.failed
        ),
        curves=drawn,
        no_loss=""
        if _has_loss(reel)
        else "loss: the studies have none (importance was off, or "
        "the checkpoints have no language-model head)",
        stacks=tuple(_stack(reel, stack) for stack in film.stacks),
        facts=tuple(_facts(reel)),
        named=film.named,
    )


def sheets(reel: DrawnFilm) -> Iterator[tuple[str, bytes]]:
    """The pictures of all heads at each step, by their address."""
    for place, each in enumerate(reel.film.frames):
        for stack in each.stacks.values():
            cells = stack.maps[[*stack.stack.attention_layers]].astype(np.float64)
            yield _sheet(stack.stack, place), images.sprite(ink_steps(cells), rgba_ramp())


def film_data(reel: DrawnFilm) -> dict[str, Any]:
    """What the slider shows, by stack: of each step its name, picture, and the types of heads."""
    return {
        stack.name: [
            {
                "name": reel.at(place),
                "src": _sheet(stack, place),
                "heads": _tiles(each.stacks[stack.name]),
            }
            for place, each in enumerate(reel.film.frames)
        ]
        for stack in reel.film.stacks
    }


def _tiles(each: StackFrame) -> list[list[str]]:
    """Classes, letters and label of each head's tile, in the order of the atlas."""
    found = []
    for place, kind in each.types.items():
        name = head_name(HeadName(each.stack.name, *place))
        if kind is None:
            found.append(["", "", name])
        else:
            label = f"{name}, {in_page_words(kind.name)}"
            found.append([style_of(kind), letters_of(kind), label])
    return found


def _sheet(stack: AttentionStack, place: int) -> str:
    return f"{PICTURES}/{stack.name}-{place:03d}.png"


def _stack(reel: DrawnFilm, stack: AttentionStack) -> FilmStack:
    last = reel.film.frames[-1].stacks[stack.name]
    return FilmStack(
        stack=stack.name,
        learnt=tuple(_learnt(reel, stack.name)),
        atlas=atlas_of(
            stack,
            last.types,
            sheet=_sheet(stack, len(reel.film.frames) - 1),
            side=last.maps.shape[-1],
            about=f"mean attention by position, the first {last.maps.shape[-1]} positions",
            page=head_row,
        ),
        frames=tuple(
            FilmFrame(reel.at(place), _sheet(stack, place))
            for place in range(len(reel.film.frames))
        ),
        types=_types(reel, stack.name),
        jobs=_jobs(reel, stack.name),
    )


def _learnt(reel: DrawnFilm, stack: str) -> list[LearntFunction]:
    """What heads do: what was learnt first, the earliest before others; then the rest."""
    found = []
    for column in reel.film.columns(stack):
        best = reel.film.best_heads(stack, column)[-1]
        if column.does and best.place is not None:
            found.append(_learnt_one(reel, stack, column, best))
    return sorted(found, key=lambda each: (not each.learnt, each.learnt and each.turn.place))


def _learnt_one(reel: DrawnFilm, stack: str, column: FilmColumn, best: BestHead) -> LearntFunction:
    assert best.place is not None
    first = reel.first(stack, column, best.place)
    even = "" if np.isnan(best.uniform) else value_text(column, best.uniform)
    turn = reel.turn(stack, column, best.place)
    learnt = reel.rises(stack, column, best)
    when = turn.text if learnt else "no clear rise"
    if not learnt and turn.place is not None and best.value.value < first:
        when = f"falls, {turn.text}"
    return LearntFunction(
        Link(column.does, measure_page(column)),
        head_row_link(HeadName(stack, *best.place)),
        reel.spark(stack, column, best.place),
        turn,
        estimate_text(column, best.value),
        value_text(column, first),
        even,
        learnt,
        when,
    )


def _types(reel: DrawnFilm, stack: str) -> Drawing | None:
    """Share of heads of each type."""
    families = reel.film.families(stack)
    if not families:
        return None
    order = [kind for kind in TYPE_STYLES if str(kind) in families]
    shares = reel.film.type_shares(stack, [str(kind) for kind in order])
    return step_areas(
        f"types-{stack}",
        "Share of heads of each type, by the first part of its name.",
        shares,
        parts=[(_family(str(kind)), TYPE_COLOURS[TYPE_STYLES[kind].shade][0]) for kind in order],
        texts=["" if np.isnan(share) else percent(float(share)) for share in shares[-1]],
        axis=reel.axis,
    )


def _family(name: str) -> str:
    return {"offset": "one other offset"}.get(name, in_page_words(name))


def _jobs(reel: DrawnFilm, stack: str) -> PageTable:
    """The head that does something most at each step; bold where it is another than before."""
    steps = range(len(reel.film.frames))
    rows = []
    for column in reel.film.columns(stack):
        leaders = reel.film.best_heads(stack, column)
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
    titles = (reel.step(n) for n in steps)
    return PageTable(("Function", *titles), tuple(rows), style="numbers jobs")


def _curves(reel: DrawnFilm) -> Iterator[Drawing]:
    """The loss, then what all heads together do."""
    if _has_loss(reel):
        yield _loss(reel)
    lines = [line for stack in reel.film.stacks for line in _lines(reel, stack)]
    metrics = {c.metric for stack in reel.film.stacks for c in reel.film.columns(stack.name)}
    if lines:
        yield curves(
            "all-heads",
            " ".join(_ABOUT[metric] for metric in _ABOUT if metric in metrics),
            lines,
            axis=reel.axis,
            ends=(0.0, 1.0),
            ticks=SHARE_TICKS,
        )


def _has_loss(reel: DrawnFilm) -> bool:
    return not any(np.isnan(each.loss.value) for each in reel.film.frames)


def _loss(reel: DrawnFilm) -> Drawing:
    losses = [each.loss for each in reel.film.frames]
    value, low, high = (
        np.array([getattr(each, name) for each in losses]) for name in ("value", "low", "high")
    )
    top = float(np.ceil(np.nanmax([value, high])))
    ticks = [(float(tick), f"{tick:g}") for tick in np.linspace(0, top, 5 if top % 2 else 3)]
    target = reel.film.frames[0].target
    line = Curve(_TARGETS[target], value, low, high, [number(each) for each in value])
    caption = (
        f"{_TARGETS[target].capitalize()} of the whole model on the sentences, nats per token."
    )
    return curves("loss", caption, [line], axis=reel.axis, ends=(0.0, top), ticks=ticks)


_ABOUT = {
    ids.INDUCTION_SCORE: "Induction: share of heads with an induction score of at least "
    f"{percent(MIN_INDUCTION_SCORE)}.",
    ids.SINK_SHARE: "Sink: mean over heads of their attention to the sink.",
}
_TARGETS = {"loss": "loss", "masked_loss": "masked loss"}


def _lines(reel: DrawnFilm, stack: AttentionStack) -> Iterator[Curve]:
    """Of one stack."""
    before = "" if stack.name == "self" else f"{stack.name}: "
    for column in reel.film.columns(stack.name):
        values = reel.film.values(stack.name, column)[:, [*stack.attention_layers]]
        if column.metric == ids.INDUCTION_SCORE:
            yield _line(f"{before}induction", (values >= MIN_INDUCTION_SCORE).mean((1, 2)))
        elif column.metric == ids.SINK_SHARE:
            yield _line(f"{before}sink", np.nanmean(values, (1, 2)))


def _line(name: str, values: Floats) -> Curve:
    none = np.full(len(values), np.nan)
    return Curve(name, values, none, none, [percent(float(value)) for value in values])


def _facts(reel: DrawnFilm) -> Iterator[tuple[str, str]]:
    first = reel.film.frames[0].manifest
    model = first.model
    yield "Checkpoints", ", ".join(each.name for each in reel.film.frames)
    yield "Model", f"{model.architecture}, {model.parameters:,} parameters ({model.dtype})"
    for stack in first.stacks:
        name = "Heads" if len(first.stacks) == 1 else STACKS[stack.name].capitalize()
        yield name, f"{len(stack.attention_layers)} layers × {stack.n_heads} heads"
    for file in first.inputs:
        yield "Input", f"{file.name} · {count_text(file.sentences, 'sentence')}"
    yield (
        "Steps",
        (
            "the last number in each checkpoint's name"
            if reel.film.named
            else "counted in the order given: the checkpoints' names tell none"
        ),
    )
