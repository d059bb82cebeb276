"""The page of groups of sentences and minimal pairs."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from headbook.charts import Figure, layer_curve
from headbook.pages.parts.blocks import (
    Block,
    Bullets,
    Caption,
    Cell,
    Charts,
    Page,
    Question,
    Row,
    Table,
    Text,
    blocks,
    by_stack,
    links_below,
    row,
)
from headbook.pages.parts.groups import pair_cells
from headbook.pages.parts.page import gap_text
from headbook.pages.parts.table import layer_frame
from headbook.report.facts.columns import contrasts as facts
from headbook.report.facts.columns.contrasts import GroupContrast, GroupMetric, compared_metrics
from headbook.report.results import StackResults, study_of
from headbook.report.wording import STACKS, VIEWS, count_text, is_share, label_name, visible
from headbook.results.formats import p_text
from headbook.results.sentence import Link, Marked, listed, say
from headbook.study.contrasts import PairDifferences
from headbook.study.groups import GroupSums
from headbook.study.manifest import MissingPart

MOST_ROWS = 15  # rows of a table
MOST_LINES = 6  # groups of a figure
MOST_FIGURES = 8  # figures of the page
LETTERS = 24  # letters of a group's name in a figure
Results = Mapping[str, StackResults]


def has_groups(results: Results) -> bool:
    """Whether a study has groups of sentences or pairs to compare."""
    pairs = study_of(results).pair_differences
    return any(facts.groups_of(r) for r in results.values()) or bool(pairs)


def groups_page(results: Results) -> Page:
    """Return the page of groups and of pairs; the first stack answers."""
    study, first = study_of(results), next(iter(results.values()))
    n_columns = sum(len(facts.groups_by_column(r)) for r in results.values())
    most = max(1, MOST_FIGURES // max(1, n_columns))
    questions = {r.stack.name: [*_questions(r, most)] for r in results.values()}
    of_first = questions[first.stack.name]
    return Page(
        path="groups.html",
        topic="Groups of sentences",
        title="Which heads differ between groups of sentences?",
        description=f"How heads of {study.manifest.model.name} differ between groups of sentences, "
        "and within pairs of them.",
        answer=facts.answer(first).text,
        scope=(
            ("Measured on", count_text(study.manifest.counts["sentences"],
                                       study.manifest.text_noun)),
            ("Compared with", "the same difference under uniform attention"),
        ),
        blocks=blocks(
            links_below("groups.html", of_first),
            by_stack(results.values(), lambda r: questions[r.stack.name], results),
        ),
        measured=_measured(),
        absent=tuple(gap_text(gap) for gap in study.manifest.gaps if gap.key == MissingPart.GROUPS),
    )  # fmt: skip


def _questions(results: StackResults, most: int) -> Iterator[Question]:
    """Yield a question for each metadata column, and one for minimal pairs.

    Args:
        most: figures of a column; those beyond `MOST_FIGURES` of the page are left out.
    """
    stack = results.stack.name
    compared_by = results.cached(facts.comparisons_by_column)
    for number, (column, groups) in enumerate(facts.groups_by_column(results).items()):
        large = facts.large_groups(groups)
        compared = compared_by[column]
        metrics = results.cached(compared_metrics)[: most if number * most < MOST_FIGURES else 0]
        small = [Marked(group.value, "bdi") for group in groups if group not in large]
        yield Question(
            f"{stack}-{number + 1}", f"By {visible(column)}",
            facts.small_p(column, compared).text,
            blocks(
                Table(("Group", "sentences"), tuple(map(_group_row, groups)), label="Groups"),
                Charts(tuple(_figure(results, number, groups, metric) for metric in metrics))
                if metrics else None,
                _contrasts(results, compared, large),
                Text(say("Not compared, with fewer than {least} sentences: {small}.",
                         least=facts.MIN_SENTENCES, small=listed(small, ", ")), "hint")
                if small else None,
            ),
        )  # fmt: skip
    differences = results.study.pair_differences.get(stack)
    if differences is not None:
        yield Question(
            f"{stack}-pairs", "Minimal pairs", facts.small_p_of_pairs(differences).text,
            blocks(_pairs_note(differences), _pairs(results, differences)), "pair_id minimal pairs",
        )  # fmt: skip


def _group_row(group: GroupSums) -> Row:
    return row(say("{value}", value=Marked(group.value, "bdi")), group.sentences)


def _contrasts(
    results: StackResults, compared: Sequence[GroupContrast], groups: Sequence[GroupSums]
) -> tuple[Block, ...]:
    """Return the comparisons of smallest p, with the number of those made."""
    if not compared:
        return ()
    names = tuple(group.value for group in groups) if len(groups) == 2 else ()
    between = names or ("first", "its value", "second", "its value")
    rows = tuple(
        _contrast(comparison, len(compared), named=not names) for comparison in compared[:MOST_ROWS]
    )
    heads = len(results.stack.attention_layers) * results.stack.n_heads
    metrics, pairs = len(results.cached(compared_metrics)), len(groups) * (len(groups) - 1) // 2
    left_out = ", those without value or spread left out" * (
        len(compared) < heads * metrics * pairs
    )
    caption = (
        f"First minus second group: {count_text(heads, 'head')} × {count_text(metrics, 'number')} "
        f"× {count_text(pairs, 'pair')} of groups{left_out}. Shown: the {len(rows)} with the "
        f"smallest p, multiplied by {len(compared):,} (Bonferroni). Intervals: 95\u202f% each, not "
        "corrected for the choice."
    )
    columns = ("Head", "Metric", *between, "difference", "uniform attention", "p")
    return Table(columns, rows, "Largest differences"), Caption((caption,))


def _contrast(comparison: GroupContrast, family: int, *, named: bool) -> Row:
    """Return the row of a comparison: first group minus second, p times number of comparisons."""
    values: list[Cell] = []
    for group, number in zip(comparison.groups, comparison.numbers, strict=True):
        values += [say("{value}", value=Marked(group.value, "bdi"))] if named else []
        values.append(number)
    p = p_text(min(1.0, comparison.p * family))
    texts = comparison.change, comparison.uniform_change, p
    return row(comparison.head, comparison.compared.link, *values, *texts)


def _pairs_note(differences: PairDifferences) -> Text:
    """Return what distinguishes the members of pairs, and what was left out."""
    first, second = (Marked(member, "bdi") for member in differences.members)
    note = say("Differences: {first} minus {second}.", first=first, second=second)
    if column := differences.member_column:
        note += say("Column {column} distinguishes the two.", column=Marked(column, "bdi"))
    if differences.left_out:
        note += say(
            "Left out, without exactly two such sentences: {ids} of pairs.",
            ids=count_text(differences.left_out, "identifier"),
        )
    return Text(note)


def _pairs(results: StackResults, differences: PairDifferences) -> tuple[Block, ...]:
    """Return heads and numbers of smallest p within pairs."""
    rows = tuple(
        row(pair.head, pair.compared.link, *pair_cells(pair))
        for pair in facts.pairs_by_p(results, differences, MOST_ROWS)
    )
    if not rows:
        return ()
    caption = (
        "Each pair is one observation: the value of one sentence minus that of the other. "
        "Intervals: 95\u202f% each; p: two-sided, from 2,000 random signs of whole pairs, "
        f"family-wise over all {differences.family:,} heads and metrics."
    )
    columns = ("Head", "Metric", *differences.members, "difference", "p")
    return Table(columns, rows, "Largest differences within pairs"), Caption((caption,))


def _figure(
    results: StackResults, number: int, groups: Sequence[GroupSums], compared: GroupMetric
) -> Figure:
    """Return the curves of a number by layer, a line for each of the largest groups."""
    measured = [g for g in groups if facts.numbers_of(g, compared, "layers").sentences.any()]
    largest = sorted(measured, key=lambda group: -group.sentences)[:MOST_LINES]
    layers, key = [*results.stack.attention_layers], compared.key
    frames = [
        layer_frame(facts.numbers_of(group, compared, "layers"), name).iloc[layers]
        for name, group in zip(_names(largest), largest, strict=True)
    ]
    rows = pd.concat(frames, ignore_index=True).assign(view=str(key.view), label=key.label)
    which = f", the {len(largest)} largest groups" if len(largest) < len(groups) else ""
    stack = results.stack.name
    return layer_curve(
        f"groups-{stack}-{number + 1}-{key.metric}",
        f"{compared.title} of each layer, all heads, by {visible(groups[0].column)}{which}; "
        f"{VIEWS[key.view]}; bands: 95 % intervals. {STACKS[stack].capitalize()}.",
        rows.dropna(subset=["value"], ignore_index=True),
        title=label_name(key.label) or compared.title,
        share=is_share(compared.metric),
    )


def _names(groups: Sequence[GroupSums]) -> list[str]:
    """Return names of groups that are short enough for a figure, no two alike."""
    names: list[str] = []
    for group in groups:
        whole = visible(group.value)
        name = whole if len(whole) <= LETTERS else f"{whole[: LETTERS - 1]}…"
        names.append(f"{name} ({len(names) + 1})" if name in names else name)
    return names


def _measured() -> tuple[Block, ...]:
    """Return how groups and pairs are compared."""
    return (
        Bullets((
            "Groups: values of metadata columns of the input, each measured as the whole corpus.",
            "Groups differ in more than their label, for example in length. Uniform attention: the "
            "same difference with equal weights on all visible keys, so what length and "
            "composition give without any head.",
            "Groups count as independent samples; standard errors are clustered by sentence. "
            f"Groups of fewer than {facts.MIN_SENTENCES} sentences are not compared.",
            say("All numbers by group, and differences within pairs: {data}.",
                data=Link("data", "data.html#groups")),
        )),
    )  # fmt: skip
