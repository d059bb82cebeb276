"""Answers about sink heads: how many there are, what the sink adds, and whether they are dead."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headbook.metrics import ids
from headbook.report.ablation import CHANGING_VERDICTS, Rows, rows_by_head
from headbook.report.families import sink_tokens
from headbook.report.findings.ablation import group_rows, zero_is_dead
from headbook.report.findings.finding import Link, Parts, head_link
from headbook.report.head_types import MIN_OFF_UNIFORM, MIN_SINK_SHARE, Place, head_types
from headbook.report.linked_rows import LinkedNumber, head_row
from headbook.report.results import StackResults, heads_by_value
from headbook.report.wording import (
    count_text,
    head_name,
    number,
    number_word,
    ordinal,
    percent,
    tie_note,
    tied_places,
)
from headbook.schema import HeadKey, HeadName, Replacement, SinkView
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import ATTRIBUTION, AblationVerdict
from headbook.study.ablation_tables import EFFECT

SINK = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
SINK_OUTPUT = HeadKey(ids.SINK_NORM_SHARE, SinkView.RAW, "")
SINK_GROUP = "sink"  # name of the group of all sink heads in the table of groups
MAX_RANDOM_P = 0.05  # two-sided p of a rank among random sets from which on it is clear


def sink_heads(results: StackResults) -> list[Place]:
    """Return the sink heads of a stack by type, the largest share of attention first."""
    if not results.has_value(*SINK):
        return []
    share = results.heads(*SINK).value
    types = results.cached(head_types)
    sinks = [place for place, head_type in types.items() if head_type and head_type.sink]
    return sorted(sinks, key=lambda place: -share[place])


def sink_threshold(uniform: float) -> float:
    """Return the share of attention from which on a head is a sink head; NaN if none can be.

    Args:
        uniform: share that uniform attention gives to the sink.
    """
    off_uniform = 1 - uniform
    return uniform + MIN_SINK_SHARE * off_uniform if off_uniform >= MIN_OFF_UNIFORM else np.nan


def sink_heads_text(results: StackResults) -> str:
    """Return what a sink head is: from which share of its attention on, and how that is set."""
    threshold = sink_threshold(float(np.nanmean(results.uniform(*SINK).value)))
    if np.isnan(threshold):
        return "none here, where uniform attention gives nearly all to the sink"
    return (
        f"at least {percent(threshold)} of their attention on {sink_tokens(results)}, halfway from "
        "uniform attention to all of it"
    )


def largest_share(results: StackResults, key: HeadKey) -> Parts:
    """Return the largest share of any head with the head's name and ties: ``15.0 %, in L1·H1``."""
    values = results.heads(*key).value
    (layer, head), *others = tied_places(values, percent)
    tied = tie_note([head_name(HeadName(results.stack.name, *place)) for place in others])
    share = head_row(results, key, (layer, head), percent(float(values[layer, head])))
    return share, ", in ", head_link(HeadName(results.stack.name, layer, head)), tied


def contributes_less(results: StackResults, sinks: Sequence[Place], factor: float = 1) -> bool:
    """Whether the sink's part of the output lies below its attention in most sink heads.

    Args:
        sinks: the sink heads.
        factor: part of the attention below which the part of the output lies, intervals apart.
    """
    attention, output = results.heads(*SINK), results.heads(*SINK_OUTPUT)
    below = sum(bool(output.high[s] < factor * attention.low[s]) for s in sinks)
    return below > len(sinks) / 2


def output_range(results: StackResults, sinks: Sequence[Place]) -> Parts:
    """Return the smallest and the largest part of the output of sink heads from the sink."""
    shares = results.heads(*SINK_OUTPUT).value
    known = sorted((s for s in sinks if np.isfinite(shares[s])), key=lambda s: float(shares[s]))
    ends = [head_row(results, SINK_OUTPUT, s, percent(float(shares[s]))) for s in known]
    return (ends[0], " to ", ends[-1]) if len(ends) > 1 else (ends[0],)


def sink_answer(results: StackResults) -> Parts:
    """Return how many heads attend mostly to the sink, and whether it adds to their output."""
    sinks, tokens = sink_heads(results), sink_tokens(results)
    if not sinks:
        start = f"No head is a sink head: the largest share of attention on {tokens} is "
        return start, *largest_share(results, SINK), "."
    known = int(np.isfinite(results.heads(*SINK).value).sum())
    heads = Link(f"{len(sinks):,} of {count_text(known, 'head')}", "patterns.html#maps")
    verb = "attends" if len(sinks) == 1 else "attend"
    if not results.has_value(*SINK_OUTPUT):
        return heads, f" {verb} mostly to {tokens}."
    if contributes_less(results, sinks, 1 / 2):
        end = "yet mostly only a small part of their output comes from there: "
        return heads, f" {verb} mostly to {tokens}, {end}", *output_range(results, sinks), "."
    if contributes_less(results, sinks):
        end = "yet a smaller part of their output comes from there."
    else:
        end = "and no smaller part of their output comes from there."
    return heads, f" {verb} mostly to {tokens}, {end}"


def single_rows(results: StackResults) -> Mapping[Place, Rows]:
    """Return the numbers of replacing each sink head alone, by metric, replacement and target."""
    rows = results.cached(rows_by_head)
    found = {sink: rows.get(HeadName(results.stack.name, *sink)) for sink in sink_heads(results)}
    return {sink: numbers for sink, numbers in found.items() if numbers}


def rows_together(results: StackResults) -> Mapping[str, Any]:
    """Return the numbers of replacing all sink heads at once, by replacement; empty without any."""
    ablation = results.study.corpus_sums.ablation
    if ablation is None:
        return {}
    return group_rows(ablation, results.study.head_groups, results.stack.name, SINK_GROUP)


def group_row(row: Mapping[str, Any], text: str) -> LinkedNumber:
    """Return a number of a group of heads that leads to its row."""
    columns = ("stack", "group", "metric", "replacement", "target")
    return LinkedNumber(text, "head_groups", tuple((name, row[name]) for name in columns))


def dead_answer(results: StackResults) -> Parts | None:
    """Return whether sink heads are dead; None if the stack has none, or nothing was replaced.

    All sink heads together decide, by three replacements: mean, sink masked, and zero. Without a
    verdict on all together, the heads that were replaced one at a time do.
    """
    if results.study.corpus_sums.ablation is None or not sink_heads(results):
        return None
    rows = rows_together(results)
    return _dead_together(results, rows) or _dead_alone(results, tested_together=bool(rows))


def _changed(row: Mapping[str, Any]) -> int:
    """Return how many sentences changed."""
    return round(float(row["share_changed"]) * int(row["n_sentences"]))


def _dead_together(results: StackResults, rows: Mapping[str, Any]) -> Parts | None:
    """Return the answer by all sink heads together; None without a verdict on them."""
    mean = rows.get(Replacement.MEAN)
    if mean is None or not mean["verdict"]:
        return None
    masked, zero = rows.get(Replacement.WITHOUT_SINK), rows.get(Replacement.ZERO)
    sentences = count_text(int(mean["n_sentences"]), "sentence")
    changed = group_row(mean, f"{_changed(mean):,} of {sentences}")
    is_masked_same = masked is not None and masked["verdict"] == AblationVerdict.NO_CHANGE
    if mean["verdict"] in CHANGING_VERDICTS:
        start, end = _beside_random_sets(mean)
        return f"{start}: without all sink heads together, ", changed, f" change{end}."
    if mean["verdict"] != AblationVerdict.NO_CHANGE or not is_masked_same or zero is None:
        return None
    if zero_is_dead(zero):
        return "Yes: without all sink heads together, only ", changed, " change."
    start = "Only their mean matters: with it in place of all sink heads together, "
    return start, changed, " change; with zero, more do."


def _beside_random_sets(mean: Mapping[str, Any]) -> tuple[str, str]:
    """Return the start and the end of the answer that sink heads are not dead.

    Args:
        mean: row of all sink heads together, whose rank among random sets says how much they matter
            beside other heads; it is clear from two-sided p of at most `MAX_RANDOM_P` on.
    """
    sets, rank = int(mean["random_sets"]), float(mean["rank"])
    if not sets or rank not in {1, sets + 1}:
        return "No", ""
    word, link = ("less", "but") if rank > 1 else ("more", "and")
    end = f", {link} the output {word} than without any of {sets:,} random sets"
    if 2 / (sets + 1) > MAX_RANDOM_P:
        return "No", end
    return f"No, {link} they matter {word} than others", end


def masked_note(results: StackResults) -> Parts:
    """Return how many sentences change with only the sink masked; empty if not measured."""
    row = rows_together(results).get(Replacement.WITHOUT_SINK)
    if row is None or not row["verdict"]:
        return ()
    sentences = count_text(int(row["n_sentences"]), "sentence")
    return (
        f"With only {sink_tokens(results)} masked in them, ",
        group_row(row, f"{_changed(row):,} of {sentences}"),
        " change.",
    )


def _dead_alone(results: StackResults, *, tested_together: bool) -> Parts:
    """Return the answer by the sink heads that were replaced one at a time.

    Args:
        results: results of the stack.
        tested_together: whether all sink heads were replaced at once, too, without a verdict.
    """
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None
    target = effect_tests.ranked_target(ablation)
    exact = EFFECT, Replacement.MEAN, target
    rows = {sink: each for sink, each in single_rows(results).items()
            if exact in each and each[exact]["verdict"]}  # fmt: skip
    verdicts = [each[exact]["verdict"] for each in rows.values()]
    n_changing = sum(verdict in CHANGING_VERDICTS for verdict in verdicts)
    n_removable = sum(verdict == AblationVerdict.NO_CHANGE for verdict in verdicts)
    if not verdicts:
        return ("Not known: no sink head was replaced; the figure shows estimates.",)
    heads = f"{count_text(len(verdicts), 'sink head')} replaced one at a time"
    if n_changing:
        changing = [each for each in rows.values() if each[exact]["verdict"] in CHANGING_VERDICTS]
        margin = effect_tests.equivalence_margin(ablation, target)
        masked = ATTRIBUTION, Replacement.WITHOUT_SINK, target
        is_small = all(masked in each and abs(each[masked]["value"]) < margin for each in changing)
        end = f", but hardly through {sink_tokens(results)}" if is_small else ""
        verb = "changes" if n_changing == 1 else "change"
        return (f"No: {number_word(n_changing)} of {heads} {verb} the output{end}.",)
    if not n_removable:
        return (f"Not known: of {heads}, none has a verdict.",)
    rest = "all together have no verdict" if tested_together else "all together were not replaced"
    return (f"Not known: {number_word(n_removable)} of {heads} can go alone, but {rest}.",)


def random_sets_note(results: StackResults) -> Parts:
    """Return the rank of all sink heads together among random sets of heads; empty without."""
    row = rows_together(results).get(Replacement.MEAN)
    if row is None or not row["random_sets"] or np.isnan(row["rank"]):
        return ()
    sets, rank = int(row["random_sets"]), int(row["rank"])
    if rank in {1, sets + 1}:
        p = group_row(row, f"p = {number(2 / (sets + 1))}")
        clear = "" if 2 / (sets + 1) <= MAX_RANDOM_P else ", too few sets for a clear difference"
        start = "Random sets have as many heads in each layer; by rank, two-sided "
        return start, p, f"{clear}."
    random_sets = f"{sets} random sets of as many heads in the same layers"
    place = group_row(row, ordinal(rank))
    return "The change without all sink heads is the ", place, f" largest, beside {random_sets}."


def sink_example(results: StackResults) -> Parts:
    """Return a worked example: attention to the sink of the head that gives it most."""
    numbers = results.heads(*SINK)
    place = heads_by_value(numbers.value)[0]
    estimate = numbers.at(*place)
    share = head_row(results, SINK, place, percent(estimate.value))
    queries = f"{estimate.events:,.0f} query tokens of {count_text(estimate.sentences, 'sentence')}"
    parts: Parts = (
        head_link(HeadName(results.stack.name, *place)), f": of the attention of {queries}, ",
        share, f" lies on {sink_tokens(results)}.",
    )  # fmt: skip
    if results.has_value(*SINK_OUTPUT):
        output = float(results.heads(*SINK_OUTPUT).value[place])
        parts += (
            " Weighted by the length of what each key adds, the same keys make up ",
            head_row(results, SINK_OUTPUT, place, percent(output)), " of its output.",
        )  # fmt: skip
    return parts
