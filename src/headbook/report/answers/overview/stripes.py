"""Answers about key-driven heads: which they are, what they attend to, and whether they matter.

A key-driven head has the function ``same_keys``: it attends to the same words from every query, so
that its map has vertical stripes. The function is decided with the sink masked: a sink makes
stripes, too, and has its own page.
"""

import math
from collections import Counter
from collections.abc import Mapping, Set
from itertools import groupby

from headbook.analysis.accumulators import Estimate
from headbook.metrics import ids
from headbook.report.ablation import CHANGING_VERDICTS
from headbook.report.answers.overview.attention_claims import same_keys_tests
from headbook.report.answers.overview.numbers import pooled, same_keys
from headbook.report.facts.functions import FunctionFamily, functions_of
from headbook.report.facts.outputs import OUTPUTS
from headbook.report.facts.stripes import striped_together
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import capital, count_text, number_word
from headbook.results.fact import Fact, Tested
from headbook.results.number import PLAIN, SHARE
from headbook.results.sentence import NOTHING, Link, Sentence, say
from headbook.schema import HeadKey, Place, Replacement
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import AblationVerdict, head_names

MAX_STRIPED = 12  # heads that the page shows
NEARLY_EVERY = 0.9  # share of the heads of a layer
TESTED = "importance.html#heads"
ALIKE = 0.5  # mean cosine from which on outputs are alike; times that, much less so
STRIPED_OUTPUTS = "outputs of key-driven heads"  # claim
OWN_TEXT = "words of one text"  # baseline
ACROSS = HeadKey(ids.OUTPUT_ANISOTROPY, OUTPUTS.view, "")


def striped_heads(results: StackResults) -> list[Place]:
    """Return the key-driven heads of a stack, in the order of layers."""
    functions = functions_of(results).values()
    return [
        (function.head.layer, function.head.head)
        for function in functions
        if function.family is FunctionFamily.SAME_KEYS
    ]


def main_stripes(results: StackResults) -> list[Place]:
    """Return the key-driven heads of the layer with most of them; of equal layers, the last."""
    by_layer = groupby(striped_heads(results), key=lambda place: place[0])
    layers = [[*heads] for _, heads in by_layer]
    return max(layers, key=lambda heads: (len(heads), heads[0]), default=[])


def stripes_answer(results: StackResults) -> Sentence:
    """Return which heads are key-driven, and their words; nothing if that was not measured."""
    known = sum(function.family is not None for function in functions_of(results).values())
    if not known:
        return NOTHING
    heads, most = striped_heads(results), main_stripes(results)
    if not heads:
        text = (
            "From {sink}: with them masked, no head attends to the same few words whatever the "
            "query."
        )
        return say(text, sink=sink_tokens(results))
    layer, same = most[0][0], same_keys(results)
    where = f"{capital(number_word(len(most)))} are in layer {layer}"
    if len(most) == len(heads):
        where = f"{'It is' if len(heads) == 1 else 'All are'} in layer {layer}"
    start = say(
        "Of {all}, {amount} {are} key-driven: every query attends to the same few words.",
        all=count_text(known, "head"), amount=Link(f"{len(heads):,}", "heads.html"),
        are="is" if len(heads) == 1 else "are",
    )  # fmt: skip
    if same is None or same.layer != layer or not same.word_class:
        return start + say("{where}.", where=where)
    _, share, _ = same_keys_tests(same, results.stack.name)
    return start + say(
        "{where}, with {share:whole} of attention on {words}.",
        where=where, share=share.number(SHARE), words=same.word_class,
    )  # fmt: skip


def stripes_matter(results: StackResults) -> Sentence:
    """Return whether key-driven heads change the output, beside other heads of their layer.

    Only heads that were replaced alone count; nothing without key-driven heads or ablation.
    """
    ablation, heads = results.study.corpus_sums.ablation, {*striped_heads(results)}
    if ablation is None or not heads:
        return NOTHING
    target = effect_tests.ranked_target(ablation)
    effects = effect_tests.head_effects(ablation, target, Replacement.MEAN)
    effects = effects[(effects["verdict"] != "") & (effects["stack"] == results.stack.name)]
    verdicts = {
        (head.layer, head.head): AblationVerdict(verdict)
        for head, verdict in zip(head_names(effects), effects["verdict"], strict=True)
    }
    tested = [verdict for place, verdict in verdicts.items() if place in heads]
    if not tested:
        return say("Whether they matter is not known: none of them was replaced alone.")
    if any(verdict in CHANGING_VERDICTS for verdict in tested):
        return _beside_others(verdicts, heads)
    text = (
        "Whether they matter is not known: of {amount} replaced alone, none surely changes the "
        "output."
    )
    if all(verdict == AblationVerdict.NO_CHANGE for verdict in tested):
        untested = "" if striped_together(results).text else "; all together were not tested"
        text = f"Replaced alone, each of the {{amount}} can go{untested}."
    return say(text, amount=Link(number_word(len(tested)), TESTED))


def _beside_others(verdicts: Mapping[Place, AblationVerdict], heads: Set[Place]) -> Sentence:
    """Return how many key-driven heads change the output, and how many others of their layer.

    Args:
        verdicts: verdicts of the heads that were replaced alone.
        heads: the key-driven heads, of which one at least changes the output.
    """
    changing = {place for place, verdict in verdicts.items() if verdict in CHANGING_VERDICTS}
    by_layer = Counter(layer for layer, _ in changing & heads)
    layer = max(by_layer, key=lambda number: (by_layer[number], number))
    here = {place for place in verdicts if place[0] == layer}

    def amount(places: Set[Place]) -> Link:
        return Link(f"{len(places & changing):,} of {len(places):,}", TESTED)

    these, others, elsewhere = here & heads, here - heads, heads & {*verdicts} - here
    counts = "head counts" if len(here & changing) >= NEARLY_EVERY * len(here) else "heads count"
    text = "In layer {layer}, {these} of these heads {change} the output when replaced alone"
    if not others:
        text += "; no other head of the layer was replaced."
    elif all(2 * len(places & changing) > len(places) for places in (these, others)):
        text = (
            "In layer {layer} {many} {counts}, striped or not: replaced alone, {these} of these "
            "and {others} others change the output."
        )
    else:
        text += ", and {others} others."
    answer = say(
        text, layer=layer, these=amount(these), others=amount(others), counts=counts,
        many="nearly every" if counts == "head counts" else "most",
        change="changes" if len(these) == 1 else "change",
    )  # fmt: skip
    rest = say("In other layers, {elsewhere} do.", elsewhere=amount(elsewhere))
    return answer + rest if elsewhere else answer


def striped_outputs(results: StackResults) -> Fact:
    """Return whether key-driven heads give the words of a text outputs of that text alone.

    Outputs for words of one text are compared with those for words of different texts, in the layer
    with most key-driven heads. ``holds`` says whether the first are more alike. The interval of the
    difference adds up the half-widths of both intervals, which holds however both depend on each
    other.
    """
    places, stack = main_stripes(results), results.stack.name
    within, across = (pooled(results, [key], places) for key in (OUTPUTS, ACROSS))
    if math.isnan(within.low) or math.isnan(across.low):
        return Fact("striped_outputs", holds=False)
    layer = places[0][0]
    change = Estimate(
        across.value - within.value, across.low - within.high, across.high - within.low,
        across.sentences, across.events,
    )  # fmt: skip
    evidence = (
        Tested(STRIPED_OUTPUTS, stack, *OUTPUTS, within, layer),
        Tested(STRIPED_OUTPUTS, stack, *ACROSS, across, layer, baseline=OWN_TEXT,
               baseline_value=within.value, difference=change),
    )  # fmt: skip
    of_text, of_others = (tested.number(PLAIN) for tested in evidence)
    if not (holds := change.high < 0):
        text = (
            "Whether their outputs depend on the {noun} is not clear: mean cosine "
            "{within:interval} for words of one {noun}, {across:interval} for words of different "
            "{noun}s."
        )
    elif within.low >= ALIKE and across.high < ALIKE * within.low:
        text = (
            "Their outputs are alike for words of one {noun} (mean cosine {within:interval}), but "
            "not for words of different {noun}s ({across:interval})."
        )
    else:
        text = (
            "Their outputs are more alike for words of one {noun} (mean cosine {within:interval}) "
            "than for words of different {noun}s ({across:interval})."
        )
    noun = results.study.manifest.text_noun
    sentence = say(text, noun=noun, within=of_text, across=of_others)
    return Fact("striped_outputs", sentence, evidence, holds=holds)
