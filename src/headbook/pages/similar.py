"""The page of similar heads: groups of near doubles, nearest pairs, and heads without a double."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headbook.charts.theme import amount_class
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.atlas import map_style
from headbook.pages.parts.blocks import (
    Block,
    Cards,
    Columns,
    Definitions,
    Group,
    HeadMap,
    Heat,
    Lead,
    Maps,
    Page,
    SmallMap,
    Symbols,
    Table,
    Text,
    blocks,
    by_stack,
    row,
)
from headbook.report.facts.alike import attends_evenly, doubles, mean_distances_fact
from headbook.report.facts.functions import functions_of
from headbook.report.results import StackResults, study_of
from headbook.report.similar_heads import (
    MAX_DOUBLE_DISTANCE,
    DoubleGroup,
    HeadDistanceMatrix,
    compared_view,
    head_distances,
)
from headbook.report.sink import first_position_is_sink, sink_tokens
from headbook.report.wording import VIEWS, count_text
from headbook.results.number import NATS, Number, RowAddress
from headbook.results.sentence import Link, Sentence, listed, say
from headbook.schema import SinkView
from headbook.study.tables import HELLINGER

Results = Mapping[str, StackResults]
Matrices = Mapping[SinkView, HeadDistanceMatrix]

NEAREST_PAIRS = 24  # pairs that the page lists, in columns of `PAIRS_IN_COLUMN`
PAIRS_IN_COLUMN = 8
MOST_ALONE = 15  # heads without a double that the page shows
MOST_LEFT_OUT = 12  # heads with too few rows that the page names
FILLED_DISTANCE = 0.12  # nats from which on a cell has no fill
LIMIT = f"{MAX_DOUBLE_DISTANCE:.2f} nats"


def _compared(results: Results) -> dict[str, Matrices]:
    return {name: each for name, r in results.items() if (each := r.cached(head_distances))}


def has_similar(results: Results) -> bool:
    """Return whether a study has distances of heads."""
    return bool(_compared(results))


def similar_page(results: Results) -> Page:
    """Return the page of similar heads."""
    compared = [results[name] for name in _compared(results)]
    first = compared[0]
    cropped = any(_cropped(each) for each in compared)
    return Page(
        path="similar.html",
        title="Which heads attend alike?",
        topic="Similar heads",
        description=f"Near doubles among the heads of {study_of(results).manifest.model.name}, and "
        "the nearest pairs.",
        answer=first.cached(doubles).text,
        scope=tuple(_scope(first)),
        blocks=(
            Lead(
                blocks=by_stack(compared, _doubles, results),
                caption="Groups in which every two heads are closer than "
                f"{LIMIT}, the tightest first; the number is the largest divergence of the group, "
                "in nats (natural units of information, at most 0.69). Maps: mean attention of the "
                f"first positions{', without the very first, which belongs to the sink' * cropped}."
                " Heads that attend alike need not do the same: their values may differ.",
                data=Link("Data", "data.html#pairs"),
                id="doubles",
            ),
        ),
        closer=by_stack(compared, _closer, results),
        measured=_measured(first),
    )


def _matrix(results: StackResults) -> HeadDistanceMatrix:
    """Return the distances by which heads are grouped."""
    matrices = results.cached(head_distances)
    return matrices[compared_view(matrices)]


def _views(results: StackResults) -> list[SinkView]:
    """Return the views that were compared, the one of the groups first."""
    matrices = results.cached(head_distances)
    first = compared_view(matrices)
    return [first, *(view for view in matrices if view is not first)]


def _cropped(results: StackResults) -> bool:
    """Whether maps leave out the first position, which belongs to the sink."""
    return _views(results)[0] is SinkView.RENORM and first_position_is_sink(results)


def _scope(results: StackResults) -> Iterator[tuple[str, str]]:
    sentences = count_text(_matrix(results).sentences, results.study.manifest.text_noun)
    yield (
        "Jensen–Shannon divergence",
        f"of the rows of two heads: 0 nats alike, 0.69 no key in common; {sentences}.",
    )
    if _views(results)[0] is SinkView.RENORM:
        yield "Sink masked", f"({sink_tokens(results)}), or a shared sink would decide."


def _distance(results: StackResults, view: SinkView, one: int, other: int) -> Number:
    """Return the distance of two heads, or an upper bound of it, with its row."""
    matrix = results.cached(head_distances)[view]
    one, other = sorted((one, other))
    first, second = matrix.heads[one], matrix.heads[other]
    is_bound = bool(np.isnan(matrix.value[one, other])) and matrix.roots is not None
    row = (
        ("stack", first.stack), ("layer", first.layer), ("head", first.head),
        ("other_layer", second.layer), ("other_head", second.head),
        ("metric", HELLINGER if is_bound else ids.HEAD_DISTANCE), ("view", str(view)),
    )  # fmt: skip
    value, rows = float(matrix.bounds[one, other]), float(matrix.rows[one, other])
    return Number(
        value, NATS, RowAddress("pairs", row), sentences=matrix.sentences, observations=rows,
        sign="≤" * is_bound,
    )  # fmt: skip


def _heat(number: Number) -> Heat:
    fill = amount_class(max(0.0, FILLED_DISTANCE - number.value), 0.0, 1.25 * FILLED_DISTANCE)
    note = f"{number.observations:,.0f} query tokens that count in both heads"
    return Heat(number.printed("bare"), fill if number.known else "", note)


def _map(results: StackResults, index: int, words: str | Sentence = "") -> HeadMap:
    head = _matrix(results).heads[index]
    style = map_style(results.stack, head.layer, head.head)
    return HeadMap(head, f"{style}{' cropped' * _cropped(results)}", words)


def _all_even(results: StackResults, members: Sequence[int]) -> bool:
    heads = _matrix(results).heads
    return all(attends_evenly(results, heads[index]) for index in members)


def _doubles(results: StackResults) -> tuple[Block, ...]:
    """Return the groups of near doubles, those of nearly even heads last."""
    groups = _matrix(results).doubles
    if not groups:
        return (Text(f"No two heads are closer than {LIMIT}.", "hint"),)
    even = [group for group in groups if _all_even(results, group.heads)]
    others = [group for group in groups if group not in even]
    cut = Text(
        "Alike for one reason: these heads attend nearly evenly to all words, so that their rows "
        "cannot differ much.",
        "cut",
    )
    return blocks(
        Cards(tuple(_card(results, group) for group in others)) if others else None,
        [cut, Cards(tuple(_card(results, group) for group in even))] if even else None,
    )


def _card(results: StackResults, group: DoubleGroup) -> tuple[Sentence, tuple[HeadMap, ...]]:
    """Return the largest distance of a group, the function of most of its heads, and their maps."""
    matrix, functions = _matrix(results), functions_of(results)
    nouns = [functions[matrix.heads[index]].noun for index in group.heads]
    most = max(nouns, key=nouns.count)
    noun = most if 2 * nouns.count(most) > len(nouns) else "several functions"
    distance = _distance(results, _views(results)[0], *group.pair)
    maps = tuple(_map(results, index) for index in sorted(group.heads))
    return say("{distance:bare} {noun}", distance=distance, noun=noun), maps


def _closer(results: StackResults) -> Iterator[Block]:
    """Yield the nearest pairs, and the heads without a double."""
    stack, closest = results.stack.name, _matrix(results).closest(NEAREST_PAIRS)
    even = any(_all_even(results, group.heads) for group in _matrix(results).doubles)
    starts = range(0, len(closest), PAIRS_IN_COLUMN)
    tables = tuple(_pairs(results, closest[start : start + PAIRS_IN_COLUMN]) for start in starts)
    yield Group(
        (Columns(tables, 3), *(Text(note, "hint") for note in _notes(results))),
        "Nearest pairs, in groups or not",
        "nats; with all keys, a shared sink alone makes heads alike"
        f"{'; grey: both attend nearly evenly' * even}",
        f"pairs-{stack}",
        "nearest pairs",
        folded=True,
    )
    if alone := tuple(_alone(results)):
        yield Group(
            (Maps(alone, 66),),
            "Heads without a double",
            "largest divergence to their nearest head first, in nats",
            f"alone-{stack}",
            "heads without a double",
        )


def _pairs(results: StackResults, pairs: Sequence[tuple[int, int]]) -> Table:
    """Return pairs of heads with their distance in each view."""
    heads, views = _matrix(results).heads, _views(results)
    rows = []
    for one, other in pairs:
        maps = [SmallMap(_map(results, index).style) for index in (one, other)]
        title = say(
            "{map}{other_map} {head} and {other}",
            map=maps[0], other_map=maps[1], head=heads[one], other=heads[other],
        )  # fmt: skip
        rows.append(row(title, *(_heat(_distance(results, view, one, other)) for view in views)))
    grey = frozenset(n for n, pair in enumerate(pairs) if _all_even(results, pair))
    columns = row("Pair", *(VIEWS[view] for view in views))
    return Table(columns, tuple(rows), style="heat tall", grey=grey, label="Nearest pairs")


def _alone(results: StackResults) -> Iterator[HeadMap]:
    """Yield heads that are in no group, with the distance to their nearest head."""
    matrix, view = _matrix(results), _views(results)[0]
    grouped = {index for group in matrix.doubles for index in group.heads}
    nearest = {index: matrix.nearest(index, 1) for index in matrix.complete.tolist()}
    pairs = [(index, near[0]) for index, near in nearest.items() if near and index not in grouped]
    pairs.sort(key=lambda pair: -matrix.value[pair])
    for index, other in pairs[:MOST_ALONE]:
        distance = _distance(results, view, index, other)
        yield _map(results, index, say("nearest {distance:bare}", distance=distance))


def _notes(results: StackResults) -> Iterator[Sentence]:
    """Yield mean distances, and what was left out."""
    matrix, view = _matrix(results), _views(results)[0]
    means = [
        say("{n:bare} {label}", n=each.number(NATS), label=each.label)
        for each in results.cached(mean_distances_fact).evidence
        if each.view == view and each.label
    ]
    if means:
        yield say("Mean {means}.", means=listed(means, ", "))
    if matrix.roots is not None:
        yield say(
            "With so many heads only similar pairs were compared. For others ≤ stands before the "
            "squared Hellinger distance, which is at least as large; means are of it, too."
        )
    missing = np.setdiff1d(np.arange(len(matrix.heads)), matrix.complete).tolist()
    if missing:
        heads = [matrix.heads[index] for index in missing]
        unnamed = len(heads) - MOST_LEFT_OUT
        more = f" and {unnamed} more" if unnamed > 0 else ""
        yield say(
            "In no group, with too few rows in common with some head: {heads}{more}.",
            heads=listed(heads[:MOST_LEFT_OUT], ", "),
            more=more,
        )


def _measured(results: StackResults) -> tuple[Block, ...]:
    symbols = Symbols((
        ("A, B", "rows of two heads for the same query; with the sink masked, renormalised to sum "
         "to 1"),
        ("Divergence", "½ KL(A ‖ M) + ½ KL(B ‖ M) with M = ½ (A + B); mean over queries, in nats; "
         "at most ln 2 = 0.69 (Clark et al. 2019)"),
        ("Queries", "those that give at most 90 % to the sink in both heads; pairs with fewer than "
         "30 are left out, in small studies those without any"),
        ("Groups", f"complete linkage, cut at {LIMIT}: every two heads of a group are closer. The "
         "threshold is a convention"),
    ))  # fmt: skip
    matrix = _matrix(results)
    worked = [
        Text(say(
            "{one} and {other}: mean over {n} query tokens that count in both heads: {distance} "
            "of at most 0.69.",
            one=matrix.heads[pair[0]], other=matrix.heads[pair[1]], n=int(matrix.rows[pair]),
            distance=_distance(results, _views(results)[0], *pair),
        ), "eg")
        for pair in matrix.closest(1)
    ]  # fmt: skip
    return (symbols, *worked, Definitions((all_metrics()[ids.HEAD_DISTANCE],)))
