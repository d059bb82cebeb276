"""Claims of the overview on attention: the sink, same keys, induction, and random weights."""

import math
from collections.abc import Iterator

from headbook.analysis.accumulators import Estimate
from headbook.metrics import ids
from headbook.report.answers.circuit_rules import used_feeds
from headbook.report.answers.overview.claim_parts import (
    OF_HEADS,
    OF_STACK,
    OverviewClaim,
    estimate_parts,
    heads_at,
    layers_text,
    places_of,
    short_link,
    texts_behind,
)
from headbook.report.answers.overview.family_claim import function_heads
from headbook.report.answers.overview.numbers import (
    BY_KEY,
    SINK_NORM,
    SINK_SHARE,
    like_random,
    same_keys,
    sink_run,
)
from headbook.report.facts.function_numbers import INDUCTION
from headbook.report.facts.outputs import separators_add
from headbook.report.facts.sinks import sink_heads, sink_heads_text
from headbook.report.findings.finding import Parts, metric_link
from headbook.report.linked_rows import claim_number, linked
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import capital, count_text, number_word
from headbook.results.formats import number, percent, whole_percent
from headbook.schema import HeadKey, SinkView

# Claims in the table of tests.
SINK, SAME_KEYS, OTHER_HEADS, RANDOM = (
    "overview: sink", "overview: same keys", "overview: same keys, other heads",
    "overview: random weights",
)  # fmt: skip


def sink_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim that a run of layers attends much to the sink."""
    run = sink_run(results)
    if run is None:
        return
    stack, value, tokens = results.stack.name, run.attention, sink_tokens(results)
    shares, sinks = results.heads(*SINK_SHARE).value, sink_heads(results)
    lit = sinks or [
        p for p in places_of(results.stack) if p[0] in run.layers and shares[p] >= value.value
    ]
    exact = claim_number(percent(value.value), SINK, stack, SINK_SHARE)
    little = run.contributes_little and not separators_add(results, run.layers)
    several = " and " in tokens or tokens.endswith("tokens")
    contribute = "contribute" if several else "contributes"
    yield OverviewClaim(
        "sink",
        stack,
        (
            f"In {layers_text(results, run.layers)}, ",
            exact._replace(text=whole_percent(value.value)),
            f" of attention goes to {tokens}",
            f", which {contribute} little." if little else ".",
        ),
        heads_at(results, lit),
        (
            *estimate_parts(exact, value),
            " of the attention of ordinary tokens; uniform attention would give ",
            exact._replace(text=percent(run.uniform)),
            ".",
            *_contribution(stack, run.norm, several=several),
            f" Lit: sink heads, {sink_heads_text(results)}."
            if sinks
            else " Lit: heads above this share.",
            f"{texts_behind(results, value)} ",
            metric_link(ids.SINK_SHARE, "Definition"),
        ),
    )


def _contribution(stack: str, norm: Estimate, *, several: bool) -> Parts:
    """Return the share of the sink in the summed norms, in words; empty if not measured.

    Args:
        several: whether the sink is several tokens.
    """
    if math.isnan(norm.value):
        return ()
    contributed = claim_number(percent(norm.value), SINK, stack, SINK_NORM)
    return (
        f" {'They contribute' if several else 'It contributes'} ",
        *estimate_parts(contributed, norm),
        " of the summed norms ‖αvW_O‖.",
    )


def class_key(word_class: str) -> HeadKey:
    """Return metric, view and label of the attention that a class of words receives."""
    return HeadKey(ids.POS_RECEIVED, SinkView.RENORM, word_class)


def same_keys_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim that several heads of a layer attend to the same keys from everywhere."""
    found = same_keys(results)
    if found is None:
        return
    stack, layer = results.stack.name, found.layer
    start = (
        f"{capital(number_word(len(found.heads)))} {OF_HEADS[stack]}heads of layer {layer} attend "
        "from everywhere to the same words"
    )
    by_key = claim_number(percent(found.by_key.value), SAME_KEYS, stack, BY_KEY, layer=layer)
    left: Parts = (
        "The key explains ",
        *estimate_parts(by_key, found.by_key),
        " of their departure from even attention (mean over these heads).",
    )
    if not found.word_class:
        value = by_key._replace(text=whole_percent(found.by_key.value))
        sentence: Parts = (f"{start} (", value, " of their departure from even attention).")
        evidence = (*left, texts_behind(results, found.by_key))
    else:
        column = class_key(found.word_class)
        exact = claim_number(percent(found.share.value), SAME_KEYS, stack, column, layer=layer)
        others = claim_number(percent(found.others.value), OTHER_HEADS, stack, column)
        value = exact._replace(text=whole_percent(found.share.value))
        sentence = (f"{start}: ", value, f" {found.word_class}.")
        evidence = (
            *estimate_parts(exact, found.share),
            f" of their attention between words goes to {found.word_class}; of that of the other "
            "heads, ",
            *estimate_parts(others, found.others),
            ". ",
            *left,
            texts_behind(results, found.share),
        )
    yield OverviewClaim("same keys", stack, sentence, heads_at(results, found.heads), evidence)


NEEDED = ", and the previous-token heads without which in their keys it falls"


def induction_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on heads that attend to what followed an earlier occurrence of a token."""
    groups = (each for each in function_heads(results) if each.example.id == "induction")
    found = next(groups, None)
    if found is None or found.example.number is None:
        return
    head, score, stack = found.example.head, found.example.number, results.stack.name
    one, induced = len(found.heads) == 1, frozenset(found.heads)
    many = f"{capital(number_word(len(induced)))} {OF_HEADS[stack]}"
    needed = frozenset(feed.lower for feed in used_feeds(results) if feed.upper in induced)
    uniform = results.uniform_number(INDUCTION, head.layer)
    yield OverviewClaim(
        "induction",
        stack,
        (
            f"{many}{'head attends' if one else 'heads attend'} to what followed an earlier "
            f"occurrence of the token{':' if one else ', such as'} ",
            short_link(head),
            " (",
            linked(score),
            ").",
        ),
        induced | needed,
        (
            linked(score, "interval"),
            " of its attention on repeated random tokens; uniform attention would give ",
            linked(uniform),
            ". Lit: heads whose induction score is surely at least "
            f"{percent(found.example.threshold)}{NEEDED if needed else ''}. "
            f"{count_text(score.sentences, 'random sequence')}. ",
            metric_link(ids.INDUCTION_SCORE, "Definition"),
        ),
    )


def random_weights_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim that a model does not differ clearly from random weights."""
    found = like_random(results)
    if found is None:
        return
    stack = results.stack.name
    value = claim_number(number(found.entropy.value), RANDOM, stack, found.column)
    yield OverviewClaim(
        "random weights",
        stack,
        (
            f"The heads{OF_STACK[stack]} do not differ clearly from random weights: normalised "
            "entropy ",
            value,
            ".",
        ),
        heads_at(results, places_of(results.stack)),
        (
            *estimate_parts(value, found.entropy, share=False),
            " (mean over layers); random weights: ",
            *estimate_parts(value._replace(text=number(found.random.value)), found.random,
                            share=False),
            ". Attention to the sink and attention distance do not differ in any layer either."
            f"{texts_behind(results, found.entropy)}",
        ),
    )  # fmt: skip
