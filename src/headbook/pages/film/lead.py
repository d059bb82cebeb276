"""The first sentences of a film: when which head changed most."""

from collections.abc import Iterator

from headbook.comparison.headlines import INDUCTION, FilmColumn
from headbook.metrics import ids
from headbook.pages.film.parts import DrawnFilm, estimate_text, head_link, value_text
from headbook.report.findings.finding import Link, Parts
from headbook.report.wording import STACKS, percent
from headbook.study.sentencedata import HeadName
from headbook.terms import Stack

OTHERS = 2  # functions beside induction that the lead names
MOST = 24  # words and links, about four sentences
LEAST = 0.1  # change of a share that it names


def lead(reel: DrawnFilm) -> Parts:
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


def _column(reel: DrawnFilm, stack: Stack, metric: str, label: str = "") -> FilmColumn | None:
    found = (c for c in reel.film.columns(stack.name) if (c.metric, c.label) == (metric, label))
    return next(found, None)


def _induction(reel: DrawnFilm, stack: Stack) -> Iterator[list[str | Link]]:
    column = _column(reel, stack, ids.INDUCTION_SCORE)
    best = reel.film.leaders(stack.name, column)[-1] if column else None
    if column is None or best is None or best.place is None:
        return
    head = HeadName(stack.name, *best.place)
    if not best.value.value >= INDUCTION:
        where = "" if stack.name == "self" else f" in {STACKS[stack.name]}"
        yield [
            f"No head{where} has become an induction head: the highest score at ", reel.at(-1),
            " is ",
            f"{estimate_text(column, best.value)} (", head_link(head),
            f"), below {percent(INDUCTION)}.",
        ]  # fmt: skip
        return
    turn = reel.turn(stack.name, column, best.place)
    first = reel.first(stack.name, column, best.place)
    if reel.rises(stack.name, column, best) and turn.between:
        when = f"appears {_steps(turn.between)}"
    elif first >= INDUCTION:
        when = "is there from the first step on"
    else:
        when = f"is there at {reel.at(-1)}, after no clear rise"
    yield [f"An induction head {when}: ", head_link(head), f", in layer {head.layer}."]
    yield [
        "On repeated random tokens it gives ", estimate_text(column, best.value),
        f" of its attention to the token after the earlier occurrence at {reel.at(-1)}, "
        f"{value_text(column, first)} at {reel.at(0)} "
        f"(uniform attention: {value_text(column, best.uniform)}).",
    ]  # fmt: skip


def _others(reel: DrawnFilm, stack: Stack) -> Iterator[list[str | Link]]:
    """Other functions, those that rise most first."""
    found = []
    for column in reel.film.columns(stack.name):
        best = reel.film.leaders(stack.name, column)[-1]
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
            head_link(HeadName(stack.name, *best.place)),
            f" {column.does}: {estimate_text(column, best.value)}, {value_text(column, first)} at "
            f"{reel.at(0)}; half of the change is reached {_steps(turn.between)}.",
        ]


def _steps(between: str) -> str:
    return between.replace("between ", "between steps ", 1)
