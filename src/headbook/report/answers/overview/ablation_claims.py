"""Claims of the overview on heads that were replaced together: a task, a layer, the sink heads."""

from collections.abc import Iterator

from headbook.analysis.accumulators import NO_ESTIMATE
from headbook.report.ablation import LAYER, SINK, TARGET_NAMES, layer_ratio_number, main_target
from headbook.report.answers.ablation.tasks import (
    clearly_rests_on,
    on_more_sentence,
    rests_evidence,
    rests_sentence,
    surely_on_more,
)
from headbook.report.answers.circuit_rules import writes_into_vector
from headbook.report.answers.overview.claim_parts import (
    OF_STACK,
    OverviewClaim,
    change_parts,
    group_change,
    heads_at,
    texts_behind,
)
from headbook.report.answers.overview.numbers import decisive_layer, sink_group_effect
from headbook.report.facts.layers import CHANGES, layer_sentence
from headbook.report.linked_rows import linked
from headbook.report.results import StackResults
from headbook.report.wording import capital, number_word
from headbook.results.formats import interval_text
from headbook.results.number import Number
from headbook.results.sentence import Link
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
                evidence = (*rests_evidence(task, row), " ", link)
                yield OverviewClaim(
                    "task", stack, sentence(task, row), frozenset(row["heads"]), evidence
                )
            return


def layer_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on the layer without which the output changes most."""
    found, ablation = decisive_layer(results), results.study.corpus_sums.ablation
    if found is None or ablation is None:
        return
    stack, target, ratio = results.stack.name, AblationTarget(main_target(ablation)), found.ratio
    is_last = stack != "encoder" and ratio.first == results.stack.attention_layers[-1]
    places = [(ratio.first, head) for head in range(results.stack.n_heads)]
    writing = [place for place in places if writes_into_vector(results, place)]
    exact = layer_ratio_number(ratio, stack, target)._replace(text=f"{ratio.value:.1f}")
    yield OverviewClaim(
        "layer",
        stack,
        layer_sentence(ratio, stack, OF_STACK[stack], target, is_last=is_last),
        heads_at(results, writing or places),
        (
            f"{capital(TARGET_NAMES[target])}: ",
            *change_parts(results, f"{LAYER}{ratio.first}", found.effect),
            f" for all heads of layer {ratio.first}, ",
            *change_parts(results, f"{LAYER}{ratio.second}", found.next_effect),
            f" for those of layer {ratio.second}, the next; ratio ",
            exact,
            f" {interval_text(ratio.low, ratio.high)}, on all sentences. Each head is replaced by "
            f"its mean output.{WRITING if writing else ''}{texts_behind(results, found.effect)} ",
            Link("All layers", "importance.html"),
        ),
    )


def sink_heads_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on the sink heads together, against random sets of heads."""
    found, ablation = sink_group_effect(results), results.study.corpus_sums.ablation
    if found is None or ablation is None:
        return
    stack, target = results.stack.name, main_target(ablation)

    def random_end(value: float) -> Number:
        return group_change(results, SINK, NO_ESTIMATE._replace(value=value))

    compared, rank = ("less", found.sets + 2 - found.rank) if found.is_less else (
        "more", found.rank
    )  # fmt: skip
    yield OverviewClaim(
        "sink heads",
        stack,
        (
            f"Without the {number_word(len(found.heads))} sink heads{OF_STACK[stack]}, "
            f"{CHANGES[AblationTarget(target)]} {compared} than without random heads: ",
            linked(group_change(results, SINK, found.effect)),
            ".",
        ),
        heads_at(results, found.heads),
        (
            *change_parts(results, SINK, found.effect),
            " without them; ",
            linked(random_end(found.low), "bare"),
            " to ",
            linked(random_end(found.high)),
            f" without {found.sets:,} random sets with as many heads in each layer: number {rank} "
            f"of {found.sets + 1:,}, counted from the {'least' if found.is_less else 'largest'} "
            f"change.{texts_behind(results, found.effect)} ",
            Link("All groups", "importance.html#groups"),
        ),
    )
