"""Answers about key-driven heads: which they are, what they attend to, and whether they matter.

A key-driven head has the function ``same_keys``: it attends to the same words from every query, so
that its map has vertical stripes. The function is decided with the sink masked: a sink makes
stripes, too, and has its own page.
"""

from collections import Counter
from collections.abc import Mapping, Set
from itertools import groupby

from headbook.report.ablation import CHANGING_VERDICTS
from headbook.report.answers.overview.attention_claims import SAME_KEYS, class_key
from headbook.report.answers.overview.numbers import same_keys
from headbook.report.facts.functions import FunctionFamily, functions_of
from headbook.report.facts.stripes import striped_together
from headbook.report.findings.finding import Parts
from headbook.report.linked_rows import claim_number
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import capital, count_text, number_word
from headbook.results.formats import whole_percent
from headbook.results.sentence import Link
from headbook.schema import Place, Replacement
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import AblationVerdict, head_names

MAX_STRIPED = 12  # heads that the page shows
NEARLY_EVERY = 0.9  # share of the heads of a layer
TESTED = "importance.html#heads"


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


def stripes_answer(results: StackResults) -> Parts | None:
    """Return which heads are key-driven, and which words they attend to; None if not measured."""
    known = sum(function.family is not None for function in functions_of(results).values())
    if not known:
        return None
    heads, most = striped_heads(results), main_stripes(results)
    if not heads:
        tokens = sink_tokens(results)
        return (f"From {tokens}: with them masked, no head attends to the same few words whatever "
                "the query.",)  # fmt: skip
    of_all = f"Of {count_text(known, 'head')}, "
    amount = Link(f"{len(heads):,}", "heads.html")
    verb = "is" if len(heads) == 1 else "are"
    start = f" {verb} key-driven: every query attends to the same few words."
    layer, found = most[0][0], same_keys(results)
    if len(most) == len(heads):
        where = f" {'It is' if len(heads) == 1 else 'All are'} in layer {layer}"
    else:
        where = f" {capital(number_word(len(most)))} are in layer {layer}"
    if found is None or found.layer != layer or not found.word_class:
        return of_all, amount, start, f"{where}."
    share = claim_number(
        whole_percent(found.share.value), SAME_KEYS, results.stack.name,
        class_key(found.word_class), layer=layer,
    )  # fmt: skip
    return of_all, amount, start, f"{where}, with ", share, f" of attention on {found.word_class}."


def stripes_matter(results: StackResults) -> Parts:
    """Return whether key-driven heads change the output, beside other heads of their layer.

    Only heads that were replaced alone count; empty without key-driven heads or ablation.
    """
    ablation, heads = results.study.corpus_sums.ablation, {*striped_heads(results)}
    if ablation is None or not heads:
        return ()
    target = effect_tests.ranked_target(ablation)
    effects = effect_tests.head_effects(ablation, target, Replacement.MEAN)
    effects = effects[(effects["verdict"] != "") & (effects["stack"] == results.stack.name)]
    verdicts = {
        (head.layer, head.head): AblationVerdict(verdict)
        for head, verdict in zip(head_names(effects), effects["verdict"], strict=True)
    }
    tested = [verdict for place, verdict in verdicts.items() if place in heads]
    if not tested:
        return ("Whether they matter is not known: none of them was replaced alone.",)
    if any(verdict in CHANGING_VERDICTS for verdict in tested):
        return _beside_others(verdicts, heads)
    amount = Link(number_word(len(tested)), TESTED)
    if all(verdict == AblationVerdict.NO_CHANGE for verdict in tested):
        untested = "" if striped_together(results).text else "; all together were not tested"
        return "Replaced alone, each of the ", amount, f" can go{untested}."
    end = " replaced alone, none surely changes the output."
    return "Whether they matter is not known: of ", amount, end


def _beside_others(verdicts: Mapping[Place, AblationVerdict], heads: Set[Place]) -> Parts:
    """Return how many key-driven heads change the output, and how many others of their layer.

    Args:
        verdicts: verdicts of the heads that were replaced alone.
        heads: the key-driven heads, of which one at least changes the output.
    """
    changing = {place for place, verdict in verdicts.items() if verdict in CHANGING_VERDICTS}
    by_layer = Counter(layer for layer, _ in changing & heads)
    layer = max(by_layer, key=lambda each: (by_layer[each], each))
    here = {place for place in verdicts if place[0] == layer}

    def amount(places: Set[Place]) -> Link:
        return Link(f"{len(places & changing):,} of {len(places):,}", TESTED)

    these, others, elsewhere = here & heads, here - heads, heads & {*verdicts} - here
    counts = "head counts" if len(here & changing) >= NEARLY_EVERY * len(here) else "heads count"
    many = "nearly every" if counts == "head counts" else "most"
    start: Parts = (
        f"In layer {layer}, ",
        amount(these),
        " of these heads ",
        "changes" if len(these) == 1 else "change",
        " the output when replaced alone",
    )
    if not others:
        found: Parts = (*start, "; no other head of the layer was replaced.")
    elif all(2 * len(each & changing) > len(each) for each in (these, others)):
        found = (
            f"In layer {layer} {many} {counts}, striped or not: replaced alone, ",
            amount(these),
            " of these and ",
            amount(others),
            " others change the output.",
        )
    else:
        found = (*start, ", and ", amount(others), " others.")
    rest: Parts = (" In other layers, ", amount(elsewhere), " do.") if elsewhere else ()
    return *found, *rest
