"""The page on regions of texts: which heads attend from one of two texts, or parts, to another."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from headbook.charts.theme import amount_class, fills_between
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.all_heads import MAX_LINKED, heads_table
from headbook.pages.parts.blocks import (
    Block,
    Caption,
    Columns,
    Definitions,
    Details,
    Group,
    Lead,
    Page,
    Question,
    Row,
    Small,
    Steps,
    Symbols,
    Table,
    blocks,
    by_stack,
    heat_of,
    row,
)
from headbook.report.facts.texts import regions as facts
from headbook.report.leaders import alike_note, head_leaders
from headbook.report.results import StackResults, study_of
from headbook.report.sink import sink_tokens
from headbook.report.thresholds import REGION_EXCESS
from headbook.report.wording import capital, count_text, p_family_wise_text, sentence_page
from headbook.results.formats import metric_page, percent
from headbook.results.number import Number, Printed
from headbook.results.sentence import NOTHING, Link, Sentence, listed, say
from headbook.schema import PAIR_REGIONS, HeadName, heads_of, regions_of

Results = Mapping[str, StackResults]
LEAST_TOP = 0.01  # attention beyond distance at the full fill, if no head has more
MAX_EXEMPLARS = 2  # exemplars of a pair of regions in the table of leaders


def has_regions(results: Results) -> bool:
    """Return whether the texts of a study have several regions."""
    return any(facts.crossing(each) for each in results.values())


def regions_page(results: Results) -> Page:
    """Return the page of attention between regions; the first stack answers."""
    stacks = [each for each in results.values() if facts.crossing(each)]
    first = stacks[0]
    most_cells = MAX_LINKED // len(stacks)
    return Page(
        path="regions.html",
        title=f"Which heads attend from one {_part(first)}?",
        topic="Between the parts of a text",
        description=f"Attention of the heads of {study_of(results).manifest.model.name} between "
        f"{_parts(first)}, beyond what distance explains.",
        answer=first.cached(facts.between_regions).text,
        scope=tuple(_scope(first)),
        blocks=by_stack(stacks, partial(_lead, most_cells=most_cells), results),
        closer=by_stack(stacks, _closer, results),
        measured=_measured(),
    )


def _parts(results: StackResults) -> str:
    """Return the regions in words."""
    names = [*dict.fromkeys(regions_of(label)[0] for label in facts.labels(results))]
    return "the two texts of a pair" if set(names) == {*PAIR_REGIONS} else ", ".join(names)


def _part(results: StackResults) -> str:
    """Return a region and another one in words."""
    of_pair = facts.other_part(results) == facts.OTHER_TEXT
    return f"text of a pair to {facts.OTHER_TEXT}" if of_pair else "part of a text to another"


def _scope(results: StackResults) -> Iterator[tuple[str, Sentence | str]]:
    noun = results.study.manifest.text_noun
    key = facts.share_key(facts.crossing(results)[0])
    texts = count_text(int(results.layers(*key).sentences.max()), noun)
    parts = " of texts" if noun == "pair" else f": {_parts(results)}"
    yield "Measured on", f"{texts}{parts}; {sink_tokens(results)} masked as keys."
    yield (
        "Compared with",
        "one weight per distance, fitted to the head on the other half of the texts.",
    )


def _lead(results: StackResults, most_cells: int) -> Iterator[Block]:
    """Yield all heads by ordered pair, and the heads that lead each pair."""
    pairs, n_heads = _by_size(results), len(heads_of(results.stack))
    drawn = pairs[: max(1, most_cells // n_heads)]
    top = max(LEAST_TOP, *(_largest(results, label) for label in pairs))
    grids = tuple(_grid(results, label, top) for label in drawn)
    steps = Steps("0", fills_between("q0", "q6"), f"{percent(top)} of a head's attention")
    note = (
        "Attention beyond what one weight per distance explains. Rows are layers, "
        f"columns heads. Framed: at least {100 * REGION_EXCESS.value:.0f} points, confirmed by the "
        "other half of the texts, family-wise."
    )
    left = len(pairs) - len(drawn)
    link = Link("all numbers", metric_page(ids.REGION_EXCESS))
    more = say("{n} more ordered pairs: {link}.", n=left, link=link) if left else None
    of_layers: Block = Columns(grids, 2) if len(grids) <= 2 else Small(grids)
    yield Lead(
        blocks=blocks(of_layers, Caption((steps,)), Caption((more,)) if more else None),
        caption=note,
        data=Link("Data", "data.html#heads"),
        id=f"heads-{results.stack.name}",
    )
    other = facts.other_part(results)
    yield Question(
        f"leaders-{results.stack.name}",
        f"How much of their attention goes to {other}, and in which texts?",
        EXEMPLARS,
        (_heads_table(results, pairs), Caption((CHOICE,))),
        keywords="exemplars leaders",
    )


def _largest(results: StackResults, label: str) -> float:
    return float(np.nanmax(results.heads(*facts.excess_key(label)).value))


def _by_size(results: StackResults) -> list[str]:
    """Return the ordered pairs of two regions, that with the largest excess first."""
    return sorted(facts.crossing(results), key=lambda label: -_largest(results, label))


def _grid(results: StackResults, label: str, top: float) -> Table:
    """Return attention beyond distance of all heads for an ordered pair."""
    seeking = {*facts.seeking(results, label)}

    def number_of(head: HeadName) -> Number:
        return facts.beyond(results, label, head)

    def fill(head: HeadName, number: Number) -> str:
        return amount_class(number.value, 0, top) + " top1" * (head in seeking)

    def more(head: HeadName) -> str:
        share = results.number(facts.share_key(label), head.layer, head.head)
        return f"; {share.as_text()} of its attention" if share.known else ""

    return heads_table(
        results.stack, number_of, fill, capital(facts.phrase(label)),
        f"{count_text(len(seeking), 'head')} framed",
        format_name=".0f", style="mini", layer_name="L{}", more=more,
    )  # fmt: skip


EXEMPLARS = (
    "Exemplars: query and key of the largest weights from one part to the other, in texts that "
    "are exemplars of the head."
)
CHOICE = (
    "Share: attention off the sink of tokens that see the other part. The framed heads; without "
    "one, that with the largest difference to distance, and how many a test paired by text does "
    "not tell from it. p: on the half of the texts that gave no expected weights, over all heads "
    "and ordered pairs."
)
MOST_ROWS = 6  # framed heads of an ordered pair in the table


def _heads_table(results: StackResults, pairs: Sequence[str]) -> Table:
    """Return the heads that seek a region, or else the leader of its ordered pair, by number."""
    rows = []
    for label in pairs:
        if heads := facts.seeking(results, label)[:MOST_ROWS]:
            rows += [_row(results, label, head) for head in heads]
        elif leaders := head_leaders(results, facts.excess_key(label)):
            head = HeadName(results.stack.name, *leaders.first)
            rows.append(_row(results, label, head, alike_note(results, leaders)))
    columns = row("attention", "head", *NUMBERS, "p", "exemplars")
    return Table(columns, tuple(rows), label="Heads by ordered pair of regions, with numbers")


def _row(results: StackResults, label: str, head: HeadName, note: str = "") -> Row:
    test = facts.region_tests(results)[(head.layer, head.head), label]
    return row(
        facts.arrow(label),
        say("{head}{note}", head=head, note=note),
        *region_numbers(results, label, head),
        p_family_wise_text(test.p).removesuffix(" family-wise"),
        region_exemplars(results, label, head),
    )


NUMBERS = ("share", "uniform attention", "beyond distance")


def region_numbers(
    results: StackResults, label: str, head: HeadName
) -> tuple[Printed | Number | None, ...]:
    """Return the numbers of a head and an ordered pair of regions that `NUMBERS` names."""
    return (
        facts.share(results, label, head).printed("interval"),
        results.uniform_number(facts.share_key(label), head.layer),
        facts.beyond(results, label, head).printed("interval"),
    )


def region_exemplars(results: StackResults, label: str, head: HeadName) -> Sentence:
    """Return the largest weights from one region to the other in exemplars, as links."""
    links = []
    for number, query, key in facts.exemplars(results, label, head):
        at = f"#at={head.stack}&heads={head.layer}.{head.head}"
        links.append(Link(f"{query} → {key}", f"{sentence_page(number)}{at}"))
        if len(links) == MAX_EXEMPLARS:
            break
    return listed([say("{link}", link=link) for link in links], last=", ") if links else NOTHING


def _closer(results: StackResults) -> Iterator[Block]:
    """Yield the shares of layers, beside uniform attention."""
    layers, pairs = results.stack.attention_layers, facts.labels(results)
    rows = []
    for label in pairs:
        key = facts.share_key(label)
        name = facts.phrase(label) if len({*regions_of(label)}) > 1 else _within(label)
        numbers = (heat_of(results.number(key, layer), 1.0, "bare") for layer in layers)
        rows.append(row(name, results.uniform_number(key, layers[0]), *numbers))
    columns = row("attention", "uniform", *layers)
    table = Table(columns, tuple(rows), "All heads of a layer", "per cent", style="heat tags")
    yield Group(
        (table, Caption((BY_LAYER,))),
        "By layer",
        id=f"layers-{results.stack.name}",
        link="by layer",
    )


BY_LAYER = (
    "Attention off the sink of the tokens of one part, by where it goes. Uniform: equal weights on "
    "all visible keys, of the first layer."
)


def _within(label: str) -> str:
    return f"within the {regions_of(label)[0]}"


def _measured() -> tuple[Block, ...]:
    symbols = Symbols((
        ("share", "attention from the tokens of one part to those of the other, divided by all "
         "their attention; special tokens masked as keys and rows renormalised"),
        ("beyond distance", "the share minus that of rows with one weight per distance, fitted to "
         "the head on the half of the texts that is not measured; in points, 0 for even attention "
         "and for a head whose weights depend on distance alone"),
        ("framed", "p below 0.05 by the largest statistic of random signs of texts, over all heads "
         f"and ordered pairs, and an interval above {100 * REGION_EXCESS.value:.0f} points"),
    ))  # fmt: skip
    metrics = tuple(all_metrics()[name] for name in (ids.REGION_ATTENTION, ids.REGION_EXCESS))
    return symbols, Details("Definitions", (Definitions(metrics),))
