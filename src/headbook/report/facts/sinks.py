"""Facts about sink heads: how many there are, what the sink adds, and whether they are dead."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headbook.metrics import ids
from headbook.report.ablation import CHANGING_VERDICTS, Rows, rows_by_head
from headbook.report.facts.groups import group_rows, is_sink_head, zero_is_dead
from headbook.report.leaders import alike_note, head_leaders
from headbook.report.results import StackResults, heads_by_value
from headbook.report.sink import sink_tokens
from headbook.report.thresholds import HALF, MIN_OFF_UNIFORM
from headbook.report.wording import count_text, number_word, ordinal
from headbook.results.fact import Fact
from headbook.results.formats import percent
from headbook.results.number import PLAIN, Number, RowAddress, Unit
from headbook.results.sentence import NOTHING, Link, Sentence, say
from headbook.schema import HeadKey, HeadName, Place, Replacement, SinkView, heads_of
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import ATTRIBUTION, AblationVerdict
from headbook.study.ablation_tables import EFFECT

SINK = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
SINK_OUTPUT = HeadKey(ids.SINK_NORM_SHARE, SinkView.RAW, "")
SINK_GROUP = "sink"  # name of the group of all sink heads in the table of groups
MAX_RANDOM_P = 0.05  # two-sided p of a rank among random sets from which on it is clear
RANK = Unit(digits=lambda rank: ordinal(int(rank)))


def sink_heads(results: StackResults) -> list[Place]:
    """Return the sink heads of a stack, the largest share of attention first."""
    if not results.has_value(*SINK):
        return []
    share = results.heads(*SINK).value
    heads = heads_of(results.stack)
    sinks = [(head.layer, head.head) for head in heads if is_sink_head(results, head)]
    return sorted(sinks, key=lambda place: -share[place])


def sink_threshold(uniform: float) -> float:
    """Return the share of attention from which on a head is a sink head; NaN if none can be.

    Args:
        uniform: share that uniform attention gives to the sink.
    """
    off_uniform = 1 - uniform
    is_known = off_uniform >= MIN_OFF_UNIFORM.value
    return uniform + HALF.value * off_uniform if is_known else np.nan


def mean_threshold(results: StackResults) -> float:
    """Return the share of attention to the sink from which on a head is a sink head."""
    return sink_threshold(float(np.nanmean(results.uniform(*SINK).value)))


def sink_heads_text(results: StackResults) -> str:
    """Return what a sink head is: from which share of its attention on, and how that is set."""
    threshold = mean_threshold(results)
    if np.isnan(threshold):
        return "none here, where uniform attention gives nearly all to the sink"
    return (
        f"at least {percent(threshold)} of their attention on {sink_tokens(results)}, halfway from "
        "uniform attention to all of it"
    )


def largest_share(results: StackResults, key: HeadKey) -> Sentence:
    """Return the largest share of any head, its name and those alike: ``15.0 %, in L1·H1``."""
    leaders = head_leaders(results, key)
    if leaders is None:
        return say("not known")
    layer, head = leaders.first
    return say(
        "{share}, in {head}{note}",
        share=results.number(key, layer, head), head=HeadName(results.stack.name, layer, head),
        note=alike_note(results, leaders),
    )  # fmt: skip


def contributes_less(results: StackResults, sinks: Sequence[Place], factor: float = 1) -> bool:
    """Whether the sink's part of the output lies below its attention in most sink heads.

    Args:
        sinks: the sink heads.
        factor: part of the attention below which the part of the output lies, intervals apart.
    """
    return n_contributing_less(results, sinks, factor) > len(sinks) / 2


def n_contributing_less(results: StackResults, sinks: Sequence[Place], factor: float = 1) -> int:
    """Return in how many sink heads the sink's part of the output lies below its attention."""
    attention, output = results.heads(*SINK), results.heads(*SINK_OUTPUT)
    return sum(bool(output.high[s] < factor * attention.low[s]) for s in sinks)


def sink_answer(results: StackResults) -> Fact:
    """Return how many heads attend mostly to the sink, and whether it adds to their output."""
    sinks, tokens = sink_heads(results), sink_tokens(results)
    if not sinks:
        text = "No head is a sink head: the largest share of attention on {tokens} is {share}."
        share = largest_share(results, SINK)
        return Fact("sinks", say(text, tokens=tokens, share=share), holds=False)
    known = int(np.isfinite(results.heads(*SINK).value).sum())
    start = say(
        "{amount} {attend} mostly to {tokens}",
        amount=Link(f"{len(sinks):,} of {count_text(known, 'head')}", "patterns.html#maps"),
        attend="attends" if len(sinks) == 1 else "attend", tokens=tokens,
    )  # fmt: skip
    less = n_contributing_less(results, sinks) if results.has_value(*SINK_OUTPUT) else 0
    if not results.has_value(*SINK_OUTPUT):
        text = "{start}."
    elif contributes_less(results, sinks, 1 / 2):
        text = "{start}, yet mostly only a small part of their output comes from there: {range}."
    elif contributes_less(results, sinks):
        text = "{start}; in {less} of them, a smaller part of the output comes from there."
    else:
        text = "{start}, and no smaller part of their output comes from there."
    heads = tuple(HeadName(results.stack.name, *place) for place in sinks)
    return Fact(
        "sinks", say(text, start=start, less=less, range=_output_range(results, sinks)), heads=heads
    )


def _output_range(results: StackResults, sinks: Sequence[Place]) -> Sentence:
    """Return the smallest and the largest part of the output of sink heads from the sink."""
    if not results.has_value(*SINK_OUTPUT):
        return NOTHING
    known = [n for sink in sinks if (n := results.number(SINK_OUTPUT, *sink)).known]
    known.sort(key=lambda n: n.value)
    return say("{low} to {high}" if known[1:] else "{low}", low=known[0], high=known[-1])


def single_rows(results: StackResults) -> Mapping[Place, Rows]:
    """Return the numbers of replacing each sink head alone, by metric, replacement and target."""
    rows = results.cached(rows_by_head)
    by_sink = {sink: rows.get(HeadName(results.stack.name, *sink)) for sink in sink_heads(results)}
    return {sink: numbers for sink, numbers in by_sink.items() if numbers}


def rows_together(results: StackResults) -> Mapping[str, Any]:
    """Return the numbers of replacing all sink heads at once, by replacement; empty without any."""
    ablation = results.study.corpus_sums.ablation
    if ablation is None:
        return {}
    return group_rows(ablation, results.study.head_groups, results.stack.name, SINK_GROUP)


def group_row(row: Mapping[str, Any]) -> RowAddress:
    """Return what identifies the row of a group of heads."""
    columns = ("stack", "group", "metric", "replacement", "target")
    return RowAddress("head_groups", tuple((name, row[name]) for name in columns))


def _changed(row: Mapping[str, Any]) -> Number:
    """Return how many sentences changed: ``63 of 64 sentences``."""
    sentences = int(row["n_sentences"])
    unit = Unit(f" of {count_text(sentences, 'sentence')}", lambda n: f"{round(n):,}", sentences)
    return Number(float(row["share_changed"]), unit, group_row(row), sentences=sentences)


def dead(results: StackResults) -> Fact:
    """Return whether sink heads are dead; without a text if the stack has none, or none was tested.

    All sink heads together decide, by three replacements: mean, sink masked, and zero. Without a
    verdict on all together, the heads that were replaced one at a time do.
    """
    if results.study.corpus_sums.ablation is None or not sink_heads(results):
        return Fact("dead", holds=False)
    rows = rows_together(results)
    return Fact("dead", _dead_together(rows) or _dead_alone(results, tested_together=bool(rows)))


def _dead_together(rows: Mapping[str, Any]) -> Sentence:
    """Return the answer by all sink heads together; nothing without a verdict on them."""
    mean = rows.get(Replacement.MEAN)
    if mean is None or not mean["verdict"]:
        return NOTHING
    masked, zero = rows.get(Replacement.WITHOUT_SINK), rows.get(Replacement.ZERO)
    changed = _changed(mean)
    if mean["verdict"] in CHANGING_VERDICTS:
        start, end = _beside_random_sets(mean)
        text = "{start}: without all sink heads together, {changed} change{end}."
        return say(text, start=start, changed=changed, end=end)
    is_masked_same = masked is not None and masked["verdict"] == AblationVerdict.NO_CHANGE
    if mean["verdict"] != AblationVerdict.NO_CHANGE or not is_masked_same or zero is None:
        return NOTHING
    if zero_is_dead(zero):
        text = "Yes: without all sink heads together, only {changed} change."
    else:
        text = (
            "Only their mean matters: with it in place of all sink heads together, {changed} "
            "change; with zero, more do."
        )
    return say(text, changed=changed)


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


def _dead_alone(results: StackResults, *, tested_together: bool) -> Sentence:
    """Return the answer by the sink heads that were replaced one at a time.

    Args:
        results: results of the stack.
        tested_together: whether all sink heads were replaced at once, too, without a verdict.
    """
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None
    target = effect_tests.ranked_target(ablation)
    exact = EFFECT, Replacement.MEAN, target
    rows = {sink: numbers for sink, numbers in single_rows(results).items()
            if exact in numbers and numbers[exact]["verdict"]}  # fmt: skip
    verdicts = [numbers[exact]["verdict"] for numbers in rows.values()]
    n_changing = sum(verdict in CHANGING_VERDICTS for verdict in verdicts)
    n_removable = sum(verdict == AblationVerdict.NO_CHANGE for verdict in verdicts)
    if not verdicts:
        return say("Not known: no sink head was replaced; the figure shows estimates.")
    heads = f"{count_text(len(verdicts), 'sink head')} replaced one at a time"
    if n_changing:
        changing = [
            numbers for numbers in rows.values() if numbers[exact]["verdict"] in CHANGING_VERDICTS
        ]
        margin = effect_tests.equivalence_margin(ablation, target)
        masked = ATTRIBUTION, Replacement.WITHOUT_SINK, target
        is_small = all(
            masked in numbers and abs(numbers[masked]["value"]) < margin for numbers in changing
        )
        return say(
            "No: {n} of {heads} {change} the output{end}.",
            n=number_word(n_changing), heads=heads, change="changes" if n_changing == 1 else
            "change", end=f", but hardly through {sink_tokens(results)}" if is_small else "",
        )  # fmt: skip
    if not n_removable:
        return say("Not known: of {heads}, none has a verdict.", heads=heads)
    rest = "all together have no verdict" if tested_together else "all together were not replaced"
    return say(
        "Not known: {n} of {heads} can go alone, but {rest}.",
        n=number_word(n_removable), heads=heads, rest=rest,
    )  # fmt: skip


def masked_note(results: StackResults) -> Sentence:
    """Return how many sentences change with only the sink masked; nothing if not measured."""
    row = rows_together(results).get(Replacement.WITHOUT_SINK)
    if row is None or not row["verdict"]:
        return NOTHING
    text = "With only {tokens} masked in them, {changed} change."
    return say(text, tokens=sink_tokens(results), changed=_changed(row))


def random_sets_note(results: StackResults) -> Sentence:
    """Return the rank of all sink heads together among random sets of heads; nothing without."""
    row = rows_together(results).get(Replacement.MEAN)
    if row is None or not row["random_sets"] or np.isnan(row["rank"]):
        return NOTHING
    sets, rank = int(row["random_sets"]), int(row["rank"])
    if rank not in {1, sets + 1}:
        return say(
            "The change without all sink heads is the {rank} largest, beside {sets} random sets of "
            "as many heads in the same layers.",
            rank=Number(rank, RANK, group_row(row)), sets=sets,
        )  # fmt: skip
    p = Number(2 / (sets + 1), PLAIN, group_row(row))
    return say(
        "Random sets have as many heads in each layer; by rank, two-sided p = {p}{unclear}.",
        p=p, unclear="" if p.value <= MAX_RANDOM_P else ", too few sets for a clear difference",
    )  # fmt: skip


def sink_example(results: StackResults) -> Sentence:
    """Return a worked example: attention to the sink of the head that gives it most."""
    place = heads_by_value(results.heads(*SINK).value)[0]
    share = results.number(SINK, *place)
    example = say(
        "{head}: of the attention of {queries} query tokens of {sentences}, {share} lies on "
        "{tokens}.",
        head=HeadName(results.stack.name, *place), queries=int(share.observations),
        sentences=count_text(share.sentences, results.study.manifest.text_noun), share=share,
        tokens=sink_tokens(results),
    )  # fmt: skip
    if not results.has_value(*SINK_OUTPUT):
        return example
    text = (
        "Weighted by the length of what each key adds, the same keys make up {part} of its output."
    )
    return example + say(text, part=results.number(SINK_OUTPUT, *place))
