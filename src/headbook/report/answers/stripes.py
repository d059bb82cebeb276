"""Answers about key-driven heads: which they are, what they attend to, and whether they matter.

A key-driven head attends to the same few words from every query, so that its map has vertical
stripes. Its type is decided with the sink masked: a sink makes stripes, too, and has its own page.
"""

from itertools import groupby

from headbook.report.answers.overview.attention_claims import SAME_KEYS, class_key
from headbook.report.answers.overview.numbers import same_keys
from headbook.report.families import Family, families, sink_tokens
from headbook.report.findings.finding import Link, Parts
from headbook.report.head_types import Place, head_types
from headbook.report.linked_rows import claim_number
from headbook.report.results import StackResults
from headbook.report.wording import capital, count_text, number_word, whole_percent
from headbook.schema import Replacement
from headbook.study import ablation_tests
from headbook.study.ablation_tests import AblationVerdict, head_names
from headbook.study.sentence_data import HeadName

MAX_STRIPED = 12  # heads that the page shows
CHANGES = {AblationVerdict.CHANGES, AblationVerdict.HARMFUL}


def striped_heads(results: StackResults) -> list[Place]:
    """Return the key-driven heads of a stack, in the order of layers."""
    return [place for place, family in families(results).items() if family is Family.BROADCAST]


def main_stripes(results: StackResults) -> list[Place]:
    """Return the key-driven heads of the layer with most of them; of equal layers, the last."""
    by_layer = groupby(striped_heads(results), key=lambda place: place[0])
    layers = [[*heads] for _, heads in by_layer]
    return max(layers, key=lambda heads: (len(heads), heads[0]), default=[])


def stripes_answer(results: StackResults) -> Parts | None:
    """Return which heads are key-driven, and which words they attend to; None without types."""
    known = sum(kind is not None for kind in head_types(results).values())
    if not families(results):
        return None
    heads, most = striped_heads(results), main_stripes(results)
    if not heads:
        tokens = sink_tokens(results)
        return (f"From {tokens}: with them masked, no head attends to the same few words whatever "
                "the query.",)  # fmt: skip
    amount = Link(f"{len(heads):,} of {count_text(known, 'head')}", "heads.html")
    verb = "is" if len(heads) == 1 else "are"
    start = f" {verb} key-driven: every query attends to the same few words."
    layer, found = most[0][0], same_keys(results)
    if len(most) == len(heads):
        where = f" {'It is' if len(heads) == 1 else 'All are'} in layer {layer}"
    else:
        where = f" {capital(number_word(len(most)))} are in layer {layer}"
    if found is None or found.layer != layer or not found.word_class:
        return amount, start, f"{where}."
    share = claim_number(
        whole_percent(found.share.value), SAME_KEYS, results.stack.name,
        class_key(found.word_class), layer=layer,
    )  # fmt: skip
    return amount, start, f"{where}, with ", share, f" of attention on {found.word_class}."


def stripes_matter(results: StackResults) -> Parts:
    """Return whether key-driven heads matter, by those replaced alone; empty without any."""
    ablation = results.study.corpus_sums.ablation
    heads = [HeadName(results.stack.name, *place) for place in striped_heads(results)]
    if ablation is None or not heads:
        return ()
    target = ablation_tests.ranked_target(ablation)
    effects = ablation_tests.head_effects(ablation, target, Replacement.MEAN)
    effects = effects[effects["verdict"] != ""]
    verdicts = {
        head: verdict
        for head, verdict in zip(head_names(effects), effects["verdict"], strict=True)
        if head in heads
    }
    if not verdicts:
        return ("Whether they matter is not known: none of them was replaced alone.",)
    changing = [head for head, verdict in verdicts.items() if verdict in CHANGES]
    tested, alone = number_word(len(verdicts)), "when replaced alone"
    if changing:
        amount = Link(f"{number_word(len(changing))} of {tested}", "importance.html#heads")
        layers = {head.layer for head in changing}
        where = f", all in layer {layers.pop()}" if len(changing) > 1 and len(layers) == 1 else ""
        verb = "changes" if len(changing) == 1 else "change"
        return "They are not useless: ", amount, f" {verb} the output {alone}{where}."
    amount = Link(tested, "importance.html#heads")
    if all(verdict == AblationVerdict.NO_CHANGE for verdict in verdicts.values()):
        return "Replaced alone, each of the ", amount, " can go; all together were not tested."
    end = " replaced alone, none surely changes the output."
    return "Whether they matter is not known: of ", amount, end
