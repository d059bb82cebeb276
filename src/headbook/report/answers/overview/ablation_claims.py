"""Claims of the overview on heads that were replaced together: a task, a layer, the sink heads."""

from collections.abc import Iterator

from headbook.analysis.accumulators import without_interval
from headbook.report.ablation import LAYER, SINK, TARGET_NAMES, main_target
from headbook.report.answers.ablation.tasks import (
    clearly_rests_on,
    on_more_sentence,
    rests_evidence,
    rests_sentence,
    surely_on_more,
)
from headbook.report.answers.overview.claim_parts import (
    OF_STACK,
    OverviewClaim,
    group_change,
    heads_at,
    texts_behind,
)
from headbook.report.answers.overview.numbers import decisive_layer, sink_group_effect
from headbook.report.facts.circuits.facts import vector_words
from headbook.report.facts.circuits.rules import writes_into_vector
from headbook.report.layers import CHANGES, layer_sentence, ratio_test
from headbook.report.results import StackResults
from headbook.report.wording import capital, number_word
from headbook.results.number import RATIO
from headbook.results.sentence import Link, say
from headbook.schema import AblationTarget

WRITING = " Lit: its heads that write the word they attend to into the sentence vector."


def task_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on the heads of the first task that rests on few heads, or surely does not.

    A task that rests on few heads comes before all that do not.
    """
    every = results.study.corpus_sums.tasks.items()
    for find, sentence in (
        (clearly_rests_on, rests_sentence), (surely_on_more, on_more_sentence),
    ):  # fmt: skip
        for name, task in every:
            row = find(task)
            if row is None:
                continue
            stack = row["heads"][0].stack
            if stack == results.stack.name:  # heads of several stacks are claimed once
                link = Link("All", f"importance.html#task-{name}")
                yield OverviewClaim(
                    "task",
                    stack,
                    sentence(task, row),
                    frozenset(row["heads"]),
                    rests_evidence(task, row) + say("{link}", link=link),
                )
            return


def layer_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on the layer without which the output changes most."""
    layer, ablation = decisive_layer(results), results.study.corpus_sums.ablation
    if layer is None or ablation is None:
        return
    stack, target, ratio = results.stack.name, AblationTarget(main_target(ablation)), layer.ratio
    is_last = stack != "encoder" and ratio.first == results.stack.attention_layers[-1]
    places = [(ratio.first, head) for head in range(results.stack.n_heads)]
    writing = [place for place in places if writes_into_vector(results, place)]
    tested = ratio_test(ablation, stack, ratio, target)
    yield OverviewClaim(
        "layer",
        stack,
        layer_sentence(tested, ratio, OF_STACK[stack], is_last=is_last),
        heads_at(results, writing or places),
        say(
            "{Target}: {effect:interval} for all heads of layer {first}, {next:interval} for those "
            "of layer {second}, the next; ratio {ratio:interval}, on all sentences. Each "
            "head is replaced by its mean output.{writing} {texts} {words} {link}",
            Target=capital(TARGET_NAMES[target]), first=ratio.first, second=ratio.second,
            effect=group_change(results, f"{LAYER}{ratio.first}", layer.effect),
            next=group_change(results, f"{LAYER}{ratio.second}", layer.next_effect),
            ratio=tested.number(RATIO), writing=WRITING if writing else "",
            texts=texts_behind(results, layer.effect),
            words=vector_words(results, ratio.first).text,
            link=Link("All layers", "importance.html"),
        ),
    )  # fmt: skip


def sink_heads_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on the sink heads together, against random sets of heads."""
    group, ablation = sink_group_effect(results), results.study.corpus_sums.ablation
    if group is None or ablation is None:
        return
    stack, target = results.stack.name, AblationTarget(main_target(ablation))
    effect, low, high = (
        group_change(results, SINK, value)
        for value in (group.effect, without_interval(group.low, 0), without_interval(group.high, 0))
    )
    compared, rank, end = ("less", group.sets + 2 - group.rank, "least") if group.is_less else (
        "more", group.rank, "largest"
    )  # fmt: skip
    yield OverviewClaim(
        "sink heads",
        stack,
        say(
            "Without the {heads} sink heads{where}, {changes} {compared} than without random "
            "heads: {effect}.",
            heads=number_word(len(group.heads)), where=OF_STACK[stack], changes=CHANGES[target],
            compared=compared, effect=effect,
        ),
        heads_at(results, group.heads),
        say(
            "{effect:interval} without them; {low:bare} to {high} without {sets} random sets with "
            "as many heads in each layer: number {rank} of {all}, counted from the {end} change. "
            "{texts} {link}",
            effect=effect, low=low, high=high, sets=group.sets, rank=rank, all=group.sets + 1,
            end=end, texts=texts_behind(results, group.effect),
            link=Link("All groups", "importance.html#groups"),
        ),
    )  # fmt: skip
