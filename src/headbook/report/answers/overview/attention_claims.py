"""Claims of the overview on attention: the sink, same keys, induction, and random weights."""

import math
from collections.abc import Iterator

from headbook.metrics import ids
from headbook.report.answers.overview.claim_parts import (
    OF_HEADS,
    OF_STACK,
    OverviewClaim,
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
    LikeRandom,
    SameKeys,
    SinkRun,
    like_random,
    same_keys,
    sink_run,
)
from headbook.report.facts.circuits.rules import used_feeds
from headbook.report.facts.outputs import separators_add
from headbook.report.facts.sinks import sink_heads, sink_heads_text
from headbook.report.function_numbers import INDUCTION
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import capital, count_text, number_word
from headbook.results.fact import Tested
from headbook.results.formats import percent
from headbook.results.number import PLAIN, SHARE, Number
from headbook.results.sentence import metric_link, say
from headbook.schema import HeadKey, SinkView

# Claims in the table of tests.
SINK, SAME_KEYS, OTHER_HEADS, RANDOM = (
    "overview: sink", "overview: same keys", "overview: same keys, other heads",
    "overview: random weights",
)  # fmt: skip
UNIFORM = "uniform attention"  # baseline


def sink_tests(run: SinkRun, stack: str) -> list[Tested]:
    """Return attention to the sink, and its share of the summed norms if that was measured."""
    attention = Tested(SINK, stack, *SINK_SHARE, run.attention, baseline=UNIFORM,
                       baseline_value=run.uniform)  # fmt: skip
    norm = Tested(SINK, stack, *SINK_NORM, run.norm)
    return [attention] if math.isnan(run.norm.value) else [attention, norm]


def sink_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim that a run of layers attends much to the sink."""
    run = sink_run(results)
    if run is None:
        return
    tokens, sinks = sink_tokens(results), sink_heads(results)
    shares = results.heads(*SINK_SHARE).value
    lit = sinks or [
        p
        for p in places_of(results.stack)
        if p[0] in run.layers and shares[p] >= run.attention.value
    ]
    attention, *norms = sink_tests(run, results.stack.name)
    several = " and " in tokens or tokens.endswith("tokens")
    contribute = "contribute" if several else "contributes"
    little = run.contributes_little and not separators_add(results, run.layers)
    sentence = say(
        "In {layers}, {share:whole} of attention goes to {tokens}{little}.",
        layers=layers_text(results, run.layers), share=attention.number(SHARE), tokens=tokens,
        little=f", which {contribute} little" if little else "",
    )  # fmt: skip
    evidence = say(
        "{share:interval} of the attention of ordinary tokens; uniform attention would give "
        "{uniform}.",
        share=attention.number(SHARE), uniform=attention.baseline_number(SHARE),
    )  # fmt: skip
    for norm in norms:
        they = f"{'They' if several else 'It'} {contribute}"
        text = "{they} {norm:interval} of the summed norms ‖αvW_O‖."
        evidence += say(text, they=they, norm=norm.number(SHARE))
    evidence += say(
        "Lit: {lit}. {texts} {definition}",
        lit=f"sink heads, {sink_heads_text(results)}" if sinks else "heads above this share",
        texts=texts_behind(results, run.attention),
        definition=metric_link(ids.SINK_SHARE, "Definition"),
    )  # fmt: skip
    yield OverviewClaim("sink", results.stack.name, sentence, heads_at(results, lit), evidence)


def class_key(word_class: str) -> HeadKey:
    """Return metric, view and label of the attention that a class of words receives."""
    return HeadKey(ids.POS_RECEIVED, SinkView.RENORM, word_class)


def same_keys_tests(same: SameKeys, stack: str) -> list[Tested]:
    """Return what the key explains, then the share of a class of words, and of the other heads."""
    by_key = Tested(SAME_KEYS, stack, *BY_KEY, same.by_key, same.layer)
    if not same.word_class:
        return [by_key]
    column = class_key(same.word_class)
    share = Tested(SAME_KEYS, stack, *column, same.share, same.layer, baseline="other heads",
                   baseline_value=same.others.value)  # fmt: skip
    return [by_key, share, Tested(OTHER_HEADS, stack, *column, same.others)]


def same_keys_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim that several heads of a layer attend to the same keys from everywhere."""
    same = same_keys(results)
    if same is None:
        return
    stack = results.stack.name
    by_key, *of_class = (tested.number(SHARE) for tested in same_keys_tests(same, stack))
    start = (
        f"{capital(number_word(len(same.heads)))} {OF_HEADS[stack]}heads of layer {same.layer} "
        "attend from everywhere to the same words"
    )
    evidence = say(
        "The key explains {by_key:interval} of their departure from even attention (mean over "
        "these heads). {texts}",
        by_key=by_key, texts=texts_behind(results, same.share if of_class else same.by_key),
    )  # fmt: skip
    sentence = say(
        "{start} ({by_key:whole} of their departure from even attention).",
        start=start, by_key=by_key,
    )  # fmt: skip
    if of_class:
        share, others = of_class
        words = same.word_class
        sentence = say("{start}: {share:whole} {words}.", start=start, share=share, words=words)
        beside = say(
            "{share:interval} of their attention between words goes to {words}; of that of the "
            "other heads, {others:interval}.",
            share=share, words=words, others=others,
        )  # fmt: skip
        evidence = beside + evidence
    yield OverviewClaim("same keys", stack, sentence, heads_at(results, same.heads), evidence)


NEEDED = ", and the previous-token heads without which in their keys it falls"


def induction_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on heads that attend to what followed an earlier occurrence of a token."""
    groups = (group for group in function_heads(results) if group.example.id == "induction")
    group = next(groups, None)
    if group is None or group.example.number is None:
        return
    head, score, stack = group.example.head, group.example.number, results.stack.name
    one, induced = len(group.heads) == 1, frozenset(group.heads)
    needed = frozenset(feed.lower for feed in used_feeds(results) if feed.upper in induced)
    yield OverviewClaim(
        "induction",
        stack,
        say(
            "{Many} {heads} to what followed an earlier occurrence of the token{such} {head} "
            "({score}).",
            Many=f"{capital(number_word(len(induced)))} {OF_HEADS[stack]}".strip(),
            heads="head attends" if one else "heads attend", such=":" if one else ", such as",
            head=short_link(head), score=score,
        ),
        induced | needed,
        say(
            "{score:interval} of its attention on repeated random tokens; uniform attention would "
            "give {uniform}. Lit: heads whose induction score is surely at least {least}{needed}. "
            "{sequences}. {definition}",
            score=score, uniform=results.uniform_number(INDUCTION, head.layer),
            least=percent(group.example.threshold), needed=NEEDED if needed else "",
            sequences=count_text(score.sentences, "random sequence"),
            definition=metric_link(ids.INDUCTION_SCORE, "Definition"),
        ),
    )  # fmt: skip


def random_weights_test(random: LikeRandom, stack: str) -> Tested:
    """Return the evenness of attention beside that of random weights."""
    return Tested(RANDOM, stack, *random.column, random.entropy, baseline="random weights",
                  baseline_value=random.random.value)  # fmt: skip


def random_weights_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim that a model does not differ clearly from random weights."""
    random = like_random(results)
    if random is None:
        return
    stack = results.stack.name
    tested = random_weights_test(random, stack)
    entropy = tested.number(PLAIN)
    yield OverviewClaim(
        "random weights",
        stack,
        say(
            "The heads{where} do not differ clearly from random weights: normalised entropy "
            "{entropy}.",
            where=OF_STACK[stack], entropy=entropy,
        ),
        heads_at(results, places_of(results.stack)),
        say(
            "{entropy:interval} (mean over layers); random weights: {random:interval}. Attention "
            "to the sink and attention distance do not differ in any layer either. {texts}",
            entropy=entropy, random=Number.of(random.random, PLAIN, tested.row),
            texts=texts_behind(results, random.entropy),
        ),
    )  # fmt: skip


def overview_tests(results: StackResults) -> Iterator[Tested]:
    """Yield the numbers of several heads that claims of the overview print."""
    stack = results.stack.name
    if (run := sink_run(results)) is not None:
        yield from sink_tests(run, stack)
    if (same := same_keys(results)) is not None:
        yield from same_keys_tests(same, stack)
    if (random := like_random(results)) is not None:
        yield random_weights_test(random, stack)
