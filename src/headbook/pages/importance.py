"""The page on ablating heads: groups, a map of heads, pruning, estimates, and a table."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.charts import Plot
from headbook.charts.ablation import GroupEffect, effect_ends, effect_step, group_plot
from headbook.pages.importance_parts.tasks import task_question
from headbook.pages.parts import ablation as parts
from headbook.pages.parts.ablation import group_name
from headbook.pages.parts.all_heads import heads_table
from headbook.pages.parts.blocks import (
    Block,
    Caption,
    Columns,
    Group,
    Lead,
    Page,
    Question,
    Steps,
    Symbols,
    Table,
    Text,
    Title,
    blocks,
    links_below,
)
from headbook.report.ablation import (
    HEAVY_NAME,
    KEYS,
    SINK,
    choice_text,
    effect_unit,
    head_change,
    head_changes,
    margin_text,
    short_verdict,
    unit_factor,
)
from headbook.report.answers.ablation.tasks import gap_sentences
from headbook.report.facts import importance as facts
from headbook.report.facts.functions import FunctionFamily, families_of, functions_of
from headbook.report.facts.sinks import sink_heads_text
from headbook.report.results import StackResults, study_of
from headbook.report.sink import sink_tokens
from headbook.report.wording import STACKS, capital, count_text
from headbook.results.number import Number
from headbook.results.sentence import Link, Marked, Sentence, listed, say
from headbook.schema import HeadName, Replacement
from headbook.study.ablation.effect_tests import ranked_target
from headbook.study.ablation.results import FULL, AblationReason, AblationResults
from headbook.study.ablation_tables import EXACT, GROUP

MAX_LISTED = 150  # heads of the table; the files have all of them
REMOVE = "remove removed removal drop delete cut prune pruning removable without"
STEPS = tuple(f"q{n}" for n in range(7))
Results = Mapping[str, StackResults]
Ends = tuple[float, float]


def has_importance(results: Results) -> bool:
    """Return whether a study has heads that were ablated or whose effect was estimated."""
    return study_of(results).corpus_sums.ablation is not None


def importance_page(results: Results) -> Page:
    """Return the page on importance of a study whose heads were replaced."""
    study = study_of(results)
    ablation = study.corpus_sums.ablation
    assert ablation is not None
    changes = _with_styles(results, head_changes(ablation, ranked_target(ablation)))
    groups, steps = study.head_groups, facts.pruning_steps(ablation, study.pruning)
    plot = _group_plot(ablation, groups, results)
    tasks = [task_question(task) for task in study.corpus_sums.tasks.values()]
    questions = [*tasks, *_questions(ablation, results, changes, steps)]
    return Page(
        path="importance.html",
        title="What does the model lose without a head?",
        topic="Importance of heads",
        description=f"What {study.manifest.model.name} loses when the outputs of heads are "
        "replaced: groups, single heads, and verdicts.",
        answer=facts.main_loss(ablation, _last_layers(results)).text,
        scope=_scope(ablation, groups),
        blocks=blocks(
            links_below("importance.html", questions), Lead(plot) if plot else None, questions
        ),
        closer=tuple(_closer(ablation, results, changes)),
        measured=_measured(ablation, results, has_tasks=bool(tasks)),
        absent=(*_absent(ablation, has_pruning=not steps.empty), *gap_sentences(study)),
    )


def _with_styles(results: Results, changes: pd.DataFrame) -> pd.DataFrame:
    """Return changes of heads by stack, with the class of each head's family and its function."""
    stacks = pd.Categorical(changes["stack"], categories=[*results], ordered=True)
    changes = changes.iloc[np.argsort(stacks.codes, kind="stable")]
    styles, nouns = [], []
    for stack, layer, head in changes[["stack", "layer", "head"]].itertuples(index=False):
        of_stack = functions_of(results[stack]) if stack in results else {}
        function = of_stack.get(HeadName(stack, layer, head))
        styles.append((function.style if function else "") or "c-other")
        nouns.append(function.noun if function else "")
    return changes.assign(style=styles, function=nouns)


def _last_layers(results: Results) -> dict[str, int]:
    """Return the last layer of each stack that writes into the output of the model."""
    stacks = [name for name in results if name != "encoder"]
    return {name: results[name].stack.attention_layers[-1] for name in stacks}


def _scope(ablation: AblationResults, groups: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    measured = (
        "Sentences",
        f"{len(ablation.content_hash):,}, those with the smallest hashes of their content; a "
        "head’s output is replaced by its mean over the other half.",
    )
    sets = int(groups["random_sets"].max()) if len(groups) else 0
    random = f", and {sets:,} random sets with as many heads in each layer" if sets else ""
    return measured, ("Compared with", f"the whole model{random}.")


def _absent(ablation: AblationResults, *, has_pruning: bool) -> Iterator[str]:
    """Yield the parts that were not measured, with the option that measures each."""
    if not has_pruning:
        yield "How many heads can go together: at least 20 sentences in one study."
    if ablation.level != FULL:
        yield "Heads of each family together, pairs of heads, finer curves: --importance full."
    estimated = int((ablation.chosen == AblationReason.NOT_ABLATED).sum())
    if estimated:
        heads = count_text(estimated, "head")
        yield f"Exact changes of {heads}, which are estimated: --importance full measures them."


def _questions(
    ablation: AblationResults, results: Results, changes: pd.DataFrame, steps: pd.DataFrame
) -> Iterator[Question]:
    """Yield the further questions: single heads, sink heads, and heads that go together."""
    ringed = "no_change" in {verdict for verdict, *_ in _rings(ablation)}
    yield Question(
        "heads", "Which heads count when replaced alone?", facts.heads_answer(ablation),
        tuple(_head_maps(ablation, results, changes)),
        "important matter needed strongest effect",
    )  # fmt: skip
    if removable := facts.removable_heads(ablation):
        below = (Caption((_alone(ablation, steps, ringed=ringed),)),)
        keywords = f"{REMOVE} useless spare"
        yield Question("removable", "Which heads could go?", removable, below, keywords)
    groups = study_of(results).head_groups
    found = (facts.sink_rows(groups, stack, ranked_target(ablation)) for stack in results)
    if (sink := next((rows for rows in found if len(rows)), None)) is not None:
        tokens = sink_tokens(results[sink["stack"].iloc[0]])
        caption = (
            "They are dead only if few sentences change by mean and without sink, and zero changes "
            "no more than random sets do. Where zero alone changes much, all that is lost is a "
            "constant."
        )
        yield Question(
            "sink", "Are the sink heads dead?", facts.sinks_dead(ablation, sink, tokens),
            (parts.sink_table(ablation, sink, tokens), Caption((caption,))),
            f"dead useless no-op {tokens}",
        )  # fmt: skip
    if not steps.empty:
        yield Question(
            "pruning", "How many heads can go together?", facts.pruning(ablation, steps),
            (Lead(parts.pruning_plot(ablation, steps)),), REMOVE,
        )  # fmt: skip


def _alone(ablation: AblationResults, steps: pd.DataFrame, *, ringed: bool) -> Sentence:
    """Return the meaning of "can go alone", and whether such heads can go together.

    Args:
        ablation: results of all heads.
        steps: steps of pruning orders.
        ringed: whether heads that can go alone have a ring in the map.
    """
    together = facts.together(ablation, steps)
    return say(
        "“Can go alone”: surely fewer than a fifth of the sentences change by more than the "
        "margin ({margin}). Heads that can each go alone may not go together: others may "
        "stand in for one of them, and not for many. {together}{space}{where} {table} lists them "
        "all.",
        margin=margin_text(ablation), together=together, space=" " if together else "",
        where="In the map above they have a green ring; the" if ringed else "The",
        table=Link("table", "importance.html#list"),
    )  # fmt: skip


def _head_maps(
    ablation: AblationResults, results: Results, changes: pd.DataFrame
) -> Iterator[Block]:
    """Yield the changes without each head as fills, with rings for verdicts."""
    ends = effect_ends(changes["value"].to_list())
    if harmful := facts.harmful(ablation):
        yield Text(harmful)
    if ablation.notes:
        yield Text(" ".join(ablation.notes))
    for stack in results:
        if len(results) > 1:
            yield Title(capital(STACKS[stack]))
        yield _head_map(ablation, results[stack], changes, ends)
    estimated = (ablation.chosen == AblationReason.NOT_ABLATED).any()
    chosen = choice_text(ablation, ablation.chosen) if estimated else ""
    yield Caption((
        "Change without each head, on a logarithmic scale, so that all layers can be told apart."
        f"{f' Replaced: {chosen}. The others are estimated (≈).' if chosen else ''}",
        Steps(f"{ends[0]:,.10g}", STEPS, f"{ends[1]:,.10g} {effect_unit(ablation)}"),
        *(_ring_key(*each) for each in _rings(ablation)),
    ))  # fmt: skip


def _rings(ablation: AblationResults) -> list[tuple[str, str, int]]:
    """Return classes of verdicts, their names and numbers of heads; without a class: no ring."""
    plain = _plain_verdict(ablation)
    counts = facts.verdict_counter(ablation).most_common()
    found = [(each if each != plain else "", short_verdict(each), n) for each, n in counts]
    estimated = int((ablation.chosen == AblationReason.NOT_ABLATED).sum())
    return [*found, ("", "only estimated (≈)", estimated)] if estimated else found


def _ring_key(verdict: str, name: str, heads: int) -> Sentence:
    if not verdict:
        return say("no ring: {name}: {heads}", name=name, heads=heads)
    ring = Marked("", f"ring {verdict} {'q2' if verdict == 'no_change' else 'q6'}")
    return say("{ring} {name}: {heads}", ring=ring, name=name, heads=heads)


def _plain_verdict(ablation: AblationResults) -> str:
    """Return the verdict that has no ring: the commonest one, if no head is only estimated."""
    counts = facts.verdict_counter(ablation)
    if (ablation.chosen == AblationReason.NOT_ABLATED).any() or not counts:
        return ""
    return counts.most_common(1)[0][0]


def _head_map(
    ablation: AblationResults, results: StackResults, changes: pd.DataFrame, ends: Ends
) -> Table:
    """Return the changes of the heads of a stack, with a ring for each rarer verdict."""
    plain, stack = _plain_verdict(ablation), results.stack.name
    rows = {
        HeadName(row["stack"], int(row["layer"]), int(row["head"])): row
        for row in changes[changes["stack"] == stack].to_dict("records")
    }

    def number(head: HeadName) -> Number:
        return head_change(ablation, rows[head], exact=rows[head]["method"] == EXACT)

    def fill(head: HeadName, _: Number) -> str:
        row, verdict = rows[head], rows[head]["verdict"]
        ring = f" ring {verdict}" if verdict and verdict != plain else ""
        estimated = "" if row["method"] == EXACT else " estimated"
        return f"{effect_step(row['value'], ends)}{estimated}{ring}"

    def more(head: HeadName) -> str:
        row = rows[head]
        verdict = short_verdict(row["verdict"]) if row["method"] == EXACT else "estimated"
        return ", ".join(filter(None, (verdict, row["function"])))

    title = f"Change without each head, {effect_unit(ablation)}"
    return heads_table(results.stack, number, fill, title, format_name="bare short", more=more)


def _closer(ablation: AblationResults, results: Results, changes: pd.DataFrame) -> Iterator[Block]:
    """Yield heads within layers, estimates, direct changes, families, and the table of heads."""
    study, groups = study_of(results), study_of(results).head_groups
    estimates = parts.estimates_plot(ablation, changes)
    direct = parts.direct_plot(changes, study.importance)
    note = facts.estimates_note(ablation)
    layers = (Lead(parts.layers_plot(ablation, changes)), Caption(_legend(results)))
    plots = blocks(
        Group(layers, "Heads within their layers", id="layers", link="heads within their layers"),
        Group(
            blocks(Lead(estimates), Text(note) if note else None),
            "Estimates against exact changes", id="estimates", link="estimates",
        ) if estimates else None,
        Group((Lead(direct),), "Direct and total change", id="direct",
              link="direct and total change") if direct else None,
    )  # fmt: skip
    yield Columns(plots, 3 if len(plots) == 3 else 2)
    sinks = groups["group"].isin({SINK, HEAVY_NAME})
    if families := parts.removed_table(ablation, groups[~sinks]):
        yield Group((families,), "Groups in numbers", id="types", link="groups in numbers")
    left_out = max(0, len(changes) - MAX_LISTED)
    title = "Table: all heads with intervals and verdicts"
    if left_out:
        title = f"Table: the {MAX_LISTED} heads of largest change; {left_out} more in the files"
    table = _heads_table(ablation, changes)
    yield Group((table,), title, id="list", link="all heads", folded=True)


def _heads_table(ablation: AblationResults, changes: pd.DataFrame) -> Table:
    """Return the table of heads, the largest change first."""
    rows = changes.sort_values("value", ascending=False, kind="stable").head(MAX_LISTED)
    lines = []
    for row in rows.to_dict("records"):
        head = HeadName(row["stack"], int(row["layer"]), int(row["head"]))
        exact = row["method"] == EXACT
        verdict = short_verdict(row["verdict"]) if exact else "estimated"
        change = head_change(ablation, row, exact=exact)
        lines.append((head, row["function"], change.bare, verdict))
    columns = ("Head", "Function", f"Change, {effect_unit(ablation)}", "Verdict")
    return Table(columns, tuple(lines), "Largest change first, with 95 % intervals.")


def _legend(results: Results) -> tuple[Sentence, ...]:
    """Return the colours of the families of heads, in the order of families."""
    names = {
        family: name for each in results.values() for family, name in families_of(each).items()
    }
    return tuple(
        say("{name}", name=Marked(names[family], f"dot-key f-{family}"))
        for family in FunctionFamily
        if family in names
    )


def _group_plot(ablation: AblationResults, groups: pd.DataFrame, results: Results) -> Plot | None:
    """Return the plot of all groups but those of shared keys, the largest effect first."""
    rows = groups[
        (groups["target"] == ranked_target(ablation))
        & (groups["metric"] == GROUP)
        & (groups["replacement"] == Replacement.MEAN)
        & ~groups["group"].str.contains(KEYS, regex=False)
    ].sort_values("value", ascending=False, kind="stable")
    if rows.empty:
        return None
    effects = [_group_effect(ablation, row, results) for row in rows.to_dict("records")]
    caption = ["All heads of a group at once. Dot and bar: change with its 95 % interval."]
    if rows["sum_of_single_effects"].notna().any():
        caption.append("Upright line: sum of the changes without each of these heads alone.")
    if rows["random_low"].notna().any():
        caption.append("Grey: range of random sets with as many heads in each layer.")
    for stack in rows.loc[rows["group"] == SINK, "stack"]:
        of = f" of {STACKS[stack]}" if len(results) > 1 else ""
        caption.append(f"Sink heads{of}: {sink_heads_text(results[stack])}.")
    return group_plot("importance-groups", " ".join(caption), effects, unit=effect_unit(ablation))


def _group_effect(
    ablation: AblationResults, row: Mapping[Any, Any], results: Results
) -> GroupEffect:
    """Return the effect of a group in the unit of pages."""
    factor, group = unit_factor(ablation), str(row["group"])
    tokens = sink_tokens(results[row["stack"]])
    names = {SINK: f"Sink heads ({tokens})", HEAVY_NAME: f"Over 90 % on {tokens}"}
    name = names.get(group) or group_name(group)
    family = FunctionFamily(group) if group in [*FunctionFamily] else None
    family = FunctionFamily.SINK if group in names else family
    beside, supported = facts.random_rank(row)
    return GroupEffect(
        name=f"{name} ({STACKS[row['stack']]})" if len(results) > 1 else name,
        style=f"f-{family}" if family else "",
        heads=int(row["heads"]),
        change=facts.change(ablation, row, "head_groups"),
        singles=float(row["sum_of_single_effects"]) * factor,
        random_low=float(row["random_low"]) * factor,
        random_high=float(row["random_high"]) * factor,
        beside=beside,
        supported=supported and group in names,
    )


def _measured(ablation: AblationResults, results: Results, *, has_tasks: bool) -> tuple[Block, ...]:
    study, margin = study_of(results), margin_text(ablation)
    symbols = [
        ("replaced", "the output of a head, before the output projection, becomes its mean over "
         "query tokens of the same class (first position, special, ordinary) in the other half of "
         "the sentences; other heads of its layer stay as they are"),
        ("change", facts.measure_of(ablation).definition),
        ("changed", f"a sentence whose own mean change exceeds the margin, {margin}"),
        ("changes the output", "surely more than 20 % of the sentences are changed"),
        ("can go alone", "surely fewer than 20 % are changed"),
        ("harmful", "changes the output, and the loss is lower without, tested over all heads at "
         "once"),
        ("undecided", "neither is sure; bounds are exact and hold for all heads together (95 %)"),
        ("random sets", "as many random heads in each layer as the group has; beside heads with "
         "the same keys for all queries, those whose single effects sum up to nearly as much"),
    ]  # fmt: skip
    if (ablation.chosen == AblationReason.NOT_ABLATED).any():
        symbols.append((
            "estimated", "from the slope of the output along the head's output, one backward pass "
            "for all heads (attribution patching)",
        ))  # fmt: skip
    if has_tasks:
        symbols += [
            ("accuracy", "of tasks: share of right labels, of pairs whose acceptable sentence is "
             "preferred, or of answers before wrong ones; heads of largest effect on one half of "
             "the sentences, accuracy without them on the other"),
            ("rests on", "the smallest number of heads of largest effect, up to ten, without which "
             "half of the advantage over chance is lost"),
        ]  # fmt: skip
    tables = {"importance": True, "head_groups": not study.head_groups.empty,
              "pruning": not study.pruning.empty, "task_facets": has_tasks}  # fmt: skip
    files = [Link(name, f"data.html#{name}") for name, there in tables.items() if there]
    return Symbols(tuple(symbols)), Text(say("Files: {files}.", files=listed(files, ", ")))
